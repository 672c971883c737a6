//! Writes golden bytes of the current storage format version into `tests/golden`, with the resulting
//! view. Run it by hand once per new version.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use palimpsest_core::codec;
use palimpsest_core::command::{Command, ServeView};
use palimpsest_core::event::{ArrayPosition, CacheEditsIssued, Event, RecordedEvent};
use palimpsest_core::ids::{CallKey, Ordinal, Timestamp};
use palimpsest_core::message::Digest;
use palimpsest_histories::{
    BlockDraft, MessageDraft, Operation, SessionHarness, operation, serving,
};
use palimpsest_store::encoding::{VERSION, encode_frame, encode_snapshot};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

fn main() -> Result<(), Box<dyn Error>> {
    write("", &conversation())?;
    write("offers-", &offers())?;
    write("arrays-", &arrays())?;
    write("responses-", &responses())?;
    let (events, snapshot) = histories();
    fs::write(golden("events-frame", "bin"), encode_frame(&events))?;
    fs::write(golden("events-snapshot", "bin"), snapshot)?;
    Ok(())
}

/// Events of all kinds and a large snapshot, both without session memory, which has golden bytes of its own. The events
/// are the first one of each kind and the three longest ones of many random histories.
fn histories() -> (Vec<RecordedEvent>, Bytes) {
    const HISTORIES: usize = 3_000;
    const PER_KIND: usize = 4;
    let mut runner = TestRunner::deterministic();
    let operations = prop::collection::vec(operation(), 1..40);
    let mut by_kind: BTreeMap<String, Vec<(usize, RecordedEvent)>> = BTreeMap::new();
    let mut snapshot = Bytes::new();
    for _ in 0..HISTORIES {
        let tree = operations.new_tree(&mut runner).expect("a history exists");
        let mut history = tree.current();
        history.retain(|operation| !matches!(operation, Operation::Note(_)));
        let world = run(&history);
        let encoded = encode_snapshot(&world.session.snapshot());
        if encoded.len() > snapshot.len() {
            snapshot = encoded;
        }
        for recorded in world.log {
            let text = format!("{:?}", recorded.event);
            let kind = text.split('(').next().unwrap_or_default().to_owned();
            let events = by_kind.entry(kind).or_default();
            events.push((text.len(), recorded));
            if events.len() > PER_KIND {
                let shortest = (1..events.len()).min_by_key(|at| events[*at].0);
                events.remove(shortest.unwrap_or_default());
            }
        }
    }
    let kept = by_kind.into_values().flatten();
    let events = kept.map(|(_, recorded)| recorded);
    // Histories issue no cache edits.
    let position = ArrayPosition {
        target: Digest::of_bytes(b"target"),
        message: 3,
    };
    let edits = [None, Some(position)].map(|position| RecordedEvent {
        at: Timestamp::from_millis(7),
        by: None,
        event: Event::CacheEditsIssued(CacheEditsIssued {
            calls: vec![CallKey::new(0), CallKey::new(5)],
            message: Ordinal::new(4),
            position,
            before_tokens: 12_345,
            freed_tokens: 678,
        }),
    });
    (events.chain(edits).collect(), snapshot)
}

/// Operations that cover all kinds of blocks and events.
fn conversation() -> Vec<Operation> {
    let parts = vec![
        BlockDraft::Words(1),
        BlockDraft::Blank,
        BlockDraft::Picture { good: true },
        BlockDraft::Call(1),
        BlockDraft::OddCall,
        BlockDraft::Thought { signed: true },
        BlockDraft::Redacted,
        BlockDraft::Unknown,
    ];
    vec![
        Operation::Append(vec![
            MessageDraft::System(BlockDraft::Words(0)),
            MessageDraft::User {
                meta: false,
                parts: parts.clone(),
            },
            MessageDraft::Assistant {
                response: 1,
                parts: parts.clone(),
            },
        ]),
        Operation::Serve {
            target: 0,
            interrupt: false,
        },
        Operation::Append(vec![
            MessageDraft::User {
                meta: true,
                parts: vec![
                    result(1, 3),
                    result(1, 1),
                    result(5, 2),
                    BlockDraft::Words(3),
                ],
            },
            MessageDraft::Assistant {
                response: 2,
                parts: vec![BlockDraft::Call(1), BlockDraft::Call(2)],
            },
            MessageDraft::Again(2),
        ]),
        Operation::Serve {
            target: 0,
            interrupt: true,
        },
        Operation::Append(vec![MessageDraft::User {
            meta: false,
            parts: vec![result(2, 1)],
        }]),
        Operation::Serve {
            target: 3,
            interrupt: false,
        },
        Operation::Rewind(4),
        Operation::Append(vec![MessageDraft::User {
            meta: false,
            parts: vec![BlockDraft::Words(9)],
        }]),
    ]
}

