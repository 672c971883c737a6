//! Traces of requests through the gateway, as a real OpenTelemetry Collector writes them. Every span and attribute is
//! compared with the tables of `docs/traces.md`, in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;

use palimpsest_fake_provider::{Fault, Match, Script, ScriptedTurn, Status};
use palimpsest_proto::context::v1::GetSessionRequest;
use palimpsest_tests::say::{assistant_call, prepare, result, user};
use palimpsest_tests::tenant::{keys, with};
use reqwest::Client;
use reqwest::header::HeaderMap;
use serde_json::json;

use crate::agent::{Agent, Api};
use crate::collector::{CLIENT, Collector, INTERNAL, SERVER, Span, program, top, tree};
use crate::read_back::{answer, call, search, step, turn};
use crate::world::World;

/// The beginning of the ids of the agent's traces.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e";
/// The end of the id of the trace in which the gateway reads for the model.
const READ: &str = "4736";
/// The span of the agent, in which all requests are made.
const AGENT: &str = "00f067aa0ba902b7";

#[test]
fn the_configuration_of_the_collector_is_valid() {
    let config = top().join("deploy/otel/collector.yaml");
    let output = program()
        .args(["validate", "--config"])
        .arg(config)
        .output();
    let output = output.expect("target/tools has no collector: run scripts/install-tools");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
}

/// Starts a server that exports to the collector.
async fn start(collector: &Collector, more: &[&str]) -> World {
    let endpoint = format!("otlp.endpoint=http://127.0.0.1:{}", collector.port);
    let provider = palimpsest_fake_provider::FakeProvider::start()
        .await
        .unwrap();
    let upstream = provider.url();
    let key = collector.folder.path().join("key");
    std::fs::write(&key, "key-of-the-summarizer").unwrap();
    let settings = [
        endpoint,
        "otlp.sample_ratio=1".to_owned(),
        "worker.poll_ms=50".to_owned(),
        "policy.tokens.default_window_tokens=60000".to_owned(),
        "summarizer.provider=anthropic".to_owned(),
        format!("summarizer.base_url={upstream}"),
        "summarizer.model=claude-fake".to_owned(),
        format!("summarizer.api_key_file={}", key.display()),
    ];
    let settings = settings.iter().map(String::as_str);
    let settings: Vec<&str> = settings.chain(more.iter().copied()).collect();
    World::start_with(provider, &upstream, &settings)
}

/// Makes all requests of an agent parts of a trace.
fn within(agent: &mut Agent, trace: &str) {
    let mut headers = HeaderMap::new();
    let context = format!("00-{trace}-{AGENT}-01");
    headers.insert("traceparent", context.parse().unwrap());
    agent.client = Client::builder().default_headers(headers).build().unwrap();
}

/// The rows of a table of the page whose first column has this title.
fn table(title: &str) -> Vec<Vec<String>> {
    let page = read_to_string(top().join("docs/traces.md")).unwrap();
    let head = format!("| {title} |");
    let rows = page.lines().skip_while(|line| !line.starts_with(&head));
    // The head of the table and the line below it.
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let rows: Vec<Vec<String>> = rows.map(cells).collect();
    assert!(!rows.is_empty(), "{title}");
    rows
}

/// Returns the code in a cell of a table.
fn code(cell: &str) -> Vec<&str> {
    // Every second part is between backquotes.
    cell.split('`').skip(1).step_by(2).collect()
}

