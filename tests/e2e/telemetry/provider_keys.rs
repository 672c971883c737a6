//! Tests that a provider's key, held by the gateway or sent by an agent, leaves the process only towards its provider.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use palimpsest_fake_provider::{Fault, Match, Script, ScriptedTurn, Status as Failure};
use palimpsest_proto::context::v1::{
    ExportTranscriptRequest, ListEventsRequest, ListMessagesRequest,
};
use palimpsest_tests::command::palimpsest_with;
use reqwest::{Client, RequestBuilder};
use serde_json::json;

use super::*;

/// Keys that occur nowhere else. The gateway holds the first one, and agents send the second one.
const HELD: &str = "sk-ant-Hazelwrench-held-by-the-gateway";
const PASSED: &str = "sk-proj-Bramblecotter-of-the-agent";
/// The content of every request, which must reach the places that are examined.
const WORD: &str = "Quillonberry";

/// The texts that the agents received: heads and bodies.
struct Agents {
    client: Client,
    url: String,
    received: Vec<String>,
}

impl Agents {
    async fn send(&mut self, request: RequestBuilder) -> u16 {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let headers = format!("{status} {:?}", response.headers());
        self.received.push(headers);
        self.received.push(response.text().await.unwrap());
        status
    }

    /// Sends a request to the upstream whose key is held.
    async fn held(&mut self, path: &str, session: &str, body: String) -> u16 {
        let request = self.client.post(format!("{}{path}", self.url));
        let request = request
            .header("x-api-key", PASSED)
            .header("anthropic-version", "2023-06-01")
            .header("x-palimpsest-session", session);
        self.send(request.body(body)).await
    }

    /// Sends a request to the upstream that gets the key of the agent.
    async fn passed(&mut self, path: &str, session: &str, body: String) -> u16 {
        let request = self.client.post(format!("{}{path}", self.url));
        let request = request
            .bearer_auth(PASSED)
            .header("x-palimpsest-session", session);
        self.send(request.body(body)).await
    }
}

fn body(model: &str, stream: bool) -> String {
    let question = format!("Tell me about {WORD}. {}", "More words. ".repeat(2_000));
    json!({"model": model, "max_tokens": 100, "stream": stream,
        "messages": [{"role": "user", "content": question}]})
    .to_string()
}

/// Makes the provider reject a model's next request.
fn rejects(world: &World, model: &str, status: u16) {
    let failure = Failure {
        status,
        retry_after: None,
    };
    let turn = ScriptedTurn {
        fault: Some(Fault::Status(failure)),
        ..ScriptedTurn::default()
    };
    let script = Script {
        matches: Match {
            model: Some(model.to_owned()),
            ..Match::default()
        },
        turns: [turn].into(),
        ..Script::default()
    };
    world.provider.add_script(script).unwrap();
}

/// Adds the contents of all files below a folder.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
}

/// Sends managed, unmanaged and failing requests through both upstreams.
async fn send_everything(world: &World, agents: &mut Agents) {
    for stream in [false, true] {
        let session = format!("s-{stream}");
        let answered = agents
            .held("/v1/messages", &session, body("claude-fake", stream))
            .await;
        assert_eq!(answered, 200, "{:?}", agents.received);
        let answered = agents
            .passed(
                "/v1/chat/completions",
                &format!("chat-{stream}"),
                body("gpt-fake", stream),
            )
            .await;
        assert_eq!(answered, 200, "{:?}", agents.received);
    }
    let unreadable = format!("{{ {WORD}");
    let status = agents.held("/v1/messages", "s", unreadable.clone()).await;
    assert_eq!(status, 400);
    agents.passed("/v1/responses", "s", unreadable).await;
    // The provider rejects the keys. Only the agent's own key is the agent's concern.
    for status in [401, 403, 429, 529] {
        rejects(world, "claude-rejected", status);
        rejects(world, "gpt-rejected", status);
        let held = agents.held("/v1/messages", "r", body("claude-rejected", false));
        // The agent cannot correct a key of the gateway, so the gateway reports a 401 for it as its own failure.
        let expected = if status == 401 { 502 } else { status };
        assert_eq!(held.await, expected);
        let passed = agents.passed("/v1/chat/completions", "r", body("gpt-rejected", false));
        assert_eq!(passed.await, status);
    }
    // Requests that the gateway answers itself.
    let websocket = agents.client.get(format!("{}/v1/responses", agents.url));
    let websocket = websocket.bearer_auth(PASSED).header("upgrade", "websocket");
    assert_eq!(agents.send(websocket).await, 426);
    let page = agents.client.post(format!("{}/v1/messages", agents.url));
    let page = page
        .header("x-api-key", PASSED)
        .header("origin", "https://a.example");
    assert_eq!(agents.send(page).await, 403);
    assert_eq!(
        agents
            .held("/p/a%20b/v1/messages", "s", String::new())
            .await,
        400
    );
}

