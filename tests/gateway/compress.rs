//! The contract of compression guardrails: `POST /v1/compress` and `GET /v1/retrieve/{hash}`.

use futures::future::join_all;
use palimpsest_proto::context::v1::DeleteSessionRequest;
use palimpsest_tests::Server;
use palimpsest_tests::tenant::keys;
use reqwest::Client;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::agent::{Agent, Api, Reply, gzip};
use crate::world::World;

/// A limit that results of these tests exceed.
const LIMIT: &str = "policy.tool_results.max_result_chars=3000";
const PREVIEW: &str = "policy.tool_results.preview_chars=200";

/// A guardrail of another gateway.
pub(crate) struct Guardrail {
    pub(crate) url: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    client: Client,
}

impl Guardrail {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            headers: Vec::new(),
            client: Client::new(),
        }
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) async fn post(&self, body: String) -> Reply {
        let request = self.client.post(format!("{}/v1/compress", self.url));
        self.send(request.body(body)).await
    }

    /// Compresses an array in the mode with originals.
    pub(crate) async fn compress(&self, array: &[Value]) -> Value {
        let body = json!({"messages": array, "model": "a-model", "config": {"mode": "ccr"}});
        let reply = self.post(body.to_string()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    pub(crate) async fn retrieve(&self, hash: &str, query: &str) -> Reply {
        let url = format!("{}/v1/retrieve/{hash}{query}", self.url);
        self.send(self.client.get(url)).await
    }

    async fn send(&self, mut request: reqwest::RequestBuilder) -> Reply {
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let response = request.send().await.unwrap();
        Reply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: response.text().await.unwrap(),
        }
    }
}

/// A text of `lines` lines, which no other name has.
fn output(name: &str, lines: usize) -> String {
    // Bytes, characters and JSON escapes of these lines have different counts.
    let line = |number: usize| format!("{name} line {number}: \u{e9} \u{1f600} \"quoted\"\n");
    (1..=lines).map(line).collect::<Vec<_>>().concat()
}

fn hashes(answer: &Value) -> Vec<&str> {
    let hashes = answer["ccr_hashes"].as_array().unwrap().iter();
    hashes.map(|hash| hash.as_str().unwrap()).collect()
}

/// A call with its result in both formats.
fn round(api: Api, id: &str, result: &Value) -> Vec<Value> {
    if api == Api::Chat {
        return vec![
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "Bash", "arguments": "{}"}}]}),
            json!({"role": "tool", "tool_call_id": id, "content": result}),
        ];
    }
    vec![
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "Bash", "input": {}}]}),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]}),
    ]
}

const FORMATS: [Api; 2] = [Api::Chat, Api::Messages];

#[tokio::test]
async fn an_unchanged_conversation_is_returned_as_it_came() {
    let world = World::start(&[]).await;
    let guardrail = Guardrail::new(&world.url);
    for api in FORMATS {
        let mut array = vec![json!({"role": "user", "content": "Hello. \u{e9}"})];
        array.extend(round(api, "call_1", &json!(output("small", 3))));
        // An unusual spelling of JSON, which only the original bytes keep.
        let array = serde_json::to_string_pretty(&array).unwrap();
        let body = format!("{{ \"messages\" : {array} , \"config\":{{\"mode\":\"ccr\"}}}}");
        let reply = guardrail.post(body).await;
        assert_eq!(
            (reply.status, reply.header("x-palimpsest-body")),
            (200, Some("original"))
        );
        let answer: std::collections::BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(&reply.text).unwrap();
        assert_eq!(answer["messages"].get(), array);
        let answer = reply.json();
        assert!(answer["tokens_before"].as_u64().unwrap() > 20, "{answer}");
        assert_eq!(answer["tokens_before"], answer["tokens_after"]);
        assert_eq!(
            (&answer["tokens_saved"], &answer["compression_ratio"]),
            (&json!(0), &json!(1.0))
        );
        assert!(hashes(&answer).is_empty() && answer.get("compression_skipped").is_none());
        // A whole conversation has a session.
        let session = answer["session"]["id"].as_str().unwrap();
        assert_eq!(reply.header("x-palimpsest-session"), Some(session));
        assert_eq!(world.transcript(session).await.len(), 3);
    }
}

