use std::collections::BTreeSet;
use std::fmt::Write as _;

use expect_test::expect_file;

use super::names::{ALL, MetricKind};
use super::*;

/// Returns the expected `docs/metrics.md`. Run the test with `UPDATE_EXPECT=1` to write it.
fn document() -> String {
    let mut out = String::from(
        "# Metrics\n\nThis page is for operators who build dashboards and alerts. It lists every metric with its kind, \
         labels and meaning.\n\n- Prometheus reads the metrics at `/metrics` of the [admin \
         port](access.md#open-the-admin-port), by default\n  `127.0.0.1:50052`, without authentication.\n- With \
         `otlp.endpoint`, the metrics are also sent to a collector. At the collector, the names have dots, and no \
         suffix for\n  unit and kind: `palimpsest_rpc_duration_seconds` is `palimpsest.rpc.duration`.\n- Every value is that of \
         one process. Sum counters and histograms over instances. A worker has an admin port too, and\n  reports its \
         own updates of session memory, retention and sweeps.\n- Some gauges describe the whole store: \
         `palimpsest_session_memory_lag_seconds`, `palimpsest_sessions_deleting`,\n  `palimpsest_sessions_unreadable`, \
         and the gauges that begin with `palimpsest_retention_`. Take their maximum\n  over instances.\n- The number of \
         series is bounded: no label contains the name of a session, caller or tool. Only \
         `palimpsest_project_*`\n  metrics contain names of projects, for the first 100 projects. To examine one session, use \
         its trace or `GetSession`.\n- The [glossary](glossary.md) explains the terms, such as \
         view, level and session memory.\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for metric in ALL {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        let labels: Vec<String> = metric
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let (name, labels) = (metric.prometheus_name(), labels.join(", "));
        let _ = writeln!(out, "| `{name}` | {kind} | {labels} | {} |", metric.help);
    }
    out
}

#[test]
fn the_documented_metrics_equal_the_table() {
    expect_file!["../../../../docs/metrics.md"].assert_eq(&document());
}

#[test]
fn names_and_labels_follow_the_rules_of_prometheus() {
    let mut names = BTreeSet::new();
    for metric in ALL {
        let name = metric.prometheus_name();
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(is_plain), "{name}");
        assert!(
            name.starts_with("palimpsest_") || name.starts_with("process_"),
            "{name}"
        );
        assert!(metric.help.ends_with('.'), "{name}");
        for label in metric.labels {
            // The metrics by project limit the number of their labels.
            let is_by_project = *label == "project" && name.starts_with("palimpsest_project_");
            assert!(
                is_by_project || !["session", "project", "le", "job", "instance"].contains(label),
                "{name}"
            );
        }
        assert!(names.insert(name), "{} is declared twice", metric.name);
    }
}

#[test]
fn exported_metrics_have_their_documented_names() {
    let metrics = Metrics::default();
    metrics.waited(Duration::from_millis(1));
    metrics.synced(3, Duration::from_millis(2));
    metrics.hook_call("pre_compact", "failed", Duration::from_secs(1));
    metrics.model_request("main", "memory", ("timeout", None), Duration::from_secs(1));
    let text = metrics.exposition();
    let documented: BTreeSet<String> = ALL.iter().map(names::Metric::prometheus_name).collect();
    let told = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let told: Vec<&str> = told.map(|line| line.split(' ').next().unwrap()).collect();
    assert!(
        told.contains(&"palimpsest_store_sync_duration_seconds"),
        "{text}"
    );
    assert!(told.contains(&"process_cpu_seconds_total"), "{text}");
    for name in told {
        assert!(documented.contains(name), "{name} is not in the table");
    }
    assert!(
        text.contains("palimpsest_store_group_size_bucket{le=\"4\"} 1"),
        "{text}"
    );
    assert!(!text.contains("otel_scope"), "{text}");
}
