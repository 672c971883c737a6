//! What must hold between settings, each of which is fine alone.

use palimpsest_core::policy::{Preset, ThresholdBasis, WindowHint};

use super::{Config, Role, auth, otlp, postgres, summarizer};

/// Settings that do not go together.
pub(super) struct Mismatch {
    /// Those settings; the sentence begins with the first.
    pub(super) keys: &'static [&'static str],
    /// What is wrong.
    pub(super) what: String,
}

/// Every mismatch of a configuration.
pub(super) fn all(config: &Config) -> Vec<Mismatch> {
    let mut found = Vec::new();
    let mut check = |fine: bool, keys: &'static [&'static str], what: &str| {
        if !fine {
            let what = what.to_owned();
            found.push(Mismatch { keys, what });
        }
    };

    check(
        // Port 0 means any free port, which is never the same one twice.
        config.listen.port() == 0 || config.listen != config.admin.listen,
        &["admin.listen", "listen"],
        "is the address of the gRPC services too: give each its own port",
    );
    check(
        config.limits.max_message_bytes <= config.limits.max_request_bytes,
        &["limits.max_message_bytes", "limits.max_request_bytes"],
        "is more than limits.max_request_bytes: no such message could arrive",
    );
    check(
        config.grpc.request_timeout_ms <= config.grpc.max_request_timeout_ms,
        &["grpc.request_timeout_ms", "grpc.max_request_timeout_ms"],
        "is more than grpc.max_request_timeout_ms",
    );
    check(
        config.limits.max_request_bytes <= config.grpc.max_request_bytes_in_flight,
        &[
            "limits.max_request_bytes",
            "grpc.max_request_bytes_in_flight",
        ],
        "is more than grpc.max_request_bytes_in_flight: no such call could be taken",
    );
    check(
        config.worker.poll_ms <= config.worker.lease_ms,
        &["worker.poll_ms", "worker.lease_ms"],
        "is more than worker.lease_ms: what a dead worker has left would wait longer than it must",
    );
    check(
        config.role != Role::Worker || config.worker.enabled,
        &["worker.enabled", "role"],
        "must be true for a worker: it would have nothing to do",
    );
    auth::check(config, &mut check);
    otlp::check(&config.otlp, &mut check);
    summarizer::check(&config.summarizer, &mut check);
    postgres::check(config, &mut check);
    budget(config, &mut check);
    found
}

fn budget(config: &Config, check: &mut impl FnMut(bool, &'static [&'static str], &str)) {
    let Ok(policy) = config.policy.server.resolve(Preset::default()) else {
        // That is told where the settings are read.
        return;
    };
    let is_room = policy.thresholds(WindowHint::default()).warn > 0;
    check(
        is_room || policy.autocompact.basis != ThresholdBasis::Reserve,
        &[
            "policy.tokens.default_window_tokens",
            "policy.autocompact.output_reserve_tokens",
            "policy.autocompact.compact_buffer_tokens",
            "policy.autocompact.warn_buffer_tokens",
        ],
        "leaves no room: it must be more than autocompact.output_reserve_tokens + \
         compact_buffer_tokens + warn_buffer_tokens",
    );
}
