//! Tests that every metric and label in the dashboard, the alerts and the documents exists on the server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::http::Request;
use palimpsest_proto::context::v1::{ListEventsRequest, SnipRequest};
use palimpsest_test_servers::Cluster;
use palimpsest_tests::Server;
use promql_parser::parser::{Expr, LabelModifier, parse};
use serde_json::Value;

use super::gateway::send;
use super::*;

/// The names of metrics, with their labels.
type Told = BTreeMap<String, BTreeSet<String>>;

/// The labels that Prometheus adds to all metrics.
const OF_TARGETS: [&str; 2] = ["job", "instance"];

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Makes the server record every metric, and scrapes them.
async fn told() -> (Told, String) {
    let mut world = World::new(&[]).await;
    world.prepare("s", work("lamp")).await;
    world.compact("s", CompactionStrategy::Model).await;
    // Some metrics exist only after a rejected call.
    let bad = ListEventsRequest::default();
    assert!(world.sessions.list_events(bad).await.is_err());
    let bad = SnipRequest::default();
    assert!(world.client.snip(bad).await.is_err());
    let mut text = world.server.scrape();
    // Some metrics exist only on a server with a shared store.
    let (cluster, folder) = (Cluster::start(), tempfile::tempdir().unwrap());
    let url = format!("store.postgres.url={}", cluster.url());
    let blobs = format!("blobs.url=file://{}", folder.path().join("blobs").display());
    let upstream = format!(
        "gateway.upstreams.anthropic.base_url={}",
        world.provider.url()
    );
    let gateway = [
        "gateway.enabled=true",
        "gateway.listen=127.0.0.1:0",
        &upstream,
    ];
    let mut settings = vec!["--set", &url, "--set", &blobs];
    settings.extend(gateway.iter().flat_map(|setting| ["--set", setting]));
    let shared = Server::start(&folder.path().join("data"), &settings);
    // A duration is reported after the first request.
    let array = r#"{"messages": [{"role": "user", "content": "Hello."}]}"#;
    for (path, body) in [("/v1/messages", "{}"), ("/v1/compress", array)] {
        let request = Request::post(path).header("host", "gateway");
        let request = request.body(Body::empty()).unwrap();
        send(&shared.gateway(), request, body).await;
    }
    text.push_str(&shared.scrape());
    (read(&text), text)
}

/// Parses samples in Prometheus's text format.
fn read(text: &str) -> Told {
    let mut told = Told::new();
    let samples = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    for line in samples {
        let end = line.find(['{', ' ']).unwrap();
        let (name, rest) = line.split_at(end);
        let labels = rest
            .strip_prefix('{')
            .map_or("", |rest| rest.rsplit_once('}').unwrap().0);
        // A value can contain a comma, so pairs are split at the quotation mark before it.
        let names = labels.split("\",").filter_map(|pair| pair.split_once('='));
        let names = names.map(|(name, _)| name.to_owned());
        told.entry(name.to_owned()).or_default().extend(names);
    }
    told
}

/// Returns the metric families that a text declares.
fn families(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect()
}

/// Collects the errors of a query. `by` contains the labels of the enclosing aggregations.
fn wrong(told: &Told, expr: &Expr, by: &[String], found: &mut Vec<String>) {
    match expr {
        Expr::VectorSelector(of) => {
            let name = of.name.as_deref().unwrap_or_default();
            // Prometheus itself creates `up` for each target.
            if name == "up" {
                return;
            }
            let Some(labels) = told.get(name) else {
                found.push(format!("{name} is not told"));
                return;
            };
            let matched = of.matchers.matchers.iter().map(|matcher| &matcher.name);
            for label in matched.chain(by) {
                if !labels.contains(label) && !OF_TARGETS.contains(&label.as_str()) {
                    found.push(format!("{name} has no label {label}"));
                }
            }
        }
        Expr::MatrixSelector(of) => {
            wrong(told, &Expr::VectorSelector(of.vs.clone()), by, found);
        }
        Expr::Aggregate(of) => {
            let by = match &of.modifier {
                Some(LabelModifier::Include(labels)) => [by, &labels.labels].concat(),
                // `without` names labels to drop, which a metric need not have.
                Some(LabelModifier::Exclude(_)) | None => by.to_vec(),
            };
            wrong(told, &of.expr, &by, found);
        }
        Expr::Binary(of) => {
            wrong(told, &of.lhs, by, found);
            wrong(told, &of.rhs, by, found);
        }
        Expr::Call(of) => {
            for argument in &of.args.args {
                wrong(told, argument, by, found);
            }
        }
        Expr::Paren(of) => wrong(told, &of.expr, by, found),
        Expr::Unary(of) => wrong(told, &of.expr, by, found),
        Expr::Subquery(of) => wrong(told, &of.expr, by, found),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) => {}
        Expr::Extension(_) => found.push("an extension of the language".to_owned()),
    }
}

