//! Writes golden bytes of the current version of the storage format into `tests/golden`, and the view
//! that they must always give. Run by hand, once, when the version moves.

use std::error::Error;
use std::fs;
use std::path::Path;

use palimpsest_core::codec;
use palimpsest_core::command::{Command, Serve};
use palimpsest_core::histories::{Draft, Operation, Part, World};
use palimpsest_store::encoding::{VERSION, encode_frame, encode_snapshot};

fn main() -> Result<(), Box<dyn Error>> {
    let parts = vec![
        Part::Words(1),
        Part::Blank,
        Part::Picture { good: true },
        Part::Call(1),
        Part::OddCall,
        Part::Thought { signed: true },
        Part::Redacted,
        Part::Unknown,
    ];
    let result = |call, shape| Part::Result {
        call,
        error: shape == 3,
        shape,
    };
    let operations = [
        Operation::Append(vec![
            Draft::System(Part::Words(0)),
            Draft::User {
                meta: false,
                parts: parts.clone(),
            },
            Draft::Assistant {
                response: 1,
                parts: parts.clone(),
            },
        ]),
        Operation::Serve {
            target: 0,
            interrupt: false,
        },
        Operation::Append(vec![
            Draft::User {
                meta: true,
                parts: vec![result(1, 3), result(1, 1), result(5, 2), Part::Words(3)],
            },
            Draft::Assistant {
                response: 2,
                parts: vec![Part::Call(1), Part::Call(2)],
            },
            Draft::Again(2),
        ]),
        Operation::Serve {
            target: 0,
            interrupt: true,
        },
        Operation::Append(vec![Draft::User {
            meta: false,
            parts: vec![result(2, 1)],
        }]),
        Operation::Serve {
            target: 3,
            interrupt: false,
        },
        Operation::Rewind(4),
        Operation::Append(vec![Draft::User {
            meta: false,
            parts: vec![Part::Words(9)],
        }]),
    ];
    let mut world = World::new();
    for operation in &operations {
        world.step(operation);
        if let Operation::Serve { interrupt, .. } = operation {
            world.run(Command::Serve(Serve {
                interrupt_open_calls: *interrupt,
                ..Serve::default()
            }));
        }
    }
    let target = world.session.last_served().target.clone();
    let mut view = Vec::new();
    world.fill();
    for message in &world.session.view(&target, None)?.messages {
        codec::write(target.provider, message, &mut view);
        view.push(b'\n');
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    fs::create_dir_all(&dir)?;
    let path = |name: &str, ending: &str| dir.join(format!("{name}-v{VERSION}.{ending}"));
    fs::write(path("frame", "bin"), encode_frame(&world.log))?;
    fs::write(
        path("snapshot", "bin"),
        encode_snapshot(&world.session.snapshot()),
    )?;
    fs::write(path("view", "jsonl"), view)?;
    Ok(())
}
