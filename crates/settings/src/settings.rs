//! The table of settings with their keys, descriptions and ranges. Files, variables, flags and `palimpsest config`
//! use the table. The module `policy` contains the settings of policies.

use crate::Config;
use crate::source::VARIABLE_PREFIX;
use crate::value::{RawValue, SettingValue};

/// One setting.
pub(crate) struct Setting {
    /// The key, as in a file.
    pub(crate) key: &'static str,
    /// The description.
    pub(crate) doc: &'static str,
    /// Parses a value into a configuration.
    pub(crate) set: fn(&mut Config, &RawValue) -> Result<(), String>,
    /// Formats the value as TOML, or returns `None` without a value.
    pub(crate) toml: fn(&Config) -> Option<String>,
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
                let range = None$(.or(Some($range)))?;
                config.$($field).+ = SettingValue::read(raw, range)?;
                Ok(())
            },
            toml: |config| config.$($field).+.toml(),
        }),*];
    };
}

settings! {
    "role" => role,
        "all, or, where several processes share a store, server (answers calls) or worker (keeps summaries, does the upkeep).";
    "listen" => listen,
        "Where the gRPC services listen.";
    "insecure_listen_anywhere" => insecure_listen_anywhere,
        "Allows an address that other machines can reach although nothing asks callers who they are.";
    "data_dir" => data_dir,
        "The folder of the embedded store.";
    "admin.listen" => admin.listen,
        "Where the admin port listens: metrics and health over HTTP.";
    "admin.listen_anywhere" => admin.listen_anywhere,
        "Allows an admin port that other machines can reach. It asks nobody who they are, and shows no content.";
    "auth.keys_file" => auth.keys_file,
        "The file of API keys that `palimpsest keys` writes. With it, or with auth.jwt.jwks_file, callers must say who they are.";
    "auth.reload_ms" => auth.reload_ms in 100..=HOUR_MS,
        "How often the files of keys and certificates are looked at: changes are taken up without a restart.";
    "auth.public_reflection" => auth.public_reflection,
        "Whether reflection answers callers without a credential too.";
    "auth.allow_plaintext" => auth.allow_plaintext,
        "Allows credentials without TLS on an address that other machines can reach, where something else encrypts.";
    "auth.jwt.jwks_file" => auth.jwt.jwks_file,
        "The file of the public keys (a JWKS) whose tokens are taken.";
    "auth.jwt.issuer" => auth.jwt.issuer,
        "Who makes the tokens: their iss.";
    "auth.jwt.audience" => auth.jwt.audience,
        "For whom the tokens are made: one of their aud.";
    "auth.jwt.clock_skew_s" => auth.jwt.clock_skew_s in 0..=600,
        "Seconds by which the issuer's clock may differ from this machine's.";
    "auth.jwt.projects_claim" => auth.jwt.projects_claim,
        "The claim that names projects, or a JSON pointer to it: an array, or words with blanks between; * stands for all.";
    "auth.jwt.rights_claim" => auth.jwt.rights_claim,
        "The claim that names rights (read, write, compact, admin, with or without palimpsest: before), or a JSON pointer to it.";
    "tls.cert_file" => tls.cert_file,
        "The server's certificate and those between it and its authority, as PEM. With it the services speak TLS alone.";
    "tls.key_file" => tls.key_file,
        "The private key of the certificate, as PEM.";
    "tls.client_ca_file" => tls.client_ca_file,
        "Authorities, as PEM, one of which must have signed the certificate that a caller has to show then.";
    "tls.handshake_timeout_ms" => tls.handshake_timeout_ms in 100..=60_000,
        "How long a TLS handshake may take.";
    "tls.max_handshakes" => tls.max_handshakes in 1..=100_000,
        "TLS handshakes at one time; for one more the oldest is ended.";
    "blobs.url" => blobs.url,
        "Where tool results and summaries are kept. Without it: a folder in data_dir.";
    "log.format" => log.format,
        "auto (pretty on a terminal, else JSON), pretty or json.";
    "log.level" => log.level,
        "error, warn, info, debug or trace, of libraries info at most; or levels by module, such as debug,sled=debug.";
    "otlp.endpoint" => otlp.endpoint,
        "Where spans and metrics are sent: a collector that speaks OTLP. Without it: nowhere; /metrics is there anyway.";
    "otlp.protocol" => otlp.protocol,
        "grpc or http/protobuf.";
    "otlp.headers_env" => otlp.headers_env,
        "The variable that holds headers for the collector, such as its key: name=value,name=value.";
    "otlp.headers_file" => otlp.headers_file,
        "The file that holds them.";
    "otlp.ca_file" => otlp.ca_file,
        "The authority of the collector's certificate, as PEM. Without it: those that the system trusts.";
    "otlp.client_cert_file" => otlp.client_cert_file,
        "The certificate that is shown to the collector, as PEM.";
    "otlp.client_key_file" => otlp.client_key_file,
        "The key of that certificate.";
    "otlp.sample_ratio" => otlp.sample_ratio,
        "Of calls that come without a trace, how many are traced, from 0 to 1. A caller's trace is followed as it says.";
    "otlp.timeout_ms" => otlp.timeout_ms in 100..=60_000,
        "How long one export may take, and the last one when the process ends.";
    "otlp.metrics_every_ms" => otlp.metrics_every_ms in 100..=HOUR_MS,
        "How often metrics are sent.";
    "otlp.service_name" => otlp.service_name,
        "The service.name of spans and metrics.";
    "otlp.resource_attributes" => otlp.resource_attributes,
        "What else they say of where they are from: name=value,name=value.";
    "limits.max_request_bytes" => limits.max_request_bytes in 1_024..=(1 << 31),
        "Bytes of one call.";
    "limits.max_message_bytes" => limits.max_message_bytes in 1_024..=(1 << 31),
        "Bytes of one message's content.";
    "limits.max_messages" => limits.max_messages in 1..=1_000_000,
        "Messages of one call.";
    "limits.max_blocks" => limits.max_blocks in 1..=1_000_000,
        "Blocks of one message.";
    "limits.max_id_bytes" => limits.max_id_bytes in 16..=4_096,
        "Bytes of a tool call's id, a provider's message id, a model's or a tool's name.";
    "limits.max_attributes" => limits.max_attributes in 0..=10_000,
        "Attributes of one message or session.";
    "limits.max_attribute_bytes" => limits.max_attribute_bytes in 1..=(1 << 20),
        "Bytes of one attribute, name and value together.";
    "limits.max_request_id_bytes" => limits.max_request_id_bytes in 16..=4_096,
        "Bytes of a request id.";
    "limits.max_title_bytes" => limits.max_title_bytes in 16..=(1 << 20),
        "Bytes of a title.";
    "limits.max_pattern_bytes" => limits.max_pattern_bytes in 16..=(1 << 16),
        "Bytes of a search pattern.";
    "limits.max_reply_bytes" => limits.max_reply_bytes in 1_024..=(1 << 31),
        "Bytes of one reply's view; a longer one comes in chunks. Clients take 4 MiB by default.";
    "limits.max_page_size" => limits.max_page_size in 1..=100_000,
        "Items of one page.";
    "quotas.requests_per_second" => quotas.project.requests_per_second in 0..=MAX_RATE,
        "Calls a second that a project may make in the long run. Here and below: 0 is as many as there can be.";
    "quotas.request_burst" => quotas.project.request_burst in 0..=MAX_RATE,
        "Calls that it may make at once after a pause; 0 is as many as a second has.";
    "quotas.concurrent_requests" => quotas.project.concurrent_requests in 0..=1_000_000,
        "Calls of a project at one time.";
    "quotas.watches" => quotas.project.watches in 0..=1_000_000,
        "Watches of a project at one time.";
    "quotas.bytes_per_second" => quotas.project.bytes_per_second in 0..=MAX_BYTES,
        "Bytes of requests a second that a project may send in the long run. A larger one passes, and the next wait for it.";
    "quotas.byte_burst" => quotas.project.byte_burst in 0..=MAX_BYTES,
        "Bytes that it may send at once after a pause; 0 is as many as a second has.";
    "quotas.sessions" => quotas.project.sessions in 0..=MAX_RATE,
        "Sessions that a project may have.";
    "quotas.stored_bytes" => quotas.project.stored_bytes in 0..=(1 << 50),
        "Bytes that a project's sessions may store: logs, snapshots and results.";
    "quotas.server.requests_per_second" => quotas.server.requests_per_second in 0..=MAX_RATE,
        "The same for all projects together.";
    "quotas.server.request_burst" => quotas.server.request_burst in 0..=MAX_RATE,
        "Calls at once after a pause.";
    "quotas.server.bytes_per_second" => quotas.server.bytes_per_second in 0..=MAX_BYTES,
        "Bytes of requests a second.";
    "quotas.server.byte_burst" => quotas.server.byte_burst in 0..=MAX_BYTES,
        "Bytes at once after a pause.";
    "quotas.server.sessions" => quotas.server.sessions in 0..=MAX_RATE,
        "Sessions.";
    "quotas.server.stored_bytes" => quotas.server.stored_bytes in 0..=(1 << 50),
        "Bytes that all sessions may store.";
    "sessions.cache_bytes" => sessions.cache_bytes in 0..=MAX_BYTES,
        "Bytes of sessions kept in memory.";
    "grpc.max_concurrent_requests" => grpc.max_concurrent_requests in 1..=1_000_000,
        "Calls at one time; one more is refused with RESOURCE_EXHAUSTED.";
    "grpc.max_slowdown_percent" => grpc.max_slowdown_percent in 110..=10_000,
        "How long calls may take, in percent of what they take when there are few, before fewer are worked on at one time; 10000: however long they do.";
    "grpc.max_connections" => grpc.max_connections in 1..=1_000_000,
        "Connections at one time, as far as the limit of file handles allows. For one more an unused one is closed.";
    "grpc.max_request_bytes_in_flight" => grpc.max_request_bytes_in_flight in (1 << 20)..=MAX_BYTES,
        "Bytes of requests in memory at one time; what does not fit is refused with RESOURCE_EXHAUSTED.";
    "grpc.max_reply_bytes_in_flight" => grpc.max_reply_bytes_in_flight in (1 << 20)..=MAX_BYTES,
        "Bytes of replies in memory that callers have not taken yet; what does not fit is refused with RESOURCE_EXHAUSTED.";
    "grpc.stall_timeout_ms" => grpc.stall_timeout_ms in 100..=HOUR_MS,
        "How long the body of a request or a reply may stand still before the call is ended.";
    "grpc.body_timeout_ms" => grpc.body_timeout_ms in 100..=HOUR_MS,
        "How long the body of a request may take in all, whatever deadline the caller gives.";
    "grpc.first_call_timeout_ms" => grpc.first_call_timeout_ms in 100..=HOUR_MS,
        "How long a connection may be idle that has not made an accepted call. Where callers authenticate, health and reflection do not count.";
    "grpc.max_watches" => grpc.max_watches in 0..=1_000_000,
        "Watches of sessions at one time.";
    "grpc.max_health_watches" => grpc.max_health_watches in 0..=1_000_000,
        "Health watches and reflection streams at one time.";
    "grpc.max_streams_per_connection" => grpc.max_streams_per_connection in 1..=1_000_000,
        "Calls of one connection at one time.";
    "grpc.request_timeout_ms" => grpc.request_timeout_ms in 1..=HOUR_MS,
        "How long a call may take whose caller gives no deadline.";
    "grpc.max_request_timeout_ms" => grpc.max_request_timeout_ms in 1..=HOUR_MS,
        "The longest deadline that a caller is given.";
    "grpc.max_connection_age_ms" => grpc.max_connection_age_ms in 1_000..=(24 * HOUR_MS),
        "After this time a connection is asked to close, so that load spreads over new replicas.";
    "grpc.max_connection_age_grace_ms" => grpc.max_connection_age_grace_ms in 0..=HOUR_MS,
        "After this much more it is closed, whatever is in flight.";
    "grpc.keepalive_ms" => grpc.keepalive_ms in 1_000..=HOUR_MS,
        "How often a silent connection is asked whether it still lives.";
    "grpc.keepalive_timeout_ms" => grpc.keepalive_timeout_ms in 100..=HOUR_MS,
        "How long it may take to answer.";
    "shutdown.drain_ms" => shutdown.drain_ms in 0..=HOUR_MS,
        "How long calls in flight may take to finish when the server goes down.";
    "store.cache_bytes" => store.cache_bytes in (1 << 20)..=MAX_BYTES,
        "Bytes of the store's page cache.";
    "store.flush_every_ms" => store.flush_every_ms in 10..=10_000,
        "How often the store writes what nobody waits for, and collects garbage.";
    "store.canary_every_ms" => store.canary_every_ms in 100..=HOUR_MS,
        "How often readiness writes to the store to see whether it can.";
    "store.min_free_bytes" => store.min_free_bytes in 0..=MAX_BYTES,
        "Bytes of the store's disk that stay free: below that, writes are refused and reads go on.";
    "store.postgres.url" => store.postgres.url,
        "The PostgreSQL database that any number of servers and workers share. Without it sessions are kept in data_dir.";
    "store.postgres.password_env" => store.postgres.password_env,
        "The variable that holds its password.";
    "store.postgres.password_file" => store.postgres.password_file,
        "The file that holds its password.";
    "store.postgres.schema" => store.postgres.schema,
        "The schema that holds the tables. Without it: palimpsest.";
    "store.postgres.ca_file" => store.postgres.ca_file,
        "The authority of the database's certificate, as PEM. Without it: those that the system trusts.";
    "store.postgres.client_cert_file" => store.postgres.client_cert_file,
        "The certificate that is shown to the database, as PEM.";
    "store.postgres.client_key_file" => store.postgres.client_key_file,
        "The key of that certificate.";
    "store.postgres.connections" => store.postgres.connections in 2..=1_000,
        "Connections of this process to the database. All processes together need fewer than its max_connections.";
    "store.postgres.pool_timeout_ms" => store.postgres.pool_timeout_ms in 10..=60_000,
        "How long a call waits for one of them before it is refused.";
    "store.postgres.connect_timeout_ms" => store.postgres.connect_timeout_ms in 100..=60_000,
        "How long connecting to one of its hosts may take.";
    "store.postgres.statement_timeout_ms" => store.postgres.statement_timeout_ms in 100..=HOUR_MS,
        "How long one statement may take.";
    "store.postgres.retry_timeout_ms" => store.postgres.retry_timeout_ms in 0..=60_000,
        "How long a call goes on trying while the database cannot be reached, as during a failover, before it is refused.";
    "store.postgres.notify" => store.postgres.notify,
        "Whether processes tell each other what changes. Without it a watcher learns what others changed when it looks, once a second.";
    "store.postgres.auto_migrate" => store.postgres.auto_migrate,
        "Whether tables that are missing or old are made and changed at a start. Without it `palimpsest schema apply` does that.";
    "worker.enabled" => worker.enabled,
        "Whether serve keeps summary.md up to date; without it, palimpsest worker has to.";
    "worker.concurrency" => worker.concurrency in 1..=256,
        "Sessions whose summaries are written at one time.";
    "worker.poll_ms" => worker.poll_ms in 10..=HOUR_MS,
        "How often the worker looks for work when nobody wakes it.";
    "worker.lease_ms" => worker.lease_ms in 500..=HOUR_MS,
        "How long a session is a worker's own; when a worker dies, another goes on after that.";
    "worker.max_backoff_ms" => worker.max_backoff_ms in 100..=(24 * HOUR_MS),
        "The most that a failed update waits until it is tried again.";
    "worker.edit_debounce_ms" => worker.edit_debounce_ms in 0..=60_000,
        "How long a summary.md that somebody has just edited is left alone before it is read.";
    "worker.shutdown_grace_ms" => worker.shutdown_grace_ms in 0..=HOUR_MS,
        "How long updates under way may take to finish when the server goes down.";
    "retention.max_age" => retention.keep.max_age,
        "Sessions in which nothing has happened for this long are deleted, such as \"90d\"; or never.";
    "retention.max_sessions" => retention.keep.max_sessions,
        "Sessions of one project; those untouched longest are deleted when it has more. 0: no limit.";
    "retention.max_bytes" => retention.keep.max_bytes,
        "Stored bytes of one project; those untouched longest are deleted when it has more. 0: no limit.";
    "retention.export_url" => retention.export_url,
        "Where a transcript is exported to before its session is deleted; what fails to be exported stays.";
    "retention.subagents_separately" => retention.subagents_separately,
        "Whether a subagent's session is deleted by its own age instead of with its parent.";
    "retention.max_clock_jump" => retention.max_clock_jump,
        "How far the clock may be ahead of the newest event and the time since before retention by age pauses, such as \"14d\"; or never.";
    "retention.clock_trusted_until" => retention.clock_trusted_until,
        "The day up to which the clock is right, such as \"2027-01-31\": retention by age does not pause before. Without it: the log decides.";
    "retention.max_percent_per_pass" => retention.max_percent_per_pass in 1..=100,
        "The share of a project's sessions that one pass may delete by age, and at least 10 sessions. A quota is kept without it.";
    "retention.dry_run" => retention.dry_run,
        "Whether retention only logs and counts what it would delete. palimpsest retention lists it.";
    "retention.every_ms" => retention.every_ms in 100..=(24 * HOUR_MS),
        "How often it is looked for sessions whose retention is over.";
    "retention.duty_cycle_percent" => retention.duty_cycle_percent in 1..=100,
        "The share of the time in which retention and sweeping do something; the rest is for calls.";
    "sweep.enabled" => sweep.enabled,
        "Whether files are removed that were announced and that no event names, such as a crash leaves.";
    "sweep.every_ms" => sweep.every_ms in 100..=(30 * 24 * HOUR_MS),
        "How often it is looked for them.";
    "sweep.min_age_ms" => sweep.min_age_ms in (24 * HOUR_MS)..=(3_650 * 24 * HOUR_MS),
        "How old such a file is at least: its event may not be written yet. Not under a day.";
    "summarizer.provider" => summarizer.main.provider,
        "Whose API the model that writes summaries is asked by: anthropic, openai (or what speaks it), or none.";
    "summarizer.base_url" => summarizer.main.base_url,
        "Where it is. Without it: the provider's own place.";
    "summarizer.model" => summarizer.main.model,
        "Its name.";
    "summarizer.api_key_env" => summarizer.main.api_key_env,
        "The variable that holds its key. Without it, at the provider's own place: ANTHROPIC_API_KEY or OPENAI_API_KEY.";
    "summarizer.api_key_file" => summarizer.main.api_key_file,
        "The file that holds its key, read for every call.";
    "summarizer.allowed_models" => summarizer.allowed_models,
        "Models that sessions and calls may choose, such as \"claude-haiku-*,gpt-5-mini\"; those of this file always. Empty: any.";
    "summarizer.window_tokens" => summarizer.window_tokens in 2_000..=100_000_000,
        "Tokens that fit into one request and its answer.";
    "summarizer.max_output_tokens" => summarizer.max_output_tokens in 256..=1_000_000,
        "Tokens that it can write at most: a policy's summary.max_output_tokens has no effect beyond.";
    "summarizer.timeout_ms" => summarizer.timeout_ms in 100..=HOUR_MS,
        "How long one request may take.";
    "summarizer.concurrency" => summarizer.concurrency in 1..=10_000,
        "Requests to one model at one time.";
    "summarizer.fallback.provider" => summarizer.fallback.provider,
        "Whose API the fallback is asked by. With none: another model at the main one's place.";
    "summarizer.fallback.base_url" => summarizer.fallback.base_url,
        "Where it is.";
    "summarizer.fallback.model" => summarizer.fallback.model,
        "The model that is asked when the main one gives no summary. Without it: the extractive summary stands in.";
    "summarizer.fallback.api_key_env" => summarizer.fallback.api_key_env,
        "The variable that holds its key.";
    "summarizer.fallback.api_key_file" => summarizer.fallback.api_key_file,
        "The file that holds its key.";
    "hooks.default_endpoint" => hooks.default_endpoint,
        "The endpoint of [hooks.endpoints.NAME] that is called around compactions where a policy names none.";
    "prices.input" => prices.input,
        "What a token of input costs that is read anew. Only the relation of the prices matters.";
    "prices.cache_write" => prices.cache_write,
        "What a token costs that is written to the prompt cache.";
    "prices.cache_read" => prices.cache_read,
        "What a token costs that is read from the prompt cache.";
}

/// Returns the setting with a key.
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
            let text = value.trim_matches('"').to_owned();
            let mut config = defaults.clone();
            (setting.set)(&mut config, &RawValue::Text(text)).expect(setting.key);
            assert_eq!(config, defaults, "{}", setting.key);
        }
    }
}