/// Runs an agent until its conversation was compacted by the model, and the model has read what left its view. Returns
/// the trace of each step.
async fn work(collector: &Collector, world: &World) -> (Vec<Span>, Vec<Span>) {
    let mut agent = Agent::new(Api::Messages, &world.url, Some("traced"));
    "secret-key-traced".clone_into(&mut agent.key);
    "claude-fake-traced+agent=12+output-bytes=24000+window=200000".clone_into(&mut agent.model);
    agent.say("Run all rounds.");
    let mut number = 0;
    loop {
        number += 1;
        within(&mut agent, &format!("{TRACE}{number:04x}"));
        if !agent.step().await.1 {
            break;
        }
    }
    let compacted = collector
        .trace_with("a compaction", |span| {
            span.name == "compaction" && span.get("palimpsest.compaction.outcome") == "done"
        })
        .await;
    "claude-fake-traced-after+window=200000".clone_into(&mut agent.model);
    let broken = call("palimpsest_SearchTranscript", json!({"pattern": ""}));
    let turns = vec![
        turn("I look it up. ", vec![search(), broken]),
        turn("It was found.", vec![]),
    ];
    answer(world, &agent, "What was it?", turns);
    agent.say("What was it?");
    within(&mut agent, &format!("{TRACE}{READ}"));
    step(&mut agent, true).await;
    let read = collector
        .trace_with("a read", |span| {
            span.row() == "METHOD ROUTE" && span.trace.ends_with(READ)
        })
        .await;
    (compacted, read)
}

/// Makes requests whose spans have the remaining attributes.
async fn rare(world: &World) {
    let mut agent = Agent::new(Api::Messages, &world.url, Some("rare"));
    "secret-key-rare".clone_into(&mut agent.key);
    agent.say("Hello.");
    // A count of tokens changes nothing.
    let mut count = agent.body();
    count.as_object_mut().unwrap().remove("max_tokens");
    let path = "/v1/messages/count_tokens";
    assert_eq!(agent.post(path, count.to_string()).await.status, 200);
    let mut warm = agent.body();
    // The span has this attribute only if the request has the option.
    warm["temperature"] = json!(0.5);
    let path = Api::Messages.path();
    assert_eq!(agent.post(path, warm.to_string()).await.status, 200);
    // No session takes a request that continues a thread of the provider.
    let mut stateful = agent.body();
    stateful["thread"] = json!({"type": "continue", "previous_message_id": "m"});
    let reply = agent.post(path, stateful.to_string()).await;
    assert_eq!(reply.header("x-palimpsest-body"), Some("unmanaged"));
    let overloaded = ScriptedTurn {
        fault: Some(Fault::Status(Status {
            status: 529,
            retry_after: None,
        })),
        ..ScriptedTurn::default()
    };
    let script = Script {
        matches: Match {
            key: Some(agent.key.clone()),
            ..Match::default()
        },
        turns: vec![overloaded].into(),
        ..Script::default()
    };
    world.provider.add_script(script).unwrap();
    assert_eq!(agent.post(path, agent.body().to_string()).await.status, 529);
    let mut context = world.server.context().await;
    let messages = vec![
        user("Read the log."),
        assistant_call("c1"),
        result("c1", &"a line of the log\n".repeat(8_000)),
    ];
    let request = prepare("projects/default/sessions/grpc", messages);
    context.prepare_context(request).await.unwrap();
    let missing = GetSessionRequest {
        session: "projects/default/sessions/missing".to_owned(),
        ..GetSessionRequest::default()
    };
    let mut sessions = world.server.sessions().await;
    sessions.get_session(missing).await.unwrap_err();
    let found = GetSessionRequest {
        session: "projects/default/sessions/rare".to_owned(),
        ..GetSessionRequest::default()
    };
    sessions.get_session(found).await.unwrap();
}

