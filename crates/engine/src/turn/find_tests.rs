//! Tests of whole arrays without the name of a session.

use std::sync::Arc;

use palimpsest_core::array::{ArrayOutcome, ChainHead, Element};
use palimpsest_core::command::{Append, AppendSource, Command};
use palimpsest_core::event::ForkPoint;
use palimpsest_core::ids::ProjectId;
use palimpsest_core::message::{Block, Digest, Message, Role};
use palimpsest_core::session::Visibility;
use proptest::prelude::*;

use super::find::find_session;
use super::*;
use crate::test_engine::engine;

/// A line of an array: the author and the text.
type Line = (Role, String);

fn message(engine: &Engine, (role, text): &Line) -> Arc<Message> {
    let blocks = vec![Block::text(text.as_str())];
    Arc::new(Message::new(engine.ids.message_id(), *role, blocks))
}

fn input(engine: &Engine, lines: &[Line]) -> SyncInput {
    let elements = lines.iter().map(|line| message(engine, line));
    SyncInput {
        side_requests: false,
        elements: elements.map(Element::new).collect(),
        returned: None,
        has_tools: true,
        caller_compacted: false,
        first_store: FirstStore::Large,
        last_response: Vec::new(),
        ids: Arc::clone(&engine.ids),
        mark: engine.ids.message_id(),
    }
}

fn lines(texts: &[&str]) -> Vec<Line> {
    let line = |text: &&str| {
        let role = match &text[..1] {
            "s" => Role::System,
            "a" => Role::Assistant,
            _ => Role::User,
        };
        (role, (*text).to_owned())
    };
    texts.iter().map(line).collect()
}

fn unnamed(engine: &Engine, project: &str, scope: &str) -> UnnamedArray {
    let project = ProjectId::new(project).unwrap();
    let MissingSession::Create(create) = engine.create_if_missing(&project) else {
        panic!("the engine creates missing sessions");
    };
    UnnamedArray {
        scope: Digest::of_bytes(scope.as_bytes()),
        project,
        create,
    }
}

/// The state of a session after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    key: SessionKey,
    outcome: ArrayOutcome,
    lines: Vec<Line>,
    origin: Option<ForkPoint>,
    end: ChainHead,
    revision: Revision,
}

/// Sends an array. Checks that the session that took it has exactly the lines of its conversation.
async fn send_in(engine: &Engine, place: &UnnamedArray, array: &[Line]) -> Seen {
    let input = input(engine, array);
    let finish = |session: &Session, outcome: &TurnOutcome| {
        let entries = session.transcript().entries();
        let visible = entries.filter(|(_, entry)| entry.visibility == Visibility::Visible);
        let line = |(_, entry): (_, &palimpsest_core::session::TranscriptEntry)| {
            let content = entry.content.as_ref().unwrap();
            let text = content.blocks.iter().filter_map(|block| match block {
                Block::Text { text, .. } => Some(&**text),
                _ => None,
            });
            (entry.role, text.collect())
        };
        Ok(Seen {
            key: session.key().clone(),
            outcome: outcome.array.unwrap().outcome,
            lines: visible.map(line).collect(),
            origin: session.info().forked_from.clone(),
            end: session.array().head(),
            revision: session.revision(),
        })
    };
    let call = TurnCall::default();
    let done = sync_found(engine, place, &call, &input, finish).await;
    let (key, turn) = done.unwrap();
    assert_eq!(key, turn.answer.key);
    let lead = array.iter().take_while(|line| line.0 == Role::System);
    assert_eq!(turn.answer.lines, array[lead.count()..]);
    turn.answer
}

async fn send(engine: &Engine, texts: &[&str]) -> Seen {
    send_in(engine, &unnamed(engine, "p", "key"), &lines(texts)).await
}

#[tokio::test]
async fn a_conversation_without_a_name_is_found_again() {
    let engine = engine("");
    let first = send(&engine, &["s", "u1"]).await;
    assert_eq!(first.outcome, ArrayOutcome::New);
    let retry = send(&engine, &["s", "u1"]).await;
    assert_eq!((&retry.key, retry.revision), (&first.key, first.revision));
    let next = send(&engine, &["s", "u1", "a1", "u2"]).await;
    assert_eq!(
        (&next.key, next.outcome),
        (&first.key, ArrayOutcome::Extended)
    );
    let later = send(&engine, &["s", "u1", "a1", "u2", "a2", "u3", "a3", "u4"]).await;
    assert_eq!(later.key, first.key);
    assert_eq!(later.origin, None);
}

