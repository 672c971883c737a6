//! Tests that every alert has a runbook, and every runbook an alert, and that metrics can have the label values that a
//! runbook names.

use std::collections::BTreeSet;
use std::fs;

use palimpsest_proto::context::v1::ErrorReason;

use crate::helm::{root, yaml};

/// Returns the anchor of a heading in a rendered page.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let rules = yaml(&root().join("deploy/prometheus/alerts.yaml"));
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let alerts: Vec<_> = rules.filter(|rule| rule["alert"].is_string()).collect();
    assert!(alerts.len() > 10, "{}", alerts.len());

    let page = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let headings = page
        .lines()
        .filter_map(|line| line.strip_prefix("### Palimpsest"));
    let headings: BTreeSet<_> = headings.map(|rest| format!("Palimpsest{rest}")).collect();
    let mut told = BTreeSet::new();
    for alert in alerts {
        let name = alert["alert"].as_str().unwrap().to_owned();
        let address = alert["annotations"]["runbook_url"].as_str().unwrap();
        let wanted = format!("docs/operations.md#{}", anchor(&name));
        assert_eq!(address, wanted, "{name}");
        told.insert(name);
    }
    assert_eq!(headings, told);
}

/// Returns the texts in quotes of an item in a source file. `begins` is a part of the item's first line.
fn quoted_in(file: &str, begins: &str) -> BTreeSet<String> {
    let source = fs::read_to_string(root().join(file)).unwrap();
    let (_, rest) = source
        .split_once(begins)
        .unwrap_or_else(|| panic!("{file} does not contain {begins:?}"));
    // An item at the top level ends with a brace at the beginning of a line.
    let item = rest.split("\n}\n").next().unwrap();
    // In a text that is split at quotation marks, every second part is inside of a pair.
    let quoted = item.split('"').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

/// Returns true if the code can emit a value of a label.
fn is_emitted(metric: &str, label: &str, value: &str) -> bool {
    let sources: &[(&str, &str)] = match (metric, label) {
        ("palimpsest_rpc_errors_total", "reason") => {
            return ErrorReason::from_str_name(&format!("ERROR_REASON_{value}")).is_some();
        }
        // A row can also restrict an outcome to one endpoint.
        ("palimpsest_provider_request_duration_seconds", "outcome" | "endpoint") => &[
            ("crates/summarize/src/error.rs", "impl Error {"),
            ("crates/server/src/summarizer.rs", "pub fn from_config("),
        ],
        ("palimpsest_provider_request_duration_seconds", "purpose") => {
            &[("crates/summarize/src/request.rs", "impl Purpose {")]
        }
        ("palimpsest_compactions_total", "outcome") => {
            &[("crates/engine/src/tally.rs", "fn failure_reason(")]
        }
        ("palimpsest_compactions_total", "source") => {
            &[("crates/engine/src/tally.rs", "fn source(")]
        }
        ("palimpsest_gateway_unmanaged_total", "reason") => {
            &[("crates/gateway/src/context.rs", "impl Unmanaged {")]
        }
        ("palimpsest_rpc_in_flight", "kind") => &[(
            "crates/server/src/metrics/observers.rs",
            "fn observe_server(",
        )],
        ("palimpsest_session_cache_lookups_total", "outcome") => &[(
            "crates/edge/src/metrics/observers.rs",
            "fn observe_sessions(",
        )],
        _ => panic!("add the code that emits {metric}{{{label}=\"{value}\"}}"),
    };
    let mut sources = sources.iter();
    sources.any(|(file, begins)| quoted_in(file, begins).contains(value))
}

/// Returns the texts between backquotes.
fn code_in(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the label values that a page names, with the metric and the label. A table or a sentence belongs to the last
/// metric before it.
fn label_values(page: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let (mut metric, mut column) = (String::new(), None);
    for line in page.lines().map(str::trim) {
        let mut add = |metric: &str, label: &str, value: &str| {
            found.push((metric.to_owned(), label.to_owned(), value.to_owned()));
        };
        if let Some(row) = line.strip_prefix("| ") {
            let first = row.split(" | ").next().unwrap();
            match column {
                None => column = ["outcome", "reason"].into_iter().find(|it| *it == first),
                // Reasons of the contract are written without backquotes.
                Some(label) if !first.contains('`') => add(&metric, label, first),
                Some(label) => code_in(first).for_each(|value| add(&metric, label, value)),
            }
            continue;
        }
        if line.starts_with("|---") {
            continue;
        }
        column = None;
        for (at, _) in line.match_indices("palimpsest_") {
            let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let rest = &line[at..];
            let end = rest.find(|c| !named(c)).unwrap_or(rest.len());
            // The count of a histogram has the suffix `_count`, and its definition has none.
            rest[..end]
                .trim_end_matches("_count")
                .clone_into(&mut metric);
            let selector = rest[end..].strip_prefix('{');
            if let Some((label, value)) = selector.and_then(|it| it.split_once("=\"")) {
                add(&metric, label, value.split('"').next().unwrap());
            }
        }
        for label in ["outcome", "endpoint"] {
            // A sentence such as "the endpoint is `main` or `fallback`".
            if let Some((_, values)) = line.split_once(&format!("{label} is `")) {
                let values = values.split(['.', ',']).next().unwrap();
                let values = format!("`{values}");
                code_in(&values).for_each(|value| add(&metric, label, value));
            }
        }
    }
    found
}

#[test]
fn the_code_emits_every_label_value_of_the_runbooks() {
    let page = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let values = label_values(&page);
    let auth = (
        "palimpsest_provider_request_duration_seconds",
        "outcome",
        "auth",
    );
    let named = values
        .iter()
        .filter(|(metric, label, value)| (metric.as_str(), label.as_str(), value.as_str()) == auth);
    assert!(named.count() >= 2 && values.len() >= 30, "{values:#?}");
    for (metric, label, value) in &values {
        assert!(
            is_emitted(metric, label, value),
            "{metric} has no {label}=\"{value}\""
        );
    }
}