#[tokio::test]
async fn the_page_lists_the_spans_and_the_attributes_that_a_collector_gets() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let collector = Collector::start().await;
    let world = start(
        &collector,
        &["policy.session_memory.start_tokens=100000000"],
    )
    .await;
    let (compacted, read) = work(&collector, &world).await;
    check_compaction(&compacted);
    check_read(&read);
    rare(&world).await;
    collector
        .trace_with("a rejection", |span| {
            span.row() == "SERVICE/RPC" && *span.get("error.type") == json!("SESSION_NOT_FOUND")
        })
        .await;
    // Another server authenticates its callers, and updates session memory soon.
    let keys_file = collector.folder.path().join("keys.toml");
    let key = keys(
        &keys_file,
        &["create", "--project", "p", "--right", "read,write"],
    );
    let keys_file = format!("auth.keys_file={}", keys_file.display());
    let settings = [&*keys_file, "policy.session_memory.start_tokens=1"];
    let other = start(&collector, &settings).await;
    let mut agent = Agent::new(Api::Messages, &other.url, Some("remembered"));
    let mut headers = HeaderMap::new();
    headers.insert("x-palimpsest-key", key.parse().unwrap());
    agent.client = Client::builder().default_headers(headers).build().unwrap();
    agent.say(&"Remember the lamp. ".repeat(100));
    agent.step().await;
    agent.say("And the timer.");
    agent.step().await;
    let found = GetSessionRequest {
        session: "projects/p/sessions/remembered".to_owned(),
        ..GetSessionRequest::default()
    };
    let mut sessions = other.server.sessions().await;
    sessions.get_session(with(&key, found)).await.unwrap();
    let pass = collector
        .trace_with("an update of session memory", |span| {
            span.name == "worker.pass"
        })
        .await;
    let root = pass.iter().find(|span| span.name == "worker.pass").unwrap();
    assert_eq!(*root.get("gen_ai.conversation.id"), json!("remembered"));
    drop((world, other));

    let spans = collector.spans();
    let text = read_to_string(collector.folder.path().join("traces.json")).unwrap();
    for secret in [
        "secret-key", "Run all rounds", "round 000003", "the lamp", "of the log", "key-of-the",
    ] {
        assert!(!text.contains(secret), "{secret}");
    }
    let mut kinds = BTreeMap::new();
    for row in table("span") {
        let names = code(&row[0]).into_iter().map(str::to_owned);
        kinds.extend(names.map(|name| (name, row[1].clone())));
    }
    let mut attributes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let conventions = read_to_string(top().join("target/tools/otelcol/conventions.go")).unwrap();
    for row in table("attribute") {
        for name in code(&row[0]) {
            let of = code(&row[1]).into_iter().map(str::to_owned);
            attributes.entry(name.to_owned()).or_default().extend(of);
            // Names of the conventions are not invented.
            let is_known = conventions.contains(&format!("\"{name}\""));
            assert!(!name.starts_with("gen_ai.") || is_known, "{name}");
        }
    }
    // Each span and each of its attributes is in the tables.
    let mut listed: BTreeSet<(String, String)> = BTreeSet::new();
    for (name, of) in &attributes {
        listed.extend(of.iter().map(|row| (row.clone(), name.clone())));
    }
    let mut seen = BTreeSet::new();
    let mut kinds_seen = BTreeMap::new();
    for span in &spans {
        let kind = match span.kind {
            SERVER => "server",
            CLIENT => "client",
            INTERNAL => "internal",
            other => panic!("{other}"),
        };
        kinds_seen.insert(span.row(), kind.to_owned());
        let names = span.attributes.keys().cloned();
        seen.extend(names.map(|name| (span.row(), name)));
    }
    assert_eq!(kinds_seen, kinds);
    let unlisted: Vec<_> = seen.difference(&listed).collect();
    let unseen: Vec<_> = listed.difference(&seen).collect();
    assert!(
        unlisted.is_empty() && unseen.is_empty(),
        "not in docs/traces.md: {unlisted:#?}, not exported: {unseen:#?}"
    );
}

#[track_caller]
fn one(spans: &[Span], accept: impl Fn(&Span) -> bool) -> &Span {
    let mut found = spans.iter().filter(|span| accept(span));
    let one = found.next().unwrap_or_else(|| panic!("{}", tree(spans)));
    assert!(found.next().is_none(), "{}", tree(spans));
    one
}