/// Reads everything that sessions show over gRPC.
async fn read_sessions(world: &mut World, sessions: &[&str]) -> String {
    let mut text = String::new();
    for session in sessions {
        let name = format!("projects/default/sessions/{session}");
        let compact = CompactRequest {
            session: name.clone(),
            strategy: CompactionStrategy::Model.into(),
            ..CompactRequest::default()
        };
        let compacted = world.client.compact(compact).await;
        let _ = write!(text, "{compacted:?}");
        let events = ListEventsRequest {
            session: name.clone(),
            page_size: 1_000,
            ..ListEventsRequest::default()
        };
        let events = world.sessions.list_events(events).await.unwrap();
        let _ = write!(text, "{events:?}");
        let messages = ListMessagesRequest {
            session: name.clone(),
            page_size: 100,
            ..ListMessagesRequest::default()
        };
        let messages = world.sessions.list_messages(messages).await.unwrap();
        for message in messages.into_inner().messages {
            for json in &message.messages_json {
                text += &String::from_utf8_lossy(json);
            }
        }
        let export = ExportTranscriptRequest {
            session: name,
            ..ExportTranscriptRequest::default()
        };
        let exported = world.sessions.export_transcript(export).await.unwrap();
        let mut stream = exported.into_inner();
        while let Some(part) = stream.message().await.unwrap() {
            text += &String::from_utf8_lossy(&part.data);
        }
    }
    text
}

#[tokio::test]
async fn no_key_of_a_provider_stays_in_the_process_or_in_its_data() {
    let provider = FakeProvider::start().await.unwrap();
    let upstreams = [
        format!("gateway.upstreams.anthropic.base_url={}", provider.url()),
        format!("gateway.upstreams.openai.base_url={}", provider.url()),
    ];
    let settings = [
        "gateway.enabled=true",
        "gateway.listen=127.0.0.1:0",
        "gateway.prepare_timeout_ms=120000",
        "gateway.hold_timeout_ms=60000",
        "gateway.upstreams.anthropic.api_key_env=HELD_KEY",
        // With the libraries that see the headers.
        "log.level=trace,hyper=trace,hyper_util=trace,h2=trace,tower=trace,rustls=trace",
        &upstreams[0],
        &upstreams[1],
    ];
    let vars = [("HELD_KEY", HELD)];
    let mut world = World::with(&settings, &vars).await;
    // The helpers examine the requests to the upstream, and not those for summaries.
    world.provider = provider;
    let mut agents = Agents {
        client: Client::new(),
        url: format!("http://{}", world.server.gateway()),
        received: Vec::new(),
    };
    send_everything(&world, &mut agents).await;

    // The keys reached their upstreams, and only these.
    for request in world.provider.requests() {
        let head = String::from_utf8_lossy(&request.head).into_owned();
        let is_held = request.path == "/v1/messages";
        assert_eq!(head.contains(HELD), is_held, "{head}");
        assert_eq!(head.contains(PASSED), !is_held, "{head}");
    }
    let sessions = read_sessions(
        &mut world,
        &["s-false", "s-true", "chat-false", "chat-true"],
    )
    .await;
    assert!(sessions.contains(WORD));
    let config: Vec<&str> = settings.iter().flat_map(|it| ["--set", it]).collect();
    let config = palimpsest_with(&[&["config"], &config[..]].concat(), &vars);
    let config = String::from_utf8(config.stdout).unwrap();
    assert!(config.contains("api_key_env = \"HELD_KEY\""), "{config}");
    let scrape = world.server.scrape();
    assert!(scrape.contains("palimpsest_gateway_requests_total"));
    world.receiver.span("chat claude-fake").await;
    world.receiver.span("chat gpt-rejected").await;
    let exported = world.receiver.text();
    let log = world.server.stop().join("\n");
    assert!(log.contains("rejected the key of the gateway"), "{log}");
    assert!(log.contains("hyper"), "the log has no line of a library");

    let mut everything: Vec<(String, Vec<u8>)> = [
        ("log", log),
        ("spans and metrics", exported),
        ("scrape", scrape),
        ("sessions", sessions),
        ("config", config),
        ("answers", agents.received.join("\n")),
    ]
    .map(|(place, text)| (place.to_owned(), text.into_bytes()))
    .into();
    let mut stored = Vec::new();
    files(world.folder.path(), &mut stored);
    // Content is stored, so that a stored key would be found.
    let has_word = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(WORD);
    assert!(stored.iter().any(|(_, bytes)| has_word(bytes)));
    everything.extend(stored);
    for (place, bytes) in &everything {
        let text = String::from_utf8_lossy(bytes);
        for secret in ["Hazelwrench", "Bramblecotter"] {
            let lines = text.lines().filter(|line| line.contains(secret));
            let found: Vec<&str> = lines.take(3).collect();
            assert!(found.is_empty(), "{secret} in {place}: {found:#?}");
        }
    }
}
