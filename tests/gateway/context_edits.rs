//! Edits of the context that requests of Anthropic's API ask for, served for an upstream without this feature.

use http::HeaderMap;
use palimpsest_fake_provider::{Call, Match, Recorded, Script, ScriptedTurn};
use palimpsest_gateway::reading::{ReadMemory, Reader, ResponseApi};
use serde_json::{Value, json};

use crate::agent::{Agent, Api, Reply};
use crate::world::{World, unmarked};

const SERVED: &str = "gateway.upstreams.anthropic.compaction=served";
/// Session memory is updated beside the requests, so its state depends on the speed of the machine.
const STEADY: &str = "worker.enabled=false";
const BETAS: &str = "compact-2026-01-12,context-management-2025-06-27";
/// The smallest trigger of a compaction that the provider accepts, in tokens.
const TRIGGER: u64 = 50_000;
/// The marker in place of a cleared result.
const CLEARED: &str = "[Old tool result content cleared]";

/// A client that asks for edits with each request.
struct Client {
    agent: Agent,
    edits: Value,
    streams: bool,
    /// True if the client leaves out what a summary replaces.
    drops_head: bool,
}

/// A response, and the session that took its request.
struct Response {
    reply: Reply,
    message: Value,
    has_calls: bool,
}

impl Response {
    /// Returns the summaries among the blocks of the response.
    fn summaries(&self) -> Vec<&str> {
        let blocks = self.message["content"].as_array().unwrap().iter();
        let summaries = blocks.filter(|block| block["type"] == "compaction");
        summaries
            .map(|block| block["content"].as_str().unwrap())
            .collect()
    }

    fn session(&self) -> &str {
        self.reply.header("x-palimpsest-session").unwrap()
    }

    fn applied(&self) -> &Value {
        &self.message["context_management"]["applied_edits"]
    }

    /// Returns the tokens of the prompt, as the provider reports them.
    fn prompt_tokens(&self) -> u64 {
        let usage = &self.message["usage"];
        let names = [
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        ];
        names
            .iter()
            .map(|name| usage[*name].as_u64().unwrap())
            .sum()
    }
}

impl Client {
    /// Creates a client of a model whose server has no edits. Without a name, the conversation has no name either.
    fn new(world: &World, session: Option<&str>, model: &str, edits: Value) -> Self {
        let mut agent = Agent::new(Api::Messages, &world.url, session);
        agent.model = format!("claude-fake-{model}+no-edits+window=200000");
        agent.key = format!("key-{model}");
        agent.betas = Some(BETAS);
        Self {
            agent,
            edits,
            streams: false,
            drops_head: false,
        }
    }

    fn body(&self) -> Value {
        let mut body = self.agent.body();
        body["context_management"] = json!({"edits": self.edits});
        body["stream"] = json!(self.streams);
        body
    }

