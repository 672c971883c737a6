//! Checks of conditions between several settings, each of which is valid alone.

use std::collections::BTreeMap;

use palimpsest_core::policy::{Overlay, Preset, ThresholdBasis, WindowHint};
use serde_json::Value as Json;

use crate::hooks::PREFIX;
use crate::problem::{ConfigProblem, SettingOrigin};
use crate::{Config, Role, gateway, otlp, summarizer};

/// A contradiction between settings.
pub(crate) struct Mismatch {
    /// The settings. The text of the error begins with the first one.
    pub(crate) keys: Vec<&'static str>,
    /// The text of the error, which continues a sentence that begins with the key.
    pub(crate) problem: String,
}

/// Returns every contradiction of a configuration.
pub(crate) fn all(config: &Config) -> Vec<Mismatch> {
    let mut found = Vec::new();
    let mut check = |fine: bool, keys: &[&'static str], problem: &str| {
        if !fine {
            let (keys, problem) = (keys.to_vec(), problem.to_owned());
            found.push(Mismatch { keys, problem });
        }
    };

    check(
        // Port 0 selects any free port, so two listeners never collide.
        config.listen.port() == 0 || config.listen != config.admin.listen,
        &["admin.listen", "listen"],
        "is also the address of the gRPC services: use another port",
    );
    check(
        config.limits.max_message_bytes <= config.limits.max_request_bytes,
        &["limits.max_message_bytes", "limits.max_request_bytes"],
        "is more than limits.max_request_bytes: a message of this size would be rejected",
    );
    check(
        config.grpc.request_timeout_ms <= config.grpc.max_request_timeout_ms,
        &["grpc.request_timeout_ms", "grpc.max_request_timeout_ms"],
        "is more than grpc.max_request_timeout_ms: lower it",
    );
    check(
        config.limits.max_request_bytes <= config.grpc.max_request_bytes_in_flight,
        &[
            "limits.max_request_bytes",
            "grpc.max_request_bytes_in_flight",
        ],
        "is more than grpc.max_request_bytes_in_flight: a call of this size would be rejected",
    );
    check(
        config.worker.poll_ms <= config.worker.lease_ms,
        &["worker.poll_ms", "worker.lease_ms"],
        "is more than worker.lease_ms: sessions of a dead worker would wait longer than necessary",
    );
    check(
        config.role != Role::Worker || config.worker.enabled,
        &["worker.enabled", "role"],
        "must be true for a worker: a worker has no other task",
    );
    auth(config, &mut check);
    gateway::check(config, &mut check);
    otlp::check(&config.otlp, &mut check);
    summarizer::check(&config.summarizer, &mut check);
    postgres(config, &mut check);
    budget(config, &mut check);
    found
}

