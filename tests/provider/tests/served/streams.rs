//! Tests of streams as clients receive them: frames, pace, codings and faults.

use std::io::Read as _;
use std::time::Duration;

use palimpsest_fake_provider::FakeProvider;
use serde_json::{Value, json};

use crate::http::{KEY, Received, get, post, post_json};

const MESSAGES: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const TEXT: &str = "Grüße und 😀, in several deltas of a stream.";

/// Returns a request for a stream of one API.
fn request(path: &str, model: &str) -> Value {
    if path == RESPONSES {
        json!({"model": model, "stream": true, "input": "hi"})
    } else {
        json!({
            "model": model, "stream": true, "max_tokens": 100,
            "messages": [{"role": "user", "content": "hi"}],
        })
    }
}

/// Streams the text of this test with additional directives in the model's name.
async fn stream(provider: &FakeProvider, path: &str, directives: &str) -> Received {
    let text = TEXT.replace(' ', "_");
    let model = format!("m+say={text}{directives}");
    post(provider, path, &request(path, &model), "").await
}

async fn streamed(path: &str, directives: &str) -> Received {
    let provider = FakeProvider::start().await.unwrap();
    stream(&provider, path, directives).await
}

/// Returns the text of a stream's deltas.
fn text(received: &Received) -> String {
    let deltas = received.data().into_iter().filter_map(|data| {
        let data: Value = serde_json::from_str(&data).ok()?;
        let places = ["/delta/text", "/choices/0/delta/content", "/delta"];
        let mut found = places.iter().filter_map(|place| data.pointer(place));
        found.find_map(|value| Some(value.as_str()?.to_owned()))
    });
    deltas.collect()
}

#[tokio::test]
async fn each_api_streams_its_text_in_deltas() {
    for path in [MESSAGES, CHAT, RESPONSES] {
        let received = streamed(path, "+delta=5").await;
        assert!(received.is_complete, "{path}");
        assert_eq!(text(&received), TEXT, "{path}");
        let head = &received.head;
        assert!(head.contains("text/event-stream"), "{path}: {head}");
        assert_eq!(received.chunks.len(), received.data().len(), "{path}");
    }
}

#[tokio::test]
async fn every_split_has_the_same_content() {
    for path in [MESSAGES, CHAT, RESPONSES] {
        let expected = streamed(path, "").await.body();
        // The answer repeats the name of the model.
        let crlf = streamed(path, "+crlf").await.body().replace("+crlf", "");
        assert_eq!(crlf.replace("\r\n", "\n"), expected, "{path}");
        // The frames of each event, at least. Characters of several bytes are in some events only.
        for (split, frames) in [("together", 0), ("utf8", 1), ("field", 3), ("line_end", 4)] {
            let received = streamed(path, &format!("+crlf+delta=3+split={split}")).await;
            assert_eq!(text(&received), TEXT, "{path} {split}");
            let (chunks, events) = (received.chunks.len(), received.data().len());
            if split == "together" {
                assert_eq!(chunks, 1, "{path}");
            } else {
                let least = frames * events + usize::from(split == "utf8");
                assert!(chunks >= least, "{path} {split}: {chunks} {events}");
            }
        }
        let directives = "+split=byte+one-byte";
        let bytes = streamed(path, directives).await;
        assert!(bytes.chunks.iter().all(|chunk| chunk.len() == 1), "{path}");
        assert_eq!(bytes.body().replace(directives, ""), expected, "{path}");
    }
}

