//! Properties of the reader: every split of a stream gives the response that the provider sends without a stream.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};
use palimpsest_fake_provider::FakeProvider;
use palimpsest_gateway::reading::{
    FinishedResponse, ReadMemory, Reader, ResponseApi, ResponseEnd, Unread,
};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const MAX_BYTES: usize = 1 << 20;
const APIS: [ResponseApi; 3] = [
    ResponseApi::Messages,
    ResponseApi::Chat,
    ResponseApi::Responses,
];

fn headers(media: &'static str, coding: &'static str) -> HeaderMap {
    let pair = |(name, value)| (name, HeaderValue::from_static(value));
    let mut headers: HeaderMap = [pair((http::header::CONTENT_TYPE, media))]
        .into_iter()
        .collect();
    if !coding.is_empty() {
        headers.extend([pair((http::header::CONTENT_ENCODING, coding))]);
    }
    headers
}

fn reader(api: ResponseApi, media: &'static str, coding: &'static str) -> Reader {
    let memory = ReadMemory::new(MAX_BYTES * 16);
    Reader::new(api, &headers(media, coding), MAX_BYTES, memory).unwrap()
}

/// Reads a body in frames that end at `cuts`. Returns the response, and the position after the last event.
fn read(
    mut reader: Reader,
    body: &[u8],
    cuts: &[usize],
    is_whole: bool,
) -> Result<(FinishedResponse, Option<usize>), Unread> {
    // Any number becomes a position in the body. With both ends, the frames cover all of it.
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    let mut last_event = None;
    for cut in cuts.windows(2) {
        if let Some(at) = reader.read(&body[cut[0]..cut[1]])? {
            last_event = Some(cut[0] + at);
        }
    }
    Ok((reader.finish(is_whole)?, last_event))
}

/// Sends a request to the provider. Returns the content of the body.
async fn post(provider: &FakeProvider, path: &str, body: &Value, coding: &str) -> Vec<u8> {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: p\r\nx-api-key: k\r\nauthorization: Bearer k\r\nanthropic-version: 2023-06-01\r\n\
         content-type: application/json\r\naccept-encoding: {coding}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // The content coding must stay, so a raw socket is used. `connection: close` marks the end of the answer.
    let mut stream = TcpStream::connect(provider.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    assert!(
        head.starts_with("http/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    let mut rest = &answer[end + 4..];
    if head.contains("content-length:") {
        return rest.to_vec();
    }
    let mut content = Vec::new();
    loop {
        let end = rest.windows(2).position(|bytes| bytes == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return content;
        }
        content.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
}

/// The same answer of an API as one body and as streams.
#[derive(Debug, Clone)]
struct Answer {
    api: ResponseApi,
    whole: Value,
    /// The streams by their content coding.
    streams: BTreeMap<&'static str, Vec<u8>>,
}

/// Returns the path and the body of a request with thinking, tools and a document for citations.
fn request(api: ResponseApi, model: &str, stream: bool) -> (&'static str, Value) {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    match api {
        ResponseApi::Messages => {
            let document = json!({
                "type": "document", "citations": {"enabled": true},
                "source": {"type": "text", "media_type": "text/plain", "data": "it rains. it snows."},
            });
            let text = json!({"type": "text", "text": "hi"});
            let body = json!({
                "model": model, "max_tokens": 4096, "stream": stream,
                "thinking": {"type": "enabled", "budget_tokens": 1024},
                "tools": [{"name": "weather", "input_schema": schema}],
                "messages": [{"role": "user", "content": [document, text]}],
            });
            ("/v1/messages", body)
        }
        ResponseApi::Chat => {
            let function = json!({"name": "weather", "parameters": schema});
            let mut body = json!({
                "model": model, "stream": stream,
                "tools": [{"type": "function", "function": function}],
                "messages": [{"role": "user", "content": "hi"}],
            });
            if stream {
                body["stream_options"] = json!({"include_usage": true});
            }
            ("/v1/chat/completions", body)
        }
        ResponseApi::Responses => {
            let body = json!({
                "model": model, "stream": stream, "input": "hi", "store": false,
                "reasoning": {"summary": "auto"},
                "tools": [{"type": "function", "name": "weather", "parameters": schema, "strict": false}],
            });
            ("/v1/responses", body)
        }
    }
}

/// Returns a value without ids and times, which differ in each answer, and without nulls.
fn bare(value: &Value) -> Value {
    const OF_ONE_ANSWER: [&str; 5] = ["id", "call_id", "created_at", "completed_at", "model"];
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, value)| {
                !value.is_null() && !OF_ONE_ANSWER.contains(&name.as_str())
            });
            kept.map(|(name, value)| (name.clone(), bare(value)))
                .collect()
        }
        Value::Array(values) => values.iter().map(bare).collect(),
        other => other.clone(),
    }
}

