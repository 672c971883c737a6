//! Random session histories for the property tests of the core and of the crates above it. They are at least as
//! irregular as real sessions.
#![expect(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::panic,
    reason = "for tests alone"
)]

mod arrays;
mod compactions;
mod hooks;
mod invariants;
mod items;
mod machine;
mod offers;
mod working;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::items::item;
use palimpsest_core::command::{
    Append, ClearAbove, ClearByRule, ClearResults, ClearTrigger, CollapseSpans, CollapseTrigger,
    Command, ConfirmMemoryFile, CreateSession, Decided, Decision, DecisionContext,
    EditSessionMemory, FailMemoryUpdate, RecordMemoryVersion, Rejection, RestoreContext, Rewind,
    ServeView, Snip, SpanSummary, StageSpans, StartMemoryUpdate, SummarizeSpans, UpdateSession,
    create_session, decide,
};
use palimpsest_core::event::{Event, RecordedEvent, Trigger, Visibility};
use palimpsest_core::ids::{MessageId, Revision, SessionKey, Timestamp, TurnNumber};
use palimpsest_core::json::{RawJson, UnknownFields};
use palimpsest_core::levels::collapse::choose;
use palimpsest_core::limits::Limits;
use palimpsest_core::memory::{MemoryContent, MemoryDocument};
use palimpsest_core::message::{
    Block, Media, MediaKind, MediaSource, Message, MessageOrigin, ResultContent, Role, Thinking,
    ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::policy::{Overlay, Policy, Preset};
use palimpsest_core::session::{self, Session};

pub use invariants::{InvariantChecker, flatten};

/// One step of a history. Small numbers serve as ids, so that ids collide.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Appends messages.
    Append(Vec<MessageDraft>),
    /// Serves the view for one of five targets.
    Serve { target: u8, interrupt: bool },
    /// Rewinds to one of the visible messages, or to the start.
    Rewind(u8),
    /// Snips a turn, a message or a block, if possible.
    Snip {
        turn: u8,
        message: u8,
        block: u8,
        what: u8,
    },
    /// Clears old results down to a token target of ten times this number.
    Clear(u8),
    /// Stages spans, or collapses as many spans as the token target requires.
    Collapse { stage: bool, target: u8 },
    /// Requests a persist decision for a result.
    Offer {
        call: u8,
        shape: u8,
        rule: u8,
        by_key: bool,
    },
    /// Advances the running compaction by one step, or starts a new one. The strategies, the scopes and prepared
    /// summaries are chosen from `how` and `place`. Some steps drop the oldest rounds instead.
    Compact { how: u8, place: u8 },
    /// Drives the compaction machine with this script.
    Drive([u8; 12]),
    /// Restores the view before one of the last view-changing events, counted from the end.
    Restore(u8),
    /// Starts an update of session memory, writes or edits it, or reports a failure.
    Note(u8),
    /// Changes the working state: a file, a task, a list or a pin.
    Work { what: u8, which: u8 },
    /// Records a whole array of the caller.
    Sync(u8),
    /// Changes the estimator for later messages.
    Count(u8),
    /// Advances the clock by two hours and clears results automatically.
    Wait,
    /// Loads the session from its snapshot.
    Reload,
}

/// A description of a message to append.
#[derive(Debug, Clone)]
pub enum MessageDraft {
    User {
        meta: bool,
        parts: Vec<BlockDraft>,
    },
    Assistant {
        response: u8,
        parts: Vec<BlockDraft>,
    },
    System(BlockDraft),
    /// An item of OpenAI's Responses API.
    Item(ItemDraft),
    /// The content of an earlier message under a new id.
    Again(u8),
}

/// A description of an item to append.
#[derive(Debug, Clone)]
pub enum ItemDraft {
    User(u8),
    Model(u8),
    Reasoning { encrypted: bool },
    Call { id: u8, kind: u8 },
    Output { id: u8, kind: u8 },
    Search,
    Compaction,
}

/// A description of a block to append.
#[derive(Debug, Clone)]
pub enum BlockDraft {
    Words(u8),
    Blank,
    Picture {
        good: bool,
    },
    Call(u8),
    OddCall,
    Result {
        call: u8,
        error: bool,
        shape: u8,
    },
    /// The replacement that a caller received for a result, as a string or as a block.
    Given {
        call: u8,
        block: bool,
    },
    Thought {
        signed: bool,
    },
    Redacted,
    Unknown,
}