#[tokio::test]
async fn streams_are_cut_after_events_and_bytes() {
    for path in [MESSAGES, CHAT, RESPONSES] {
        for count in [0, 1, 4] {
            let received = streamed(path, &format!("+cut-event={count}")).await;
            assert_eq!(received.data().len(), count, "{path}");
            assert!(!received.is_complete && !received.is_reset, "{path}");
        }
        let received = streamed(path, "+cut-byte=77+split=byte").await;
        assert_eq!(received.body().len(), 77, "{path}");
        assert!(!received.is_complete, "{path}");
        let received = streamed(path, "+reset-event=2").await;
        assert!(received.is_reset && !received.is_complete, "{path}");
        let received = streamed(path, "+reset").await;
        assert!(received.is_reset && received.head.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn streams_end_with_the_error_of_their_api() {
    let last = async |path: &str, directives: &str| {
        let received = streamed(path, directives).await;
        assert!(received.is_complete, "{path} {directives}");
        let data = received.data();
        // Three events of the answer, and the error.
        assert_eq!(data.len(), 4, "{path} {directives}: {data:?}");
        serde_json::from_str::<Value>(data.last().unwrap()).unwrap()
    };
    let error = last(MESSAGES, "+error-event=3").await;
    assert_eq!(error["error"]["type"], "overloaded_error");
    let error = last(CHAT, "+error-event=3").await;
    assert_eq!(error["error"]["type"], "server_error");
    let error = last(RESPONSES, "+error-event=3").await;
    assert_eq!(
        (&error["type"], &error["sequence_number"]),
        (&json!("error"), &json!(3))
    );
    let failed = last(RESPONSES, "+failed=3").await;
    assert_eq!(failed["type"], "response.failed");
    assert_eq!(failed["response"]["status"], "failed");
    assert_eq!(failed["response"]["error"]["code"], "server_error");
    let broken = streamed(CHAT, "+malformed=2").await.data();
    let is_json = |data: &String| serde_json::from_str::<Value>(data).is_ok();
    let bad: Vec<usize> = (0..broken.len() - 1)
        .filter(|at| !is_json(&broken[*at]))
        .collect();
    assert_eq!(bad, [2]);
}

#[tokio::test]
async fn too_long_prompts_fail_inside_a_stream_of_responses() {
    let received = streamed(RESPONSES, "+ptl=responses").await;
    assert!(
        received.head.starts_with("HTTP/1.1 200"),
        "{}",
        received.head
    );
    let data = received.data();
    let failed: Value = serde_json::from_str(data.last().unwrap()).unwrap();
    assert_eq!(failed["type"], "response.failed");
    assert_eq!(
        failed["response"]["error"]["code"],
        "context_length_exceeded"
    );
}

#[tokio::test]
async fn streams_are_compressed_for_clients_that_accept_it() {
    let provider = FakeProvider::start().await.unwrap();
    let plain = stream(&provider, CHAT, "").await.body();
    for coding in ["gzip", "br", "zstd"] {
        let text = TEXT.replace(' ', "_");
        let body = request(CHAT, &format!("m+say={text}+coding={coding}"));
        let refused = post(&provider, CHAT, &body, "accept-encoding: identity\r\n").await;
        assert!(!refused.head.contains("content-encoding"), "{coding}");
        let accepts = format!("accept-encoding: {coding}\r\n");
        let received = post(&provider, CHAT, &body, &accepts).await;
        let header = format!("content-encoding: {coding}\r\n");
        assert!(received.head.contains(&header), "{}", received.head);
        let bytes = received.chunks.concat();
        let mut decoded = String::new();
        let read = match coding {
            "gzip" => flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut decoded),
            "br" => brotli::Decompressor::new(&bytes[..], 4_096).read_to_string(&mut decoded),
            _ => zstd::stream::read::Decoder::new(&bytes[..])
                .unwrap()
                .read_to_string(&mut decoded),
        };
        read.unwrap();
        // Both answers have their own id and model.
        assert_eq!(
            decoded.matches("data: ").count(),
            plain.matches("data: ").count()
        );
        assert!(decoded.ends_with("data: [DONE]\n\n"), "{coding}: {decoded}");
        assert!(received.chunks.len() >= decoded.matches("data: ").count());
    }
}

#[tokio::test]
async fn a_stream_of_ten_minutes_follows_the_scripted_clock() {
    let provider = FakeProvider::start().await.unwrap();
    let minute = Duration::from_mins(1);
    let waiting = stream(&provider, MESSAGES, "+first-byte=600000+gap=60000");
    tokio::pin!(waiting);
    let received = loop {
        tokio::select! {
            received = &mut waiting => break received,
            // Each advance covers one pause. One that comes before the pause has no effect on it.
            () = tokio::time::sleep(Duration::from_millis(1)) => provider.advance(minute),
        }
    };
    assert_eq!(text(&received), TEXT);
}

#[tokio::test]
async fn connections_are_refused_until_the_time_is_over() {
    let provider = FakeProvider::start().await.unwrap();
    let received = stream(&provider, CHAT, "+refuse-ms=3600000").await;
    assert!(received.is_reset && received.head.is_empty());
    // The listener closes after the reset of the connection.
    while tokio::net::TcpStream::connect(provider.address())
        .await
        .is_ok()
    {
        tokio::task::yield_now().await;
    }
    provider.advance(Duration::from_hours(1));
    while tokio::net::TcpStream::connect(provider.address())
        .await
        .is_err()
    {
        tokio::task::yield_now().await;
    }
    let received = stream(&provider, CHAT, "").await;
    assert_eq!(text(&received), TEXT);
}

#[tokio::test]
async fn failures_state_the_time_of_a_retry() {
    for (directive, header) in [
        ("+status=429+retry-after=2", "retry-after: 2\r\n"),
        (
            "+status=429+retry-after-ms=1500",
            "retry-after-ms: 1500\r\n",
        ),
        ("+retry-after-date=60", " GMT\r\n"),
        (
            "+retry-after-limits=60",
            "anthropic-ratelimit-requests-remaining: 0\r\n",
        ),
    ] {
        let head = streamed(MESSAGES, directive).await.head;
        assert!(head.starts_with("HTTP/1.1 429"), "{directive}: {head}");
        assert!(head.contains(header), "{directive}: {head}");
    }
    for status in [500, 529] {
        let head = streamed(MESSAGES, &format!("+status={status}")).await.head;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
    }
    let page = streamed(RESPONSES, "+html=502").await;
    assert!(page.head.contains("text/html"), "{}", page.head);
    assert!(page.body().contains("<title>502</title>"));
}

#[tokio::test]
async fn requests_are_recorded_as_bytes() {
    let provider = FakeProvider::start().await.unwrap();
    let sent = request(MESSAGES, "m");
    post(
        &provider,
        "/v1/messages?beta=true",
        &sent,
        "X-Order: 1\r\nx-order: 2\r\n",
    )
    .await;
    let recorded = provider.requests().remove(0);
    let head = String::from_utf8(recorded.head.to_vec()).unwrap();
    assert!(
        head.starts_with("POST /v1/messages?beta=true HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains("X-Order: 1\r\nx-order: 2\r\n"), "{head}");
    assert_eq!(recorded.raw, sent.to_string().as_bytes());
    assert_eq!(
        (recorded.query.as_str(), recorded.path.as_str()),
        ("beta=true", MESSAGES)
    );
}

#[tokio::test]
async fn conversations_are_scripted_over_http() {
    let provider = FakeProvider::start().await.unwrap();
    let script = json!({
        "match": {"model": "scripted", "tools": true},
        "turns": [
            {"thinking": "why", "text": "one", "calls": [{"name": "Bash", "input": {"command": "ls"}}],
                "usage": {"input": 7, "read": 70, "output": 9}},
            {"text": "two", "fault": {"status": {"status": 529}}},
        ],
        "agent": {"rounds": 1, "output_bytes": [80, 80], "text": "end"},
    });
    let (status, reply) = post_json(&provider, "/_control/script", &script).await;
    assert_eq!(status, 200, "{reply}");
    let tool = json!({"name": "Bash", "input_schema": {"type": "object"}});
    let asked = json!({
        "model": "scripted", "max_tokens": 2_000, "tools": [tool],
        "thinking": {"type": "adaptive"}, "messages": [{"role": "user", "content": "hi"}],
    });
    let (_, first) = post_json(&provider, MESSAGES, &asked).await;
    let content = first["content"].as_array().unwrap();
    assert_eq!(content[0]["thinking"], "why");
    assert_eq!(content[1]["text"], "one");
    assert_eq!(content[2]["input"]["command"], "ls");
    assert_eq!(first["usage"]["cache_read_input_tokens"], 70);
    let (status, _) = post_json(&provider, MESSAGES, &asked).await;
    assert_eq!(status, 529);
    let (_, round) = post_json(&provider, MESSAGES, &asked).await;
    assert_eq!(round["stop_reason"], "tool_use");
    assert!(round.to_string().contains("seq -f"), "{round}");
    let (_, end) = post_json(&provider, MESSAGES, &asked).await;
    assert_eq!(end["content"][0]["text"], "end");
    let misspelled = json!({"turn": []});
    let (status, reply) = post_json(&provider, "/_control/script", &misspelled).await;
    assert_eq!(status, 400);
    assert!(
        reply.to_string().contains("unknown field `turn`"),
        "{reply}"
    );
}

#[tokio::test]
async fn a_models_name_starts_an_agent() {
    let provider = FakeProvider::start().await.unwrap();
    let tool = json!({
        "type": "function", "name": "exec_command",
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}},
    });
    let asked = json!({"model": "m+agent=2", "store": false, "input": "hi", "tools": [tool]});
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let (_, response) = post_json(&provider, RESPONSES, &asked).await;
        let output = response["output"].as_array().unwrap();
        kinds.push(output.last().unwrap()["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds, ["function_call", "function_call", "message"]);
}

#[tokio::test]
async fn the_clock_and_the_requests_are_readable_over_http() {
    let provider = FakeProvider::start().await.unwrap();
    let (status, clock) = post_json(&provider, "/_control/clock", &json!({"ms": 60_000})).await;
    assert_eq!(status, 200);
    assert!(clock["now_ms"].as_f64().unwrap() >= 60_000.0, "{clock}");
    stream(&provider, CHAT, "").await;
    let listed = get(&provider, "/_control/requests", "").await;
    let requests: Value = serde_json::from_str(&listed.body()).unwrap();
    assert_eq!(requests["requests"][0]["path"], CHAT);
    assert!(!listed.body().contains(KEY), "keys are not listed");
}
