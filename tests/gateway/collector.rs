//! A real OpenTelemetry Collector, and the spans in the file that it writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{File, read_to_string};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::sleep;

/// The maximum time of a start and of an export.
const SOON: Duration = Duration::from_mins(1);
pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn program() -> Command {
    Command::new(top().join("target/tools/otelcol/otelcol"))
}

/// A running collector with the configuration of `deploy/otel`. It also writes the traces to a file.
pub(crate) struct Collector {
    process: Child,
    pub(crate) port: u16,
    pub(crate) folder: TempDir,
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A span in the file of the collector.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) kind: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) is_error: bool,
    pub(crate) attributes: BTreeMap<String, Value>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // Both listeners exist at the same time, so the ports differ.
        let ports = [free(), free()].map(|listener| listener.local_addr().unwrap().port());
        let own = json!({
            "receivers": {"otlp": {"protocols": {
                "grpc": {"endpoint": format!("127.0.0.1:{}", ports[0])},
                "http": {"endpoint": format!("127.0.0.1:{}", ports[1])},
            }}},
            "processors": {"batch": {"timeout": "100ms"}},
            "exporters": {"file": {"path": folder.path().join("traces.json"), "flush_interval": "100ms"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"exporters": ["debug", "file"]}},
            },
        });
        // YAML contains JSON.
        std::fs::write(folder.path().join("own.yaml"), own.to_string()).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let process = program()
            .arg("--config")
            .arg(top().join("deploy/otel/collector.yaml"))
            .arg("--config")
            .arg(folder.path().join("own.yaml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let process = process.expect("target/tools has no collector: run scripts/install-tools");
        let collector = Self {
            process,
            port: ports[0],
            folder,
        };
        collector
            .until("the collector listens", async || {
                let address = ("127.0.0.1", collector.port);
                TcpStream::connect(address).await.ok().map(drop)
            })
            .await;
        collector
    }

    async fn until<T>(&self, wanted: &str, attempt: impl AsyncFn() -> Option<T>) -> T {
        let steps = SOON.as_millis() / 50;
        for _ in 0..steps {
            if let Some(found) = attempt().await {
                return found;
            }
            sleep(Duration::from_millis(50)).await;
        }
        let log = read_to_string(self.folder.path().join("log")).unwrap();
        panic!("no end of the wait until {wanted}: {log}");
    }

    /// Returns the spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let file = self.folder.path().join("traces.json");
        let text = read_to_string(file).unwrap_or_default();
        // The last line can be incomplete.
        let exports = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        exports.flat_map(|export: Value| read(&export)).collect()
    }

    /// Waits for a span that is accepted. Returns all spans of its trace.
    pub(crate) async fn trace_with(
        &self,
        wanted: &str,
        accept: impl Fn(&Span) -> bool,
    ) -> Vec<Span> {
        self.until(wanted, async || {
            let all = self.spans();
            let trace = all.iter().find(|span| accept(span))?.trace.clone();
            Some(all.into_iter().filter(|span| span.trace == trace).collect())
        })
        .await
    }
}

/// Reads an export in the JSON of OTLP.
fn read(export: &Value) -> Vec<Span> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let resources = list(&export["resourceSpans"]);
    let scopes = resources.iter().flat_map(|one| list(&one["scopeSpans"]));
    let spans = scopes.flat_map(|one| list(&one["spans"]));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    spans
        .map(|span| Span {
            trace: text(&span["traceId"]),
            id: text(&span["spanId"]),
            parent: text(&span["parentSpanId"]),
            name: text(&span["name"]),
            kind: span["kind"].as_u64().unwrap(),
            begin: text(&span["startTimeUnixNano"]).parse().unwrap(),
            end: text(&span["endTimeUnixNano"]).parse().unwrap(),
            // 2 is `STATUS_CODE_ERROR` of OTLP.
            is_error: span["status"]["code"] == 2,
            attributes: list(&span["attributes"])
                .iter()
                .map(|one| (text(&one["key"]), value(&one["value"])))
                .collect(),
        })
        .collect()
}

/// Returns the value of an attribute.
fn value(any: &Value) -> Value {
    let (kind, value) = any.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        // OTLP writes 64-bit integers as strings in JSON.
        "intValue" => json!(value.as_str().unwrap().parse::<i64>().unwrap()),
        "arrayValue" => {
            let values = value["values"].as_array().unwrap();
            values.iter().map(self::value).collect()
        }
        _ => value.clone(),
    }
}

/// The kinds of spans in the conventions.
pub(crate) const INTERNAL: u64 = 1;
pub(crate) const SERVER: u64 = 2;
pub(crate) const CLIENT: u64 = 3;

impl Span {
    pub(crate) fn get(&self, name: &str) -> &Value {
        self.attributes.get(name).unwrap_or(&Value::Null)
    }

    /// Returns the name in the table of the page: without the model, the tool, the route and the service.
    pub(crate) fn row(&self) -> String {
        if self.attributes.contains_key("http.request.method") {
            return "METHOD ROUTE".to_owned();
        }
        if self.attributes.contains_key("rpc.method") {
            return "SERVICE/RPC".to_owned();
        }
        match self.name.split_once(' ') {
            Some(("chat", _)) => "chat MODEL".to_owned(),
            Some(("execute_tool", _)) => "execute_tool TOOL".to_owned(),
            _ if self.name == "chat" => "chat MODEL".to_owned(),
            _ => self.name.clone(),
        }
    }
}

/// Returns the spans as an indented tree, with the milliseconds of their begin and their duration.
pub(crate) fn tree(spans: &[Span]) -> String {
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    let begin = spans.iter().map(|span| span.begin).min().unwrap_or(0);
    let mut text = String::new();
    let mut roots: Vec<&Span> = spans
        .iter()
        .filter(|span| !ids.contains(&*span.parent))
        .collect();
    roots.sort_by_key(|span| span.begin);
    let mut open: Vec<(usize, &Span)> = roots.into_iter().rev().map(|span| (0, span)).collect();
    while let Some((depth, span)) = open.pop() {
        let ms = |nanos: u64| nanos / 1_000_000;
        let _ = writeln!(
            text,
            "{:>6} ms {:>6} ms  {}{}",
            ms(span.begin - begin),
            ms(span.end - span.begin),
            "  ".repeat(depth),
            span.name
        );
        let mut inner: Vec<&Span> = spans.iter().filter(|one| one.parent == span.id).collect();
        inner.sort_by_key(|span| std::cmp::Reverse(span.begin));
        open.extend(inner.into_iter().map(|inner| (depth + 1, inner)));
    }
    text
}