fn part() -> impl Strategy<Value = BlockDraft> {
    prop_oneof![
        4 => any::<u8>().prop_map(BlockDraft::Words),
        1 => Just(BlockDraft::Blank),
        1 => any::<bool>().prop_map(|good| BlockDraft::Picture { good }),
        5 => (0..6_u8).prop_map(BlockDraft::Call),
        1 => Just(BlockDraft::OddCall),
        6 => (0..6_u8, any::<bool>(), 0..6_u8)
            .prop_map(|(call, error, shape)| BlockDraft::Result { call, error, shape }),
        2 => (0..6_u8, any::<bool>()).prop_map(|(call, block)| BlockDraft::Given { call, block }),
        2 => any::<bool>().prop_map(|signed| BlockDraft::Thought { signed }),
        1 => Just(BlockDraft::Redacted),
        1 => Just(BlockDraft::Unknown),
    ]
}

fn draft() -> impl Strategy<Value = MessageDraft> {
    // Only six call ids exist, so results are often duplicated, late or orphaned.
    let parts = || prop::collection::vec(part(), 0..4);
    let result = prop_oneof![
        4 => (0..6_u8, any::<bool>(), 0..6_u8).prop_map(|(call, error, shape)| BlockDraft::Result {
            call,
            error,
            shape,
        }),
        1 => (0..6_u8, any::<bool>()).prop_map(|(call, block)| BlockDraft::Given { call, block }),
    ];
    let results = prop::collection::vec(result, 1..3);
    prop_oneof![
        3 => (any::<bool>(), parts()).prop_map(|(meta, parts)| MessageDraft::User { meta, parts }),
        4 => results.prop_map(|parts| MessageDraft::User { meta: false, parts }),
        6 => (0..4_u8, parts()).prop_map(|(response, parts)| MessageDraft::Assistant { response, parts }),
        4 => item().prop_map(MessageDraft::Item),
        1 => part().prop_map(MessageDraft::System),
        1 => any::<u8>().prop_map(MessageDraft::Again),
    ]
}

/// Returns a strategy for all operations.
pub fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        // Appends and servings are the most frequent, because all other operations need content in the view.
        8 => prop::collection::vec(draft(), 1..5).prop_map(Operation::Append),
        8 => (0..5_u8, prop::bool::weighted(0.1))
            .prop_map(|(target, interrupt)| Operation::Serve { target, interrupt }),
        1 => any::<u8>().prop_map(Operation::Rewind),
        2 => (any::<u8>(), any::<u8>(), 0..4_u8, 0..4_u8).prop_map(|(turn, message, block, what)| {
            Operation::Snip { turn, message, block, what }
        }),
        4 => (0..6_u8, 0..6_u8, 0..4_u8, prop::bool::weighted(0.2)).prop_map(
            |(call, shape, rule, by_key)| Operation::Offer { call, shape, rule, by_key }
        ),
        1 => (0..60_u8).prop_map(Operation::Clear),
        2 => (any::<bool>(), any::<u8>())
            .prop_map(|(stage, target)| Operation::Collapse { stage, target }),
        4 => (any::<u8>(), any::<u8>())
            .prop_map(|(how, place)| Operation::Compact { how, place }),
        2 => any::<[u8; 12]>().prop_map(Operation::Drive),
        4 => any::<u8>().prop_map(Operation::Note),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(what, which)| Operation::Work { what, which }),
        1 => (0..3_u8).prop_map(Operation::Restore),
        1 => (0..3_u8).prop_map(Operation::Count),
        1 => any::<u8>().prop_map(Operation::Sync),
        1 => Just(Operation::Wait),
        1 => Just(Operation::Reload),
    ]
}