/// Checks the tree of a request whose conversation was compacted by a model.
fn check_compaction(spans: &[Span]) {
    let root = one(spans, |span| span.row() == "METHOD ROUTE");
    assert_eq!((&*root.name, &*root.parent), ("POST /v1/messages", AGENT));
    assert_eq!(*root.get("palimpsest.body"), json!("view"));
    assert_eq!(*root.get("gen_ai.conversation.id"), json!("traced"));
    let turn = one(spans, |span| span.name == "turn");
    assert_eq!(turn.parent, root.id);
    assert!(
        turn.get("palimpsest.levels")
            .as_str()
            .unwrap()
            .contains("autocompact")
    );
    let compaction = one(spans, |span| {
        span.name == "compaction" && span.get("palimpsest.compaction.outcome") == "done"
    });
    assert_eq!(compaction.parent, turn.id);
    assert_eq!(
        *compaction.get("palimpsest.compaction.source"),
        json!("model")
    );
    let before = compaction
        .get("palimpsest.compaction.before_tokens")
        .as_u64();
    let after = compaction
        .get("palimpsest.compaction.after_tokens")
        .as_u64();
    let freed = turn.get("palimpsest.freed_tokens").as_u64();
    assert!(freed >= Some(before.unwrap() - after.unwrap()), "{freed:?}");
    let view = turn.get("palimpsest.view.tokens").as_u64();
    assert!(view.unwrap() < before.unwrap());
    let summary = one(spans, |span| {
        span.parent == compaction.id && span.name == "chat claude-fake"
    });
    assert_eq!(*summary.get("palimpsest.purpose"), json!("compaction"));
    assert_eq!(*summary.get("gen_ai.conversation.id"), json!("traced"));
    assert!(summary.get("gen_ai.usage.output_tokens").as_u64().unwrap() > 0);
    let chat = one(spans, |span| {
        span.parent == root.id && span.row() == "chat MODEL"
    });
    assert!(chat.begin >= turn.end, "{}", tree(spans));
    assert_eq!(*chat.get("gen_ai.provider.name"), json!("anthropic"));
    assert_eq!(*chat.get("server.address"), json!("127.0.0.1"));
    assert!(chat.get("gen_ai.usage.input_tokens").as_u64().unwrap() > 0);
    assert!(chat.get("gen_ai.response.finish_reasons").is_array());
    // The spans of the store belong to the request too.
    assert!(
        spans
            .iter()
            .all(|span| span.id == root.id || !span.parent.is_empty())
    );
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    let orphans = spans.iter().filter(|span| !ids.contains(&*span.parent));
    assert_eq!(orphans.count(), 1, "{}", tree(spans));
}

/// Checks the tree of a request within which the gateway read for the model.
fn check_read(spans: &[Span]) {
    let root = one(spans, |span| span.row() == "METHOD ROUTE");
    let chats: Vec<_> = spans
        .iter()
        .filter(|span| span.row() == "chat MODEL")
        .collect();
    assert_eq!(chats.len(), 2, "{}", tree(spans));
    let tools: Vec<_> = spans
        .iter()
        .filter(|span| span.row() == "execute_tool TOOL")
        .collect();
    assert_eq!(tools.len(), 2, "{}", tree(spans));
    for span in chats.iter().chain(&tools) {
        assert_eq!(span.parent, root.id, "{}", span.name);
        assert_eq!(*span.get("gen_ai.conversation.id"), json!("traced"));
    }
    for chat in &chats {
        assert_eq!(*chat.get("gen_ai.request.stream"), json!(true));
        assert!(chat.get("gen_ai.response.time_to_first_chunk").is_f64());
    }
    assert_eq!(
        chats[0].get("gen_ai.response.finish_reasons"),
        &json!(["tool_use"])
    );
    assert_eq!(tools[0].name, "execute_tool palimpsest_SearchTranscript");
    let failed: Vec<_> = tools.iter().filter(|span| span.is_error).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(*failed[0].get("error.type"), json!("tool_error"));
}