#[tokio::test]
async fn a_large_result_is_replaced_and_its_original_is_returned() {
    let world = World::start(&[LIMIT, PREVIEW]).await;
    let guardrail = Guardrail::new(&world.url);
    for api in FORMATS {
        let (text, blocks) = (
            output(&format!("{api:?} text"), 300),
            output(&format!("{api:?} part"), 300),
        );
        let parts = json!([{"type": "text", "text": blocks}]);
        let mut array = vec![json!({"role": "user", "content": "Read the files."})];
        array.extend(round(api, "call_1", &json!(text)));
        array.extend(round(api, "call_2", &json!("a small result")));
        array.extend(round(api, "call_3", &parts));
        // A guardrail keeps the messages of the model back, and sends the rest.
        let of_model = |message: &&Value| message["role"] == "assistant";
        let part: Vec<Value> = array.iter().filter(|it| !of_model(it)).cloned().collect();
        let whole = guardrail.compress(&array).await;
        let compressed = guardrail.compress(&part).await;

        assert_eq!(compressed["messages"].as_array().unwrap().len(), part.len());
        assert!(compressed.get("session").is_none() && whole["session"]["id"].is_string());
        // A replacement depends on the result alone.
        let rows = whole["messages"].as_array().unwrap();
        let rows: Vec<&Value> = rows.iter().filter(|it| !of_model(it)).collect();
        assert_eq!(
            rows,
            compressed["messages"]
                .as_array()
                .unwrap()
                .iter()
                .collect::<Vec<_>>()
        );
        assert_eq!(guardrail.compress(&part).await, compressed);
        assert_eq!(compressed["messages"][0], part[0]);
        assert_eq!(compressed["messages"][2], part[2]);

        let sent = compressed["messages"].to_string();
        assert!(
            !sent.contains(" line 300") && sent.contains("text line 1:"),
            "{sent}"
        );
        let [first, second] = hashes(&compressed)[..] else {
            panic!("{compressed}");
        };
        for (hash, original) in [(first, &text), (second, &blocks)] {
            assert!(sent.contains(&format!("hash={hash}")) && sent.contains("headroom_retrieve"));
            let reply = guardrail.retrieve(&hash.to_ascii_uppercase(), "").await;
            assert_eq!(reply.status, 200, "{reply:?}");
            let found = reply.json();
            assert_eq!(found["original_content"].as_str().unwrap(), original);
            assert_eq!(found["hash"], hash);
            assert!(
                found["original_tokens"].as_u64().unwrap() > 1_000,
                "{found}"
            );
        }
        let (before, after) = (&compressed["tokens_before"], &compressed["tokens_after"]);
        let (before, after) = (before.as_u64().unwrap(), after.as_u64().unwrap());
        assert!(4 * after < before, "{before} {after}");
        assert_eq!(compressed["tokens_saved"], before - after);
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let ratio = after as f64 / before as f64;
        assert!((compressed["compression_ratio"].as_f64().unwrap() - ratio).abs() < 1e-9);
    }
    let counts = world.server.scrape();
    for line in [
        // Two formats, each with the whole array once and the part twice.
        "palimpsest_gateway_compressions_total{outcome=\"replaced\"} 6",
        "palimpsest_gateway_retrievals_total{outcome=\"found\"} 4",
    ] {
        assert!(counts.contains(line), "{line}: {counts}");
    }
}

#[tokio::test]
async fn an_original_is_returned_after_a_kill_and_stored_again_after_a_deletion() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "gateway.enabled=true",
        "gateway.listen=127.0.0.1:0",
        "gateway.prepare_timeout_ms=120000",
        LIMIT,
    ];
    let args: Vec<&str> = settings.iter().flat_map(|it| ["--set", it]).collect();
    let text = output("killed", 200);
    let rows = [json!({"role": "tool", "tool_call_id": "a", "content": text})];
    let server = Server::start(folder.path(), &args);
    let compressed = Guardrail::new(&format!("http://{}", server.gateway()))
        .compress(&rows)
        .await;
    let hash = hashes(&compressed)[0];
    server.kill();

    let server = Server::start(folder.path(), &args);
    let guardrail = Guardrail::new(&format!("http://{}", server.gateway()));
    assert_eq!(
        guardrail.retrieve(hash, "").await.json()["original_content"],
        text
    );
    let request = DeleteSessionRequest {
        session: format!("projects/default/sessions/{hash}"),
        ..DeleteSessionRequest::default()
    };
    server
        .sessions()
        .await
        .delete_session(request)
        .await
        .unwrap();
    assert_eq!(guardrail.retrieve(hash, "").await.status, 404);
    // The name is free once the files are removed. Until then, the result stays in its array.
    let again = loop {
        let again = guardrail.compress(&rows).await;
        if !hashes(&again).is_empty() {
            break again;
        }
        assert_eq!(again["messages"], json!(rows));
    };
    assert_eq!(again, compressed);
    assert_eq!(
        guardrail.retrieve(hash, "").await.json()["original_content"],
        text
    );
}

