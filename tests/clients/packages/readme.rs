//! Tests programs of pages, which run as printed with the package, a server and the fake provider: the first client of
//! the README, and the agent without a provider.

use std::path::{Path, PathBuf};
use std::process::Command;

use palimpsest_fake_provider::{Behaviour, FakeProvider, Plan};
use palimpsest_proto::context::v1::ListMessagesRequest;
use palimpsest_tests::Server;
use palimpsest_tests::markdown::blocks_of;

use super::installed_python;

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
    let python = tokio::task::spawn_blocking(installed_python).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let provider = FakeProvider::start().await.unwrap();
    let plans = [
        Behaviour::Call("read_log".to_owned()),
        Behaviour::Say("Its disk was full.".to_owned()),
    ];
    provider.script("claude-sonnet-4-5", plans.map(Plan::from));
    let program = format!("{}\nprint(response.content[0].text)\n", snippet());
    let output = Command::new(python)
        .args(["-c", &program])
        .env("PALIMPSEST_URL", format!("http://{}", server.address()))
        .env("ANTHROPIC_BASE_URL", provider.url())
        .env("ANTHROPIC_API_KEY", "key")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Its disk was full.\n"
    );
    let asked = ListMessagesRequest {
        session: "projects/demo/sessions/42".into(),
        ..ListMessagesRequest::default()
    };
    let listed = server.sessions().await.list_messages(asked).await.unwrap();
    // The last response is recorded with the next sync.
    assert_eq!(listed.into_inner().messages.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_without_a_provider_runs() {
    palimpsest_tests::binary();
    let python = tokio::task::spawn_blocking(installed_python).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let provider = FakeProvider::start().await.unwrap();
    let repository = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let blocks = blocks_of(&repository.join("clients/README.md"));
    let mut commands = String::new();
    // This test starts the servers.
    for block in blocks.iter().filter(|block| block.language == "sh") {
        if !block.text.starts_with("cargo run") {
            commands += &block.text;
        }
    }
    let commands = commands
        .replace("http://localhost:8080", &provider.url())
        .replace("localhost:8080", &provider.url())
        .replace("\npython ", &format!("\n{} ", python.display()));
    let output = Command::new("bash")
        .args(["-ec", &commands])
        .current_dir(repository)
        .env("PALIMPSEST_URL", format!("http://{}", server.address()))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{commands}\n{stderr}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let shown = blocks.iter().find(|block| block.language == "text");
    assert!(printed.ends_with(&shown.unwrap().text), "{printed}");
}