/// Returns one scripted answer of each API as the fake provider sends it.
fn answers() -> Vec<Answer> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let provider = FakeProvider::start().await.unwrap();
        let mut answers = Vec::new();
        for api in APIS {
            let mut streams = BTreeMap::new();
            let mut whole = Value::Null;
            // Number 0 is the answer without a stream, number 1 the stream without a coding. Each further one has its
            // coding.
            for (number, coding) in ["", "identity", "gzip", "deflate", "br", "zstd"].into_iter().enumerate() {
                // Each script matches one model. The lengths of the paths differ, so the APIs have different models.
                let model = format!("m-{}-{number}", request(api, "", false).0.len());
                // The stream of number 1 has CR LF, which `last_event_of` searches for.
                let mut pace = json!({"delta_bytes": 7, "crlf": number % 2 == 1, "pings": number % 3});
                if number >= 2 {
                    pace["coding"] = json!(coding);
                }
                let turn = json!({
                    "thinking": "Grüße brauchen 😀.", "text": "Über 😀, \"in\" two parts.\n",
                    "citations": if api == ResponseApi::Messages { json!(["it rains", "it snows"]) } else { json!([]) },
                    "usage": {"input": 3, "read": 40, "written": 5, "output": 60},
                    "calls": [
                        {"name": "weather", "input": {"city": "Zürich \\ \"Nord\""}},
                        {"name": "weather", "input": {}},
                    ],
                    "pace": pace,
                });
                let script = json!({"match": {"model": model}, "turns": [turn]});
                provider.add_script(serde_json::from_value(script).unwrap()).unwrap();
                let (path, body) = request(api, &model, number > 0);
                let bytes = post(&provider, path, &body, if number < 2 { "identity" } else { coding }).await;
                if number == 0 {
                    whole = serde_json::from_slice(&bytes).unwrap();
                } else {
                    streams.insert(if number == 1 { "" } else { coding }, bytes);
                }
            }
            answers.push(Answer {
                api,
                whole,
                streams,
            });
        }
        answers
    })
}

/// Returns the position of the last event of a stream whose lines end with CR LF.
fn last_event_of(stream: &[u8]) -> usize {
    let before = stream.len().saturating_sub(4);
    let end = stream[..before]
        .windows(4)
        .rposition(|bytes| bytes == b"\r\n\r\n");
    end.map_or(0, |end| end + 4)
}

#[test]
fn every_split_of_a_stream_assembles_to_the_whole_response() {
    let answers = answers();
    let mut runner = proptest::test_runner::TestRunner::default();
    let codings = select(vec!["", "gzip", "deflate", "br", "zstd"]);
    let cuts = proptest::collection::vec(any::<usize>(), 0..60);
    let strategy = (select(answers.clone()), codings, cuts);
    let check = |(answer, coding, cuts): (Answer, &'static str, Vec<usize>)| {
        let stream = &answer.streams[coding];
        let reader = reader(answer.api, "text/event-stream; charset=utf-8", coding);
        let (finished, last_event) = read(reader, stream, &cuts, true).unwrap();
        prop_assert_eq!(finished.end, ResponseEnd::Complete);
        let assembled: Value = serde_json::from_slice(&finished.json.unwrap()).unwrap();
        prop_assert_eq!(bare(&assembled), bare(&answer.whole));
        // The summary of the stream is that of the whole response.
        let whole = answer.whole.to_string();
        let of_whole = self::reader(answer.api, "application/json", "");
        let (of_whole, _) = read(of_whole, whole.as_bytes(), &cuts, true).unwrap();
        prop_assert_eq!(of_whole.end, ResponseEnd::Complete);
        let (summary, of_whole) = (finished.summary, of_whole.summary);
        prop_assert_eq!(summary.usage, of_whole.usage);
        prop_assert_eq!(summary.stop_reason, of_whole.stop_reason);
        // The stream and the whole response are two responses, with ids of their own.
        prop_assert_eq!(summary.id.as_deref(), assembled["id"].as_str());
        prop_assert_eq!(summary.model.as_deref(), assembled["model"].as_str());
        let (held_from, begins_at) = (last_event.unwrap(), last_event_of(stream));
        // The hold begins at the last event, or at a cut inside of it. The bytes before such a cut have left already.
        if coding.is_empty() {
            let is_cut = cuts.iter().any(|cut| cut % (stream.len() + 1) == held_from);
            prop_assert!(held_from == begins_at || held_from > begins_at && is_cut);
        }
        Ok(())
    };
    runner.run(&strategy, check).unwrap();
    for answer in &answers {
        // A frame that ends between the two bytes of a line end.
        let before_last = last_event_of(&answer.streams[""]).saturating_sub(1);
        check((answer.clone(), "", vec![before_last])).unwrap();
        // Each byte by itself.
        for coding in answer.streams.keys().copied() {
            let cuts: Vec<usize> = (0..answer.streams[coding].len()).collect();
            check((answer.clone(), coding, cuts)).unwrap();
        }
    }
}