/// Results with a persist decision before their message: one appended as original, one as its
/// replacement, one kept inline, and one not appended yet.
fn offers() -> Vec<Operation> {
    let offer = |call, shape, rule| Operation::Offer {
        call,
        shape,
        rule,
        by_key: false,
    };
    let calls = (1..4).map(BlockDraft::Call).collect();
    let given = BlockDraft::Given {
        call: 2,
        block: false,
    };
    vec![
        offer(1, 3, 2),
        offer(2, 3, 2),
        offer(3, 3, 0),
        Operation::Append(vec![
            MessageDraft::User {
                meta: false,
                parts: vec![BlockDraft::Words(1)],
            },
            MessageDraft::Assistant {
                response: 1,
                parts: calls,
            },
            MessageDraft::User {
                meta: false,
                parts: vec![result(1, 3), given, result(3, 3)],
            },
        ]),
        Operation::Serve {
            target: 0,
            interrupt: false,
        },
        offer(4, 3, 2),
        offer(5, 0, 2),
    ]
}

/// Whole arrays of a caller: a system message, a response without content, and an end that a rewind left.
fn arrays() -> Vec<Operation> {
    let user = |word| MessageDraft::User {
        meta: false,
        parts: vec![BlockDraft::Words(word)],
    };
    let model = |part| MessageDraft::Assistant {
        response: 0,
        parts: vec![part],
    };
    vec![
        Operation::Append(vec![
            MessageDraft::System(BlockDraft::Words(1)),
            user(2),
            model(BlockDraft::Blank),
            model(BlockDraft::Words(3)),
            user(4),
        ]),
        Operation::Sync(21),
        Operation::Serve {
            target: 0,
            interrupt: false,
        },
        Operation::Sync(5),
        Operation::Append(vec![user(6)]),
    ]
}

/// Recorded responses: one that was confirmed, one in another form, and one that waits. An undo brings back a call whose
/// id a later call uses.
fn responses() -> Vec<Operation> {
    let user = |word| MessageDraft::User {
        meta: false,
        parts: vec![BlockDraft::Words(word)],
    };
    let model = |part| MessageDraft::Assistant {
        response: 1,
        parts: vec![part],
    };
    let serve = || Operation::Serve {
        target: 0,
        interrupt: false,
    };
    vec![
        Operation::Append(vec![user(1), user(2)]),
        serve(),
        Operation::Sync(4),
        Operation::Append(vec![user(3), user(4)]),
        serve(),
        Operation::Rewind(2),
        Operation::Append(vec![model(BlockDraft::Call(4))]),
        serve(),
        Operation::Restore(0),
        serve(),
        Operation::Sync(5),
        Operation::Append(vec![model(BlockDraft::Words(5))]),
        Operation::Sync(4),
    ]
}

fn result(call: u8, shape: u8) -> BlockDraft {
    BlockDraft::Result {
        call,
        error: shape == 3,
        shape,
    }
}

fn run(operations: &[Operation]) -> SessionHarness {
    let mut world = SessionHarness::new();
    for operation in operations {
        world.step(operation);
        if let Operation::Serve { interrupt, .. } = operation {
            world.run(Command::ServeView(ServeView {
                interrupt_open_calls: *interrupt,
                ..serving()
            }));
        }
    }
    world
}

/// Writes the frame, the snapshot and the final view of a history.
fn write(kind: &str, operations: &[Operation]) -> Result<(), Box<dyn Error>> {
    let mut world = run(operations);
    let target = world.session.last_served().target.clone();
    let mut view = Vec::new();
    world.load_content();
    for message in &world.session.view(&target, None)?.messages {
        codec::write(target.provider, message, &mut view);
        view.push(b'\n');
    }
    let path = |name: &str, ending: &str| golden(&format!("{kind}{name}"), ending);
    fs::write(path("frame", "bin"), encode_frame(&world.log))?;
    fs::write(
        path("snapshot", "bin"),
        encode_snapshot(&world.session.snapshot()),
    )?;
    fs::write(path("view", "jsonl"), view)?;
    Ok(())
}

fn golden(name: &str, ending: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    dir.join(format!("{name}-v{VERSION}.{ending}"))
}
