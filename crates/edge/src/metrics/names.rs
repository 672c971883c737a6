//! The table of metrics: name, unit, labels and meaning. Instruments, `docs/metrics.md` and the test of the dashboards
//! use this table.

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricKind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution over buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// The definition of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// The name in OpenTelemetry.
    pub name: &'static str,
    /// The kind of the instrument.
    pub kind: MetricKind,
    /// The unit in UCUM notation. Empty for plain numbers.
    pub unit: &'static str,
    /// The label names. All labels have few values and never contain names of sessions, callers or tools.
    pub labels: &'static [&'static str],
    /// The meaning, as help text.
    pub help: &'static str,
}

impl Metric {
    /// Returns the name in Prometheus, with suffixes for the unit and for counters.
    pub fn prometheus_name(&self) -> String {
        let unit = match self.unit {
            "s" => "_seconds",
            "By" => "_bytes",
            _ => "",
        };
        let total = match self.kind {
            Counter => "_total",
            Gauge | Histogram(_) => "",
        };
        format!("{}{unit}{total}", self.name.replace('.', "_"))
    }
}

/// Bucket bounds for calls, in seconds: from cached reads to calls that wait for a model.
const CALLS: &[f64] = &[
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// Bucket bounds for disk syncs, in seconds: from a fast SSD to a failing disk.
const DISK: &[f64] = &[
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];
/// Bucket bounds for models and for compactions that wait for one, in seconds.
const MODELS: &[f64] = &[
    0.01, 0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0,
];
/// Bucket bounds for the number of changes per sync.
const GROUPS: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
];

macro_rules! metrics {
    ($($id:ident = $kind:expr, $name:literal, $unit:literal, [$($label:literal),*], $help:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub const $id: Metric = Metric {
                name: $name,
                kind: $kind,
                unit: $unit,
                labels: &[$($label),*],
                help: $help,
            };
        )*
        /// All of them, in the order in which they are documented.
        pub const ALL: &[Metric] = &[$($id),*];
    };
}

use MetricKind::{Counter, Gauge, Histogram};

