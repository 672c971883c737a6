//! Tests the first client of the README, which runs as printed against a server.

use std::path::Path;
use std::process::Command;

use palimpsest_proto::context::v1::ListMessagesRequest;
use palimpsest_tests::Server;
use palimpsest_tests::markdown::blocks_of;

use crate::language::Language;

/// Returns the first Python block of the README.
fn snippet() -> String {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let blocks = blocks_of(Path::new(readme)).into_iter();
    let mut python = blocks.filter(|block| block.language == "python");
    python.next().unwrap().text
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_the_readme_runs_against_a_server() {
    palimpsest_tests::binary();
    let built = Language::Python.build().await;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let text = snippet();
    assert!(text.contains("127.0.0.1:50051"), "{text}");
    let program = text.replace("127.0.0.1:50051", server.address());
    let program = format!("{program}\nprint(len(array), array[0][\"role\"])\n");
    let output = Command::new(built.join("venv/bin/python"))
        .args(["-c", &program])
        .env("PYTHONPATH", built.join("gen"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 user\n");
    let asked = ListMessagesRequest {
        session: "projects/demo/sessions/42".into(),
        ..ListMessagesRequest::default()
    };
    let listed = server.sessions().await.list_messages(asked).await.unwrap();
    assert_eq!(listed.into_inner().messages.len(), 1);
}