fn block(part: &BlockDraft) -> Block {
    let result = |id: String, error: bool, content| {
        Block::ToolResult(ToolResult {
            tool_use_id: id.into(),
            content,
            is_error: error.then_some(true),
            extra: UnknownFields::default(),
        })
    };
    match part {
        BlockDraft::Words(n) => Block::text(format!("words {n}")),
        BlockDraft::Blank => Block::text(" \n"),
        BlockDraft::Picture { good } => Block::Media(Media {
            kind: MediaKind::Image,
            source: MediaSource::Base64 {
                // No provider accepts TIFF.
                media_type: if *good { "image/png" } else { "image/tiff" }.into(),
                // The signature of a PNG without content.
                data: "iVBORw0KGgo=".into(),
            },
            extra: UnknownFields::default(),
        }),
        BlockDraft::Call(id) => Block::ToolUse(ToolUse {
            id: format!("call_{id}").into(),
            name: "Read".into(),
            input: ToolInput::parse(r#"{"path":"a"}"#),
            extra: UnknownFields::from_object(r#"{"caller":{"type":"direct"}}"#).unwrap(),
        }),
        // No provider accepts this id and this name, and the JSON was cut off.
        BlockDraft::OddCall => Block::ToolUse(ToolUse {
            id: "not legal!".into(),
            name: "a.b c".into(),
            input: ToolInput::parse("{\"cut\": "),
            extra: UnknownFields::default(),
        }),
        BlockDraft::Result { call, error, shape } => {
            let content = match shape {
                0 => ResultContent::None,
                1 => ResultContent::Text("said".into()),
                2 => ResultContent::Blocks(vec![]),
                // Larger than the limit of one result. Two of them also exceed the limit of a message.
                3 => ResultContent::Text("a long line of output\n".repeat(40).into()),
                // 630 characters are below the limit of one result. Two of these results exceed the limit of a message.
                4 => ResultContent::Blocks(vec![Block::text("output ".repeat(90))]),
                _ => ResultContent::Blocks(vec![
                    Block::text("said"),
                    Block::text(""),
                    block(&BlockDraft::Picture { good: *error }),
                ]),
            };
            result(format!("call_{call}"), *error, content)
        }
        // The default content if the caller received no replacement for this call.
        BlockDraft::Given { call, .. } => result(
            format!("call_{call}"),
            false,
            ResultContent::Text("said".into()),
        ),
        BlockDraft::Thought { signed } => Block::Thinking(Thinking::Plain {
            thinking: "hm".into(),
            signature: signed.then(|| "sig".into()),
            extra: UnknownFields::default(),
        }),
        BlockDraft::Redacted => Block::Thinking(Thinking::Redacted {
            data: "xx".into(),
            extra: UnknownFields::default(),
        }),
        BlockDraft::Unknown => Block::Opaque {
            kind: "novel".into(),
            // More digits than any integer or float holds: only the original bytes keep them.
            json: RawJson::parse(r#"{"type":"novel","n":12345678901234567890123}"#).unwrap(),
        },
    }
}

/// Returns a policy with such low limits that every level acts in a short history.
fn policy() -> Policy {
    let overlay = Overlay::from_toml(
        "tool_results = { max_result_chars = 700, max_message_chars = 1000, preview_chars = 100 }\n\
         snip = { wrap_interjections = true, nudge = true, nudge_after_messages = 3 }\n\
         microcompact.time = { keep_results = 1 }\n\
         microcompact.cached = { over_results = 1, keep_results = 1 }\n\
         microcompact.size = { keep_results = 1 }\n\
         autocompact = { min_input_tokens = 0 }\n\
         collapse = { enabled = true, min_freed_tokens = 1, max_risk = 1.0, pass_every_tokens = 50, summarize_with_model = true }\n",
    );
    overlay.unwrap().resolve(Preset::ClaudeCode).unwrap()
}

/// Returns the messages that a history of `operations` appends to a new session.
pub fn appended_messages(operations: &[Operation]) -> Vec<Message> {
    let mut harness = SessionHarness::new();
    for operation in operations {
        harness.step(operation);
    }
    let appended = harness
        .log
        .into_iter()
        .filter_map(|recorded| match recorded.event {
            Event::MessagesAppended(event) => Some(event.messages),
            _ => None,
        });
    appended
        .flatten()
        .map(|appended| Message::clone(&appended.message))
        .collect()
}

/// Returns a command that serves the view of a model that can snip turns, so that histories contain the ids of turns.
pub fn serving() -> ServeView {
    ServeView {
        offers_snip: Some(true),
        ..ServeView::default()
    }
}

/// Applies the steps of a history to a session and records its log.
#[derive(Debug)]
pub struct SessionHarness {
    /// The current session.
    pub session: Session,
    /// All events of the session.
    pub log: Vec<RecordedEvent>,
    originals: Vec<Message>,
    /// The appended messages in the order of arrival.
    appended: Vec<Arc<Message>>,
    /// The replacements that callers received, by call id.
    given: HashMap<Box<str>, Box<str>>,
    /// The files that events have named.
    files: HashSet<Box<str>>,
    next_id: u128,
    now: i64,
}

impl SessionHarness {
    /// Creates a session without messages and with low limits.
    pub fn new() -> Self {
        Self::with_policy(policy())
    }

    /// Creates a session without messages and with a given policy.
    #[must_use]
    pub fn with_policy(policy: Policy) -> Self {
        let limits = Limits::default();
        let context = DecisionContext {
            now: Timestamp::from_millis(0),
            limits: &limits,
            can_store: true,
            file_salt: 0,
        };
        let key = SessionKey::parse("projects/p/sessions/s").unwrap();
        let create_ = CreateSession {
            policy: Arc::new(policy),
            scope: Some(palimpsest_core::message::Digest::of_bytes(b"scope")),
            ..CreateSession::default()
        };
        let event = create_session(create_, context).unwrap();
        let first = RecordedEvent {
            at: context.now,
            by: None,
            event,
        };
        let session = Session::replay(key, [first.clone()]).unwrap();
        Self {
            session,
            log: vec![first],
            originals: vec![],
            appended: vec![],
            given: HashMap::new(),
            files: HashSet::new(),
            next_id: 1,
            now: 0,
        }
    }

    /// Decides a command and applies its events.
    ///
    /// # Panics
    ///
    /// Panics if the command is rejected or answered as a repeat.
    pub fn run(&mut self, command: Command) {
        match self.try_run(command) {
            Ok(Decided::Answered(_)) => panic!("no request was stamped"),
            Ok(_) => {}
            Err(rejection) => panic!("{rejection:?}"),
        }
    }

    /// Decides a command and applies its events. Content is loaded if the decision requires it.
    ///
    /// # Errors
    ///
    /// Returns the rejection of the command.
    pub fn try_run(&mut self, command: Command) -> Result<Decided, Rejection> {
        let limits = Limits::default();
        self.now += 1;
        let now = Timestamp::from_millis(self.now);
        let context = DecisionContext {
            now,
            limits: &limits,
            can_store: true,
            // Every command has a salt of its own, as in the server, so that no two commands name the same file.
            file_salt: now.as_millis().unsigned_abs(),
        };
        let mut decided = decide(&self.session, command.clone(), context);
        // Content is loaded only on demand, so that decisions without content are tested too.
        if decided == Err(Rejection::ContentNotLoaded) {
            self.load_content();
            decided = decide(&self.session, command.clone(), context);
        }
        if let Ok(Decided::Now(decision)) = &decided
            && !decision.effects.is_empty()
        {
            let again = decide(&self.session, command, context);
            assert_eq!(again, decided, "two decisions on the same state differ");
        }
        let decided = decided?;
        if let Decided::Now(decision) = &decided {
            self.check_files(decision);
            for event in &decision.events {
                let event = event.clone();
                let recorded = RecordedEvent {
                    at: now,
                    by: None,
                    event,
                };
                self.session.apply(&recorded).unwrap();
                self.log.push(recorded);
            }
        }
        Ok(decided)
    }

    /// Checks that a decision stores exactly the files that its events name for the first time.
    fn check_files(&mut self, decision: &Decision) {
        let stored = decision.files().map(|file| {
            let content = file.content();
            assert_eq!(content.len() as u64, file.bytes, "{}", file.file);
            let sha256: [u8; 32] = Sha256::digest(content.as_bytes()).into();
            (&*file.file, sha256)
        });
        let named = decision.events.iter().flat_map(Event::files);
        let new = named.filter(|(file, _)| !self.files.contains(*file));
        let new: Vec<_> = new.map(|(file, sha256)| (file, *sha256)).collect();
        assert_eq!(
            stored.collect::<Vec<_>>(),
            new,
            "files to store and files named for the first time differ"
        );
        self.files
            .extend(new.into_iter().map(|(file, _)| file.into()));
    }

    /// Returns the session at a revision, with all contents.
    #[must_use]
    pub fn at(&self, revision: Revision) -> Session {
        let events = usize::try_from(revision.get()).unwrap();
        let log = self.log[..events].iter().cloned();
        let mut session = Session::replay(self.session.key().clone(), log).unwrap();
        session.load_content(self.contents().map(|(_, message)| message));
        session
    }

    /// Creates a message with a new id.
    fn message(&mut self, draft: &MessageDraft) -> Message {
        let id = MessageId::new(Uuid::from_u128(self.next_id));
        self.next_id += 1;
        let mut message = match draft {
            MessageDraft::User { meta, parts } => {
                let mut message = Message::new(id, Role::User, self.blocks(parts));
                message.machine_generated = *meta;
                message
            }
            MessageDraft::Assistant { response, parts } => {
                let mut message = Message::new(id, Role::Assistant, self.blocks(parts));
                message.provider_message_id =
                    (*response > 0).then(|| format!("msg_{response}").into());
                message.model = Some("model-a".into());
                message
            }
            MessageDraft::System(part) => Message::new(id, Role::System, vec![block(part)]),
            MessageDraft::Item(item) => items::message(id, item),
            MessageDraft::Again(which) => match self.originals.len() {
                0 => Message::new(id, Role::User, vec![Block::text("first")]),
                n => Message {
                    id,
                    ..self.originals[usize::from(*which) % n].clone()
                },
            },
        };
        if message.origin == MessageOrigin::Typed {
            message.origin = MessageOrigin::Anthropic;
        }
        self.originals.push(message.clone());
        message
    }

    /// Clears results by size, or by the rule of a caller.
    fn clear(&mut self, number: u64) {
        let (number, by_rule) = (number / 4, number % 4 == 3);
        if !by_rule {
            self.run(Command::ClearResults(ClearResults {
                trigger: ClearTrigger::Manual {
                    target_tokens: Some(number * 40),
                },
                expected_revision: None,
                request: None,
            }));
            return;
        }
        self.run(Command::ServeView(serving()));
        self.run(Command::ClearByRule(ClearByRule {
            above: match number % 2 {
                0 => ClearAbove::Results(number % 5),
                _ => ClearAbove::Tokens(number * 10),
            },
            keep_results: number % 3,
            min_freed_tokens: number % 7,
            excluded_tools: Box::default(),
        }));
    }

    /// Runs one step. `Operation::Serve` is ignored here, because [`InvariantChecker`] serves views itself.
    pub fn step(&mut self, operation: &Operation) {
        match operation {
            Operation::Append(drafts) => {
                let messages: Vec<_> = drafts
                    .iter()
                    .map(|draft| Arc::new(self.message(draft)))
                    .collect();
                self.appended.extend(messages.iter().cloned());
                let source = self.echo(&messages);
                let append = Command::Append(Append {
                    messages,
                    source,
                    ..Append::default()
                });
                let then = append.then(&self.session);
                self.run(append);
                self.run(then.expect("level 1 acts on appended results"));
            }
            Operation::Rewind(to) => {
                let visible = self.visible();
                let at = usize::from(*to) % (visible.len() + 1);
                let to = at.checked_sub(1).map(|at| visible[at]);
                // Messages behind a summary are restored first, as the server does.
                if let Some(shown) = to.and_then(|to| self.session.last_revision_showing(to)) {
                    self.restore(shown);
                }
                self.run(Command::Rewind(Rewind {
                    to,
                    ..Rewind::default()
                }));
                let to = to.and_then(|to| self.session.transcript().find(to));
                let mut later = self.session.transcript().entries();
                let of_summary = to.is_some_and(|to| self.session.is_framing(to));
                assert!(
                    later.all(|(at, entry)| !entry.visibility.is_in_effect()
                        || to.is_some_and(|to| at <= to || self.session.is_framing(at))
                        // A summary before the point in the view can stand for later messages.
                        || of_summary && entry.visibility == Visibility::Compacted),
                    "a rewound message still takes part"
                );
            }
            Operation::Snip {
                turn,
                message,
                block,
                what,
            } => {
                // Pending messages are served first, as the server does.
                self.run(Command::ServeView(serving()));
                let refused =
                    self.try_run(Command::Snip(self.snip(*turn, *message, *block, *what)));
                assert!(!matches!(refused, Err(Rejection::ContentNotLoaded)));
            }
            Operation::Clear(target) => self.clear(u64::from(*target)),
            Operation::Collapse {
                stage: true,
                target,
            } => {
                self.load_content();
                let spans = choose(&self.session).unwrap();
                self.run(Command::StageSpans(StageSpans { spans }));
                if target.is_multiple_of(2) {
                    self.summarize_spans();
                }
            }
            Operation::Collapse { target, .. } => {
                self.run(Command::CollapseSpans(CollapseSpans {
                    trigger: match target % 3 {
                        0 => CollapseTrigger::Overflow,
                        _ => CollapseTrigger::Manual {
                            target_tokens: Some(u64::from(*target) * 4),
                        },
                    },
                    expected_revision: None,
                    request: None,
                }));
            }
            Operation::Offer {
                call,
                shape,
                rule,
                by_key,
            } => self.offer(*call, *shape, *rule, *by_key),
            Operation::Compact { how, place } => {
                self.run(Command::ServeView(serving()));
                self.compact(*how, *place);
            }
            Operation::Drive(script) => self.drive(script),
            Operation::Restore(back) => {
                let changes = self.session.view_changes();
                let Some(change) = changes.iter().nth_back(usize::from(*back)) else {
                    return;
                };
                // The view before a change is that of the revision before its event.
                self.restore(Revision::new(change.revision.get() - 1));
            }
            Operation::Note(what) => self.note(*what),
            Operation::Work { what, which } => self.work(*what, *which),
            Operation::Sync(which) => self.sync(*which),
            Operation::Count(which) => self.count(*which),
            Operation::Wait => self.wait(),
            Operation::Reload => self.session = self.loaded(),
            Operation::Serve { .. } => {}
        }
    }

    fn restore(&mut self, to: Revision) {
        self.run(Command::Restore(RestoreContext {
            past: Box::new(self.at(to)),
            later: self.contents().map(|(_, message)| message).collect(),
            force: true,
            expected_revision: None,
            request: None,
        }));
    }

    fn count(&mut self, which: u8) {
        let estimator = ["bytes", "o200k", "cl100k"][usize::from(which) % 3];
        let policy = Overlay::from_toml(&format!("tokens.estimator = \"{estimator}\"")).unwrap();
        // A policy that is valid only in this test may reject the change.
        let _ = self.try_run(Command::UpdateSession(UpdateSession {
            policy: Some(policy),
            ..UpdateSession::default()
        }));
    }

    fn wait(&mut self) {
        self.now += 2 * 60 * 60 * 1_000;
        let target = &self.session.last_served().target;
        let last = self.session.last_array_position(target, None);
        self.run(Command::ClearResults(ClearResults {
            trigger: ClearTrigger::Auto {
                cache_edits: true,
                last,
            },
            expected_revision: None,
            request: None,
        }));
    }

    fn note(&mut self, what: u8) {
        let notes = self.session.memory();
        let version = notes.version.as_ref();
        let update = |author, read_through| {
            Command::RecordMemoryVersion(RecordMemoryVersion {
                content: MemoryContent::verbatim(&MemoryDocument::parse(&format!(
                    "# Task specification\nto do {what}\n"
                ))),
                author,
                base_version: version.map_or(0, |version| version.number),
                source: self.session.revision(),
                read_through,
                edited_file: (author == session::Author::Person).then_some([what; 16]),
                duration_ms: 1,
            })
        };
        // `is_file_failure` distinguishes a failed copy of the file from a failed update of the text.
        let fail = |is_file_failure| {
            Command::FailMemoryUpdate(FailMemoryUpdate {
                is_file_failure,
                detail: "it could not be".into(),
                retry_at: Timestamp::from_millis(self.now + 1_000),
            })
        };
        let command = match what % 7 {
            0 => Command::StartMemoryUpdate(StartMemoryUpdate),
            // A person gives the text in a call, or edits the file.
            1 if what >= 128 => {
                let document = MemoryDocument::parse(&format!("# Learnings\nsay {what}\n"));
                let edit = Command::EditSessionMemory(EditSessionMemory {
                    content: MemoryContent::verbatim(&document),
                    expected_version: version.map_or(0, |version| version.number),
                    same_file: None,
                    request: Some(session::RequestStamp {
                        id: format!("memory-{what}").into(),
                        method: session::RequestMethod::Memory,
                        digest: palimpsest_core::message::Digest::of_bytes(&[what]),
                    }),
                });
                // The policy can disable session memory.
                let _ = self.try_run(edit);
                return;
            }
            1 => update(session::Author::Person, notes.edit_read_through()),
            2 => fail(false),
            3 => fail(true),
            4 => Command::ConfirmMemoryFile(ConfirmMemoryFile),
            _ => update(
                session::Author::Extractive,
                self.session.memory_readable_through(),
            ),
        };
        self.run(command);
    }

    fn snip(&self, turn: u8, message: u8, block: u8, what: u8) -> Snip {
        let pick = |of: usize, at: u8| usize::from(at) % of.max(1);
        let turns = self.session.turns();
        let starts = turns.starts();
        let turn = u32::try_from(pick(starts.len(), turn) + 1).unwrap();
        let name = turns.name(TurnNumber::new(turn).unwrap());
        let visible: Vec<MessageId> = self.visible();
        let id = visible.get(pick(visible.len(), message)).copied();
        Snip {
            turns: (what == 0).then(|| name.into()).into_iter().collect(),
            messages: id.filter(|_| what == 1).into_iter().collect(),
            blocks: id
                .filter(|_| what >= 2)
                .map(|id| (id, u16::from(block)))
                .into_iter()
                .collect(),
            reason: "".into(),
            trigger: Trigger::Manual,
            expected_revision: None,
            request: None,
        }
    }

    fn visible(&self) -> Vec<MessageId> {
        self.session
            .transcript()
            .entries()
            .filter(|(_, entry)| entry.visibility == Visibility::Visible)
            .map(|(_, entry)| entry.id)
            .collect()
    }

    /// Replaces the summaries of staged spans as a model does.
    fn summarize_spans(&mut self) {
        let staged = self.session.spans().staged().iter();
        let summaries = staged.map(|span| SpanSummary {
            key: span.key,
            text: "Done.".into(),
            model: "small".into(),
        });
        self.run(Command::SummarizeSpans(SummarizeSpans {
            epoch: self.session.sealed().epoch(),
            summaries: summaries.collect(),
        }));
    }

    /// Returns the session after a reload from its snapshot, with the minimum of message contents.
    #[must_use]
    pub fn loaded(&self) -> Session {
        let snapshot = self.session.snapshot();
        // Only the required revisions are loaded, so that the session behaves as after a restart.
        let needed = snapshot.content_range(1);
        let is_needed = |revision: &Revision| {
            needed.tail.is_some_and(|tail| *revision >= tail)
                || needed
                    .lead
                    .as_ref()
                    .is_some_and(|lead| lead.contains(revision))
        };
        let contents = self.contents().filter(|(revision, _)| is_needed(revision));
        let contents: Vec<_> = contents.map(|(_, message)| message).collect();
        snapshot.restore(contents).unwrap()
    }

    /// Loads all message contents.
    pub fn load_content(&mut self) {
        let contents: Vec<_> = self.contents().map(|(_, message)| message).collect();
        self.session.load_content(contents);
    }

    fn contents(&self) -> impl Iterator<Item = (Revision, Arc<Message>)> {
        // Revisions count from 1.
        let events = self.log.iter().zip(1_u64..);
        events.flat_map(|(recorded, revision)| {
            let messages = recorded.event.messages();
            let revision = Revision::new(revision);
            messages
                .iter()
                .map(move |m| (revision, Arc::clone(&m.message)))
        })
    }
}

impl Default for SessionHarness {
    fn default() -> Self {
        Self::new()
    }
}
