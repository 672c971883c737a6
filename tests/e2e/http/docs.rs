//! The commands of `docs/http.md` and of the README, which run as printed against a server.

use std::path::Path;
use std::process::Command;

use palimpsest_tests::Server;
use palimpsest_tests::markdown::blocks_of;
use serde_json::Value;

#[test]
fn the_commands_of_the_pages_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut commands = 0;
    for page in ["docs/http.md", "README.md"] {
        let blocks = blocks_of(&top.join(page)).into_iter();
        for block in blocks.filter(|block| block.text.starts_with("curl ")) {
            let script = block.text.replace("localhost:50051", server.address());
            let output = Command::new("sh").args(["-euc", &script]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success(),
                "{script}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            // One block can contain several commands, each with one reply.
            let replies = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
            for reply in replies {
                let reply = reply.unwrap();
                assert!(reply.get("error").is_none(), "{script}: {reply}");
                commands += 1;
            }
        }
    }
    assert!(commands > 8, "{commands}");
}
