//! Settings of the export of spans and metrics. Secret headers are never read here. The settings only name their
//! source.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde_json::Value as Json;

use crate::json_schema;
use crate::summarizer::{VariableName, is_base_url, texts};
use crate::value::{RawValue, SettingValue, choices, number, quoted, with_defaults};

with_defaults! {
    /// Export of spans and metrics over OTLP.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct OtlpConfig {
        /// URL of the collector. Default: no export.
        pub endpoint: Option<CollectorUrl>,
        /// Protocol of the collector. Default: gRPC.
        pub protocol: OtlpProtocol,
        /// Environment variable with headers for the collector.
        pub headers_env: Option<VariableName>,
        /// File with headers for the collector.
        pub headers_file: Option<PathBuf>,
        /// CA certificates that must have signed the collector's certificate. Default: the system's CA certificates.
        pub ca_file: Option<PathBuf>,
        /// Client certificate for the collector.
        pub client_cert_file: Option<PathBuf>,
        /// Private key of the client certificate.
        pub client_key_file: Option<PathBuf>,
        /// Share of calls without a trace that are traced, from 0 to 1. Default: 0.1.
        pub sample_ratio: Ratio,
        /// Timeout of one export in milliseconds. Default: 5,000.
        pub timeout_ms: u64 = 5_000,
        /// Interval of metric exports in milliseconds. Default: 30,000.
        pub metrics_every_ms: u64 = 30_000,
        /// The `service.name` of spans and metrics. Default: `palimpsest`.
        pub service_name: ServiceName,
        /// Further resource attributes of spans and metrics.
        pub resource_attributes: ResourceAttributes,
    }
}

texts! {
    /// URL of a collector.
    CollectorUrl: is_base_url, "an http or https URL without a user name and password, such as \"http://localhost:4317\"";
}

choices! {
    /// Protocol of a collector.
    OtlpProtocol {
        "OTLP over gRPC." Grpc = "grpc",
        "OTLP over HTTP, as protobuf." HttpProtobuf = "http/protobuf"
    }
}

/// A ratio, stored in millionths so that settings implement `Eq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio(u32);

const MILLION: f64 = 1_000_000.0;

impl Ratio {
    /// The ratio, from 0 to 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / MILLION
    }
}

impl Default for Ratio {
    /// One call in ten is traced: enough for typical behavior, at low overhead.
    fn default() -> Self {
        Self(100_000)
    }
}

impl SettingValue for Ratio {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked"
    )]
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let ratio = number(raw).ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        let ratio = ratio.ok_or_else(|| raw.type_error("a number from 0 to 1"))?;
        // Rounded, because the product may lie just below the whole number.
        Ok(Self((ratio * MILLION).round() as u32))
    }

    fn toml(&self) -> Option<String> {
        Some(toml::Value::from(self.get()).to_string())
    }

    fn schema(_: Option<RangeInclusive<u64>>) -> Json {
        json_schema::number(Some(0.0..=1.0))
    }
}

/// The `service.name` of spans and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceName(String);

impl ServiceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ServiceName {
    fn default() -> Self {
        Self("palimpsest".to_owned())
    }
}

impl SettingValue for ServiceName {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let name = raw.text().map(str::trim);
        let name = name.filter(|name| is_text(name));
        name.map(|name| Self(name.to_owned()))
            .ok_or_else(|| raw.type_error("a name of at most 255 bytes"))
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.0))
    }
}

/// Resource attributes in the format of `OTEL_RESOURCE_ATTRIBUTES`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceAttributes(String);

impl ResourceAttributes {
    /// The names and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.split(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.trim(), value.trim()))
    }
}

impl SettingValue for ResourceAttributes {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let pair = |pair: &str| {
            let named = pair.split_once('=');
            named.is_some_and(|(name, value)| is_text(name.trim()) && is_text(value.trim()))
        };
        let text = raw.text().map(str::trim);
        let text = text.filter(|text| text.is_empty() || text.split(',').all(pair));
        text.map(|text| Self(text.to_owned()))
            .ok_or_else(|| raw.type_error("name=value,name=value, each of at most 255 bytes"))
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.0))
    }
}

fn is_text(text: &str) -> bool {
    (1..=255).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Reports settings without an effect and settings that contradict each other.
pub(crate) fn check(config: &OtlpConfig, check: &mut impl FnMut(bool, &[&'static str], &str)) {
    let lonely = "has no effect without otlp.endpoint: set it to the address of the collector";
    let has_endpoint = config.endpoint.is_some();
    check(
        has_endpoint || config.headers_env.is_none(),
        &["otlp.headers_env", "otlp.endpoint"],
        lonely,
    );
    check(
        has_endpoint || config.headers_file.is_none(),
        &["otlp.headers_file", "otlp.endpoint"],
        lonely,
    );
    check(
        config.headers_env.is_none() || config.headers_file.is_none(),
        &["otlp.headers_env", "otlp.headers_file"],
        "is set together with otlp.headers_file: remove one of them",
    );
    let endpoint = config.endpoint.as_ref().map(CollectorUrl::as_str);
    // The scheme decides about TLS, also for gRPC.
    let plain = endpoint.is_some_and(|url| url.starts_with("http:"));
    let files: [(&Option<PathBuf>, &'static str); 3] = [
        (&config.ca_file, "otlp.ca_file"),
        (&config.client_cert_file, "otlp.client_cert_file"),
        (&config.client_key_file, "otlp.client_key_file"),
    ];
    // Each key is reported on its own, so one load shows every setting that needs `https`.
    for (file, key) in files {
        let keys = &[key, "otlp.endpoint"];
        check(has_endpoint || file.is_none(), keys, lonely);
        let what = "has no effect on an otlp.endpoint without TLS: use an address that begins with https://";
        check(!plain || file.is_none(), keys, what);
    }
    check(
        config.client_cert_file.is_some() == config.client_key_file.is_some(),
        &["otlp.client_cert_file", "otlp.client_key_file"],
        "and otlp.client_key_file are a certificate and its key: set both, or neither",
    );
}
