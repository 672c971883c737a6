//! Random histories, as messy as real ones and messier, against the promises of the view: what was
//! served is sealed, a caller that follows `keep_messages` has exactly the full view, a sendable view
//! is valid for its provider, every block is accounted for, and replay gives the same session.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use palimpsest_core::codec;
use palimpsest_core::command::{
    Append, Command, Context, Create, Decision, Rewind, Serve, create, decide,
};
use palimpsest_core::event::{Event, Recorded};
use palimpsest_core::ids::{MessageId, Revision, SessionKey, Timestamp};
use palimpsest_core::json::Extra;
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{
    Block, Media, MediaKind, MediaSource, Message, ResultContent, Role, Thinking, ToolInput,
    ToolResult, ToolUse,
};
use palimpsest_core::session::{Session, Standing};
use palimpsest_core::validate::validate;
use palimpsest_core::view::{Etag, Provider, Target, WireRole, flatten};
use proptest::prelude::*;
use uuid::Uuid;

/// One step of a history. Small numbers stand for ids, so that they collide.
#[derive(Debug, Clone)]
enum Operation {
    Append(Vec<Draft>),
    Serve { target: u8, interrupt: bool },
    Rewind(u8),
    Reload,
}

#[derive(Debug, Clone)]
enum Draft {
    User {
        meta: bool,
        parts: Vec<Part>,
    },
    Assistant {
        response: u8,
        parts: Vec<Part>,
    },
    System(Part),
    /// Says again what an earlier message said, under a new id.
    Again(u8),
}

#[derive(Debug, Clone)]
enum Part {
    Words(u8),
    Blank,
    Picture { good: bool },
    Call(u8),
    OddCall,
    Result { call: u8, error: bool, shape: u8 },
    Thought { signed: bool },
    Redacted,
    Unknown,
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        4 => any::<u8>().prop_map(Part::Words),
        1 => Just(Part::Blank),
        1 => any::<bool>().prop_map(|good| Part::Picture { good }),
        5 => (0..6_u8).prop_map(Part::Call),
        1 => Just(Part::OddCall),
        6 => (0..6_u8, any::<bool>(), 0..4_u8)
            .prop_map(|(call, error, shape)| Part::Result { call, error, shape }),
        2 => any::<bool>().prop_map(|signed| Part::Thought { signed }),
        1 => Just(Part::Redacted),
        1 => Just(Part::Unknown),
    ]
}

fn draft() -> impl Strategy<Value = Draft> {
    let parts = || prop::collection::vec(part(), 0..4);
    let results = prop::collection::vec(
        (0..6_u8, any::<bool>(), 0..4_u8).prop_map(|(call, error, shape)| Part::Result {
            call,
            error,
            shape,
        }),
        1..3,
    );
    prop_oneof![
        3 => (any::<bool>(), parts()).prop_map(|(meta, parts)| Draft::User { meta, parts }),
        4 => results.prop_map(|parts| Draft::User { meta: false, parts }),
        6 => (0..4_u8, parts()).prop_map(|(response, parts)| Draft::Assistant { response, parts }),
        1 => part().prop_map(Draft::System),
        1 => any::<u8>().prop_map(Draft::Again),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => prop::collection::vec(draft(), 1..5).prop_map(Operation::Append),
        8 => (0..4_u8, prop::bool::weighted(0.1))
            .prop_map(|(target, interrupt)| Operation::Serve { target, interrupt }),
        1 => any::<u8>().prop_map(Operation::Rewind),
        1 => Just(Operation::Reload),
    ]
}

