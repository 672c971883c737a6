//! Responses that the gateway reads: the hold of their last event, their record and their metrics.

use std::sync::Arc;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_gateway::context::RecordedResponse;
use palimpsest_gateway::reading::{ResponseApi, ResponseEnd};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use crate::raw::{
    End, Running, complete_chunks, connect, head_length, in_time, read_message, read_to_end,
    recording_gateway, upstream,
};
use crate::scripted_context::ScriptedContext;

/// A hold timeout that no test reaches.
const NEVER_MS: u64 = 60_000_000;

const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const START: &str = r#"data: {"type":"message_start","message":{"role":"assistant","content":[],"usage":{"input_tokens":5,"output_tokens":1}}}"#;
const TEXT: &str = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"one\"}}\n\n";
const STOP: &str = "data: {\"type\":\"message_stop\"}\n\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// A gateway with a scripted context.
struct World {
    gateway: Running,
    context: Arc<ScriptedContext>,
    begins: UnboundedReceiver<RecordedResponse>,
}

impl World {
    async fn new(url: &str, hold_timeout_ms: u64) -> Self {
        let (context, begins) = ScriptedContext::new();
        let used = Arc::clone(&context);
        let change = |config: &mut palimpsest_settings::GatewayConfig| {
            config.hold_timeout_ms = hold_timeout_ms;
            config.max_response_bytes = 1 << 20;
        };
        Self {
            gateway: recording_gateway(url, used, change).await,
            context,
            begins,
        }
    }