metrics! {
    RPC_DURATION = Histogram(CALLS), "palimpsest.rpc.duration", "s", ["service", "method", "code"],
        "Duration of calls, up to the last byte of the response. Excludes watches, health and reflection.";
    RPC_ERRORS = Counter, "palimpsest.rpc.errors", "", ["method", "reason"],
        "Calls that were rejected or failed, by the ErrorReason in the response.";
    RPC_REQUEST_BYTES = Counter, "palimpsest.rpc.request", "By", ["method"],
        "Bytes of requests.";
    RPC_RESPONSE_BYTES = Counter, "palimpsest.rpc.response", "By", ["method"],
        "Bytes of responses.";
    PROJECT_CALLS = Counter, "palimpsest.project.calls", "", ["project", "outcome"],
        "Calls by project and outcome (ok or failed), and requests to the gateway. The first 100 projects have labels of their own, the others share the label other.";
    PROJECT_REQUEST_BYTES = Counter, "palimpsest.project.request", "By", ["project"],
        "Bytes of requests by project, also to the gateway.";
    PROJECT_RESPONSE_BYTES = Counter, "palimpsest.project.response", "By", ["project"],
        "Bytes of responses by project, also of the gateway.";
    RPC_IN_FLIGHT = Gauge, "palimpsest.rpc.in_flight", "", ["kind"],
        "Calls in flight, by kind: call, and watch for streams without an end.";
    RPC_IN_FLIGHT_MAX = Gauge, "palimpsest.rpc.in_flight_max", "", ["kind"],
        "Maximum of calls in flight, by kind. Further calls are rejected.";
    CONCURRENCY_LIMIT = Gauge, "palimpsest.rpc.concurrency_limit", "", [],
        "Maximum of concurrent changes. Adaptive limiting (grpc.max_slowdown_percent) sets it by the measured latency. Reads have a separate limit.";
    SHED = Counter, "palimpsest.rpc.shed", "", [],
        "Calls that were rejected because of a limit on calls, memory or latency, before they changed anything.";
    REQUEST_MEMORY = Gauge, "palimpsest.rpc.request_memory", "By", [],
        "Bytes of requests in memory.";
    REPLY_MEMORY = Gauge, "palimpsest.rpc.reply_memory", "By", [],
        "Bytes of responses in memory that callers have not received yet.";
    CONNECTIONS = Gauge, "palimpsest.connections", "", [],
        "Open connections of the gRPC port.";
    CONNECTIONS_CLOSED = Counter, "palimpsest.connections.closed", "", [],
        "Idle connections that were closed at the limit (grpc.max_connections) to admit new ones.";
    CONNECTIONS_REJECTED = Counter, "palimpsest.connections.rejected", "", [],
        "Connections that were rejected because the limit was reached.";
    AUTH_FAILURES = Counter, "palimpsest.auth.failures", "", [],
        "Calls without a valid credential.";
    FILES_STALE = Gauge, "palimpsest.auth.stale_files", "", [],
        "Key files, JWKS files and certificates whose new contents are invalid. The previous contents stay in force.";
    MUTATIONS = Gauge, "palimpsest.mutations.in_flight", "", [],
        "Calls in flight that change a session. A change continues if its caller disconnects.";
    READY = Gauge, "palimpsest.ready", "", [],
        "1 if calls can be served, otherwise 0.";
    PANICS = Counter, "palimpsest.panics", "", [],
        "Panics. Each one is a defect.";

    STORE_QUEUE = Gauge, "palimpsest.store.queue_depth", "", [],
        "Embedded store: changes that wait for the commit thread, which syncs many changes at once.";
    STORE_GROUP_SIZE = Histogram(GROUPS), "palimpsest.store.group_size", "", [],
        "Embedded store: changes that were committed by one sync.";
    STORE_SYNC = Histogram(DISK), "palimpsest.store.sync.duration", "s", [],
        "Embedded store: duration of one sync to disk, the minimum latency of a write.";
    STORE_COMMIT_WAIT = Histogram(DISK), "palimpsest.store.commit_wait.duration", "s", [],
        "Embedded store: time that changes waited for the commit thread.";
    STORE_COMMITS = Counter, "palimpsest.store.commits", "", [],
        "Changes that were committed.";
    STORE_WRITTEN = Counter, "palimpsest.store.written", "By", [],
        "Bytes of written keys and values, without blobs.";
    STORE_SIZE = Gauge, "palimpsest.store.size", "By", [],
        "Bytes of the files of the embedded store, without blobs.";
    STORE_CONNECTIONS = Gauge, "palimpsest.store.connections", "", [],
        "Open connections to PostgreSQL.";
    STORE_CONNECTIONS_IDLE = Gauge, "palimpsest.store.connections_idle", "", [],
        "Idle connections to PostgreSQL.";
    STORE_CONNECTIONS_MAX = Gauge, "palimpsest.store.connections_max", "", [],
        "Maximum of connections to PostgreSQL (store.postgres.connections).";
    STORE_CONNECTIONS_WAITING = Gauge, "palimpsest.store.connections_waiting", "", [],
        "Calls that wait for a connection to PostgreSQL.";
    DISK_FREE = Gauge, "palimpsest.disk.free", "By", [],
        "Free bytes on the disk of data_dir.";
    DISK_SIZE = Gauge, "palimpsest.disk.size", "By", [],
        "Bytes of the disk of data_dir.";

    SESSIONS_UNREADABLE = Gauge, "palimpsest.sessions.unreadable", "", [],
        "Sessions whose row in the store could not be read since the start. Lists and retention skip these sessions. A session whose row is read later is no longer counted.";
    SESSIONS_LOADED = Gauge, "palimpsest.sessions.loaded", "", [],
        "Sessions in memory.";
    CACHE_BYTES = Gauge, "palimpsest.session_cache.size", "By", [],
        "Bytes of sessions in memory, estimated.";
    CACHE_MAX_BYTES = Gauge, "palimpsest.session_cache.max_size", "By", [],
        "Bytes above which sessions are evicted from memory (sessions.cache_bytes).";
    CACHE_LOOKUPS = Counter, "palimpsest.session_cache.lookups", "", ["outcome"],
        "Lookups of a session in memory: hit or miss.";
    CACHE_EVICTIONS = Counter, "palimpsest.session_cache.evictions", "", [],
        "Sessions that were evicted from memory.";

    EVENTS = Counter, "palimpsest.events", "", ["event"],
        "Committed events, by kind. The kinds are those of EventKind, and internal ones.";
    LEVELS = Counter, "palimpsest.level.actions", "", ["level", "trigger", "mode"],
        "Actions of levels, by level, trigger (auto, manual, model, prompt_too_long) and mode. Levels and their modes: tool_results (stored), snip (removed), microcompact, which clears old results (cache_edits, or the rule of the policy: time, size or prune), collapse (collapsed), autocompact (the source of the summary, as in palimpsest_compactions_total).";
    TOKENS_FREED = Counter, "palimpsest.level.tokens_freed", "", ["level"],
        "Tokens that a level removed from views, by level as in palimpsest_level_actions_total.";
    VIEW_CHANGES = Counter, "palimpsest.view_changes", "", ["kind"],
        "View-changing events, by kind: content_snipped, results_cleared, spans_collapsed, compacted, restored, rewound, policy_changed. Each one can invalidate a part of a prompt cache.";
    PROMPT_TOKENS = Counter, "palimpsest.prompt.tokens", "", ["kind"],
        "Tokens of the model requests of callers, as their responses report them, by kind: cache_read, cache_write, uncached (all other input), output.";

    COMPACTIONS = Counter, "palimpsest.compactions", "", ["source", "outcome"],
        "Finished compactions, by source of the summary (session_memory, model, extractive, delegated, drop_oldest; none if failed) and outcome (done, or the reason of the failure: model_unavailable, prompt_too_long, empty, refused, truncated, incomplete, not_smaller, hook_vetoed, hook_failed, range_changed, expired, delegate_failed, input_unreadable).";
    COMPACTION_DURATION = Histogram(MODELS), "palimpsest.compaction.duration", "s", ["source"],
        "Duration of successful compactions, by source of the summary.";
    MEMORY_UPDATES_IN_PROGRESS = Gauge, "palimpsest.session_memory.updates_in_progress", "", [],
        "Sessions that a worker examines or updates now.";
    MEMORY_LAG = Gauge, "palimpsest.session_memory.lag", "s", [],
        "Time since the most overdue update of session memory became due. 0 if none is due.";
    MEMORY_UPDATES = Counter, "palimpsest.session_memory.updates", "", [],
        "Versions of session memory that were written.";
    MEMORY_UPDATE_FAILURES = Counter, "palimpsest.session_memory.update_failures", "", [],
        "Failed updates of session memory, and updates that were written without a model because the model failed.";
    MEMORY_FILE_FAILURES = Counter, "palimpsest.session_memory.file_failures", "", [],
        "Failed writes of summary.md.";
    MEMORY_EDITS = Counter, "palimpsest.session_memory.edits", "", [],
        "Edits of summary.md by a person that were read.";

    RETENTION_DELETED = Counter, "palimpsest.retention.deleted", "", ["reason"],
        "Sessions that retention deleted, by reason: age, or quota for the limits of the project.";
    RETENTION_SKIPPED = Counter, "palimpsest.retention.skipped", "", [],
        "Skipped deletions of retention: the session or one of its subagent sessions is on hold, in use, or not exported. Each pass counts the session again.";
    RETENTION_EXPORTS = Counter, "palimpsest.retention.exports", "", ["outcome"],
        "Exports before a deletion: done, failed, or incomplete because a stored result is lost.";
    RETENTION_PAUSED = Gauge, "palimpsest.retention.paused", "", [],
        "1 if retention by age is paused, otherwise 0. The clock is then ahead of the expected time by more than retention.max_clock_jump.";
    RETENTION_BLOCKED = Gauge, "palimpsest.retention.blocked_sessions", "", [],
        "Sessions due for deletion that are kept because one of their stored results is lost.";
    RETENTION_WOULD_DELETE = Gauge, "palimpsest.retention.would_delete", "", [],
        "Sessions that the last pass would have deleted without retention.dry_run.";
    SWEPT_FILES = Counter, "palimpsest.sweep.files", "", [],
        "Orphaned blobs that were removed.";
    SWEPT_BYTES = Counter, "palimpsest.sweep.removed", "By", [],
        "Bytes of removed orphaned blobs.";
    MAINTENANCE_PASSES = Counter, "palimpsest.maintenance.passes", "", ["task"],
        "Passes that this process started, by task: retention or sweep. A pass covers the whole store. One process at a time runs each task.";
    MAINTENANCE_FAILURES = Counter, "palimpsest.maintenance.failures", "", [],
        "Failures of retention, of sweeps, and of the removal of deleted sessions.";
    SESSIONS_DELETING = Gauge, "palimpsest.sessions.deleting", "", [],
        "Deleted sessions whose data is not completely removed.";

    PROVIDER_DURATION = Histogram(MODELS), "palimpsest.provider.request.duration", "s",
        ["endpoint", "purpose", "outcome"],
        "Duration of requests to a model, including retries, by endpoint (main or fallback), purpose (compaction, memory for session memory, or span for placeholders of level 4) and outcome (ok, or the kind of the error).";
    PROVIDER_TOKENS = Counter, "palimpsest.provider.tokens", "", ["endpoint", "kind"],
        "Tokens of requests to a model, by endpoint and kind: cache_read, cache_write, input (all other input), output.";
    BREAKER_OPEN = Gauge, "palimpsest.provider.breaker_open", "", ["endpoint"],
        "1 if the circuit breaker of an endpoint is open, otherwise 0. An open breaker rejects requests without sending them.";
    HOOK_DURATION = Histogram(MODELS), "palimpsest.hook.duration", "s", ["hook", "outcome"],
        "Duration of hook calls, by hook (pre_compact, post_compact, session_start) and outcome (continued, vetoed, failed).";

    GATEWAY_REQUESTS = Counter, "palimpsest.gateway.requests", "", ["api", "body"],
        "Requests with a conversation, by API (messages, chat or responses) and body that the provider got: original, view, unsendable if the view could not be sent, compaction if the gateway answered a request for a compaction itself, or unmanaged if no session took the conversation. For unsendable and unmanaged it got the original body.";
    GATEWAY_UNMANAGED = Counter, "palimpsest.gateway.unmanaged", "", ["reason"],
        "Requests whose conversation no session took, by reason: too_large, memory, encoding, unreadable, stateful, rejected, store, timeout or defect.";
    GATEWAY_PREPARE_DURATION = Histogram(DISK), "palimpsest.gateway.prepare.duration", "s", [],
        "The time from the head of a request with a conversation to the body for the provider. It includes the time in which the agent sends its body.";
    GATEWAY_EDITS = Counter, "palimpsest.gateway.edits", "", ["edit", "outcome"],
        "Edits of the context in requests that their sessions served in place of the provider, by edit (compact, clear_tool_uses or clear_thinking) and outcome: applied, or unchanged if the edit had no effect on the prompt.";
    GATEWAY_COMPRESSIONS = Counter, "palimpsest.gateway.compressions", "", ["outcome"],
        "Requests to /v1/compress, by outcome: original if no level acted, replaced if replacements stand in place of tool results, view if the messages are those of a session's view, unmanaged if no session took the messages, or rejected.";
    GATEWAY_COMPRESSION_TOKENS = Counter, "palimpsest.gateway.compression.tokens", "", ["kind"],
        "Estimated tokens of the messages of requests to /v1/compress, by kind: before or after the levels.";
    GATEWAY_COMPRESSION_DURATION = Histogram(DISK), "palimpsest.gateway.compression.duration", "s", [],
        "The time from the head of a request to /v1/compress to its answer. It includes the time in which the caller sends the body.";
    GATEWAY_RETRIEVALS = Counter, "palimpsest.gateway.retrievals", "", ["outcome"],
        "Requests to /v1/retrieve, by outcome: found, not_found or failed.";
    GATEWAY_RESPONSES = Counter, "palimpsest.gateway.responses", "", ["api", "outcome"],
        "Responses of models that the gateway forwarded, by API (messages, chat or responses) and outcome: complete, failed for an error of the provider, cut if the provider disconnected, cancelled if the agent disconnected, or unread.";
    GATEWAY_UNREAD = Counter, "palimpsest.gateway.unread", "", ["reason"],
        "Responses that the gateway forwarded and could not read, by reason: encoding, content_type, malformed, unknown_event, too_large, expansion, memory or panic.";
    GATEWAY_TOOL_CALLS = Counter, "palimpsest.gateway.tool_calls", "", ["outcome"],
        "Calls of the service's tools that the gateway ran for models, by outcome: ok, failed, or exhausted if the response had used up its calls.";
    GATEWAY_RECORD_FAILURES = Counter, "palimpsest.gateway.record_failures", "", [],
        "Responses of models that were read and could not be recorded in their session. The agent's next request contains them.";
    GATEWAY_IN_FLIGHT = Gauge, "palimpsest.gateway.in_flight", "", [],
        "Requests to the gateway in flight, from the head of the request to the end of the response.";
    GATEWAY_IN_FLIGHT_MAX = Gauge, "palimpsest.gateway.in_flight_max", "", [],
        "The maximum of requests in flight: gateway.max_streams. Further requests are rejected.";
    GATEWAY_TOKENS = Counter, "palimpsest.gateway.tokens", "", ["api", "kind"],
        "Tokens of the responses that the gateway read, as the provider reports them, by API and kind: cache_read, cache_write, uncached (all other input), output.";

    SPANS = Counter, "palimpsest.telemetry.spans", "", [],
        "Ended spans that are to be exported.";
    SPANS_EXPORTED = Counter, "palimpsest.telemetry.spans_exported", "", [],
        "Spans that the collector accepted.";
    SPANS_DROPPED = Counter, "palimpsest.telemetry.spans_dropped", "", ["reason"],
        "Lost spans: queue_full if the collector was slow or unreachable for long, or export_failed.";
    EXPORTS = Counter, "palimpsest.telemetry.exports", "", ["signal", "outcome"],
        "Exports to the collector, by signal (traces or metrics) and outcome (ok or failed).";

    BUILD = Gauge, "palimpsest.build_info", "", ["version"],
        "Always 1. The label contains the version.";
    UPTIME = Gauge, "palimpsest.uptime", "s", [],
        "Seconds since the start.";
    RUNTIME_WORKERS = Gauge, "palimpsest.runtime.workers", "", [],
        "Threads that run tasks.";
    RUNTIME_TASKS = Gauge, "palimpsest.runtime.tasks", "", [],
        "Tasks that have not ended.";
    RUNTIME_QUEUE = Gauge, "palimpsest.runtime.queue_depth", "", [],
        "Tasks that wait for a thread.";
    RUNTIME_BUSY = Counter, "palimpsest.runtime.busy", "s", [],
        "Busy time of all threads that run tasks. Its rate divided by palimpsest_runtime_workers is the utilization.";
    PROCESS_CPU = Counter, "process.cpu", "s", [],
        "CPU time of the process.";
    PROCESS_MEMORY = Gauge, "process.resident_memory", "By", [],
        "Resident memory of the process.";
    PROCESS_FDS = Gauge, "process.open_fds", "", [],
        "Open file handles.";
    PROCESS_MAX_FDS = Gauge, "process.max_fds", "", [],
        "Maximum of open file handles.";
    PROCESS_START = Gauge, "process.start_time", "s", [],
        "Start time of the process, in seconds since 1970.";
}