#[tokio::test]
async fn an_edit_forks_the_conversation_and_records_the_origin() {
    let engine = engine("");
    send(&engine, &["u1"]).await;
    let first = send(&engine, &["u1", "a1", "u2"]).await;
    let fork = send(&engine, &["u1", "a1", "u2 again"]).await;
    assert_ne!(fork.key, first.key);
    let transcript = |session: &Session| {
        let entries = session.transcript().entries();
        entries.map(|(_, entry)| entry.id).collect::<Vec<_>>()
    };
    let messages = engine.sessions.read(&first.key, transcript).await.unwrap();
    let origin = fork.origin.unwrap();
    assert_eq!((&origin.session, origin.message), (&first.key, messages[1]));
    // Both branches continue.
    let next = send(&engine, &["u1", "a1", "u2", "a2", "u3"]).await;
    assert_eq!(next.key, first.key);
    let other = send(&engine, &["u1", "a1", "u2 again", "a2", "u3"]).await;
    assert_eq!(other.key, fork.key);
    // An undo to an array that was sent before is an edit too.
    let undone = send(&engine, &["u1", "a1", "u2", "another a2", "u3"]).await;
    assert_eq!(undone.origin.map(|origin| origin.session), Some(first.key));
}

#[tokio::test]
async fn an_equal_first_question_is_no_origin() {
    let engine = engine("");
    let first = send(&engine, &["s", "u1"]).await;
    send(&engine, &["s", "u1", "a1", "u2"]).await;
    let second = send(&engine, &["s", "u1"]).await;
    assert_ne!(second.key, first.key);
    assert_eq!(second.origin, None);
    // The later session has the same first array.
    let next = send(&engine, &["s", "u1", "another a1", "u2"]).await;
    assert_eq!(next.key, second.key);
}

#[tokio::test]
async fn projects_scopes_and_system_prompts_are_separate() {
    let engine = engine("");
    let texts = ["s", "u1", "a1", "u2"];
    let mut keys = Vec::new();
    for (project, scope) in [("p", "one"), ("p", "two"), ("q", "one")] {
        let place = unnamed(&engine, project, scope);
        keys.push(send_in(&engine, &place, &lines(&texts)).await.key);
    }
    let place = unnamed(&engine, "p", "one");
    let other = lines(&["s2", "u1", "a1", "u2", "a2", "u3"]);
    keys.push(send_in(&engine, &place, &other).await.key);
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), 4);
    let again = send_in(&engine, &place, &lines(&texts)).await;
    assert_eq!(again.key, keys[0]);
}

#[tokio::test]
async fn a_deleted_session_is_not_found() {
    let engine = engine("");
    let first = send(&engine, &["u1", "a1", "u2"]).await;
    let position = engine.sessions.position(&first.key).await.unwrap();
    let log = engine.sessions.log();
    let deleted = log.delete(&first.key, position, engine.sessions.clock().now());
    deleted.await.unwrap();
    let next = send(&engine, &["u1", "a1", "u2", "a2", "u3"]).await;
    assert_ne!(next.key, first.key);
    assert_eq!(next.outcome, ArrayOutcome::New);
}

#[tokio::test]
async fn a_session_with_a_name_is_not_found() {
    let engine = engine("");
    let named = SessionKey::parse("projects/p/sessions/s").unwrap();
    let array = input(&engine, &lines(&["u1"]));
    let missing = engine.create_if_missing(&named.project);
    let call = TurnCall::default();
    let done = sync(&engine, &named, &missing, &call, &array, |_, _| Ok(()));
    done.await.unwrap();
    let place = unnamed(&engine, "p", "key");
    let found = find_session(&engine, &place, &array).await.unwrap();
    assert_eq!(found, None);
}

#[tokio::test]
async fn a_dry_run_creates_no_session() {
    let engine = engine("");
    let call = TurnCall {
        dry_run: true,
        ..TurnCall::default()
    };
    let (place, array) = (
        unnamed(&engine, "p", "key"),
        input(&engine, &lines(&["u1"])),
    );
    let done = sync_found(&engine, &place, &call, &array, |_, _| Ok(()));
    let (key, _) = done.await.unwrap();
    assert!(engine.sessions.position(&key).await.is_err());
    let found = find_session(&engine, &place, &array).await.unwrap();
    assert_eq!(found, None);
}