fn budget(config: &Config, check: &mut impl FnMut(bool, &[&'static str], &str)) {
    let Ok(policy) = config.policy.server.resolve(Preset::default()) else {
        // The policy checks report this error.
        return;
    };
    let is_room = policy.thresholds(WindowHint::default()).warn > 0;
    check(
        // Only with this basis, the threshold subtracts all the settings of the error text.
        is_room || policy.autocompact.basis != ThresholdBasis::Reserve,
        &[
            "policy.tokens.default_window_tokens",
            "policy.autocompact.output_reserve_tokens",
            "policy.autocompact.compact_buffer_tokens",
            "policy.autocompact.warn_buffer_tokens",
        ],
        "is too small: it must be more than autocompact.output_reserve_tokens + \
         compact_buffer_tokens + warn_buffer_tokens",
    );
}

/// Checks the settings of authentication and TLS.
fn auth(config: &Config, check: &mut impl FnMut(bool, &[&'static str], &str)) {
    check_listen_addresses(config, check);
    let jwt = &config.auth.jwt;
    let jwks = jwt.jwks_file.is_some();
    let with_jwks: [(bool, &'static str); 2] = [
        (jwt.issuer.is_some(), "auth.jwt.issuer"),
        (jwt.audience.is_some(), "auth.jwt.audience"),
    ];
    // The issuer and the audience are required with a key file, and useless without one.
    for (is_set, key) in with_jwks {
        let keys = &[key, "auth.jwt.jwks_file"];
        check(
            is_set || !jwks,
            keys,
            "must be set: otherwise tokens for other services would be accepted",
        );
        check(
            jwks || !is_set,
            keys,
            "has no effect without auth.jwt.jwks_file, the file of the issuer's public keys",
        );
    }
    let tls = &config.tls;
    check(
        tls.key_file.is_some() || tls.cert_file.is_none(),
        &["tls.key_file", "tls.cert_file"],
        "must be set to the file of the private key of tls.cert_file",
    );
    check(
        tls.cert_file.is_some() || tls.key_file.is_none(),
        &["tls.cert_file", "tls.key_file"],
        "must be set to the file of the certificate of tls.key_file",
    );
    check(
        tls.cert_file.is_some() || tls.client_ca_file.is_none(),
        &["tls.client_ca_file", "tls.cert_file"],
        "has no effect without tls.cert_file and tls.key_file: client certificates require TLS",
    );
}

/// Requires authentication and encryption on non-loopback addresses, unless a setting permits the exception.
fn check_listen_addresses(config: &Config, check: &mut impl FnMut(bool, &[&'static str], &str)) {
    // Loopback addresses are exempt, so that a local test needs neither keys nor certificates.
    let (is_on, is_private) = (config.auth.is_on(), config.tls.cert_file.is_some());
    let is_near = config.listen.ip().is_loopback();
    check(
        is_near || is_on || config.insecure_listen_anywhere,
        &[
            "listen",
            "insecure_listen_anywhere",
            "auth.keys_file",
            "auth.jwt.jwks_file",
        ],
        "can be reached by other machines, and no authentication is configured: set auth.keys_file \
         (`palimpsest keys create` creates the file) or auth.jwt.jwks_file, or choose a loopback \
         address such as 127.0.0.1. To allow callers without authentication, for example behind a \
         proxy, set --insecure-listen-anywhere (PALIMPSEST_INSECURE_LISTEN_ANYWHERE=true)",
    );
    check(
        is_near || !is_on || is_private || config.auth.allow_plaintext,
        &["listen", "tls.cert_file", "auth.allow_plaintext"],
        "can be reached by other machines, and credentials would be sent without encryption: set \
         tls.cert_file and tls.key_file. If a service mesh or a proxy on this machine encrypts every \
         connection, set auth.allow_plaintext = true",
    );
    check(
        config.admin.listen.ip().is_loopback() || config.admin.listen_anywhere,
        &["admin.listen", "admin.listen_anywhere"],
        "can be reached by other machines, and the admin port has no authentication: choose a \
         loopback address such as 127.0.0.1. If another machine scrapes the metrics, set \
         admin.listen_anywhere = true (the port shows metrics and health, and no message content)",
    );
}

/// Checks the settings of the shared database.
fn postgres(config: &Config, check: &mut impl FnMut(bool, &[&'static str], &str)) {
    let postgres = &config.store.postgres;
    check(
        // The default blob folder lies in the data directory, which other processes do not see.
        postgres.url.is_none() || config.blobs.url.is_some(),
        &["blobs.url", "store.postgres.url"],
        "must be set with store.postgres.url, because all processes need the same blobs: write a bucket, such as \
         \"s3://bucket/prefix\", or a folder that all processes mount, such as \"file:///folder\"",
    );
    check(
        postgres.password_env.is_none() || postgres.password_file.is_none(),
        &[
            "store.postgres.password_env",
            "store.postgres.password_file",
        ],
        "is set together with store.postgres.password_file: remove one of them",
    );
    check(
        postgres.client_cert_file.is_some() == postgres.client_key_file.is_some(),
        &[
            "store.postgres.client_cert_file",
            "store.postgres.client_key_file",
        ],
        "must be set together with store.postgres.client_key_file: set both, or neither",
    );
    // A setting without an effect is an error, because its author expects one.
    let lonely = "has no effect without store.postgres.url: set it to the address of the database";
    let needs_url: [(bool, &'static str); 5] = [
        (
            postgres.password_env.is_some(),
            "store.postgres.password_env",
        ),
        (
            postgres.password_file.is_some(),
            "store.postgres.password_file",
        ),
        (postgres.schema.is_some(), "store.postgres.schema"),
        (postgres.ca_file.is_some(), "store.postgres.ca_file"),
        (
            postgres.client_cert_file.is_some(),
            "store.postgres.client_cert_file",
        ),
    ];
    for (is_set, key) in needs_url {
        let is_fine = postgres.url.is_some() || !is_set;
        check(is_fine, &[key, "store.postgres.url"], lonely);
    }
}

/// Returns all errors of the hook endpoints.
pub(crate) fn hooks(
    config: &Config,
    origins: &BTreeMap<String, SettingOrigin>,
) -> Vec<ConfigProblem> {
    let hooks = &config.hooks;
    let mut found = Vec::new();
    let mut check = |fine: bool, key: String, problem: &str| {
        if !fine {
            // A missing setting has no origin. The error shows the origin of another setting of the same endpoint.
            let section = key.rsplit_once('.').map_or("", |(section, _)| section);
            let of_section = || origins.iter().find(|(key, _)| key.starts_with(section));
            let origin = origins
                .get(&key)
                .or_else(|| of_section().map(|(_, origin)| origin));
            found.push(ConfigProblem {
                origin: origin.cloned().unwrap_or(SettingOrigin::Default),
                key: Some(key),
                message: problem.to_owned(),
            });
        }
    };
    for (name, endpoint) in &hooks.endpoints {
        let key = |field: &str| format!("{PREFIX}{name}.{field}");
        let url = "must be set to the address of the hook service";
        check(endpoint.url.is_some(), key("url"), url);
        let both = "is set together with token_file: remove one of them";
        let is_one = endpoint.token_env.is_none() || endpoint.token_file.is_none();
        check(is_one, key("token_env"), both);
    }
    let is_there = |name: &str| hooks.endpoints.keys().any(|known| known.as_str() == name);
    let missing =
        "names an endpoint that is not configured: add [hooks.endpoints.NAME] with its url";
    let default = hooks.default_endpoint.as_ref();
    let fine = default.is_none_or(|name| is_there(name.as_str()));
    check(fine, "hooks.default_endpoint".to_owned(), missing);
    // A value of another type is reported by the policy checks.
    let named = |overlay: &Overlay| match overlay.get(&["hooks", "endpoint"]) {
        Some(Json::String(name)) => is_there(name),
        _ => true,
    };
    let fine = named(&config.policy.server);
    check(fine, "policy.hooks.endpoint".to_owned(), missing);
    for (project, overlay) in &config.policy.projects {
        let key = format!("projects.{project}.policy.hooks.endpoint");
        check(named(overlay), key, missing);
    }
    found
}
