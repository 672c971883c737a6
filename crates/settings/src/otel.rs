//! The standard environment variables of OpenTelemetry, mapped to settings of this service.
//!
//! `OTEL_EXPORTER_OTLP_HEADERS` is not mapped. The exporter reads it itself, so its secret is never stored in a
//! setting.

use crate::claude::VariableSettings;
use crate::value::RawValue;

const VARIABLES: [(&str, &str); 9] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp.endpoint"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "otlp.protocol"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "otlp.timeout_ms"),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "otlp.ca_file"),
    (
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        "otlp.client_cert_file",
    ),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "otlp.client_key_file"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "otlp.metrics_every_ms"),
    ("OTEL_SERVICE_NAME", "otlp.service_name"),
    ("OTEL_RESOURCE_ATTRIBUTES", "otlp.resource_attributes"),
];

/// Returns the settings of all variables. Empty variables are ignored.
pub(crate) fn settings(value_of: impl Fn(&str) -> Option<String>) -> Vec<VariableSettings> {
    let set = |name: &str| value_of(name).filter(|value| !value.trim().is_empty());
    let plain = VARIABLES.iter().filter_map(|(name, key)| {
        let value = set(name)?;
        Some((*name, Ok(vec![(*key, RawValue::Text(value))])))
    });
    plain.chain(sampler(set)).collect()
}

/// Returns the setting of `OTEL_TRACES_SAMPLER`. Only samplers that follow the caller's decision are supported.
fn sampler(set: impl Fn(&str) -> Option<String>) -> Option<VariableSettings> {
    let name = "OTEL_TRACES_SAMPLER";
    let ratio = |text: String| Ok(vec![("otlp.sample_ratio", RawValue::Text(text))]);
    let meant = match set(name)?.trim() {
        "parentbased_always_on" => ratio("1".to_owned()),
        "parentbased_always_off" => ratio("0".to_owned()),
        "parentbased_traceidratio" => {
            // The OpenTelemetry specification defines 1 as the default of the argument.
            ratio(set("OTEL_TRACES_SAMPLER_ARG").unwrap_or_else(|| "1".to_owned()))
        }
        _ => Err("must be parentbased_always_on, parentbased_always_off or \
                  parentbased_traceidratio: a caller's own decision is always followed"
            .to_owned()),
    };
    Some((name, meant))
}

#[cfg(test)]
mod tests {
    use crate::{FixedSource, Flags, LoadedConfig, OtlpProtocol, load};

    fn with(vars: &[(&str, &str)]) -> Result<LoadedConfig, String> {
        let source = vars
            .iter()
            .fold(FixedSource::default(), |source, (name, value)| {
                source.var(name, value)
            });
        load(&Flags::default(), &source).map_err(|errors| errors.to_string())
    }

    #[test]
    fn variables_of_opentelemetry_are_overridden_by_palimpsest_variables() {
        let loaded = with(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_SERVICE_NAME", "theirs"),
            ("PALIMPSEST_OTLP_SERVICE_NAME", "ours"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=1,b=2"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer hush-hush",
            ),
        ])
        .unwrap();
        let otlp = &loaded.config.otlp;
        assert_eq!(
            otlp.endpoint.as_ref().unwrap().as_str(),
            "https://collector:4318"
        );
        assert_eq!(otlp.protocol, OtlpProtocol::HttpProtobuf);
        assert_eq!(otlp.service_name.as_str(), "ours");
        assert!((otlp.sample_ratio.get() - 0.25).abs() < 1e-9);
        let pairs: Vec<_> = otlp.resource_attributes.pairs().collect();
        assert_eq!(pairs, [("a", "1"), ("b", "2")]);
        assert!(!loaded.to_toml().contains("hush-hush"));
    }

    #[test]
    fn unsupported_values_are_rejected() {
        let refused = with(&[("OTEL_TRACES_SAMPLER", "always_on")]).unwrap_err();
        assert!(refused.contains("OTEL_TRACES_SAMPLER"), "{refused}");
        let refused = with(&[("PALIMPSEST_OTLP_HEADERS_ENV", "KEY")]).unwrap_err();
        assert!(
            refused.contains("otlp.headers_env has no effect"),
            "{refused}"
        );
        let tls = |endpoint| {
            with(&[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
                ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/cert.pem"),
            ])
            .unwrap_err()
        };
        let refused = tls("http://collector:4317");
        assert!(
            refused.contains("otlp.ca_file has no effect on an otlp.endpoint without TLS"),
            "{refused}"
        );
        let refused = tls("https://collector:4317");
        assert!(
            refused.contains("otlp.client_cert_file and otlp.client_key_file"),
            "{refused}"
        );
        let refused = with(&[("PALIMPSEST_OTLP_SAMPLE_RATIO", "1.5")]).unwrap_err();
        assert!(refused.contains("from 0 to 1"), "{refused}");
    }
}