#[test]
fn a_cut_stream_contains_the_parts_that_a_client_can_use() {
    for answer in answers() {
        let stream = &answer.streams[""];
        let content = |value: &Value| match answer.api {
            ResponseApi::Messages => value["content"].clone(),
            ResponseApi::Chat => json!([]),
            ResponseApi::Responses => value["output"].clone(),
        };
        let whole = content(&bare(&answer.whole));
        let whole = whole.as_array().unwrap();
        // A longer part of the stream never has fewer blocks.
        let mut blocks_of_last_cut = 0;
        for cut in 0..stream.len() {
            let reader = reader(answer.api, "text/event-stream", "");
            let (finished, last_event) = read(reader, &stream[..cut], &[], false).unwrap();
            if last_event.is_some() {
                break;
            }
            assert_eq!(finished.end, ResponseEnd::Cut);
            let Some(json) = finished.json else {
                continue;
            };
            let cut = content(&bare(&serde_json::from_slice(&json).unwrap()));
            let cut = cut.as_array().unwrap();
            assert!(cut.len() >= blocks_of_last_cut, "{cut:?}");
            blocks_of_last_cut = cut.len();
            for (block, complete) in cut.iter().zip(whole) {
                let text = |block: &Value| block["text"].as_str().map(str::to_owned);
                match (text(block), text(complete)) {
                    (Some(text), Some(complete)) => assert!(complete.starts_with(&text)),
                    _ => assert_eq!(block, complete),
                }
            }
        }
        assert_eq!(blocks_of_last_cut, whole.len());
    }
}

#[test]
fn errors_inside_a_stream_end_the_response() {
    let check = |api, event: &str| {
        let reader = reader(api, "text/event-stream", "");
        let stream = format!("data: {event}\n\n");
        let (finished, last_event) = read(reader, stream.as_bytes(), &[], true).unwrap();
        assert_eq!(
            (finished.end, last_event),
            (ResponseEnd::Failed, Some(0)),
            "{event}"
        );
    };
    check(
        ResponseApi::Messages,
        r#"{"type":"error","error":{"type":"overloaded_error"}}"#,
    );
    check(
        ResponseApi::Chat,
        r#"{"error":{"message":"m","type":"server_error"}}"#,
    );
    check(
        ResponseApi::Responses,
        r#"{"type":"error","code":"server_error"}"#,
    );
    check(
        ResponseApi::Responses,
        r#"{"type":"response.failed","response":{"status":"failed","output":[]}}"#,
    );
}

#[test]
fn a_completion_without_a_last_event_is_complete_if_its_choices_are() {
    let chunk = |finish: &str| {
        format!(
            r#"data: {{"choices":[{{"index":0,"delta":{{"content":"a"}},"finish_reason":{finish}}}]}}"#
        ) + "\n\n"
    };
    // Both streams end without `[DONE]`.
    for (stream, end) in [
        (chunk("null") + &chunk("\"stop\""), ResponseEnd::Complete),
        (chunk("null"), ResponseEnd::Cut),
    ] {
        let reader = reader(ResponseApi::Chat, "text/event-stream", "");
        let (finished, last_event) = read(reader, stream.as_bytes(), &[], true).unwrap();
        assert_eq!((finished.end, last_event), (end, None));
    }
}