#[tokio::test]
async fn concurrent_repeats_lose_and_double_no_message() {
    let engine = engine("");
    for texts in [
        &["u1"][..],
        &["u1", "a1", "u2"],
        &["u1", "a1", "u2", "a2", "u3"],
    ] {
        // `send` checks the messages of each session.
        let all = futures::future::join_all((0..4).map(|_| send(&engine, texts))).await;
        let next = send(&engine, texts).await;
        assert!(all.iter().any(|seen| seen.key == next.key));
    }
}

/// A step of one of several agents that share a credential.
#[derive(Debug, Clone)]
enum Step {
    /// The agent sends its array, several times if requests are repeated.
    Send { repeats: usize, records: bool },
    /// The model answers, and the user asks again. The text of the user can be equal in several conversations.
    Continue { input: u8 },
    /// The user undoes the last lines and asks again.
    Edit { lines: usize, input: u8 },
    /// The agent starts a new conversation.
    Restart { input: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_usize..3, any::<bool>()).prop_map(|(repeats, records)| Step::Send { repeats, records }),
        4 => (0_u8..2).prop_map(|input| Step::Continue { input }),
        1 => (1_usize..6, 0_u8..2).prop_map(|(lines, input)| Step::Edit { lines, input }),
        1 => (0_u8..2).prop_map(|input| Step::Restart { input }),
    ]
}

struct Agent {
    lead: Option<&'static str>,
    array: Vec<Line>,
    /// The session that took the last array, and the end of its array.
    taken: Option<(SessionKey, ChainHead)>,
}

impl Agent {
    fn restart(&mut self, input: u8) {
        self.array = lines(&self.lead.into_iter().collect::<Vec<_>>());
        self.ask(input);
    }

    fn ask(&mut self, input: u8) {
        self.array.push((Role::User, format!("u{input}")));
        self.taken = None;
    }

    fn edit(&mut self, count: usize, input: u8) {
        let start = usize::from(self.lead.is_some());
        let keep = self.array.len().saturating_sub(count).max(start);
        self.array.truncate(keep);
        self.ask(input);
    }
}

/// Records the response to the last array of an agent, as a proxy does.
async fn record(engine: &Engine, agent: &Agent, response: &Line) {
    let Some((key, after)) = &agent.taken else {
        return;
    };
    let messages = vec![message(engine, response)];
    let decide = |transaction: &mut Transaction<'_>| {
        transaction.run(Command::Append(Append {
            messages: messages.clone(),
            source: AppendSource::Response { after: *after },
            ..Append::default()
        }))
    };
    let missing = MissingSession::Reject;
    let written = engine
        .sessions
        .write(key, &missing, decide, |_, _| Ok(()))
        .await;
    written.unwrap();
}

async fn run_steps(steps: Vec<(usize, Step)>) {
    let engine = engine("");
    let place = unnamed(&engine, "p", "key");
    // Two agents have the same system prompt, one has another one, and one has none.
    let mut agents = [Some("s1"), Some("s1"), Some("s2"), None].map(|lead| Agent {
        lead,
        array: Vec::new(),
        taken: None,
    });
    for agent in &mut agents {
        agent.restart(0);
    }
    let mut sessions: std::collections::BTreeMap<SessionKey, Option<&str>> =
        std::collections::BTreeMap::new();
    for (round, (which, step)) in steps.into_iter().enumerate() {
        let agent = &mut agents[which];
        match step {
            Step::Send { repeats, records } => {
                let first = send_in(&engine, &place, &agent.array).await;
                for _ in 1..repeats {
                    let again = send_in(&engine, &place, &agent.array).await;
                    assert_eq!((&again.key, again.revision), (&first.key, first.revision));
                }
                let lead = sessions.entry(first.key.clone()).or_insert(agent.lead);
                assert_eq!(*lead, agent.lead, "another system prompt");
                agent.taken = records.then_some((first.key, first.end));
            }
            Step::Continue { input } => {
                let response = (Role::Assistant, format!("a{which}-{round}"));
                record(&engine, agent, &response).await;
                agent.array.push(response);
                agent.ask(input);
            }
            Step::Edit { lines, input } => agent.edit(lines, input),
            Step::Restart { input } => agent.restart(input),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn interleaved_conversations_never_mix(
        steps in prop::collection::vec((0_usize..4, step()), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(run_steps(steps));
    }
}