#[tokio::test]
async fn a_query_selects_lines_of_an_original() {
    let world = World::start(&[LIMIT, PREVIEW]).await;
    let guardrail = Guardrail::new(&world.url);
    let text = output("searched", 300);
    let rows = [json!({"role": "tool", "tool_call_id": "call_1", "content": text})];
    let compressed = guardrail.compress(&rows).await;
    let hash = hashes(&compressed)[0];
    let reply = guardrail.retrieve(hash, "?query=LINE+123%3A").await.json();
    // `LINE` occurs in each line, so the first lines up to the maximum of a selection are returned.
    assert!(text.starts_with(reply["original_content"].as_str().unwrap()));
    let reply = guardrail.retrieve(hash, "?query=123%3A").await.json();
    let lines: Vec<&str> = text.lines().collect();
    // A match has two lines of context on each side: 121 to 125.
    assert_eq!(reply["original_content"], lines[120..125].join("\n") + "\n");
    assert_eq!(reply["matching_lines"], json!([123]));
    // Without a match, the model gets the whole content.
    let reply = guardrail.retrieve(hash, "?query=absent").await.json();
    assert_eq!(reply["original_content"], text);
}

#[tokio::test]
async fn originals_belong_to_their_project() {
    let world = World::start(&[LIMIT]).await;
    let at = |project: &str| Guardrail::new(&format!("{}/p/{project}", world.url));
    let rows = [json!({"role": "tool", "tool_call_id": "a", "content": output("secret", 200)})];
    let compressed = at("one").compress(&rows).await;
    let hash = hashes(&compressed)[0];
    assert_eq!(at("one").retrieve(hash, "").await.status, 200);
    for missing in [hash, "0123456789abcdef01234567", "stats", "../one"] {
        let reply = at("two").retrieve(missing, "").await;
        assert_eq!(reply.status, 404, "{missing} {reply:?}");
        assert!(!reply.text.contains("secret"));
    }
    let counts = world.server.scrape();
    assert!(
        // The client resolves `../one` to a path outside of `/v1/retrieve`, so three of four requests are retrievals.
        counts.contains("palimpsest_gateway_retrievals_total{outcome=\"not_found\"} 3"),
        "{counts}"
    );
}

#[tokio::test]
async fn concurrent_requests_with_the_same_result_get_the_same_replacement() {
    let world = World::start(&[LIMIT]).await;
    let guardrail = Guardrail::new(&world.url);
    for number in 0..5 {
        let content = output(&format!("result {number}"), 200);
        let rows = [json!({"role": "tool", "tool_call_id": "a", "content": content})];
        let answers = join_all((0..8).map(|_| guardrail.compress(&rows))).await;
        assert!(!hashes(&answers[0]).is_empty());
        assert!(answers.iter().all(|answer| *answer == answers[0]));
    }
}

#[tokio::test]
async fn a_caller_that_cannot_read_originals_gets_no_replacement() {
    let world = World::start(&[LIMIT]).await;
    let guardrail = Guardrail::new(&world.url);
    let rows = json!([{"role": "tool", "tool_call_id": "a", "content": output("large", 200)}]);
    // Level 1 acts only with the mode `ccr`, and never on frozen messages.
    for config in [
        json!({}),
        json!({"mode": "lossy_inline"}),
        json!({"mode": "ccr", "frozen_message_count": 1}),
    ] {
        let body = json!({"messages": rows, "config": config});
        let reply = guardrail.post(body.to_string()).await.json();
        assert_eq!(reply["messages"], rows, "{config}");
    }
    let bypassed = Guardrail::new(&world.url).with("x-headroom-bypass", "true");
    let reply = bypassed.compress(rows.as_array().unwrap()).await;
    assert_eq!(reply["messages"], rows);
}