#[test]
fn an_empty_output_of_the_last_event_is_replaced_by_the_items_before() {
    let events = [
        r#"{"type":"response.created","response":{"id":"r","status":"in_progress","output":[]}}"#,
        // The items arrive in the wrong order, so that only their indexes can order them.
        r#"{"type":"response.output_item.done","output_index":1,"item":{"n":1e2}}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"z":0,"a":0}}"#,
        r#"{"type":"response.completed","response":{"id":"r","status":"completed","output":[]}}"#,
    ];
    let stream = events.map(|event| format!("data: {event}\n\n")).concat();
    let reader = reader(ResponseApi::Responses, "text/event-stream", "");
    let (finished, _) = read(reader, stream.as_bytes(), &[], true).unwrap();
    // The items keep the provider's spelling.
    let expected = r#"{"id":"r","status":"completed","output":[{"z":0,"a":0},{"n":1e2}]}"#;
    assert_eq!(String::from_utf8(finished.json.unwrap()).unwrap(), expected);
}

#[test]
fn deltas_of_other_providers_are_merged() {
    let deltas = [
        json!({"role": "assistant", "content": null, "reasoning_content": "a"}),
        json!({"role": "assistant", "reasoning_content": "b", "content": "c"}),
        json!({"tool_calls": [{"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": "{"}}]}),
        json!({"tool_calls": [{"index": 0, "id": "", "function": {"name": "", "arguments": "}"}}]}),
        json!({"tool_calls": [{"index": 1, "id": "u", "function": {"name": "g", "arguments": ""}}]}),
    ];
    let chunks = deltas.map(|delta| {
        let choice = json!({"index": 0, "delta": delta});
        let chunk = json!({"id": "c", "citations": ["x"], "choices": [choice]});
        format!("data: {chunk}\n\n")
    });
    let stream = chunks.concat() + "data: [DONE]\n\n";
    let reader = reader(ResponseApi::Chat, "text/event-stream", "");
    let (finished, _) = read(reader, stream.as_bytes(), &[], true).unwrap();
    let completion: Value = serde_json::from_slice(&finished.json.unwrap()).unwrap();
    let expected = json!({"id": "c", "citations": ["x"], "choices": [{"index": 0, "message": {
        "role": "assistant", "content": "c", "reasoning_content": "ab",
        "tool_calls": [
            {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "u", "function": {"name": "g", "arguments": ""}},
        ],
    }}]});
    assert_eq!(completion, expected);
}

#[test]
fn content_above_the_limits_is_not_read() {
    // Five chunks of a quarter exceed the maximum of one response.
    let part = "x".repeat(MAX_BYTES / 4);
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": part}}]});
    let stream = format!("data: {chunk}\n\n").repeat(5);
    let unlimited = ReadMemory::new(usize::MAX);
    let headers = headers("text/event-stream", "");
    let chat = |memory| Reader::new(ResponseApi::Chat, &headers, MAX_BYTES, memory).unwrap();
    let failed = read(chat(unlimited), stream.as_bytes(), &[], true);
    assert_eq!(failed.unwrap_err(), Unread::TooLarge);
    let memory = ReadMemory::new(MAX_BYTES);
    // Half of the stream fits into the memory once, and not twice.
    let half = stream.len() / 2;
    let mut first = chat(memory.clone());
    first.read(&stream.as_bytes()[..half]).unwrap();
    let mut second = chat(memory.clone());
    let failed = second.read(&stream.as_bytes()[..half]);
    assert_eq!(failed, Err(Unread::Memory));
    // The memory of a reader is free after its end.
    drop(first);
    drop(second);
    chat(memory).read(&stream.as_bytes()[..half]).unwrap();
}

proptest! {
    #[test]
    fn random_bytes_never_panic(
        api in select(APIS.to_vec()),
        media in select(vec!["text/event-stream", "application/json"]),
        coding in select(vec!["", "gzip", "deflate", "br", "zstd"]),
        body in proptest::collection::vec(any::<u8>(), 0..400),
        cuts in proptest::collection::vec(any::<usize>(), 0..8),
    ) {
        let _ = read(reader(api, media, coding), &body, &cuts, true);
    }
}
