//! Session memory with the default policy: the time of updates, the content that may be read, and the coverage.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::sync::Arc;

use palimpsest_core::command::{
    Append, Command, ConfirmMemoryFile, Decided, Decision, EditSessionMemory, FailMemoryUpdate,
    RecordMemoryVersion, Rejection, StartMemoryUpdate, UpdateSession, is_memory_update_running,
    memory_due_at,
};
use palimpsest_core::effect::Effect;
use palimpsest_core::event::Event;
use palimpsest_core::ids::{MessageId, Ordinal, Timestamp};
use palimpsest_core::memory::{MemoryContent, MemoryDocument, SectionKind};
use palimpsest_core::message::{
    Block, Digest, Message, ResultContent, Role, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::policy::{Overlay, Policy};
use palimpsest_core::session::{Author, RequestMethod, RequestStamp, text_digest};
use palimpsest_histories::SessionHarness;
use uuid::Uuid;

struct Told {
    world: SessionHarness,
    next: u128,
}

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

impl Told {
    fn new() -> Self {
        Self {
            world: SessionHarness::with_policy(Policy::default()),
            next: 1_000,
        }
    }

    fn append(&mut self, role: Role, response: Option<&str>, blocks: Vec<Block>) -> Ordinal {
        let id = MessageId::new(Uuid::from_u128(self.next));
        self.next += 1;
        let mut message = Message::new(id, role, blocks);
        message.provider_message_id = response.map(Into::into);
        self.world.run(Command::Append(Append {
            messages: vec![Arc::new(message)],
            ..Append::default()
        }));
        self.world.session.transcript().find(id).unwrap()
    }

    /// Appends user input with about this number of estimated tokens.
    fn user(&mut self, tokens: u32) -> Ordinal {
        let before = self.world.session.tokens().tokens;
        // Each of these words counts as 5/3 tokens.
        let words = "word ".repeat(tokens as usize * 3 / 5 + 10);
        let at = self.append(Role::User, None, vec![Block::text(words)]);
        let added = self.world.session.tokens().tokens - before;
        let asked = u64::from(tokens);
        assert!((asked..asked + 60).contains(&added), "{added} for {tokens}");
        at
    }

    fn calls(&mut self, response: &str, ids: &[&str]) -> Ordinal {
        let call = |id: &&str| {
            Block::ToolUse(ToolUse {
                id: (*id).into(),
                name: "Read".into(),
                input: ToolInput::parse("{}"),
                extra: palimpsest_core::json::UnknownFields::default(),
            })
        };
        self.append(
            Role::Assistant,
            Some(response),
            ids.iter().map(call).collect(),
        )
    }

    fn result(&mut self, id: &str) -> Ordinal {
        let result = Block::ToolResult(ToolResult {
            tool_use_id: id.into(),
            content: ResultContent::Text("ok".into()),
            is_error: None,
            extra: palimpsest_core::json::UnknownFields::default(),
        });
        self.append(Role::User, None, vec![result])
    }

    fn says(&mut self, response: &str) -> Ordinal {
        self.append(Role::Assistant, Some(response), vec![Block::text("I see.")])
    }

    fn is_due(&self) -> bool {
        memory_due_at(&self.world.session, NOW) == Some(NOW)
    }

    fn update(&mut self, author: Author) -> Result<Decided, Rejection> {
        let mut memory = MemoryDocument::template();
        self.next += 1;
        if author != Author::Template {
            memory.set(SectionKind::Task, &format!("Mend it ({}).", self.next));
        }
        let read_to = match author {
            Author::Template => None,
            Author::Person => self.world.session.memory().edit_read_through(),
            _ => self.world.session.memory_readable_through(),
        };
        let update = self.command(author, &memory.render(), read_to);
        self.world.try_run(Command::RecordMemoryVersion(update))
    }

    fn command(
        &self,
        author: Author,
        text: &str,
        read_through: Option<Ordinal>,
    ) -> RecordMemoryVersion {
        let version = self.world.session.memory().version.as_ref();
        RecordMemoryVersion {
            content: MemoryContent::verbatim(&MemoryDocument::parse(text)),
            author,
            base_version: version.map_or(0, |version| version.number),
            source: self.world.session.revision(),
            read_through,
            edited_file: None,
            duration_ms: 1,
        }
    }

    fn covers(&self) -> Option<Ordinal> {
        self.world
            .session
            .memory()
            .version
            .as_ref()?
            .covered_through
    }
}

#[test]
fn the_first_update_is_due_at_10000_tokens_regardless_of_calls() {
    let mut told = Told::new();
    // The call and its result are small, so the session stays below `start_tokens`, which is 10,000.
    told.user(9_500);
    told.calls("r", &["a"]);
    told.result("a");
    assert!(!told.is_due());
    told.user(600);
    assert!(told.is_due());
    told.update(Author::Template).unwrap();
    assert!(told.is_due(), "the template is no summary");
}

#[test]
fn the_next_update_needs_5000_tokens_and_three_calls_or_a_plain_response() {
    let mut told = Told::new();
    told.user(10_000);
    told.says("r0");
    told.update(Author::Extractive).unwrap();
    assert!(!told.is_due(), "the growth counter was not reset");
    told.user(4_600);
    assert!(!told.is_due(), "too few tokens");
    told.calls("r1", &["a", "b"]);
    told.result("a");
    told.result("b");
    told.user(500);
    assert!(!told.is_due(), "two calls, and the last response has some");
    told.calls("r2", &["c"]);
    told.result("c");
    assert!(told.is_due(), "the third call");
    told.update(Author::Extractive).unwrap();
    told.user(5_000);
    assert!(!told.is_due(), "the last response has a call");
    told.says("r3");
    assert!(told.is_due(), "the response has no calls");
}

#[test]
fn a_fragmented_response_counts_the_calls_of_all_fragments() {
    let mut told = Told::new();
    told.user(10_000);
    told.says("r0");
    told.update(Author::Extractive).unwrap();
    told.user(5_000);
    told.calls("r1", &["a"]);
    told.says("r1");
    told.result("a");
    assert!(!told.is_due(), "an earlier fragment has a call");
}

#[test]
fn an_open_round_is_not_read_and_does_not_advance_the_coverage() {
    let mut told = Told::new();
    let asked = told.user(10_000);
    told.says("r1");
    told.calls("r1", &["a", "b"]);
    let session = &told.world.session;
    assert_eq!(
        session.memory_readable_through(),
        Some(asked),
        "the whole response waits"
    );
    told.update(Author::Extractive).unwrap();
    let version = told.world.session.memory().version.clone().unwrap();
    assert_eq!(
        (version.read_through, version.covered_through),
        (Some(asked), None)
    );
    told.result("a");
    assert_eq!(told.covers(), None, "one of two calls is open");
    told.result("b");
    assert_eq!(told.covers(), Some(asked), "the mark follows its text");
    // After the input: two fragments of the response and two results.
    assert_eq!(told.world.session.memory_lag().messages, 4);
}

#[test]
fn no_update_is_due_while_all_new_messages_wait_for_results() {
    let mut told = Told::new();
    told.user(10_000);
    told.says("r0");
    told.update(Author::Extractive).unwrap();
    let words = "word ".repeat(5_000);
    let call = |id: &str| {
        Block::ToolUse(ToolUse {
            id: id.into(),
            name: "Write".into(),
            input: ToolInput::parse(&format!("{{\"text\":\"{words}\"}}")),
            extra: palimpsest_core::json::UnknownFields::default(),
        })
    };
    told.append(
        Role::Assistant,
        Some("r1"),
        vec![call("a"), call("b"), call("c")],
    );
    assert!(!told.is_due(), "all new messages wait for results");
    for id in ["a", "b", "c"] {
        told.result(id);
    }
    assert!(told.is_due());
}

#[test]
fn a_running_update_blocks_the_next_one_until_it_is_orphaned() {
    let mut told = Told::new();
    told.user(10_000);
    told.world
        .run(Command::StartMemoryUpdate(StartMemoryUpdate));
    let began = told.world.session.memory().running.unwrap();
    let later = |seconds: i64| Timestamp::from_millis(began.as_millis() + seconds * 1_000);
    let session = &told.world.session;
    assert!(
        is_memory_update_running(session, later(59)) && memory_due_at(session, later(59)).is_none()
    );
    assert!(
        !is_memory_update_running(session, later(60))
            && memory_due_at(session, later(60)).is_some()
    );
}

#[test]
fn an_update_waits_after_a_generated_text_but_not_after_an_edit() {
    for (author, rests) in [(Author::Extractive, 1_000), (Author::Person, 0)] {
        let mut told = Told::new();
        told.user(10_000);
        told.update(author).unwrap();
        told.user(5_000);
        told.says("r");
        let session = &told.world.session;
        let written = session.memory().version.as_ref().unwrap().at;
        let due = memory_due_at(session, written).unwrap();
        assert_eq!(due.millis_since(written), rests, "{author:?}");
        let later = written.plus_millis(5_000);
        assert_eq!(memory_due_at(session, later), Some(later));
    }
}

#[test]
fn failures_delay_the_update_and_are_counted_until_a_success() {
    let mut told = Told::new();
    told.user(10_000);
    let fail = |is_file_failure, next| {
        Command::FailMemoryUpdate(FailMemoryUpdate {
            is_file_failure,
            detail: "no".into(),
            retry_at: Timestamp::from_millis(next),
        })
    };
    for attempt in 1..4_u32 {
        told.world
            .run(fail(false, NOW.as_millis() + i64::from(attempt)));
        let failure = told.world.session.memory().failure.clone().unwrap();
        assert_eq!(failure.attempts, attempt);
        assert_eq!(
            memory_due_at(&told.world.session, NOW),
            Some(failure.retry_at)
        );
    }
    told.update(Author::Extractive).unwrap();
    assert_eq!(told.world.session.memory().failure, None);
    // The text is up to date, and its file is not.
    told.world.run(fail(true, NOW.as_millis() + 9));
    let due = memory_due_at(&told.world.session, NOW).unwrap();
    assert_eq!(due.millis_since(NOW), 9, "the file is due, not the text");
    told.world
        .run(Command::ConfirmMemoryFile(ConfirmMemoryFile));
    assert_eq!(memory_due_at(&told.world.session, NOW), None);
}

#[test]
fn an_update_based_on_an_old_version_writes_nothing() {
    let mut told = Told::new();
    told.user(10_000);
    let late = told.command(Author::Extractive, "# Task specification\nMine.\n", None);
    told.update(Author::Person).unwrap();
    let outcome = told
        .world
        .try_run(Command::RecordMemoryVersion(late))
        .unwrap();
    assert_eq!(outcome, Decided::events(Vec::new()));
}

#[test]
fn placeholder_text_is_rejected_and_a_version_lists_changed_sections() {
    let mut told = Told::new();
    told.user(10_000);
    let mut memory = MemoryDocument::template();
    // `TBD` counts as empty, and a worklog alone is no summary.
    memory.set(SectionKind::Task, "TBD");
    memory.set(SectionKind::Worklog, "Something was done.");
    let update = told.command(Author::Extractive, &memory.render(), None);
    let refused = told.world.try_run(Command::RecordMemoryVersion(update));
    assert!(
        matches!(refused, Err(Rejection::Invalid { .. })),
        "{refused:?}"
    );
    memory.set(SectionKind::Task, "Mend it.");
    let update = told.command(Author::Extractive, &memory.render(), None);
    let Decided::Now(Decision { events, .. }) = told
        .world
        .try_run(Command::RecordMemoryVersion(update))
        .unwrap()
    else {
        panic!("the version was not recorded");
    };
    let [Event::MemoryUpdated(event)] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(event.changed, [SectionKind::Task, SectionKind::Worklog]);
}

#[test]
fn an_edit_of_an_outdated_file_restores_the_coverage_of_that_file() {
    let mut told = Told::new();
    let asked = told.user(10_000);
    told.update(Author::Extractive).unwrap();
    let later = told.user(6_000);
    told.update(Author::Extractive).unwrap();
    assert_eq!(told.covers(), Some(later));
    // The second text did not reach the file, which still has the first one.
    told.world.run(Command::FailMemoryUpdate(FailMemoryUpdate {
        is_file_failure: true,
        detail: "no".into(),
        retry_at: NOW,
    }));
    assert_eq!(told.world.session.memory().edit_read_through(), Some(asked));
    told.update(Author::Person).unwrap();
    assert_eq!(told.covers(), Some(asked));
    assert!(
        told.world.session.memory().since_tokens >= 6_000,
        "the later content must be read again"
    );
}

#[test]
fn coverage_does_not_move_back_when_a_response_gets_an_open_call() {
    let mut told = Told::new();
    told.user(10_000);
    let said = told.says("r1");
    told.update(Author::Extractive).unwrap();
    // A later fragment of the summarized response contains a call.
    told.calls("r1", &["a"]);
    assert!(told.world.session.memory_readable_through() < Some(said));
    told.update(Author::Extractive).unwrap();
    let version = told.world.session.memory().version.clone().unwrap();
    assert_eq!(
        (version.read_through, version.covered_through),
        (Some(said), Some(said))
    );
}

/// An upgrade of the service can change the wording of a fact.
#[test]
fn a_file_with_the_wording_of_an_earlier_release_is_not_an_edit() {
    let mut told = Told::new();
    told.user(10_000);
    told.update(Author::Extractive).unwrap();
    let mut memory = told.world.session.memory().clone();
    let text = memory.version.as_ref().unwrap().text().to_string();
    assert!(memory.is_known_text(text.as_bytes()));
    let earlier = text.replace("Mend it", "Repair it");
    assert!(!memory.is_known_text(earlier.as_bytes()));
    memory.version.as_mut().unwrap().digest = text_digest(earlier.as_bytes());
    assert!(memory.is_known_text(earlier.as_bytes()));
}

impl Told {
    fn edit(&mut self, text: &str, expected_version: u64, id: &str) -> Result<Decided, Rejection> {
        let command = Command::EditSessionMemory(EditSessionMemory {
            content: MemoryContent::verbatim(&MemoryDocument::parse(text)),
            expected_version,
            same_file: None,
            request: Some(RequestStamp {
                id: id.into(),
                method: RequestMethod::Memory,
                digest: Digest::of_bytes(text.as_bytes()),
            }),
        });
        self.world.try_run(command)
    }
}

#[test]
fn an_edit_of_a_call_is_a_version_of_a_person_and_reaches_the_file() {
    let mut told = Told::new();
    let asked = told.user(10_000);
    told.update(Author::Extractive).unwrap();
    let text = "# Learnings\nAsk Ann first.\n";
    let Decided::Now(decision) = told.edit(text, 1, "e").unwrap() else {
        panic!("the edit was not recorded");
    };
    assert!(
        matches!(
            decision.effects[..],
            [Effect::MemoryDue(_), Effect::WakeWorker]
        ),
        "the worker must write the file: {:?}",
        decision.effects
    );
    let version = told.world.session.memory().version.clone().unwrap();
    assert_eq!((version.number, version.author), (2, Author::Person));
    assert_eq!(
        (version.read_through, version.covered_through),
        (Some(asked), Some(asked)),
        "the text replaces the version that covers the message"
    );
    // A repeat is answered, although its expected version has passed.
    let again = told.edit(text, 1, "e").unwrap();
    assert_eq!(again, Decided::Answered(told.world.session.revision()));
    // The same text under another id changes nothing.
    let revision = told.world.session.revision();
    assert_eq!(told.edit(text, 2, "f"), Ok(Decided::events(Vec::new())));
    assert_eq!(told.world.session.revision(), revision);
}

#[test]
fn an_edit_of_a_call_fails_for_another_version_and_for_disabled_memory() {
    let mut told = Told::new();
    told.user(10_000);
    let text = "# Learnings\nAsk Ann first.\n";
    assert_eq!(
        told.edit(text, 1, "e"),
        Err(Rejection::MemoryVersionMismatch {
            expected: 1,
            current: 0
        })
    );
    // A person can write the first text.
    told.edit(text, 0, "e").unwrap();
    let version = told.world.session.memory().version.clone().unwrap();
    assert_eq!((version.number, version.covered_through), (1, None));
    assert!(told.is_due(), "the messages must still be read");
    told.world.run(Command::UpdateSession(UpdateSession {
        policy: Some(Overlay::from_toml("session_memory.enabled = false").unwrap()),
        ..UpdateSession::default()
    }));
    assert_eq!(
        told.edit("# Learnings\nAsk Bob.\n", 1, "g"),
        Err(Rejection::MemoryDisabled {
            setting: "session_memory.enabled"
        })
    );
}
