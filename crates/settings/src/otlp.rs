//! Where spans and metrics are sent. The secrets among its headers are never read here: only where they are.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::summarizer::{BaseUrl, VariableName};
use crate::value::{Raw, Value, choices, number, quoted};

/// Where spans and metrics are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpConfig {
    /// The collector; without one nothing is sent.
    pub endpoint: Option<BaseUrl>,
    /// What it speaks.
    pub protocol: OtlpProtocol,
    /// The variable that holds headers for it.
    pub headers_env: Option<VariableName>,
    /// The file that holds them.
    pub headers_file: Option<PathBuf>,
    /// The authority that its certificate is from, instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// The certificate that is shown to it.
    pub client_cert_file: Option<PathBuf>,
    /// The key of that certificate.
    pub client_key_file: Option<PathBuf>,
    /// How many of the calls that nobody traces are traced.
    pub sample_ratio: Ratio,
    /// How long one export may take.
    pub timeout_ms: u64,
    /// How often metrics are sent.
    pub metrics_every_ms: u64,
    /// What the service calls itself.
    pub service_name: ServiceName,
    /// What else it says of itself.
    pub resource_attributes: ResourceAttributes,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: OtlpProtocol::default(),
            headers_env: None,
            headers_file: None,
            ca_file: None,
            client_cert_file: None,
            client_key_file: None,
            sample_ratio: Ratio::default(),
            timeout_ms: 5_000,
            metrics_every_ms: 30_000,
            service_name: ServiceName::default(),
            resource_attributes: ResourceAttributes::default(),
        }
    }
}

choices! {
    /// What a collector speaks.
    OtlpProtocol {
        "OTLP over gRPC." Grpc = "grpc",
        "OTLP over HTTP, as protobuf." HttpProtobuf = "http/protobuf"
    }
}

/// A share of something, in millionths: settings can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio(u32);

const MILLION: f64 = 1_000_000.0;

impl Ratio {
    /// From 0 to 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / MILLION
    }
}

impl Default for Ratio {
    /// One call in ten: traces show what is usual, and what they cost stays small.
    fn default() -> Self {
        Self(100_000)
    }
}

impl Value for Ratio {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked"
    )]
    fn read(raw: &Raw, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let ratio = number(raw).ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        let ratio = ratio.ok_or_else(|| raw.refused("a number from 0 to 1"))?;
        Ok(Self((ratio * MILLION).round() as u32))
    }

    fn toml(&self) -> Option<String> {
        Some(toml::Value::from(self.get()).to_string())
    }
}

/// What the service calls itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceName(String);

impl ServiceName {
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ServiceName {
    fn default() -> Self {
        Self("palimpsest".to_owned())
    }
}

impl Value for ServiceName {
    fn read(raw: &Raw, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let name = raw.text().map(str::trim);
        let name = name.filter(|name| is_text(name));
        name.map(|name| Self(name.to_owned()))
            .ok_or_else(|| raw.refused("a name of at most 255 bytes"))
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.0))
    }
}

/// What the service says of where it runs, as `OTEL_RESOURCE_ATTRIBUTES` writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceAttributes(String);

impl ResourceAttributes {
    /// Names and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.split(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.trim(), value.trim()))
    }
}

impl Value for ResourceAttributes {
    fn read(raw: &Raw, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let pair = |pair: &str| {
            let named = pair.split_once('=');
            named.is_some_and(|(name, value)| is_text(name.trim()) && is_text(value.trim()))
        };
        let text = raw.text().map(str::trim);
        let text = text.filter(|text| text.is_empty() || text.split(',').all(pair));
        text.map(|text| Self(text.to_owned()))
            .ok_or_else(|| raw.refused("name=value,name=value, each of at most 255 bytes"))
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(&self.0))
    }
}

fn is_text(text: &str) -> bool {
    (1..=255).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// What has no effect, or contradicts itself.
pub(crate) fn check(
    config: &OtlpConfig,
    check: &mut impl FnMut(bool, &'static [&'static str], &str),
) {
    let lonely = "has no effect without otlp.endpoint: set that to where the collector is";
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
        "is given beside otlp.headers_file: keep one of them",
    );
    let endpoint = config.endpoint.as_ref().map(BaseUrl::as_str);
    let plain = endpoint.is_some_and(|url| url.starts_with("http:"));
    let files: [(&Option<PathBuf>, &'static [&'static str]); 3] = [
        (&config.ca_file, &["otlp.ca_file", "otlp.endpoint"]),
        (
            &config.client_cert_file,
            &["otlp.client_cert_file", "otlp.endpoint"],
        ),
        (
            &config.client_key_file,
            &["otlp.client_key_file", "otlp.endpoint"],
        ),
    ];
    for (file, keys) in files {
        check(has_endpoint || file.is_none(), keys, lonely);
        let what = "has no effect on an otlp.endpoint without TLS: that begins with https://";
        check(!plain || file.is_none(), keys, what);
    }
    check(
        config.client_cert_file.is_some() == config.client_key_file.is_some(),
        &["otlp.client_cert_file", "otlp.client_key_file"],
        "and otlp.client_key_file are a certificate and its key: set both of them or neither",
    );
}