fn block(part: &Part) -> Block {
    let result = |id: String, error: bool, content| {
        Block::ToolResult(ToolResult {
            tool_use_id: id.into(),
            content,
            is_error: error.then_some(true),
            extra: Extra::default(),
        })
    };
    match part {
        Part::Words(n) => Block::text(format!("words {n}")),
        Part::Blank => Block::text(" \n"),
        Part::Picture { good } => Block::Media(Media {
            kind: MediaKind::Image,
            source: MediaSource::Base64 {
                media_type: if *good { "image/png" } else { "image/tiff" }.into(),
                data: "iVBORw0KGgo=".into(),
            },
            extra: Extra::default(),
        }),
        Part::Call(id) => Block::ToolUse(ToolUse {
            id: format!("call_{id}").into(),
            name: "Read".into(),
            input: ToolInput::parse(r#"{"path":"a"}"#),
            extra: Extra::from_object(r#"{"caller":{"type":"direct"}}"#).unwrap(),
        }),
        Part::OddCall => Block::ToolUse(ToolUse {
            id: "not legal!".into(),
            name: "a.b c".into(),
            input: ToolInput::parse("{\"cut\": "),
            extra: Extra::default(),
        }),
        Part::Result { call, error, shape } => {
            let content = match shape {
                0 => ResultContent::None,
                1 => ResultContent::Text("said".into()),
                2 => ResultContent::Blocks(vec![]),
                _ => ResultContent::Blocks(vec![
                    Block::text("said"),
                    Block::text(""),
                    block(&Part::Picture { good: *error }),
                ]),
            };
            result(format!("call_{call}"), *error, content)
        }
        Part::Thought { signed } => Block::Thinking(Thinking::Plain {
            thinking: "hm".into(),
            signature: signed.then(|| "sig".into()),
            extra: Extra::default(),
        }),
        Part::Redacted => Block::Thinking(Thinking::Redacted {
            data: "xx".into(),
            extra: Extra::default(),
        }),
        Part::Unknown => Block::Opaque {
            kind: "novel".into(),
            json: palimpsest_core::json::RawJson::parse(
                r#"{"type":"novel","n":12345678901234567890123}"#,
            )
            .unwrap(),
        },
    }
}

fn targets() -> [Target; 4] {
    let target = |provider, model: &str, thinking| Target {
        provider,
        model: model.into(),
        thinking,
    };
    [
        target(Provider::Anthropic, "model-a", true),
        target(Provider::Anthropic, "model-b", true),
        target(Provider::Anthropic, "model-a", false),
        target(Provider::OpenAi, "model-c", false),
    ]
}

/// A caller: it keeps what it is told to keep, and appends what it is given.
#[derive(Default)]
struct Caller {
    array: Vec<Vec<u8>>,
    etag: Option<Etag>,
    flat: Vec<(WireRole, Vec<u8>)>,
    epoch: u32,
}

struct World {
    session: Session,
    log: Vec<Recorded>,
    originals: Vec<Message>,
    callers: HashMap<u8, Caller>,
    next_id: u128,
}

impl World {
    fn new() -> Self {
        let limits = Limits::default();
        let context = Context {
            now: Timestamp::from_millis(0),
            limits: &limits,
        };
        let key = SessionKey::parse("projects/p/sessions/s").unwrap();
        let event = create(Create::default(), context).unwrap();
        let first = Recorded {
            at: context.now,
            event,
        };
        let session = Session::replay(key, [first.clone()]).unwrap();
        Self {
            session,
            log: vec![first],
            originals: vec![],
            callers: HashMap::new(),
            next_id: 1,
        }
    }

    fn run(&mut self, command: Command) {
        let limits = Limits::default();
        let now = Timestamp::from_millis(i64::try_from(self.log.len()).unwrap());
        let context = Context {
            now,
            limits: &limits,
        };
        let Decision::Events(events) = decide(&self.session, command, context).unwrap() else {
            panic!("no request was stamped");
        };
        for event in events {
            let recorded = Recorded { at: now, event };
            self.session.apply(&recorded).unwrap();
            self.log.push(recorded);
        }
    }

    fn message(&mut self, draft: &Draft) -> Message {
        let id = MessageId::new(Uuid::from_u128(self.next_id));
        self.next_id += 1;
        let mut message = match draft {
            Draft::User { meta, parts } => {
                let mut message = Message::new(id, Role::User, parts.iter().map(block).collect());
                message.meta = *meta;
                message
            }
            Draft::Assistant { response, parts } => {
                let mut message =
                    Message::new(id, Role::Assistant, parts.iter().map(block).collect());
                message.provider_message_id =
                    (*response > 0).then(|| format!("msg_{response}").into());
                message.model = Some("model-a".into());
                message
            }
            Draft::System(part) => Message::new(id, Role::System, vec![block(part)]),
            Draft::Again(which) => match self.originals.len() {
                0 => Message::new(id, Role::User, vec![Block::text("first")]),
                n => Message {
                    id,
                    ..self.originals[usize::from(*which) % n].clone()
                },
            },
        };
        message.origin = palimpsest_core::message::Origin::Anthropic;
        self.originals.push(message.clone());
        message
    }

    fn serve(&mut self, which: u8, interrupt: bool) {
        let target = targets()[usize::from(which)].clone();
        self.run(Command::Serve(Serve {
            target: target.clone(),
            interrupt_open_calls: interrupt,
            ..Serve::default()
        }));
        let caller = self.callers.entry(which).or_default();
        let delta = self.session.view(&target, caller.etag);
        let full = self.session.view(&target, None);
        let json = |messages: &[_]| -> Vec<Vec<u8>> {
            messages
                .iter()
                .map(|message| {
                    let mut out = Vec::new();
                    codec::write(target.provider, message, &mut out);
                    out
                })
                .collect()
        };
        // A caller that follows the protocol has the full view.
        caller.array.truncate(delta.keep as usize);
        assert_eq!(
            caller.array.len(),
            delta.keep as usize,
            "keeps more than it has"
        );
        caller.array.extend(json(&delta.messages));
        assert_eq!(
            caller.array,
            json(&full.messages),
            "delta and full view differ"
        );
        assert_eq!(delta.etag, full.etag);
        assert_eq!(full.length as usize, full.messages.len());
        // Sealed: the earlier view is a prefix of this one.
        let flat = flatten(&target, &full.messages);
        let epoch = self.session.sealed().epoch().get();
        if caller.epoch == epoch {
            assert!(flat.starts_with(&caller.flat), "a served view changed");
        }
        // A second look changes nothing, and gives nothing new.
        let again = self.session.view(&target, Some(full.etag));
        assert_eq!((again.keep, again.messages.len()), (full.length, 0));
        if full.unsendable.is_none() {
            let violations = validate(&target, &caller.array);
            assert!(
                violations.is_empty(),
                "{violations:#?}\n{}",
                show(&caller.array)
            );
        }
        (caller.flat, caller.epoch, caller.etag) = (flat, epoch, Some(full.etag));
        self.check_accounting();
    }

    /// Every block of a visible message has one piece, or is pending.
    fn check_accounting(&self) {
        let mut seen = HashSet::new();
        for piece in self.session.sealed().pieces() {
            if piece.form.is_of_a_block() {
                assert!(seen.insert((piece.message, piece.block)), "{piece:?} twice");
            }
        }
        for item in self.session.pending() {
            for (block, _) in &item.blocks {
                assert!(seen.insert((item.message, *block)), "pending and sealed");
            }
        }
        for (ordinal, entry) in self.session.transcript().entries() {
            if entry.standing != Standing::Visible {
                continue;
            }
            let blocks = entry.content.as_ref().unwrap().blocks.len();
            for block in 0..u16::try_from(blocks).unwrap() {
                assert!(seen.remove(&(ordinal, block)), "{ordinal} {block} fell out");
            }
        }
        assert!(
            seen.is_empty(),
            "pieces of messages that are not visible: {seen:?}"
        );
    }

    fn check_replay(&self) {
        let key = self.session.key().clone();
        let replayed = Session::replay(key, self.log.iter().cloned()).unwrap();
        assert_eq!(replayed, self.session, "replay differs");
        assert_eq!(self.reloaded(), self.session, "the snapshot differs");
    }

    fn reloaded(&self) -> Session {
        let snapshot = self.session.snapshot();
        let from = snapshot.first_needed().unwrap_or(Revision::ZERO);
        let contents = self
            .log
            .iter()
            .zip(1_u64..)
            .filter(|(_, revision)| Revision::new(*revision) >= from)
            .filter_map(|(recorded, _)| match &recorded.event {
                Event::MessagesAppended(event) => Some(event),
                _ => None,
            })
            .flat_map(|event| event.messages.iter().map(|m| Arc::clone(&m.message)));
        snapshot.restore(contents.collect::<Vec<_>>()).unwrap()
    }
}

fn show(array: &[Vec<u8>]) -> String {
    array
        .iter()
        .map(|message| String::from_utf8_lossy(message).into_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn p01_p09_views_are_valid_and_sealed_whatever_the_history(
        operations in prop::collection::vec(operation(), 1..24)
    ) {
        let mut world = World::new();
        for operation in &operations {
            match operation {
                Operation::Append(drafts) => {
                    let messages = drafts.iter().map(|draft| world.message(draft)).collect();
                    world.run(Command::Append(Append { messages, ..Append::default() }));
                }
                Operation::Serve { target, interrupt } => world.serve(*target, *interrupt),
                Operation::Rewind(to) => {
                    let visible: Vec<MessageId> = world
                        .session
                        .transcript()
                        .entries()
                        .filter(|(_, entry)| entry.standing == Standing::Visible)
                        .map(|(_, entry)| entry.id)
                        .collect();
                    let at = usize::from(*to) % (visible.len() + 1);
                    let to = at.checked_sub(1).map(|at| visible[at]);
                    world.run(Command::Rewind(Rewind { to, ..Rewind::default() }));
                }
                Operation::Reload => world.session = world.reloaded(),
            }
        }
        for target in 0..4 {
            world.serve(target, true);
        }
        world.check_replay();
    }
}
