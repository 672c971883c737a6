//! SIGKILL while responses are streamed: the agent retries and goes on, and no message is lost or there twice.

use std::time::Duration;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_tests::{ReservedPort, Server};
use serde_json::{Value, json};

use crate::agent::{Agent, Api};
use crate::world::visible;

/// The number of kills. `GATEWAY_KILLS` sets another one.
fn kills() -> u32 {
    let given = std::env::var("GATEWAY_KILLS");
    given.map_or(8, |number| number.parse().unwrap())
}

#[tokio::test]
async fn no_message_is_lost_or_twice_after_kills() {
    let provider = FakeProvider::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = ReservedPort::reserve();
    let settings = [
        "gateway.enabled=true".to_owned(),
        format!("gateway.listen={}", port.address()),
        "gateway.prepare_timeout_ms=120000".to_owned(),
        // Without a compaction, the visible messages are all messages.
        "policy.tokens.default_window_tokens=100000000".to_owned(),
        format!("gateway.upstreams.anthropic.base_url={}", provider.url()),
    ];
    let args: Vec<&str> = settings.iter().flat_map(|it| ["--set", it]).collect();
    let url = format!("http://{}", port.address());
    let mut agent = Agent::new(Api::Messages, &url, Some("killed"));
    // A response takes about as long as the pauses between two kills.
    agent.model = "claude-fake+agent=1000000+output-bytes=3000+gap=4+window=100000000".to_owned();
    agent.say("Run all rounds.");
    let mut attempts = 0;
    for kill in 0..kills() {
        let server = Server::start(folder.path(), &args);
        let pause = Duration::from_millis(u64::from(37 * (kill + 1) % 400));
        let killing = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            server.kill();
        });
        // The agent works until its connection breaks. It sends the same array again after the restart.
        while agent.try_step().await {
            attempts += 1;
        }
        killing.await.unwrap();
    }
    let server = Server::start(folder.path(), &args);
    assert!(agent.try_step().await);
    println!("{attempts} responses between {} kills", kills());
    let sent = provider.requests().pop().unwrap();
    let reply = sent.body["messages"].as_array().unwrap().len();
    assert!(reply < agent.conversation.len());
    // The visible messages are those that the agent sent, in order and each once.
    let shown = visible(&server, "projects/default/sessions/killed").await;
    let expected: Vec<Value> = agent.conversation[..shown.len()].to_vec();
    assert_eq!(shown.len(), reply);
    assert_eq!(json!(shown), json!(expected));
}
