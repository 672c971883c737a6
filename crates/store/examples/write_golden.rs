//! Writes golden bytes of the current storage format version into `tests/golden`, with the resulting
//! view. Run it by hand once per new version.

use std::error::Error;
use std::fs;
use std::path::Path;

use palimpsest_core::codec;
use palimpsest_core::command::{Command, ServeView};
use palimpsest_core::histories::{BlockDraft, MessageDraft, Operation, SessionHarness};
use palimpsest_store::encoding::{VERSION, encode_frame, encode_snapshot};

fn main() -> Result<(), Box<dyn Error>> {
    write("", &conversation())?;
    write("offers-", &offers())
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

fn result(call: u8, shape: u8) -> BlockDraft {
    BlockDraft::Result {
        call,
        error: shape == 3,
        shape,
    }
}

/// Writes the frame, the snapshot and the final view of a history.
fn write(kind: &str, operations: &[Operation]) -> Result<(), Box<dyn Error>> {
    let mut world = SessionHarness::new();
    for operation in operations {
        world.step(operation);
        if let Operation::Serve { interrupt, .. } = operation {
            world.run(Command::ServeView(ServeView {
                interrupt_open_calls: *interrupt,
                ..ServeView::default()
            }));
        }
    }
    let target = world.session.last_served().target.clone();
    let mut view = Vec::new();
    world.load_content();
    for message in &world.session.view(&target, None)?.messages {
        codec::write(target.provider, message, &mut view);
        view.push(b'\n');
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    fs::create_dir_all(&dir)?;
    let path = |name: &str, ending: &str| dir.join(format!("{kind}{name}-v{VERSION}.{ending}"));
    fs::write(path("frame", "bin"), encode_frame(&world.log))?;
    fs::write(
        path("snapshot", "bin"),
        encode_snapshot(&world.session.snapshot()),
    )?;
    fs::write(path("view", "jsonl"), view)?;
    Ok(())
}
