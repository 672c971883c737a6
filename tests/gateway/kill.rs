//! SIGKILL while responses are streamed: the agents retry and go on, no message is lost or there twice, and no conversation
//! has a part of another one.

use std::collections::HashSet;
use std::time::Duration;

use fastrand::Rng;
use futures::future::join_all;
use palimpsest_fake_provider::FakeProvider;
use palimpsest_tests::{ReservedPort, Server};
use serde_json::{Value, json};

use crate::agent::{Agent, Api};
use crate::world::visible;

/// The number of agents that work at the same time.
const AGENTS: usize = 8;

/// The number of kills. `GATEWAY_KILLS` sets another one.
fn kills() -> u32 {
    let given = std::env::var("GATEWAY_KILLS");
    given.map_or(6, |number| number.parse().unwrap())
}

/// The moments of the kills. `PROPTEST_RNG_SEED` selects them.
fn random() -> Rng {
    let seed = std::env::var("PROPTEST_RNG_SEED");
    Rng::with_seed(seed.map_or(1, |seed| seed.parse().unwrap()))
}

fn agents(url: &str) -> Vec<Agent> {
    let agents = (0..AGENTS).map(|number| {
        let mut agent = Agent::new(Api::Messages, url, Some(&format!("killed-{number}")));
        agent.key = format!("key-{number}");
        // A response takes about as long as the pauses between two kills.
        agent.model =
            format!("claude-fake-{number}+agent=1000000+output-bytes=3000+gap=4+window=100000000");
        agent.say(&format!("Run all rounds of agent {number}."));
        agent
    });
    agents.collect()
}

/// Works until the connection breaks. Returns the number of complete responses.
async fn work(agent: &mut Agent, number: usize) -> u32 {
    let mut responses = 0;
    // The agent sends the same array again after the restart.
    while agent.try_step().await {
        mark(agent, number);
        responses += 1;
    }
    responses
}

/// Adds the number of the agent to the result of its last call, so that each conversation has texts of its own.
fn mark(agent: &mut Agent, number: usize) {
    let last = agent.conversation.last_mut().unwrap();
    for block in last["content"].as_array_mut().unwrap() {
        let output = block["content"].as_str().unwrap_or_default();
        block["content"] = json!(format!("{output}of agent {number}"));
    }
}

/// Returns the ids of all calls of a conversation. The provider never repeats an id.
fn calls(agent: &Agent) -> impl Iterator<Item = String> {
    let messages = agent.conversation.iter();
    let blocks = messages
        .filter_map(|message| message["content"].as_array())
        .flatten();
    let calls = blocks.filter(|block| block["type"] == "tool_use");
    calls.map(|block| block["id"].to_string())
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
    let mut agents = agents(&format!("http://{}", port.address()));
    let (mut random, mut responses) = (random(), 0);
    for _ in 0..kills() {
        let server = Server::start(folder.path(), &args);
        let pause = Duration::from_millis(random.u64(1..600));
        let killing = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            server.kill();
        });
        let working = agents.iter_mut().enumerate();
        let working = working.map(|(number, agent)| work(agent, number));
        responses += join_all(working).await.iter().sum::<u32>();
        killing.await.unwrap();
    }
    let server = Server::start(folder.path(), &args);
    println!(
        "{responses} responses to {AGENTS} agents between {} kills",
        kills()
    );
    let mut ids = HashSet::new();
    for (number, agent) in agents.iter_mut().enumerate() {
        let sent = agent.conversation.len();
        assert!(agent.try_step().await);
        assert!(sent < agent.conversation.len());
        // The visible messages are those that the agent sent, in order and each once.
        let session = format!("projects/default/sessions/killed-{number}");
        let shown = visible(&server, &session).await;
        // The response to this request becomes visible with the next one.
        let expected: Vec<Value> = agent.conversation[..sent].to_vec();
        assert_eq!(shown.len(), sent, "agent {number}");
        assert_eq!(json!(shown), json!(expected), "agent {number}");
        for id in calls(agent) {
            assert!(
                ids.insert(id.clone()),
                "agent {number} has a call of another agent: {id}"
            );
        }
    }
}