    /// Returns a gateway in front of an upstream that answers each request with these bytes.
    async fn answering(answer: String, hold_timeout_ms: u64) -> Self {
        let answer = Arc::new(answer);
        let upstream = upstream(move |mut stream: TcpStream| {
            let answer = Arc::clone(&answer);
            async move {
                while read_message(&mut stream).await.is_some() {
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        })
        .await;
        Self::new(&format!("http://{upstream}"), hold_timeout_ms).await
    }

    async fn send(&self) -> TcpStream {
        let mut client = connect(self.gateway.address).await;
        client.write_all(crate::raw::REQUEST).await.unwrap();
        client
    }

    async fn recorded(&mut self) -> RecordedResponse {
        self.begins.recv().await.unwrap()
    }

    /// Asserts that a reading ends only after a record was permitted to end.
    async fn held<T>(&self, reading: JoinHandle<T>) -> T {
        // Enough turns of the scheduler for a response that is not held.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert!(
            !reading.is_finished(),
            "the response ended before its record"
        );
        self.context.permit(1);
        reading.await.unwrap()
    }

    /// Waits until a metric has a value.
    async fn metric(&self, series: &str, value: u64) {
        let line = format!("palimpsest_gateway_{series} {value}");
        while !self
            .gateway
            .metrics
            .exposition()
            .lines()
            .any(|found| found == line)
        {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

/// Reads until the bytes end with `end`.
async fn read_until(client: &mut TcpStream, bytes: &mut Vec<u8>, end: &str) {
    while !bytes.ends_with(end.as_bytes()) {
        assert_ne!(
            client.read_buf(bytes).await.unwrap(),
            0,
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[tokio::test]
async fn only_the_last_event_waits_for_the_record() {
    in_time(async {
        // The last event begins in the middle of a frame.
        let body = format!("{START}\n\n{TEXT}{STOP}");
        let answer = format!("{STREAM}{}0\r\n\r\n", chunk(&body));
        let mut world = World::answering(answer, NEVER_MS).await;
        let mut client = world.send().await;
        let mut bytes = Vec::new();
        read_until(&mut client, &mut bytes, &format!("{TEXT}\r\n")).await;
        let response = world.recorded().await;
        assert_eq!(
            (response.api, response.end),
            (ResponseApi::Messages, ResponseEnd::Complete)
        );
        let json: Value = serde_json::from_slice(&response.json).unwrap();
        assert_eq!(json["content"], json!([{"type": "text", "text": "one"}]));
        let reading = tokio::spawn(async move {
            read_until(&mut client, &mut bytes, "0\r\n\r\n").await;
            bytes
        });
        let bytes = world.held(reading).await;
        let content = complete_chunks(&bytes[head_length(&bytes).unwrap()..]);
        assert_eq!(String::from_utf8_lossy(&content), body);
        world
            .metric(r#"responses_total{api="messages",outcome="complete"}"#, 1)
            .await;
        world
            .metric(r#"tokens_total{api="messages",kind="uncached"}"#, 5)
            .await;
        world
            .metric(r#"tokens_total{api="messages",kind="output"}"#, 1)
            .await;
    })
    .await;
}

#[tokio::test]
async fn a_body_of_one_value_waits_for_the_record() {
    in_time(async {
        let json = r#"{"content":[],"stop_reason":"end_turn","usage":{"input_tokens":1}}"#;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\n";
        let length = format!("{head}Content-Length: {}\r\n\r\n{json}", json.len());
        let chunks = format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
            chunk(json)
        );
        for answer in [length, chunks] {
            let mut world = World::answering(answer.clone(), NEVER_MS).await;
            let mut client = world.send().await;
            let response = world.recorded().await;
            assert_eq!(response.json, json.as_bytes());
            assert_eq!(response.summary.stop_reason.as_deref(), Some("end_turn"));
            let reading = tokio::spawn(async move { read_message(&mut client).await.unwrap() });
            assert_eq!(world.held(reading).await.body_text(), json);
        }
    })
    .await;
}

#[tokio::test]
async fn a_slow_or_failed_record_releases_the_last_event() {
    in_time(async {
        let body = format!("{START}\n\n{STOP}");
        let answer = format!("{STREAM}{}0\r\n\r\n", chunk(&body));
        // The record gets no permit, so the hold ends after 1 ms.
        let slow = World::answering(answer.clone(), 1).await;
        let mut client = slow.send().await;
        assert_eq!(read_message(&mut client).await.unwrap().body_text(), body);
        // The record continues, and delays the end of the drain.
        assert!(!slow.gateway.requests.is_empty());
        slow.context.permit(1);
        while !slow.gateway.requests.is_empty() {
            tokio::task::yield_now().await;
        }
        let failing = World::answering(answer, NEVER_MS).await;
        failing.context.fail("the disk is full");
        failing.context.permit(1);
        let mut client = failing.send().await;
        assert_eq!(read_message(&mut client).await.unwrap().body_text(), body);
    })
    .await;
}

#[tokio::test]
async fn a_cut_response_is_recorded_before_the_connection_ends() {
    in_time(async {
        for expected in [End::Closed, End::Reset] {
            let content = format!("{START}\n\n{TEXT}");
            let cut = format!("{STREAM}{}", chunk(&content));
            let upstream = upstream(move |mut stream: TcpStream| {
                let cut = cut.clone();
                async move {
                    read_message(&mut stream).await.unwrap();
                    stream.write_all(cut.as_bytes()).await.unwrap();
                    if expected == End::Reset {
                        stream.set_zero_linger().unwrap();
                    }
                }
            })
            .await;
            let mut world = World::new(&format!("http://{upstream}"), NEVER_MS).await;
            let mut client = world.send().await;
            let response = world.recorded().await;
            assert_eq!(response.end, ResponseEnd::Cut);
            let json: Value = serde_json::from_slice(&response.json).unwrap();
            assert_eq!(json["content"][0]["text"], "one");
            let reading = tokio::spawn(async move { read_to_end(&mut client).await });
            let (bytes, end) = world.held(reading).await;
            assert_eq!(end, expected);
            let chunks = &bytes[head_length(&bytes).unwrap()..];
            assert_eq!(complete_chunks(chunks), content.as_bytes());
            assert!(!chunks.ends_with(b"0\r\n\r\n"), "the cut is hidden");
            let outcome = r#"responses_total{api="messages",outcome="cut"}"#;
            world.metric(outcome, 1).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_response_is_recorded_when_its_agent_disconnects() {
    in_time(async {
        let answer = format!("{STREAM}{}", chunk(&format!("{START}\n\n{TEXT}")));
        let mut world = World::answering(answer, NEVER_MS).await;
        let mut client = world.send().await;
        let mut bytes = Vec::new();
        read_until(&mut client, &mut bytes, &format!("{TEXT}\r\n")).await;
        drop(client);
        let response = world.recorded().await;
        assert_eq!(response.end, ResponseEnd::Cut);
        world
            .metric(r#"responses_total{api="messages",outcome="cancelled"}"#, 1)
            .await;
    })
    .await;
}

#[tokio::test]
async fn the_connection_to_upstream_survives_an_agent_that_leaves_after_the_last_event() {
    in_time(async {
        let (report, mut reports) = tokio::sync::mpsc::channel(4);
        let (go_on, waits) = tokio::sync::mpsc::channel::<()>(1);
        let waits = Arc::new(tokio::sync::Mutex::new(waits));
        let upstream = upstream(move |mut stream: TcpStream| {
            let (report, waits) = (report.clone(), Arc::clone(&waits));
            async move {
                report.send("connected").await.unwrap();
                while read_message(&mut stream).await.is_some() {
                    report.send("request").await.unwrap();
                    let event = chunk(&format!("{START}\n\n{STOP}"));
                    stream
                        .write_all(format!("{STREAM}{event}").as_bytes())
                        .await
                        .unwrap();
                    waits.lock().await.recv().await;
                    stream.write_all(b"0\r\n\r\n").await.unwrap();
                }
            }
        })
        .await;
        let mut world = World::new(&format!("http://{upstream}"), NEVER_MS).await;
        // Both records end at once, so that only the rest of the first body is open.
        world.context.permit(2);
        let mut client = world.send().await;
        read_until(&mut client, &mut Vec::new(), &format!("{STOP}\r\n")).await;
        drop(client);
        // The agent is gone before upstream ends its body.
        while world.gateway.connections.count() > 0 {
            tokio::task::yield_now().await;
        }
        go_on.send(()).await.unwrap();
        while !world.gateway.requests.is_empty() {
            tokio::task::yield_now().await;
        }
        go_on.send(()).await.unwrap();
        let mut client = world.send().await;
        read_until(&mut client, &mut Vec::new(), "0\r\n\r\n").await;
        assert_eq!(world.recorded().await.end, ResponseEnd::Complete);
        let seen = [
            reports.recv().await,
            reports.recv().await,
            reports.recv().await,
        ];
        // Both requests used one connection.
        assert_eq!(seen, ["connected", "request", "request"].map(Some));
    })
    .await;
}

#[tokio::test]
async fn a_response_that_cannot_be_read_is_forwarded_without_a_hold() {
    in_time(async {
        let stream = |body: &str| format!("{STREAM}{}0\r\n\r\n", chunk(body));
        // The text alone has the size of `max_response_bytes`.
        let large = format!("{START}\n\n{}", TEXT.replace("one", &"x".repeat(1 << 20)));
        let coded = STREAM.replace("Transfer", "Content-Encoding: compress\r\nTransfer");
        let html = STREAM.replace("event-stream", "html");
        let cases = [
            (stream(&format!("data: {{\n\n{STOP}")), "malformed"),
            (
                // The first block has the index 7, which is no position.
                stream(&format!("{START}\n\n{}{STOP}", TEXT.replace(":0", ":7"))),
                "unknown_event",
            ),
            (stream(&format!("{large}{STOP}")), "too_large"),
            (format!("{coded}{}0\r\n\r\n", chunk(STOP)), "encoding"),
            (format!("{html}{}0\r\n\r\n", chunk(STOP)), "content_type"),
        ];
        for (answer, reason) in cases {
            let world = World::answering(answer.clone(), NEVER_MS).await;
            let mut client = world.send().await;
            let mut bytes = Vec::new();
            read_until(&mut client, &mut bytes, "0\r\n\r\n").await;
            let (head, chunks) = bytes.split_at(head_length(&bytes).unwrap());
            let (sent_head, sent_chunks) = answer
                .as_bytes()
                .split_at(head_length(answer.as_bytes()).unwrap());
            let added = "x-palimpsest-body: original\r\nx-palimpsest-session: projects/p/sessions/s\r\n\r\n";
            let sent_head = [&sent_head[..sent_head.len() - 2], added.as_bytes()].concat();
            assert_eq!(head, sent_head, "{reason}");
            assert_eq!(
                complete_chunks(chunks),
                complete_chunks(sent_chunks),
                "{reason}"
            );
            world
                .metric(&format!(r#"unread_total{{reason="{reason}"}}"#), 1)
                .await;
            world
                .metric(r#"responses_total{api="messages",outcome="unread"}"#, 1)
                .await;
        }
    })
    .await;
}

#[tokio::test]
async fn responses_of_all_apis_are_recorded_as_without_a_stream() {
    in_time(async {
        let provider = FakeProvider::start().await.unwrap();
        let mut world = World::new(&provider.url(), NEVER_MS).await;
        world.context.permit(100);
        for (path, api) in [
            ("/v1/messages", ResponseApi::Messages),
            ("/v1/chat/completions", ResponseApi::Chat),
            ("/v1/responses", ResponseApi::Responses),
        ] {
            for coding in ["gzip", "deflate", "br", "zstd"] {
                for pace in ["", "+split=byte", "+split=together", "+split=utf8+crlf"] {
                    let model = format!("m+say=Grüße_und_😀+coding={coding}{pace}");
                    let mut body = json!({
                        "model": model, "stream": true, "stream_options": {"include_usage": true},
                        "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}],
                    });
                    if path == "/v1/responses" {
                        body = json!({"model": model, "stream": true, "input": "hi"});
                    } else if path == "/v1/messages" {
                        body.as_object_mut().unwrap().remove("stream_options");
                    }
                    let body = body.to_string();
                    let request = format!(
                        "POST {path} HTTP/1.1\r\nhost: g\r\nx-api-key: k\r\nauthorization: Bearer k\r\n\
                         anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\n\
                         accept-encoding: {coding}\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    let mut client = connect(world.gateway.address).await;
                    client.write_all(request.as_bytes()).await.unwrap();
                    let received = read_message(&mut client).await.unwrap();
                    assert!(received.head_text().contains(coding), "{}", received.head_text());
                    let response = world.recorded().await;
                    assert_eq!((response.api, response.end), (api, ResponseEnd::Complete), "{model}");
                    let text = String::from_utf8(response.json.to_vec()).unwrap();
                    assert!(text.contains("Grüße und 😀"), "{model}: {text}");
                    assert!(response.summary.usage.unwrap().output_tokens > 0, "{model}: {text}");
                }
            }
        }
        // Four codings times four paces.
        world.metric(r#"responses_total{api="chat",outcome="complete"}"#, 16).await;
    })
    .await;
}
