//! The variables that every program with OpenTelemetry knows, and the settings that they stand for here.
//!
//! `OTEL_EXPORTER_OTLP_HEADERS` is not among them: the exporter reads it itself, so that its secret passes through no
//! setting.

use super::claude::Meant;
use super::value::Raw;

const VARIABLES: [(&str, &str); 6] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp.endpoint"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "otlp.protocol"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "otlp.timeout_ms"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "otlp.metrics_every_ms"),
    ("OTEL_SERVICE_NAME", "otlp.service_name"),
    ("OTEL_RESOURCE_ATTRIBUTES", "otlp.resource_attributes"),
];

/// What the variables say; an empty one says nothing.
pub(super) fn settings(value_of: impl Fn(&str) -> Option<String>) -> Vec<Meant> {
    let set = |name: &str| value_of(name).filter(|value| !value.trim().is_empty());
    let plain = VARIABLES.iter().filter_map(|(name, key)| {
        let value = set(name)?;
        Some((*name, Ok(vec![(*key, Raw::Text(value))])))
    });
    plain.chain(sampler(set)).collect()
}

/// The samplers of the specification that can be had here: all of them follow the caller.
fn sampler(set: impl Fn(&str) -> Option<String>) -> Option<Meant> {
    let name = "OTEL_TRACES_SAMPLER";
    let ratio = |text: String| Ok(vec![("otlp.sample_ratio", Raw::Text(text))]);
    let meant = match set(name)?.trim() {
        "parentbased_always_on" => ratio("1".to_owned()),
        "parentbased_always_off" => ratio("0".to_owned()),
        "parentbased_traceidratio" => {
            ratio(set("OTEL_TRACES_SAMPLER_ARG").unwrap_or_else(|| "1".to_owned()))
        }
        _ => Err("must be parentbased_always_on, parentbased_always_off or \
                  parentbased_traceidratio: a caller's own decision is always followed"
            .to_owned()),
    };
    Some((name, meant))
}