fn check(told: &Told, query: &str, found: &mut Vec<String>) {
    // Replaces Grafana's variables.
    let query = query
        .replace("$__rate_interval", "5m")
        .replace("$__interval", "1m");
    match parse(&query) {
        Ok(expr) => wrong(told, &expr, &[], found),
        Err(error) => found.push(format!("{query}: {error}")),
    }
}

/// Collects every query of a dashboard.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(
                fields
                    .get("expr")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            );
            fields.values().for_each(|value| queries(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        _ => {}
    }
}

fn rules() -> Vec<Value> {
    let text = fs::read_to_string(file("deploy/prometheus/alerts.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&text).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    groups
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

#[tokio::test]
async fn every_query_of_the_dashboard_and_the_alerts_returns_data() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let (mut told, _) = told().await;
    let mut found = Vec::new();
    let dashboard = fs::read_to_string(file("deploy/grafana/palimpsest.json")).unwrap();
    let mut all = Vec::new();
    queries(&serde_json::from_str(&dashboard).unwrap(), &mut all);
    assert!(all.len() > 60, "{}", all.len());
    for query in &all {
        check(&told, query, &mut found);
    }
    for rule in rules() {
        let query = rule["expr"].as_str().unwrap();
        check(&told, query, &mut found);
        if let Some(name) = rule["record"].as_str() {
            // A recorded metric has the labels of its source metrics.
            let made_of = told
                .iter()
                .filter(|(made_of, _)| query.contains(made_of.as_str()));
            let labels = made_of.flat_map(|(_, labels)| labels.clone()).collect();
            told.insert(name.to_owned(), labels);
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_alert_has_a_severity_and_a_description() {
    let mut names = BTreeSet::new();
    for rule in rules().iter().filter(|rule| rule.get("alert").is_some()) {
        let name = rule["alert"].as_str().unwrap();
        assert!(names.insert(name.to_owned()), "{name} exists twice");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{name}");
        let annotations = &rule["annotations"];
        for text in ["summary", "description"] {
            assert!(
                annotations[text]
                    .as_str()
                    .is_some_and(|text| text.ends_with('.')),
                "{name}"
            );
        }
    }
    assert!(names.len() > 20);
}

#[tokio::test]
async fn exported_metrics_are_documented() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let (_, text) = told().await;
    let documented = fs::read_to_string(file("docs/metrics.md")).unwrap();
    let rows = documented
        .lines()
        .filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeSet<String> = rows
        .map(|row| row.split('`').next().unwrap().to_owned())
        .collect();
    assert_eq!(families(&text), documented);
}

#[tokio::test]
async fn the_number_of_series_does_not_grow_with_sessions() {
    let mut world = World::new(&["worker.enabled=false"]).await;
    let series = |server: &Server| {
        let text = server.scrape();
        text.lines().filter(|line| !line.starts_with('#')).count()
    };
    world.prepare("first", vec![user("one")]).await;
    let before = series(&world.server);
    for number in 0..50 {
        world
            .prepare(&format!("more-{number}"), vec![user("one")])
            .await;
    }
    assert_eq!(series(&world.server), before);
}
