//! Whole conversations as agents send them: as growing arrays, through the gateway and directly.
//!
//! The conversations are made here. `TRANSCRIPTS=folder` takes the Claude Code transcripts of a folder instead, and
//! `WINDOW=200000` another context window. The test then prints the bill of each conversation.

use std::path::{Path, PathBuf};

use palimpsest_core::ids::MessageId;
use palimpsest_core::message::{Block, Message, ResultContent, Role};
use palimpsest_fake_provider::{Behaviour, Bill, Call, Plan, Turn};
use palimpsest_proto::context::v1::GetSessionMemoryRequest;
use palimpsest_transcripts::import::{self, ImportFormat, ImportStep};
use serde_json::{Value, json};

use crate::agent::{Agent, Api};
use crate::world::World;

/// The window with which the service compacts. That of the provider is large enough for every conversation.
const WINDOW: u64 = 100_000;

/// A recorded conversation.
struct Recording {
    name: String,
    /// Each answer of the model after what the agent sends before it.
    rounds: Vec<(Sent, Turn)>,
}

/// The input of an agent for one answer of the model.
#[derive(Default)]
struct Sent {
    texts: Vec<String>,
    /// The results of the calls of the last answer, in their order.
    results: Vec<String>,
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Reads the beginning of the main session of a file, up to its first compaction or rewind.
fn recording(path: &Path) -> Option<Recording> {
    let bytes = std::fs::read(path).unwrap();
    let imported = import::read(Some(ImportFormat::ClaudeCode), &bytes);
    let session = imported.sessions.first()?;
    let messages = session.steps.iter().map_while(|step| match step {
        ImportStep::Message(message) => Some(message),
        _ => None,
    });
    let id = MessageId::new(uuid::Uuid::nil());
    let messages = messages.filter(|message| !message.transcript_only);
    let messages: Vec<Message> = messages.filter_map(|one| one.decode(id).ok()).collect();
    let (mut rounds, mut sent, mut last) = (Vec::new(), Sent::default(), None::<Turn>);
    for message in messages {
        if message.role == Role::Assistant {
            let turn = last.get_or_insert_default();
            for block in message.blocks {
                match block {
                    Block::Text { text, .. } => turn.text.push_str(&text),
                    Block::ToolUse(call) => turn.calls.push(Call {
                        namespace: None,
                        name: call.name.to_string(),
                        input: serde_json::from_str(call.input.as_str()).unwrap_or(json!({})),
                    }),
                    _ => {}
                }
            }
            continue;
        }
        if let Some(turn) = last.take() {
            rounds.push((std::mem::take(&mut sent), turn));
        }
        for block in message.blocks {
            match block {
                Block::Text { text, .. } => sent.texts.push(text.to_string()),
                Block::ToolResult(result) => sent.results.push(text_of(&result.content)),
                _ => {}
            }
        }
    }
    // No message follows the last answer, so the loop has not added its round.
    rounds.extend(last.map(|turn| (sent, turn)));
    for (_, turn) in &mut rounds {
        // Providers accept no blank text.
        turn.text.truncate(turn.text.trim_end().len());
    }
    rounds.retain(|(_, turn)| !turn.text.is_empty() || !turn.calls.is_empty());
    let name = path.file_stem()?.to_string_lossy().into_owned();
    (!rounds.is_empty()).then_some(Recording { name, rounds })
}

fn text_of(content: &ResultContent) -> String {
    match content {
        ResultContent::None => String::new(),
        ResultContent::Text(text) => text.to_string(),
        ResultContent::Blocks(blocks) => {
            let texts = blocks.iter().filter_map(|block| match block {
                Block::Text { text, .. } => Some(&**text),
                _ => None,
            });
            texts.collect()
        }
    }
}

/// Makes a conversation. Each `seed` has other sizes.
fn made(seed: u64) -> Recording {
    let mut state = seed;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // The low bits of a linear congruential generator repeat after short periods.
        (state >> 33) % below
    };
    let (mut rounds, mut open) = (Vec::new(), 0);
    for round in 0..40 + next(40) {
        let mut sent = Sent::default();
        let line = |kind: &str, bytes: u64| {
            let text = format!("{kind} {seed}.{round}: the value is {}. ", round * 7);
            text.repeat(1 + usize::try_from(bytes).unwrap() / text.len())
        };
        for _ in 0..open {
            sent.results.push(line("Result", 200 + next(16_000)));
        }
        if open == 0 {
            sent.texts.push(line("Question", 50 + next(400)));
        }
        // Every ninth answer has no call and ends a user turn.
        open = if round % 9 == 8 { 0 } else { 1 + next(2) };
        let call = |number| Call {
            namespace: None,
            name: "Bash".to_owned(),
            input: json!({"command": format!("cat file-{seed}-{round}-{number}.rs")}),
        };
        let turn = Turn {
            text: line("Answer", 20 + next(300)),
            calls: (0..open).map(call).collect(),
            ..Turn::default()
        };
        rounds.push((sent, turn));
    }
    let name = format!("made-{seed}");
    Recording { name, rounds }
}