/// Sends the conversation to the provider as a gateway with a guardrail does.
async fn step(guardrail: &Guardrail, agent: &mut Agent) -> Value {
    let mut body = agent.body();
    let answer = guardrail
        .compress(body["messages"].as_array().unwrap())
        .await;
    body["messages"] = answer["messages"].clone();
    let reply = agent.post(agent.api.path(), body.to_string()).await;
    assert_eq!(reply.status, 200, "{reply:?} {body}");
    agent.add(&reply.json());
    answer
}

#[tokio::test]
async fn agents_of_one_proxy_get_views_of_their_own_conversations() {
    let window = "policy.tokens.default_window_tokens=60000";
    let world = World::start(&[window]).await;
    let guardrail = Guardrail::new(&world.url).with("authorization", "Bearer key-of-the-proxy");
    for api in FORMATS {
        let mut agents = Vec::new();
        for number in 0..2 {
            let mut agent = Agent::new(api, &world.provider.url(), None);
            agent.model = format!(
                "{}-{number}-{api:?}+agent=40+output-bytes={}",
                api.model(),
                8_000 + number * 400
            );
            // Both conversations begin with equal messages.
            agent.say("Run all rounds.");
            agents.push((agent, Vec::<Value>::new(), String::new(), 0));
        }
        for turn in 0..40 {
            for (agent, last, session, changes) in &mut agents {
                let answer = step(&guardrail, agent).await;
                let rows = crate::world::unmarked(&answer["messages"]);
                let rows = rows.as_array().unwrap();
                // The first request has no response of a model, and no session.
                if turn > 0 {
                    let id = answer["session"]["id"].as_str().unwrap();
                    assert!(session.is_empty() || session == id, "{api:?} {turn}");
                    id.clone_into(session);
                }
                *changes += usize::from(!rows.starts_with(last));
                rows.clone_into(last);
            }
        }
        assert_ne!(agents[0].2, agents[1].2);
        for (agent, last, session, changes) in &agents {
            // Only a compaction changes the beginning of a prompt.
            let compactions = world.compactions(session).await;
            assert!(compactions > 0, "{api:?}");
            assert_eq!(*changes, compactions, "{api:?}");
            assert!(
                last.len() < agent.conversation.len() / 2,
                "{api:?} {}",
                last.len()
            );
            let transcript = json!(world.transcript(session).await).to_string();
            for round in 1..=39 {
                assert!(
                    transcript.contains(&format!("round {round:06} line 00000001")),
                    "{api:?} {round}"
                );
            }
        }
    }
}

#[tokio::test]
async fn parts_of_growing_conversations_keep_their_beginning() {
    let world = World::start(&[LIMIT, PREVIEW]).await;
    let guardrail = Guardrail::new(&world.url);
    let mut rows: Vec<Value> = Vec::new();
    let mut last: Vec<Value> = Vec::new();
    for number in 0..30_usize {
        let content = match number % 5 {
            4 => json!({"role": "user", "content": output("question", 1 + number * 10)}),
            kind => json!({"role": "tool", "tool_call_id": format!("call_{number}"),
                "content": output(&format!("result {}", number % 7), 1 + kind * 60)}),
        };
        rows.push(content);
        let answer = guardrail.compress(&rows).await;
        let compressed = answer["messages"].as_array().unwrap();
        assert_eq!(compressed.len(), rows.len());
        assert!(compressed.starts_with(&last), "{number}");
        for (row, original) in compressed.iter().zip(&rows) {
            assert!(row == original || row["role"] == "tool");
        }
        last.clone_from(compressed);
    }
    // Rows that disappear from the beginning change none of the others.
    let answer = guardrail.compress(&rows[11..]).await;
    assert_eq!(answer["messages"].as_array().unwrap()[..], last[11..]);
    // A caller can also send what it got.
    let answer = guardrail.compress(&last).await;
    assert_eq!(answer["messages"].as_array().unwrap()[..], last[..]);
    assert!(!hashes(&answer).is_empty());
}

