//! The table of metrics: each one's name, unit, labels and meaning. Instruments, `docs/metrics.md` and the test
//! that reads dashboards all go by it.

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How values are distributed, over buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Its name in OpenTelemetry.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its unit, as UCUM writes it; empty for plain numbers.
    pub unit: &'static str,
    /// Its labels. Each has few values: none is ever a session's, a caller's or a tool's name.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

impl Metric {
    /// Its name in Prometheus, which says the unit and whether it is a counter.
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

/// From a call that is answered from memory to one that waits for a model.
const CALLS: &[f64] = &[
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// From a fast SSD to a disk in trouble.
const DISK: &[f64] = &[
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];
/// Of a model, or of a compaction that waits for one.
const MODELS: &[f64] = &[
    0.01, 0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0,
];
/// How many changes share a sync.
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

use Kind::{Counter, Gauge, Histogram};

metrics! {
    RPC_DURATION = Histogram(CALLS), "palimpsest.rpc.duration", "s", ["service", "method", "code"],
        "How long calls took, to the last byte of the answer. Watches, health and reflection are not in it.";
    RPC_ERRORS = Counter, "palimpsest.rpc.errors", "", ["method", "reason"],
        "Calls that were refused or failed, by the reason that their caller was told (ErrorReason).";
    RPC_REQUEST_BYTES = Counter, "palimpsest.rpc.request", "By", ["method"],
        "Bytes of requests.";
    RPC_RESPONSE_BYTES = Counter, "palimpsest.rpc.response", "By", ["method"],
        "Bytes of responses.";
    RPC_IN_FLIGHT = Gauge, "palimpsest.rpc.in_flight", "", ["kind"],
        "Calls that are being answered; of the kind watch, streams without an end.";
    RPC_IN_FLIGHT_MAX = Gauge, "palimpsest.rpc.in_flight_max", "", ["kind"],
        "How many there may be: one more is refused.";
    PACE_LIMIT = Gauge, "palimpsest.rpc.pace_limit", "", [],
        "Changes that may be worked on at one time, as the server has found out; reads have places of their own.";
    SHED = Counter, "palimpsest.rpc.shed", "", [],
        "Calls that were turned away because others would have become slower.";
    REQUEST_MEMORY = Gauge, "palimpsest.rpc.request_memory", "By", [],
        "Bytes of requests in memory.";
    REPLY_MEMORY = Gauge, "palimpsest.rpc.reply_memory", "By", [],
        "Bytes of replies in memory that callers have not taken yet.";
    CONNECTIONS = Gauge, "palimpsest.connections", "", [],
        "Open connections of the gRPC port.";
    CONNECTIONS_CLOSED = Counter, "palimpsest.connections.closed", "", [],
        "Unused connections that were closed to make a place for others.";
    CONNECTIONS_REFUSED = Counter, "palimpsest.connections.refused", "", [],
        "Connections that found no place.";
    AUTH_REFUSED = Counter, "palimpsest.auth.refused", "", [],
        "Calls without a credential that is taken.";
    FILES_STALE = Gauge, "palimpsest.auth.stale_files", "", [],
        "Files of keys, of issuers' keys and of certificates that hold something which cannot be used: what they held before is in force.";
    MUTATIONS = Gauge, "palimpsest.mutations.in_flight", "", [],
        "Changes under way, which go on whether or not their caller waits.";
    READY = Gauge, "palimpsest.ready", "", [],
        "1 while calls can be served.";
    PANICS = Counter, "palimpsest.panics", "", [],
        "Panics of the code. Each is a defect.";

    STORE_QUEUE = Gauge, "palimpsest.store.queue_depth", "", [],
        "Changes that wait for the commit thread.";
    STORE_GROUP_SIZE = Histogram(GROUPS), "palimpsest.store.group_size", "", [],
        "How many changes were made durable by one sync.";
    STORE_SYNC = Histogram(DISK), "palimpsest.store.sync.duration", "s", [],
        "How long one sync of the store took: the floor of every write's latency.";
    STORE_WAIT = Histogram(DISK), "palimpsest.store.wait.duration", "s", [],
        "How long changes waited for the commit thread.";
    STORE_COMMITS = Counter, "palimpsest.store.commits", "", [],
        "Changes that were made durable.";
    STORE_WRITTEN = Counter, "palimpsest.store.written", "By", [],
        "Bytes of keys and values that were written.";
    STORE_SIZE = Gauge, "palimpsest.store.size", "By", [],
        "Bytes of the embedded store's files, without blobs.";
    STORE_CONNECTIONS = Gauge, "palimpsest.store.connections", "", [],
        "Connections to the shared store that are open.";
    STORE_CONNECTIONS_IDLE = Gauge, "palimpsest.store.connections_idle", "", [],
        "Those of them that nobody uses now.";
    STORE_CONNECTIONS_MAX = Gauge, "palimpsest.store.connections_max", "", [],
        "How many there may be (store.postgres.connections).";
    STORE_WAITING = Gauge, "palimpsest.store.waiting", "", [],
        "Calls that wait for one of these connections.";
    DISK_FREE = Gauge, "palimpsest.disk.free", "By", [],
        "Bytes that are free on the disk of data_dir.";
    DISK_SIZE = Gauge, "palimpsest.disk.size", "By", [],
        "Bytes of that disk.";

    SESSIONS_UNREADABLE = Gauge, "palimpsest.sessions.unreadable", "", [],
        "Sessions whose row in the store cannot be read, as far as lists have met them: lists and retention pass over them.";
    SESSIONS_LOADED = Gauge, "palimpsest.sessions.loaded", "", [],
        "Sessions in memory.";
    CACHE_BYTES = Gauge, "palimpsest.session_cache.size", "By", [],
        "Bytes of sessions in memory, roughly.";
    CACHE_MAX_BYTES = Gauge, "palimpsest.session_cache.max_size", "By", [],
        "Bytes after which sessions leave memory (sessions.cache_bytes).";
    CACHE_LOOKUPS = Counter, "palimpsest.session_cache.lookups", "", ["outcome"],
        "Looks for a session in memory: hit or miss.";
    CACHE_EVICTIONS = Counter, "palimpsest.session_cache.evictions", "", [],
        "Sessions that left memory to make room.";

    EVENTS = Counter, "palimpsest.events", "", ["event"],
        "Events that were committed, by their kind.";
    LEVELS = Counter, "palimpsest.level.actions", "", ["level", "asked", "how"],
        "Times that a level acted: which, who asked (auto, manual, model, provider), and in which way.";
    TOKENS_FREED = Counter, "palimpsest.level.tokens_freed", "", ["level"],
        "Tokens that a level took out of views.";
    VIEW_CHANGES = Counter, "palimpsest.view_changes", "", ["kind"],
        "Changes of what a view had served before, after which a prompt cache does not know its end.";
    PROMPT_TOKENS = Counter, "palimpsest.prompt.tokens", "", ["kind"],
        "Tokens of the callers' own model requests, as their responses report them: cache_read, cache_write, uncached, output.";

    COMPACTIONS = Counter, "palimpsest.compactions", "", ["source", "outcome"],
        "Compactions that ended: by the source of their summary and how; without a summary the source is none.";
    COMPACTION_DURATION = Histogram(MODELS), "palimpsest.compaction.duration", "s", ["source"],
        "How long compactions took that gave a summary.";
    SUMMARIES_IN_WORK = Gauge, "palimpsest.summaries.in_work", "", [],
        "Sessions whose running summaries are looked at.";
    SUMMARY_LAG = Gauge, "palimpsest.summaries.lag", "s", [],
        "How long the oldest running summary is due.";
    SUMMARY_UPDATES = Counter, "palimpsest.summaries.updates", "", [],
        "Versions of running summaries that were written.";
    SUMMARY_FAILURES = Counter, "palimpsest.summaries.failures", "", [],
        "Updates that came to nothing, and models that did not write one.";
    SUMMARY_FILE_FAILURES = Counter, "palimpsest.summaries.file_failures", "", [],
        "Times that a summary.md could not be written.";
    SUMMARY_EDITS = Counter, "palimpsest.summaries.edits", "", [],
        "Summaries edited by hand that were taken in.";

    RETENTION_DELETED = Counter, "palimpsest.retention.deleted", "", ["reason"],
        "Sessions that retention has deleted: for their age, or for their project's quota.";
    RETENTION_SPARED = Counter, "palimpsest.retention.spared", "", [],
        "Times that retention left a session alone whose time was over: on hold, in use, or not exported.";
    RETENTION_EXPORTS = Counter, "palimpsest.retention.exports", "", ["outcome"],
        "Transcripts that were exported before their deletion: done, failed, or incomplete, because a stored result is lost.";
    RETENTION_PAUSED = Gauge, "palimpsest.retention.paused", "", [],
        "1 while retention by age waits, because the clock is further ahead than the log explains.";
    RETENTION_INCOMPLETE = Gauge, "palimpsest.retention.incomplete", "", [],
        "Sessions whose retention is over and that are kept, because a stored result of theirs is lost.";
    RETENTION_WOULD_DELETE = Gauge, "palimpsest.retention.would_delete", "", [],
        "Sessions that the last pass would have deleted without retention.dry_run.";
    SWEPT_FILES = Counter, "palimpsest.sweep.files", "", [],
        "Files that no event named and that were removed.";
    SWEPT_BYTES = Counter, "palimpsest.sweep.removed", "By", [],
        "Their bytes.";
    UPKEEP_PASSES = Counter, "palimpsest.upkeep.passes", "", ["duty"],
        "Passes through all sessions that this process began, of retention or of sweeping: one process does it for all.";
    UPKEEP_FAILURES = Counter, "palimpsest.upkeep.failures", "", [],
        "Passes of retention, deletion and sweeping that ended in an error.";
    SESSIONS_REMOVING = Gauge, "palimpsest.sessions.removing", "", [],
        "Deleted sessions of which something is left.";

    PROVIDER_DURATION = Histogram(MODELS), "palimpsest.provider.request.duration", "s",
        ["endpoint", "purpose", "outcome"],
        "How long requests to a model took with their retries: of the main or the fallback endpoint, for what, and how they ended.";
    PROVIDER_TOKENS = Counter, "palimpsest.provider.tokens", "", ["endpoint", "kind"],
        "Tokens of these requests: input, output, cache_read, cache_write.";
    BREAKER_OPEN = Gauge, "palimpsest.provider.breaker_open", "", ["endpoint"],
        "1 while an endpoint is given a rest because it failed too often.";
    HOOK_DURATION = Histogram(MODELS), "palimpsest.hook.duration", "s", ["hook", "outcome"],
        "How long calls of hooks took: continued, vetoed or failed.";

    SPANS = Counter, "palimpsest.telemetry.spans", "", [],
        "Spans that ended and are to be exported.";
    SPANS_EXPORTED = Counter, "palimpsest.telemetry.spans_exported", "", [],
        "Those of them that the collector took.";
    SPANS_DROPPED = Counter, "palimpsest.telemetry.spans_dropped", "", ["reason"],
        "Those that are lost: queue_full, because the collector was slow or away for long, or export_failed.";
    EXPORTS = Counter, "palimpsest.telemetry.exports", "", ["signal", "outcome"],
        "Exports to the collector: of traces or metrics, ok or failed.";

    BUILD = Gauge, "palimpsest.build_info", "", ["version"],
        "Always 1; the label says what runs.";
    UPTIME = Gauge, "palimpsest.uptime", "s", [],
        "Seconds since the start.";
    RUNTIME_WORKERS = Gauge, "palimpsest.runtime.workers", "", [],
        "Threads that run tasks.";
    RUNTIME_TASKS = Gauge, "palimpsest.runtime.tasks", "", [],
        "Tasks that are alive.";
    RUNTIME_QUEUE = Gauge, "palimpsest.runtime.queue_depth", "", [],
        "Tasks that wait for a thread.";
    RUNTIME_BUSY = Counter, "palimpsest.runtime.busy", "s", [],
        "Time that these threads worked; divided by their number, how busy they are.";
    PROCESS_CPU = Counter, "process.cpu", "s", [],
        "Processor time of the process.";
    PROCESS_MEMORY = Gauge, "process.resident_memory", "By", [],
        "Resident memory of the process.";
    PROCESS_FDS = Gauge, "process.open_fds", "", [],
        "File handles that are open.";
    PROCESS_MAX_FDS = Gauge, "process.max_fds", "", [],
        "File handles that may be open.";
    PROCESS_START = Gauge, "process.start_time", "s", [],
        "When the process started, in seconds since 1970.";
}
