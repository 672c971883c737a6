//! The table of settings with their keys, descriptions and ranges. Files, variables, flags and `palimpsest config`
//! use the table. The module `policy` contains the settings of policies.

use serde_json::Value as Json;

use crate::Config;
use crate::source::VARIABLE_PREFIX;
use crate::value::{RawValue, SettingValue, schema_of};

pub(crate) struct Setting {
    /// The key, as in a file.
    pub(crate) key: &'static str,
    pub(crate) doc: &'static str,
    /// Parses a value into a configuration.
    pub(crate) set: fn(&mut Config, &RawValue) -> Result<(), String>,
    /// Formats the value as TOML, or returns `None` without a value.
    pub(crate) toml: fn(&Config) -> Option<String>,
    /// Returns the JSON schema of the value in a file.
    pub(crate) schema: fn() -> Json,
}

impl Setting {
    /// Returns the environment variable that sets this setting.
    pub(crate) fn variable(&self) -> String {
        let name = self.key.replace('.', "_").to_uppercase();
        format!("{VARIABLE_PREFIX}{name}")
    }
}

/// Maximum of limits and caches in bytes: above any sensible value and far below an overflow.
const MAX_BYTES: u64 = 1 << 40;
/// Maximum of settings that count items.
const MAX_RATE: u64 = 1_000_000_000;
/// One hour in milliseconds.
const HOUR_MS: u64 = 3_600_000;

macro_rules! settings {
    ($($key:literal => $($field:ident).+ $(in $range:expr)?, $doc:literal;)*) => {
        /// All settings. Settings of a section are consecutive, and settings without a section are first.
        pub(crate) const SETTINGS: &[Setting] = &[$(Setting {
            key: $key,
            doc: $doc,
            set: |config, raw| {
                // Without a range, only `None` remains of this expression.
                let range = None$(.or(Some($range)))?;
                config.$($field).+ = SettingValue::read(raw, range)?;
                Ok(())
            },
            toml: |config| config.$($field).+.toml(),
            schema: || schema_of(|config: &Config| &config.$($field).+, None$(.or(Some($range)))?),
        }),*];
    };
}