#[tokio::test]
async fn messages_that_no_session_takes_are_returned_with_the_reason() {
    let world = World::start(&[]).await;
    let guardrail = Guardrail::new(&world.url);
    let messages = json!([{"role": "stranger", "content": 7}]);
    let reply = guardrail
        .post(json!({"messages": messages}).to_string())
        .await;
    assert_eq!(
        (reply.status, reply.header("x-palimpsest-body")),
        (200, Some("unmanaged"))
    );
    assert_eq!(reply.header("x-palimpsest-reason"), Some("unreadable"));
    let answer = reply.json();
    assert_eq!(answer["messages"], messages);
    assert_eq!(
        (&answer["compression_skipped"], &answer["skip_reason"]),
        (&json!(true), &json!("unreadable"))
    );
    assert!(
        answer["skip_message"]
            .as_str()
            .unwrap()
            .contains("Forward them"),
        "{answer}"
    );

    let world = World::start(&["gateway.require_session=true"]).await;
    let reply = Guardrail::new(&world.url)
        .post(json!({"messages": messages}).to_string())
        .await;
    assert_eq!(reply.status, 400, "{reply:?}");
    assert!(reply.text.contains("gateway.require_session"), "{reply:?}");
}

#[tokio::test]
async fn invalid_requests_are_rejected() {
    let world = World::start(&["gateway.max_request_bytes=4096"]).await;
    let guardrail = Guardrail::new(&world.url);
    let check = async |body: &str, status: u16, code: &str| {
        let reply = guardrail.post(body.to_owned()).await;
        assert_eq!(reply.status, status, "{reply:?}");
        let error = &reply.json()["error"];
        assert_eq!(error["code"], code, "{reply:?}");
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .starts_with("palimpsest: "),
            "{reply:?}"
        );
    };
    check("{", 400, "invalid_compression_request").await;
    check(r#"{"model":"m"}"#, 400, "invalid_compression_request").await;
    check(
        r#"{"messages":[],"config":{"mode":"x"}}"#,
        400,
        "invalid_compression_request",
    )
    .await;
    check(
        &format!("{{\"messages\":[]{}}}", " ".repeat(5_000)),
        413,
        "request_too_large",
    )
    .await;
    let padded = gzip(&format!("{{\"messages\":[]{}}}", " ".repeat(100_000)));
    assert!(padded.len() < 4_096);
    let url = format!("{}/v1/compress", world.url);
    let request = Client::new().post(url).header("content-encoding", "gzip");
    let reply = guardrail.send(request.body(padded)).await;
    assert_eq!(reply.status, 413, "{reply:?}");
    assert_eq!(reply.json()["error"]["code"], "request_too_large");
    let empty = guardrail.post(r#"{"messages":[]}"#.to_owned()).await;
    assert_eq!(empty.json()["messages"], json!([]));
    let counts = world.server.scrape();
    assert!(
        counts.contains("palimpsest_gateway_compressions_total{outcome=\"rejected\"} 5"),
        "{counts}"
    );

    let world = World::start(&["gateway.manage=false"]).await;
    let reply = Guardrail::new(&world.url)
        .post(r#"{"messages":[]}"#.to_owned())
        .await;
    assert_eq!(reply.status, 501, "{reply:?}");
    assert!(reply.text.contains("gateway.manage"), "{reply:?}");
    assert!(world.upstream().is_empty());
}

#[tokio::test]
async fn the_credential_of_a_guardrail_is_its_bearer_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    std::fs::write(&file, "").unwrap();
    let key = |project: &str, right: &str| {
        keys(&file, &["create", "--project", project, "--right", right])
    };
    let (writer, reader, other) = (key("a", "write"), key("a", "read"), key("b", "read"));
    let world = World::start(&[&format!("auth.keys_file={}", file.display()), LIMIT]).await;
    let with = |key: &str| {
        Guardrail::new(&world.url).with("authorization", &format!("Bearer {}", key.trim()))
    };
    let rows = [json!({"role": "tool", "tool_call_id": "a", "content": output("owned", 200)})];
    let compressed = with(&writer).compress(&rows).await;
    let hash = hashes(&compressed)[0];
    let body = json!({"messages": rows}).to_string();
    let statuses = [
        with(&reader).retrieve(hash, "").await.status,
        with(&other).retrieve(hash, "").await.status,
        with(&writer).retrieve(hash, "").await.status,
        with(&reader).post(body.clone()).await.status,
        with("plk_unknown").post(body.clone()).await.status,
        Guardrail::new(&world.url).post(body).await.status,
    ];
    // The right `write` does not contain the right `read`.
    assert_eq!(statuses, [200, 404, 403, 403, 401, 401]);
    let mut elsewhere = with(&reader);
    elsewhere.url = format!("{}/p/b", world.url);
    assert_eq!(elsewhere.retrieve(hash, "").await.status, 404);
}