    /// Sends the conversation and adds the response, with the results of its calls.
    async fn step(&mut self) -> Response {
        let body = self.body().to_string();
        let reply = self.agent.post(Api::Messages.path(), body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let message = if self.streams {
            assembled(&reply)
        } else {
            reply.json()
        };
        let sent = self.agent.conversation.len();
        let has_calls = self.agent.add(&message);
        let response = Response {
            reply,
            message,
            has_calls,
        };
        if self.drops_head && !response.summaries().is_empty() {
            self.agent.conversation.drain(..sent);
        }
        response
    }

    /// Works until a response has a summary.
    async fn until_compacted(&mut self) -> Response {
        for _ in 0..60 {
            let response = self.step().await;
            if !response.summaries().is_empty() {
                return response;
            }
            assert!(response.has_calls, "the conversation was not compacted");
        }
        panic!("the conversation was not compacted");
    }

    /// Returns the requests of this client that upstream got.
    fn upstream(&self, world: &World) -> Vec<Recorded> {
        let model = json!(self.agent.model);
        let requests = world.upstream().into_iter();
        requests
            .filter(|request| request.body["model"] == model)
            .collect()
    }
}

fn compact(extra: &Value) -> Value {
    let trigger = json!({"type": "input_tokens", "value": TRIGGER});
    let mut edit = json!({"type": "compact_20260112", "trigger": trigger});
    for (name, value) in extra.as_object().unwrap() {
        edit[name] = value.clone();
    }
    json!([edit])
}

/// Returns the message of a stream, as a client assembles it.
fn assembled(reply: &Reply) -> Value {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", "text/event-stream".parse().unwrap());
    let memory = ReadMemory::new(usize::MAX / 2);
    let mut reader = Reader::new(ResponseApi::Messages, &headers, usize::MAX / 4, memory).unwrap();
    reader.read(reply.text.as_bytes()).unwrap();
    let finished = reader.finish(true).unwrap();
    serde_json::from_slice(&finished.json.unwrap()).unwrap()
}

/// Upstream got nothing that it would reject.
fn is_plain(requests: &[Recorded]) {
    for request in requests {
        assert_eq!(request.status, 200, "{request:?}");
        let raw = std::str::from_utf8(&request.raw).unwrap();
        assert!(!raw.contains("context_management"), "{raw}");
        assert!(!raw.contains(r#""type":"compaction""#), "{raw}");
        assert_eq!(beta(request), None);
    }
}

/// Returns the value of the header with the features of the API.
fn beta(request: &Recorded) -> Option<&str> {
    let mut headers = request.headers.iter();
    let header = headers.find(|(name, _)| name == "anthropic-beta");
    header.map(|(_, value)| value.as_str())
}

/// Returns the number of prompts that do not begin with the prompt before them.
fn breaks(requests: &[Recorded]) -> usize {
    let arrays = requests.iter().map(|request| unmarked(&request.body));
    let arrays: Vec<Vec<Value>> = arrays
        .map(|body| body["messages"].as_array().unwrap().clone())
        .collect();
    let pairs = arrays.windows(2);
    pairs.filter(|pair| !pair[1].starts_with(&pair[0])).count()
}

#[tokio::test]
async fn a_long_conversation_stays_under_the_trigger_of_its_client() {
    let world = World::start(&[SERVED]).await;
    for (is_named, streams, drops_head) in [
        (true, false, false),
        (true, true, true),
        (false, true, false),
        (false, false, true),
    ] {
        let name = format!("long-{is_named}-{drops_head}");
        let session = is_named.then_some(&*name);
        let model = format!("{name}+agent=40+output-bytes=12000");
        let mut client = Client::new(&world, session, &model, compact(&json!({})));
        (client.streams, client.drops_head) = (streams, drops_head);
        client.agent.say("Run all rounds.");
        let (mut summaries, mut sessions, mut prompts) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let response = client.step().await;
            assert_eq!(response.applied(), &json!([]), "{name}");
            let of_response = response.summaries();
            assert!(of_response.len() <= 1);
            if let Some(summary) = of_response.first() {
                assert_eq!(response.message["content"][0]["content"], json!(summary));
                assert!(!summary.contains("<conversation-summary>"), "{summary}");
                summaries.push((prompts.len(), (*summary).to_owned()));
            }
            sessions.push(response.session().to_owned());
            prompts.push(response.prompt_tokens());
            if !response.has_calls {
                break;
            }
        }
        sessions.dedup();
        let places: Vec<usize> = summaries.iter().map(|(at, _)| *at).collect();
        assert!(
            places.len() > 1,
            "{name}: {places:?} {prompts:?} {sessions:?}"
        );
        assert_eq!(sessions.len(), 1, "{name}: {sessions:?}");
        // The estimates of the session and the counts of the provider are close.
        let longest = prompts.iter().max().copied().unwrap_or_default();
        assert!(longest < TRIGGER * 11 / 10, "{name}: {longest}");
        let (first, _) = summaries[0];
        assert!(prompts[first - 1] > TRIGGER * 8 / 10, "{name}: {prompts:?}");
        let requests = client.upstream(&world);
        assert_eq!(requests.len(), prompts.len(), "{name}");
        is_plain(&requests);
        assert_eq!(breaks(&requests), summaries.len(), "{name}");
        // The prompt of a response with a summary contains the summary.
        for (at, summary) in &summaries {
            let body = requests[*at].body["messages"].to_string();
            let quoted = json!(summary).to_string();
            assert!(body.contains(quoted.trim_matches('"')), "{name}: {body}");
        }
        // The transcript has each message once.
        let transcript = world.transcript(&sessions[0]).await;
        let text = json!(transcript).to_string();
        for round in 1..=40 {
            let said = format!("Running round {round}.");
            let said = json!([{"text": said, "type": "text"}]).to_string();
            let said = said.trim_matches(['[', ']']);
            assert_eq!(text.matches(said).count(), 1, "{name}: round {round}");
            assert!(text.contains(&format!("round {round:06} line 00000001")));
        }
        assert_eq!(world.compactions(&sessions[0]).await, summaries.len());
    }
    let counts = world.server.scrape();
    let applied = counts.lines().find(|line| {
        line.contains("gateway_edits_total") && line.contains("compact") && line.contains("applied")
    });
    assert!(
        applied.is_some_and(|line| !line.ends_with(" 0")),
        "{applied:?}"
    );
}

#[tokio::test]
async fn a_response_pauses_after_its_summary() {
    let world = World::start(&[SERVED, STEADY]).await;
    for streams in [false, true] {
        for continues in ["as_it_is", "with_the_last_messages", "with_a_new_input"] {
            let name = format!("pause-{streams}-{continues}");
            let edits = compact(&json!({"pause_after_compaction": true}));
            let model = format!("{name}+agent=60+output-bytes=16000");
            let mut client = Client::new(&world, None, &model, edits);
            client.streams = streams;
            client.agent.say("Run all rounds.");
            let paused = client.until_compacted().await;
            assert_eq!(paused.message["stop_reason"], "compaction", "{name}");
            assert_eq!(paused.message["role"], "assistant");
            assert_eq!(paused.message["model"], json!(client.agent.model));
            assert_eq!(paused.message["content"].as_array().unwrap().len(), 1);
            assert_eq!(paused.prompt_tokens(), 0);
            let session = paused.session().to_owned();
            let before = client.upstream(&world).len();
            let messages = world.transcript(&session).await.len();
            let conversation = &mut client.agent.conversation;
            match continues {
                "as_it_is" => {}
                "with_the_last_messages" => {
                    // The provider's documentation keeps the last messages in this way.
                    let end = conversation.len() - 1;
                    let summary = conversation.remove(end);
                    conversation.drain(..end - 2);
                    conversation.insert(0, summary);
                }
                _ => {
                    let end = conversation.len() - 1;
                    conversation.drain(..end);
                    client.agent.say("What is next?");
                }
            }
            let next = client.step().await;
            assert_eq!(next.session(), session, "{name}");
            assert!(next.summaries().is_empty(), "{name}");
            let requests = client.upstream(&world);
            assert_eq!(requests.len(), before + 1, "{name}");
            is_plain(&requests);
            let sent = requests.last().unwrap().body["messages"].to_string();
            assert!(sent.contains("conversation-summary"), "{name}: {sent}");
            // The session took nothing twice.
            let added = usize::from(continues == "with_a_new_input");
            let after = world.transcript(&session).await.len();
            assert_eq!(after, messages + added + 1, "{name}");
            let last = client.step().await;
            assert_eq!(last.session(), session, "{name}");
        }
    }
}

#[tokio::test]
async fn old_tool_results_are_cleared_with_real_counts() {
    let world = World::start(&[SERVED, STEADY]).await;
    let edit = json!({"type": "clear_tool_uses_20250919",
        "trigger": {"type": "tool_uses", "value": 6}, "keep": {"type": "tool_uses", "value": 2}});
    for streams in [false, true] {
        let model = format!("clear-{streams}+agent=16+output-bytes=4000");
        let mut client = Client::new(&world, None, &model, json!([edit]));
        client.streams = streams;
        client.agent.say("Run all rounds.");
        let mut counts = Vec::new();
        loop {
            let response = client.step().await;
            let requests = client.upstream(&world);
            let sent = requests.last().unwrap().body.to_string();
            let cleared = sent.matches(CLEARED).count() as u64;
            let applied = response.applied().as_array().unwrap();
            if cleared == 0 {
                assert!(applied.is_empty(), "{applied:?}");
            } else {
                assert_eq!(applied.len(), 1, "{applied:?}");
                assert_eq!(applied[0]["type"], "clear_tool_uses_20250919");
                assert_eq!(applied[0]["cleared_tool_uses"], cleared);
                let tokens = applied[0]["cleared_input_tokens"].as_u64().unwrap();
                assert!((600..2_000).contains(&(tokens / cleared)), "{tokens}");
            }
            counts.push(cleared);
            if !response.has_calls {
                break;
            }
        }
        // Seven results are above the trigger, and two of them stay. Five more results follow until the next time.
        let mut steps = counts.clone();
        steps.dedup();
        assert_eq!(steps, [0, 5, 10, 15][..steps.len()], "{counts:?}");
        assert!(steps.len() > 2, "{counts:?}");
        let requests = client.upstream(&world);
        is_plain(&requests);
        assert_eq!(breaks(&requests), steps.len() - 1);
    }
    let mut excluded = edit;
    excluded["exclude_tools"] = json!(["Bash"]);
    let model = "clear-excluded+agent=9+output-bytes=4000";
    let mut client = Client::new(&world, None, model, json!([excluded]));
    client.agent.say("Run all rounds.");
    while client.step().await.has_calls {}
    let requests = client.upstream(&world);
    is_plain(&requests);
    assert_eq!(breaks(&requests), 0);
    assert!(!requests.last().unwrap().body.to_string().contains(CLEARED));
}

#[tokio::test]
async fn edits_that_are_not_served_reach_upstream() {
    let world = World::start(&[SERVED, STEADY]).await;
    let post = async |edits: Value, name: &str| {
        let mut client = Client::new(&world, Some(name), name, edits);
        // A model whose server has the edits.
        client.agent.model = format!("claude-fake-{name}");
        client.agent.say("Hello.");
        let body = client.body().to_string();
        let reply = client.agent.post(Api::Messages.path(), body.clone()).await;
        (reply, client.upstream(&world).pop().unwrap(), body)
    };
    let mut edits = compact(&json!({}));
    let later = json!({"type": "clear_something_20990101", "n": 1});
    edits.as_array_mut().unwrap().push(later.clone());
    let (reply, sent, _) = post(edits, "unknown").await;
    // The provider rejects it in its own words.
    assert_eq!(reply.status, 400);
    assert!(reply.text.contains("clear_something_20990101"), "{reply:?}");
    assert_eq!(sent.body["context_management"], json!({"edits": [later]}));
    assert_eq!(beta(&sent), Some("context-management-2025-06-27"));
    // An invalid edit leaves the request as it came.
    let invalid = compact(&json!({"trigger": {"type": "input_tokens", "value": 10}}));
    let (reply, sent, body) = post(invalid, "invalid").await;
    assert_eq!(reply.status, 400);
    assert!(
        reply.text.contains("greater than or equal to 50000"),
        "{reply:?}"
    );
    assert_eq!(sent.raw, body.as_bytes());
    assert_eq!(beta(&sent), Some(BETAS));
    // Thinking that stays needs no edit.
    let keep = json!([{"type": "clear_thinking_20251015", "keep": "all"}]);
    let (reply, sent, _) = post(keep, "thinking").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    is_plain(&[sent]);
    assert_eq!(
        reply.json()["context_management"],
        json!({"applied_edits": []})
    );
}

#[tokio::test]
async fn an_unmanaged_request_and_a_forwarded_one_leave_as_they_came() {
    let summary = json!({"type": "compaction", "content": "Work was done."});
    let text = json!({"type": "text", "text": "Going on."});
    for (settings, is_managed) in [(&[SERVED][..], false), (&[][..], true)] {
        let world = World::start(settings).await;
        let mut client = Client::new(&world, Some("as-it-came"), "a", compact(&json!({})));
        client.agent.model = "claude-fake-as-it-came".to_owned();
        client.agent.conversation = vec![
            json!({"role": "user", "content": "Begin."}),
            json!({"role": "assistant", "content": [summary, text]}),
        ];
        client.agent.say("And then?");
        let mut body = client.body();
        if !is_managed {
            // The provider keeps a part of such a conversation, so no session takes it.
            client.agent.betas =
                Some("compact-2026-01-12,context-management-2025-06-27,message-threads-2026-08-12");
            body["thread"] = json!({"type": "continue", "previous_message_id": "msg_1"});
        }
        let body = body.to_string();
        let reply = client.agent.post(Api::Messages.path(), body.clone()).await;
        let kind = if is_managed { "original" } else { "unmanaged" };
        assert_eq!(reply.header("x-palimpsest-body"), Some(kind), "{reply:?}");
        let sent = world.upstream().pop().unwrap();
        assert_eq!(sent.raw, body.as_bytes());
        assert_eq!(beta(&sent), client.agent.betas);
    }
}

#[tokio::test]
async fn a_summary_of_another_server_begins_the_conversation() {
    let world = World::start(&[SERVED, STEADY]).await;
    for session in [Some("foreign"), None] {
        let model = format!("foreign-{}", session.is_some());
        let mut client = Client::new(&world, session, &model, compact(&json!({})));
        let summary =
            json!({"type": "compaction", "content": "The build was fixed on another machine."});
        let text = json!({"type": "text", "text": "The build is green."});
        client.agent.conversation = vec![json!({"role": "assistant", "content": [summary, text]})];
        client.agent.say("And the tests?");
        let first = client.step().await;
        client.agent.say("Thanks.");
        let second = client.step().await;
        assert_eq!(first.session(), second.session());
        let requests = client.upstream(&world);
        is_plain(&requests);
        assert_eq!(breaks(&requests), 0);
        let messages = &requests[1].body["messages"];
        assert_eq!(messages.as_array().unwrap().len(), 5, "{messages:#}");
        let begins = messages[0]["content"][0]["text"].as_str().unwrap();
        assert!(begins.contains("The build was fixed on another machine."));
        assert_eq!(messages[1]["content"][0]["text"], "The build is green.");
    }
}

#[tokio::test]
async fn a_conversation_without_its_head_can_be_forked() {
    let world = World::start(&[SERVED, STEADY]).await;
    let model = "forked+agent=60+output-bytes=16000";
    let mut client = Client::new(&world, None, model, compact(&json!({})));
    client.drops_head = true;
    client.agent.say("Run all rounds.");
    let session = client.until_compacted().await.session().to_owned();
    let mut other = Client {
        agent: client.agent.clone(),
        edits: client.edits.clone(),
        streams: true,
        drops_head: true,
    };
    for _ in 0..2 {
        assert_eq!(client.step().await.session(), session);
    }
    // The user takes back the rounds after the summary. The results of a call stay beside it.
    let last = other.agent.conversation.last_mut().unwrap();
    let blocks = last["content"].as_array_mut().unwrap();
    blocks.push(json!({"type": "text", "text": "Stop after this round."}));
    let forked = other.step().await.session().to_owned();
    assert_ne!(forked, session);
    let before = world.transcript(&session).await.len();
    for _ in 0..2 {
        assert_eq!(other.step().await.session(), forked);
    }
    assert_eq!(world.transcript(&session).await.len(), before);
    assert_eq!(client.step().await.session(), session);
    is_plain(&client.upstream(&world));
}

#[tokio::test]
async fn a_named_conversation_without_its_head_is_rewound() {
    let world = World::start(&[SERVED, STEADY]).await;
    let model = "rewound+agent=60+output-bytes=16000";
    let mut client = Client::new(&world, Some("rewound"), model, compact(&json!({})));
    client.drops_head = true;
    client.agent.say("Run all rounds.");
    let session = client.until_compacted().await.session().to_owned();
    for _ in 0..2 {
        client.step().await;
    }
    let conversation = &mut client.agent.conversation;
    let said = |message: &Value| message["content"][0]["text"].as_str().unwrap().to_owned();
    let taken_back = said(&conversation[conversation.len() - 2]);
    conversation.truncate(conversation.len() - 2);
    let last = conversation.last_mut().unwrap()["content"].as_array_mut();
    last.unwrap()
        .push(json!({"type": "text", "text": "Another way, please."}));
    let response = client.step().await;
    assert_eq!(response.session(), session);
    let requests = client.upstream(&world);
    is_plain(&requests);
    let sent = requests.last().unwrap().body["messages"].to_string();
    assert!(sent.contains("conversation-summary") && sent.contains("Another way, please."));
    assert!(!sent.contains(&taken_back), "{sent}");
}

#[tokio::test]
async fn a_summary_that_a_later_one_replaced_still_names_its_conversation() {
    let world = World::start(&[SERVED, STEADY]).await;
    for session in [Some("replaced"), None] {
        let model = format!("replaced-{}+agent=60+output-bytes=16000", session.is_some());
        let mut client = Client::new(&world, session, &model, compact(&json!({})));
        client.drops_head = true;
        client.agent.say("Run all rounds.");
        let session = client.until_compacted().await.session().to_owned();
        for _ in 0..3 {
            client.step().await;
        }
        // The client gets no summary of this compaction.
        let request = palimpsest_proto::context::v1::CompactRequest {
            session: session.clone(),
            level: palimpsest_proto::context::v1::Level::Compaction.into(),
            ..Default::default()
        };
        let mut context = world.server.context().await;
        context.compact(request).await.unwrap();
        assert_eq!(world.compactions(&session).await, 2);
        for _ in 0..3 {
            assert_eq!(client.step().await.session(), session);
        }
        let requests = client.upstream(&world);
        is_plain(&requests);
        assert_eq!(breaks(&requests), 2);
    }
}

#[tokio::test]
async fn a_response_with_a_summary_can_contain_calls_that_the_gateway_runs() {
    let world = World::start(&[SERVED, STEADY]).await;
    for streams in [false, true] {
        let model = format!("calls-{streams}+agent=60+output-bytes=16000");
        let mut client = Client::new(&world, None, &model, compact(&json!({})));
        client.streams = streams;
        client.agent.say("Run all rounds.");
        while client.step().await.prompt_tokens() < TRIGGER * 8 / 10 {}
        let question = format!("Which line was first? {streams}");
        let call = Call {
            name: "palimpsest_SearchTranscript".to_owned(),
            input: json!({"pattern": "round 000001 line 00000001"}),
        };
        let turn = |text: &str, calls| ScriptedTurn {
            text: text.to_owned(),
            calls,
            ..ScriptedTurn::default()
        };
        let script = Script {
            matches: Match {
                key: Some(client.agent.key.clone()),
                text: Some(question.clone()),
                ..Match::default()
            },
            turns: vec![turn("I look.", vec![call]), turn("The first.", vec![])].into(),
            ..Script::default()
        };
        world.provider.add_script(script).unwrap();
        // The rounds belong to the name of the model, and the answers to the key.
        client.agent.model = format!("claude-fake-answers-{streams}+no-edits+window=200000");
        // Enough text to reach the trigger.
        let text = question + &" More text.".repeat(5_000);
        let last = client.agent.conversation.last_mut().unwrap();
        let blocks = last["content"].as_array_mut().unwrap();
        blocks.push(json!({"type": "text", "text": text}));
        let response = client.step().await;
        let content = response.message["content"].as_array().unwrap();
        let kinds: Vec<&str> = content
            .iter()
            .map(|block| block["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["compaction", "text", "text"], "{content:#?}");
        assert_eq!(content[2]["text"], "The first.");
        client.agent.say("Thanks.");
        let next = client.step().await;
        assert_eq!(next.session(), response.session());
        let requests = client.upstream(&world);
        is_plain(&requests);
        let results = requests.last().unwrap().body["messages"].to_string();
        assert!(results.contains("palimpsest_SearchTranscript"), "{results}");
    }
}

#[tokio::test]
async fn a_count_has_the_view_and_no_edits() {
    let world = World::start(&[SERVED, STEADY]).await;
    let model = "counted+agent=60+output-bytes=16000";
    let mut client = Client::new(&world, Some("counted"), model, compact(&json!({})));
    client.agent.say("Run all rounds.");
    let session = client.until_compacted().await.session().to_owned();
    let events = world.events(&session).await.len();
    let mut body = client.body();
    for field in ["max_tokens", "stream"] {
        body.as_object_mut().unwrap().remove(field);
    }
    let path = "/v1/messages/count_tokens";
    let reply = client.agent.post(path, body.to_string()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let counted = reply.json()["input_tokens"].as_u64().unwrap();
    assert!(counted < TRIGGER / 2, "{counted}");
    assert_eq!(world.events(&session).await.len(), events);
}