settings! {
    "role" => role,
        "all, or, where several processes share a store, server (answers calls) or worker (updates session memory, runs maintenance).";
    "listen" => listen,
        "The listen address of the gRPC services.";
    "insecure_listen_anywhere" => insecure_listen_anywhere,
        "Allows an address that other machines can reach without authentication.";
    "data_dir" => data_dir,
        "The directory of the embedded store.";
    "admin.listen" => admin.listen,
        "The listen address of the admin port: metrics and health over HTTP.";
    "admin.listen_anywhere" => admin.listen_anywhere,
        "Allows an admin port that other machines can reach. The port has no authentication and shows no message content.";
    "auth.keys_file" => auth.keys_file,
        "The file of API keys that `palimpsest keys` writes. This setting or auth.jwt.jwks_file turns authentication on.";
    "auth.reload_ms" => auth.reload_ms in 100..=HOUR_MS,
        "The interval at which files of keys and certificates are checked for changes. Changes apply without a restart.";
    "auth.public_reflection" => auth.public_reflection,
        "Allows reflection without a credential.";
    "auth.allow_plaintext" => auth.allow_plaintext,
        "Allows credentials without TLS on an address that other machines can reach, for example behind a TLS proxy.";
    "auth.jwt.jwks_file" => auth.jwt.jwks_file,
        "The file of public keys (a JWKS) of accepted tokens.";
    "auth.jwt.issuer" => auth.jwt.issuer,
        "The issuer of accepted tokens: their iss.";
    "auth.jwt.audience" => auth.jwt.audience,
        "The audience of accepted tokens: one of their aud.";
    "auth.jwt.clock_skew_s" => auth.jwt.clock_skew_s in 0..=600,
        "The accepted difference between the clocks of the issuer and this machine, in seconds.";
    "auth.jwt.projects_claim" => auth.jwt.projects_claim,
        "The claim with the projects, or a JSON pointer to it: an array, or names separated by blanks. * means all projects.";
    "auth.jwt.rights_claim" => auth.jwt.rights_claim,
        "The claim with the rights (read, write, compact, admin, each with or without the prefix palimpsest:), or a JSON pointer to it.";
    "tls.cert_file" => tls.cert_file,
        "The certificate chain of the server, as PEM. With it, the services accept TLS only.";
    "tls.key_file" => tls.key_file,
        "The private key of the certificate, as PEM.";
    "tls.client_ca_file" => tls.client_ca_file,
        "The authorities of client certificates, as PEM. With it, callers must present a certificate signed by one of them.";
    "tls.handshake_timeout_ms" => tls.handshake_timeout_ms in 100..=60_000,
        "The time limit of a TLS handshake.";
    "tls.max_handshakes" => tls.max_handshakes in 1..=100_000,
        "The maximum number of concurrent TLS handshakes. One more ends the oldest.";
    "blobs.url" => blobs.url,
        "The store of tool results and summaries. Default: a directory in data_dir.";
    "log.format" => log.format,
        "auto (pretty on a terminal, else JSON), pretty or json.";
    "log.level" => log.level,
        "error, warn, info, debug or trace (libraries: at most info), or levels by module, such as debug,sled=debug.";
    "audit.file" => audit.file,
        "The file to which the audit log is appended: one JSON object for each call that changes or deletes something. - is standard output. Default: no audit log.";
    "otlp.endpoint" => otlp.endpoint,
        "The OTLP collector that receives spans and metrics. Default: none. /metrics is always available.";
    "otlp.protocol" => otlp.protocol,
        "grpc or http/protobuf.";
    "otlp.headers_env" => otlp.headers_env,
        "The variable with headers for the collector, such as its key: name=value,name=value.";
    "otlp.headers_file" => otlp.headers_file,
        "The file with these headers.";
    "otlp.ca_file" => otlp.ca_file,
        "The authority of the collector's certificate, as PEM. Default: the authorities of the system.";
    "otlp.client_cert_file" => otlp.client_cert_file,
        "The client certificate for the collector, as PEM.";
    "otlp.client_key_file" => otlp.client_key_file,
        "The private key of this certificate.";
    "otlp.sample_ratio" => otlp.sample_ratio,
        "The share of calls without a trace that are traced, from 0 to 1. The sampling decision of a caller's trace is respected.";
    "otlp.timeout_ms" => otlp.timeout_ms in 100..=60_000,
        "The time limit of one export, and of the last export at shutdown.";
    "otlp.metrics_every_ms" => otlp.metrics_every_ms in 100..=HOUR_MS,
        "The interval of metric exports.";
    "otlp.service_name" => otlp.service_name,
        "The service.name of spans and metrics.";
    "otlp.resource_attributes" => otlp.resource_attributes,
        "Additional resource attributes of spans and metrics: name=value,name=value.";
    "limits.max_request_bytes" => limits.max_request_bytes in 1_024..=(1 << 31),
        "The maximum bytes of one call.";
    "limits.max_message_bytes" => limits.max_message_bytes in 1_024..=(1 << 31),
        "The maximum bytes of the content of one message.";
    "limits.max_messages" => limits.max_messages in 1..=1_000_000,
        "The maximum messages of one call.";
    "limits.max_blocks" => limits.max_blocks in 1..=1_000_000,
        "The maximum blocks of one message.";
    "limits.max_id_bytes" => limits.max_id_bytes in 16..=4_096,
        "The maximum bytes of the id of a tool call, a provider's message id, and the name of a model or a tool.";
    "limits.max_attributes" => limits.max_attributes in 0..=10_000,
        "The maximum attributes of one message or session.";
    "limits.max_attribute_bytes" => limits.max_attribute_bytes in 1..=(1 << 20),
        "The maximum bytes of one attribute, name and value together.";
    "limits.max_request_id_bytes" => limits.max_request_id_bytes in 16..=4_096,
        "The maximum bytes of a request id.";
    "limits.max_title_bytes" => limits.max_title_bytes in 16..=(1 << 20),
        "The maximum bytes of a title.";
    "limits.max_pattern_chars" => limits.max_pattern_chars in 16..=(1 << 16),
        "The maximum characters of a search pattern.";
    "limits.max_reply_bytes" => limits.max_reply_bytes in 1_024..=(1 << 31),
        "The maximum bytes of the view in one reply. A longer view is sent in chunks. Clients accept 4 MiB by default.";
    "limits.max_page_size" => limits.max_page_size in 1..=100_000,
        "The maximum items of one page.";
    "quotas.requests_per_second" => quotas.project.requests_per_second in 0..=MAX_RATE,
        "The sustained rate of calls of a project. 0 means no limit, here and below.";
    "quotas.request_burst" => quotas.project.request_burst in 0..=MAX_RATE,
        "The calls that a project can make at once after a pause. 0 means the calls of one second.";
    "quotas.concurrent_requests" => quotas.project.concurrent_requests in 0..=1_000_000,
        "The maximum concurrent calls of a project.";
    "quotas.watches" => quotas.project.watches in 0..=1_000_000,
        "The maximum concurrent watches of a project.";
    "quotas.bytes_per_second" => quotas.project.bytes_per_second in 0..=MAX_BYTES,
        "The sustained rate of request bytes of a project. A larger request is accepted and delays later ones.";
    "quotas.byte_burst" => quotas.project.byte_burst in 0..=MAX_BYTES,
        "The bytes that a project can send at once after a pause. 0 means the bytes of one second.";
    "quotas.sessions" => quotas.project.sessions in 0..=MAX_RATE,
        "The maximum sessions of a project.";
    "quotas.stored_bytes" => quotas.project.stored_bytes in 0..=(1 << 50),
        "The maximum stored bytes of a project's sessions: logs, snapshots and results.";
    "quotas.server.requests_per_second" => quotas.server.requests_per_second in 0..=MAX_RATE,
        "The sustained rate of calls of all projects together.";
    "quotas.server.request_burst" => quotas.server.request_burst in 0..=MAX_RATE,
        "The calls of all projects at once after a pause.";
    "quotas.server.bytes_per_second" => quotas.server.bytes_per_second in 0..=MAX_BYTES,
        "The sustained rate of request bytes of all projects.";
    "quotas.server.byte_burst" => quotas.server.byte_burst in 0..=MAX_BYTES,
        "The bytes of all projects at once after a pause.";
    "quotas.server.sessions" => quotas.server.sessions in 0..=MAX_RATE,
        "The maximum sessions of all projects.";
    "quotas.server.stored_bytes" => quotas.server.stored_bytes in 0..=(1 << 50),
        "The maximum stored bytes of all sessions.";
    "sessions.cache_bytes" => sessions.cache_bytes in 0..=MAX_BYTES,
        "The bytes of the session cache in memory.";
    "grpc.max_concurrent_requests" => grpc.max_concurrent_requests in 1..=1_000_000,
        "The maximum concurrent calls. More calls are rejected with RESOURCE_EXHAUSTED.";
    "grpc.max_slowdown_percent" => grpc.max_slowdown_percent in 110..=10_000,
        "The latency of calls, in percent of the latency under low load, above which fewer calls run concurrently. 10000 turns adaptive limiting off.";
    "grpc.max_connections" => grpc.max_connections in 1..=1_000_000,
        "The maximum connections, as far as the limit of file handles allows. At the maximum, an unused connection is evicted for a new one.";
    "grpc.max_request_bytes_in_flight" => grpc.max_request_bytes_in_flight in (1 << 20)..=MAX_BYTES,
        "The maximum bytes of requests in memory. More are rejected with RESOURCE_EXHAUSTED.";
    "grpc.max_reply_bytes_in_flight" => grpc.max_reply_bytes_in_flight in (1 << 20)..=MAX_BYTES,
        "The maximum bytes of replies in memory that callers have not read. More are rejected with RESOURCE_EXHAUSTED.";
    "grpc.stall_timeout_ms" => grpc.stall_timeout_ms in 100..=HOUR_MS,
        "The maximum time without progress of a request body or a reply. The call then ends.";
    "grpc.body_timeout_ms" => grpc.body_timeout_ms in 100..=HOUR_MS,
        "The time limit of a complete request body, independent of the caller's deadline.";
    "grpc.first_call_timeout_ms" => grpc.first_call_timeout_ms in 100..=HOUR_MS,
        "The maximum idle time of a connection without an accepted call. With authentication, health and reflection do not count.";
    "grpc.max_watches" => grpc.max_watches in 0..=1_000_000,
        "The maximum concurrent watches of sessions.";
    "grpc.max_health_watches" => grpc.max_health_watches in 0..=1_000_000,
        "The maximum concurrent health watches and reflection streams.";
    "grpc.max_streams_per_connection" => grpc.max_streams_per_connection in 1..=1_000_000,
        "The maximum concurrent calls of one connection.";
    "grpc.request_timeout_ms" => grpc.request_timeout_ms in 1..=HOUR_MS,
        "The deadline of a call whose caller sets none.";
    "grpc.max_request_timeout_ms" => grpc.max_request_timeout_ms in 1..=HOUR_MS,
        "The maximum deadline of a call.";
    "grpc.max_connection_age_ms" => grpc.max_connection_age_ms in 1_000..=(24 * HOUR_MS),
        "The age at which the server asks a client to close its connection, so that load spreads over new replicas.";
    "grpc.max_connection_age_grace_ms" => grpc.max_connection_age_grace_ms in 0..=HOUR_MS,
        "The additional time after which the connection is closed, even with calls in flight.";
    "grpc.keepalive_ms" => grpc.keepalive_ms in 1_000..=HOUR_MS,
        "The interval of pings on a silent connection.";
    "grpc.keepalive_timeout_ms" => grpc.keepalive_timeout_ms in 100..=HOUR_MS,
        "The time limit of the response to a ping.";
    "http.enabled" => http.enabled,
        "Serves REST with JSON, Connect and gRPC-Web on the port of gRPC.";
    "http.inspector" => http.inspector,
        "Whether the inspector is served on the same port, below /inspector: pages that show sessions, requests and events. Needs http.enabled.";
    "http.allowed_origins" => http.allowed_origins,
        "The origins of the web pages that may use the API, separated by commas. Default: only pages of the server's own origin.";
    "mcp.enabled" => mcp.enabled,
        "Serves the Model Context Protocol at /mcp, for agents that read sessions back. Requires http.enabled.";
    "mcp.allow_snip" => mcp.allow_snip,
        "Offers the tool Snip to MCP clients over HTTP. Its caller needs the right compact.";
    "gateway.enabled" => gateway.enabled,
        "Opens an HTTP port that manages the conversations of agents and forwards their requests to model providers. Not in the role worker.";
    "gateway.listen" => gateway.listen,
        "The listen address of the gateway.";
    "gateway.listen_anywhere" => gateway.listen_anywhere,
        "Allows a gateway that other machines can reach. The port has no TLS.";
    "gateway.manage" => gateway.manage,
        "Lets sessions take the conversations of requests. false only forwards requests.";
    "gateway.require_session" => gateway.require_session,
        "Rejects a request whose conversation no session takes. false forwards it as the agent sent it.";
    "gateway.max_connections" => gateway.max_connections in 1..=1_000_000,
        "The maximum number of open connections. Above it, one without a request in flight is closed.";
    "gateway.max_streams" => gateway.max_streams in 1..=1_000_000,
        "The maximum number of requests in flight. Further requests are rejected with 503.";
    "gateway.idle_timeout_ms" => gateway.idle_timeout_ms in 1_000..=HOUR_MS,
        "The maximum time that a connection waits for the head of a request.";
    "gateway.stall_timeout_ms" => gateway.stall_timeout_ms in 100..=HOUR_MS,
        "The maximum time without progress in the body of a request.";
    "gateway.connect_timeout_ms" => gateway.connect_timeout_ms in 100..=HOUR_MS,
        "The time limit of connecting to an upstream, TLS included.";
    "gateway.prepare_timeout_ms" => gateway.prepare_timeout_ms in 10..=HOUR_MS,
        "The maximum time that a request waits for its session. A later one is forwarded unmanaged.";
    "gateway.max_request_bytes" => gateway.max_request_bytes in 1_024..=(1 << 30),
        "The maximum body of a request that a session takes. A larger one is forwarded unmanaged.";
    "gateway.max_request_bytes_in_flight" => gateway.max_request_bytes_in_flight in (1 << 20)..=(64 << 30),
        "The maximum bodies of all requests that sessions take. Above it, requests are forwarded unmanaged.";
    "gateway.max_response_bytes" => gateway.max_response_bytes in 1..=(1 << 30),
        "The maximum content of one response that is read. A larger one is forwarded unread.";
    "gateway.max_response_bytes_in_flight" => gateway.max_response_bytes_in_flight in (1 << 20)..=(64 << 30),
        "The maximum content of all responses that are read. Above it, responses are forwarded unread.";
    "gateway.hold_timeout_ms" => gateway.hold_timeout_ms in 0..=60_000,
        "The maximum time that the last event of a response waits for its record.";
    "gateway.upstreams.anthropic.base_url" => gateway.upstreams.anthropic.base_url,
        "The URL in front of the paths of requests for the Anthropic API.";
    "gateway.upstreams.anthropic.api_key_env" => gateway.upstreams.anthropic.api_key_env,
        "The variable with the API key that the gateway holds. Callers then send no key of the provider. Default: none.";
    "gateway.upstreams.anthropic.api_key_file" => gateway.upstreams.anthropic.api_key_file,
        "The file with this API key. It is read for every request.";
    "gateway.upstreams.anthropic.compaction" => gateway.upstreams.anthropic.compaction,
        "The place in which context_management of a request is served: forwarded to the upstream, or served by the session.";
    "gateway.upstreams.openai.base_url" => gateway.upstreams.openai.base_url,
        "The URL in front of the paths of requests for the OpenAI API.";
    "gateway.upstreams.openai.api_key_env" => gateway.upstreams.openai.api_key_env,
        "The variable with the API key that the gateway holds. Callers then send no key of the provider. Default: none.";
    "gateway.upstreams.openai.api_key_file" => gateway.upstreams.openai.api_key_file,
        "The file with this API key. It is read for every request.";
    "gateway.upstreams.openai.compaction" => gateway.upstreams.openai.compaction,
        "The requests for a compaction: forwarded to the upstream, or served from the levels of the session.";
    "shutdown.drain_ms" => shutdown.drain_ms in 0..=HOUR_MS,
        "The time for calls in flight to finish at shutdown.";
    "store.cache_bytes" => store.cache_bytes in (1 << 20)..=MAX_BYTES,
        "The bytes of the store's page cache.";
    "store.flush_every_ms" => store.flush_every_ms in 10..=10_000,
        "The interval at which the store flushes writes without a waiting caller and collects garbage.";
    "store.canary_every_ms" => store.canary_every_ms in 100..=HOUR_MS,
        "The interval of the canary write that determines readiness.";
    "store.min_free_bytes" => store.min_free_bytes in 0..=MAX_BYTES,
        "The minimum free bytes on the store's disk. Below it, writes are rejected and reads continue.";
    "store.postgres.url" => store.postgres.url,
        "The PostgreSQL database that servers and workers share. Default: none; sessions are stored in data_dir.";
    "store.postgres.password_env" => store.postgres.password_env,
        "The variable with the password of the database.";
    "store.postgres.password_file" => store.postgres.password_file,
        "The file with the password of the database.";
    "store.postgres.schema" => store.postgres.schema,
        "The schema of the tables. Default: palimpsest.";
    "store.postgres.ca_file" => store.postgres.ca_file,
        "The authority of the database's certificate, as PEM. Default: the authorities of the system.";
    "store.postgres.client_cert_file" => store.postgres.client_cert_file,
        "The client certificate for the database, as PEM.";
    "store.postgres.client_key_file" => store.postgres.client_key_file,
        "The private key of this certificate.";
    "store.postgres.connections" => store.postgres.connections in 2..=1_000,
        "The connections of this process to the database. All processes together need fewer than its max_connections.";
    "store.postgres.pool_timeout_ms" => store.postgres.pool_timeout_ms in 10..=60_000,
        "The maximum wait of a call for a connection. The call is then rejected.";
    "store.postgres.connect_timeout_ms" => store.postgres.connect_timeout_ms in 100..=60_000,
        "The time limit of connecting to one host of the database.";
    "store.postgres.statement_timeout_ms" => store.postgres.statement_timeout_ms in 100..=HOUR_MS,
        "The time limit of one statement.";
    "store.postgres.retry_timeout_ms" => store.postgres.retry_timeout_ms in 0..=60_000,
        "The time for which a call retries while the database is unreachable, for example during a failover.";
    "store.postgres.notify" => store.postgres.notify,
        "Notifies other processes of changes. Without it, watchers read changes of other processes once a second.";
    "store.postgres.auto_migrate" => store.postgres.auto_migrate,
        "Creates and upgrades tables at startup. Without it, run `palimpsest schema apply`.";
    "worker.enabled" => worker.enabled,
        "Updates session memory in serve. Without it, run palimpsest worker.";
    "worker.concurrency" => worker.concurrency in 1..=256,
        "The sessions that are updated concurrently.";
    "worker.poll_ms" => worker.poll_ms in 10..=HOUR_MS,
        "The interval at which an idle worker polls the work queue.";
    // One hour is `LONGEST_LEASE_MS` of the store, which ignores longer leases.
    "worker.lease_ms" => worker.lease_ms in 500..=HOUR_MS,
        "The duration of a lease on a session. After the death of a worker, another one continues when the lease expires.";
    "worker.max_backoff_ms" => worker.max_backoff_ms in 100..=(24 * HOUR_MS),
        "The maximum delay before a failed update is retried.";
    "worker.edit_debounce_ms" => worker.edit_debounce_ms in 0..=60_000,
        "The time after an edit of summary.md before the file is read.";
    "worker.shutdown_grace_ms" => worker.shutdown_grace_ms in 0..=HOUR_MS,
        "The time for running updates to finish at shutdown.";
    "retention.max_age" => retention.limits.max_age,
        "The time without changes after which a session is deleted, such as \"90d\", or never.";
    "retention.max_sessions" => retention.limits.max_sessions,
        "The maximum sessions of one project. Above it, the least recently changed are deleted. 0 means no limit.";
    "retention.max_bytes" => retention.limits.max_bytes,
        "The maximum stored bytes of one project. Above it, the least recently changed sessions are deleted. 0 means no limit.";
    "retention.export_url" => retention.export_url,
        "The target to which a transcript is exported before its session is deleted. A session whose export fails is kept.";
    "retention.subagents_separately" => retention.subagents_separately,
        "Deletes the session of a subagent by its own age instead of with its parent.";
    "retention.max_clock_jump" => retention.max_clock_jump,
        "The maximum lead of the clock over the newest event plus the elapsed time, such as \"14d\", or never. Above it, retention by age pauses.";
    "retention.clock_trusted_until" => retention.clock_trusted_until,
        "The day until which the clock is trusted, such as \"2027-01-31\". Retention by age does not pause before it. Default: the log decides.";
    "retention.max_percent_per_pass" => retention.max_percent_per_pass in 1..=100,
        "The share of a project's sessions that one pass can delete by age, and at least 10 sessions. Quotas are not limited.";
    "retention.dry_run" => retention.dry_run,
        "Only logs and counts the sessions that retention would delete. `palimpsest retention` lists them.";
    "retention.every_ms" => retention.every_ms in 100..=(24 * HOUR_MS),
        "The interval of retention passes.";
    "retention.duty_cycle_percent" => retention.duty_cycle_percent in 1..=100,
        "The share of time in which retention and sweeps work. The rest is for calls.";
    "sweep.enabled" => sweep.enabled,
        "Removes orphaned blobs: files with an intent that no event references, for example after a crash.";
    "sweep.every_ms" => sweep.every_ms in 100..=(30 * 24 * HOUR_MS),
        "The interval of sweeps.";
    "sweep.min_age_ms" => sweep.min_age_ms in (24 * HOUR_MS)..=(3_650 * 24 * HOUR_MS),
        "The minimum age of an orphaned blob. At least one day, because the event may not be written yet.";
    "summarizer.provider" => summarizer.main.provider,
        "The API of the model that writes summaries: anthropic, openai (or compatible), or none.";
    "summarizer.base_url" => summarizer.main.base_url,
        "The base URL of the API. Default: the URL of the provider.";
    "summarizer.model" => summarizer.main.model,
        "The name of the model.";
    "summarizer.api_key_env" => summarizer.main.api_key_env,
        "The variable with the API key. Default for the URL of the provider: ANTHROPIC_API_KEY or OPENAI_API_KEY.";
    "summarizer.api_key_file" => summarizer.main.api_key_file,
        "The file with the API key. It is read for every call.";
    "summarizer.allowed_models" => summarizer.allowed_models,
        "The models that sessions and calls can choose, such as \"claude-haiku-*,gpt-5-mini\". Models of this file are always allowed. Empty: any.";
    "summarizer.window_tokens" => summarizer.window_tokens in 2_000..=100_000_000,
        "The maximum tokens of one request and its answer.";
    "summarizer.max_output_tokens" => summarizer.max_output_tokens in 256..=1_000_000,
        "The maximum tokens of an answer. A higher summary.max_output_tokens of a policy has no effect.";
    "summarizer.timeout_ms" => summarizer.timeout_ms in 100..=HOUR_MS,
        "The time limit of one request.";
    "summarizer.concurrency" => summarizer.concurrency in 1..=10_000,
        "The maximum concurrent requests to one model.";
    "summarizer.fallback.provider" => summarizer.fallback.provider,
        "The API of the fallback model. With none: another model of the main API.";
    "summarizer.fallback.base_url" => summarizer.fallback.base_url,
        "The base URL of the fallback's API.";
    "summarizer.fallback.model" => summarizer.fallback.model,
        "The model that is called if the main model returns no summary. Without it, the extractive summary is used.";
    "summarizer.fallback.api_key_env" => summarizer.fallback.api_key_env,
        "The variable with the API key of the fallback.";
    "summarizer.fallback.api_key_file" => summarizer.fallback.api_key_file,
        "The file with the API key of the fallback.";
    "hooks.default_endpoint" => hooks.default_endpoint,
        "The endpoint of [hooks.endpoints.NAME] that is called around compactions if a policy names none.";
    "prices.input" => prices.input,
        "The price of an uncached input token. Only the ratio of the prices matters.";
    "prices.cache_write" => prices.cache_write,
        "The price of a token written to the prompt cache.";
    "prices.cache_read" => prices.cache_read,
        "The price of a token read from the prompt cache.";
}

pub(crate) fn by_key(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

/// Returns the setting that an environment variable sets.
pub(crate) fn by_variable(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.variable() == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::policy;
    use crate::policy_fields;

    #[test]
    fn every_setting_has_its_own_variable() {
        let of_policy = policy_fields().iter().map(policy::variable);
        let all = SETTINGS.iter().map(Setting::variable).chain(of_policy);
        let variables: BTreeSet<_> = all.collect();
        assert_eq!(variables.len(), SETTINGS.len() + policy_fields().len());
    }

    #[test]
    fn every_default_is_within_its_range() {
        let defaults = Config::default();
        for setting in SETTINGS {
            let Some(value) = (setting.toml)(&defaults) else {
                continue;
            };
            // A text in a variable has no quotes, unlike a text in TOML.
            let text = value.trim_matches('"').to_owned();
            let mut config = defaults.clone();
            (setting.set)(&mut config, &RawValue::Text(text)).expect(setting.key);
            assert_eq!(config, defaults, "{}", setting.key);
        }
    }
}