/// The way of the requests to the provider.
#[derive(Clone, Copy)]
enum Side {
    Managed,
    Direct,
}

/// Waits for the session memory, as the time between two requests of an agent does.
async fn until_remembered(world: &World, session: &str) {
    let mut client = world.server.context().await;
    let request = GetSessionMemoryRequest {
        session: format!("projects/default/sessions/{session}"),
        wait: Some(prost_types::Duration {
            seconds: 30,
            nanos: 0,
        }),
        known_version: u64::MAX,
        ..GetSessionMemoryRequest::default()
    };
    // A session without memory, such as a short one, is nothing to wait for.
    let _ = client.get_session_memory(request).await;
}

/// Runs a conversation, and returns its bill and the number of requests that left changed.
async fn run(world: &World, side: Side, recording: &Recording) -> (Bill, u32) {
    let provider = &world.provider;
    let (side, url) = match side {
        Side::Managed => ("managed", world.url.clone()),
        Side::Direct => ("direct", provider.url()),
    };
    let session = format!("{side}-{}", recording.name);
    let mut agent = Agent::new(Api::Messages, &url, Some(&session));
    agent.key = format!("key-{session}");
    agent.model = format!("claude-fake-{session}");
    let calls = recording.rounds.iter().flat_map(|(_, turn)| &turn.calls);
    let mut names: Vec<&str> = calls.map(|call| &*call.name).collect();
    names.push("Bash");
    names.sort_unstable();
    names.dedup();
    let tools = names
        .iter()
        .map(|name| json!({"name": name, "input_schema": {"type": "object"}}));
    let tools: Vec<Value> = tools.collect();
    let turns = recording.rounds.iter().map(|(_, turn)| Plan {
        window: Some(10_000_000),
        ..Behaviour::Turn(turn.clone()).into()
    });
    provider.script(&agent.model, turns);
    let (mut open, mut changed) = (Vec::new(), 0);
    for (sent, _) in &recording.rounds {
        let mut results = sent.results.iter().map(|text| &**text);
        let blocks = std::mem::take(&mut open).into_iter().map(|id: Value| {
            let text = results.next().unwrap_or("(no output)");
            json!({"type": "tool_result", "tool_use_id": id, "content": text})
        });
        let mut content: Vec<Value> = blocks.collect();
        let texts = sent.texts.iter().filter(|text| !text.trim().is_empty());
        content.extend(texts.map(|text| json!({"type": "text", "text": text})));
        if content.is_empty() {
            content.push(json!({"type": "text", "text": "Go on."}));
        }
        agent
            .conversation
            .push(json!({"role": "user", "content": content}));
        let mut body = agent.body();
        body["tools"] = json!(tools);
        // The provider cuts an answer at `max_tokens`, and recorded answers can be long.
        body["max_tokens"] = json!(60_000);
        let reply = agent.post(agent.api.path(), body.to_string()).await;
        assert_eq!(reply.status, 200, "{session}: {reply:?}");
        if side == "managed" {
            until_remembered(world, &session).await;
        }
        changed += u32::from(reply.header("x-palimpsest-body") == Some("view"));
        let content = reply.json()["content"].clone();
        let calls = content.as_array().unwrap().iter();
        let calls = calls.filter(|block| block["type"] == "tool_use");
        open = calls.map(|call| call["id"].clone()).collect();
        agent
            .conversation
            .push(json!({"role": "assistant", "content": content}));
    }
    (provider.bill(&agent.key), changed)
}

fn permille(part: u64, whole: u64) -> u64 {
    part * 1_000 / whole.max(1)
}

fn recordings() -> Vec<Recording> {
    let Some(folder) = setting::<PathBuf>("TRANSCRIPTS") else {
        return (1..=4).map(made).collect();
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "jsonl"))
        .collect();
    files.sort();
    files.iter().filter_map(|path| recording(path)).collect()
}

#[tokio::test]
async fn a_managed_conversation_costs_no_more_and_stays_valid() {
    let window = setting("WINDOW").unwrap_or(WINDOW);
    let window = format!("policy.tokens.default_window_tokens={window}");
    let world = World::start(&[&window]).await;
    let recordings = recordings();
    assert!(!recordings.is_empty());
    let (mut managed_sum, mut direct_sum, mut long) = (0, 0, 0);
    for recording in &recordings {
        let (managed, changed) = run(&world, Side::Managed, recording).await;
        let (direct, _) = run(&world, Side::Direct, recording).await;
        let share = permille(managed.cost_milli, direct.cost_milli);
        println!(
            "{share:>5} per mille  {:>4} requests, {changed:>4} changed  {}",
            direct.requests, recording.name
        );
        if changed == 0 {
            // Without a changed request, the provider got the same bytes, so its cache cost the same too.
            assert_eq!(managed, direct, "{}", recording.name);
            continue;
        }
        long += 1;
        managed_sum += managed.cost_milli;
        direct_sum += direct.cost_milli;
    }
    let share = permille(managed_sum, direct_sum);
    println!("{share} per mille of the bill, over {long} changed conversations");
    assert!(share < 1_000, "{share}");
}
