//! Many streams at a time: each agent gets its own, and finished ones leave no memory behind.

use futures::future::join_all;
use palimpsest_fake_provider::{Behaviour, Pace, Plan};
use palimpsest_proto::context::v1::ListSessionsRequest;
use serde_json::json;

use crate::agent::{Agent, Api};
use crate::world::World;

/// The number of streams at a time. `GATEWAY_STREAMS` sets another one.
fn streams() -> usize {
    let given = std::env::var("GATEWAY_STREAMS");
    given.map_or(60, |number| number.parse().unwrap())
}

/// The memory of a process, in KiB.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Streams one response to each agent at the same time.
async fn wave(world: &World, agents: &mut [Agent], number: usize) {
    let plan = |agent: &Agent| Plan {
        pace: Pace {
            first_byte_ms: 500,
            gap_ms: 20,
            ..Pace::default()
        },
        ..Behaviour::Say(format!("{} in wave {number}. ", agent.key).repeat(20)).into()
    };
    let replies = agents.iter_mut().map(|agent| {
        world.provider.script(&agent.model, [plan(agent)]);
        agent.say(&format!(
            "Wave {number}. {}",
            "A long question. ".repeat(200)
        ));
        async move {
            let mut body = agent.body();
            body["stream"] = json!(true);
            let reply = agent.post(agent.api.path(), body.to_string()).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            assert_eq!(
                reply.header("x-palimpsest-body"),
                Some("original"),
                "{reply:?}"
            );
            let texts = reply
                .text
                .lines()
                .filter_map(|line| line.strip_prefix("data: "));
            let texts = texts.map(|data| serde_json::from_str::<serde_json::Value>(data).unwrap());
            let text: String = texts
                .filter_map(|event| event["delta"]["text"].as_str().map(str::to_owned))
                .collect();
            let own = format!("{} in wave {number}. ", agent.key);
            assert_eq!(text.trim_end(), own.repeat(20).trim_end());
            let content = json!([{"type": "text", "text": text}]);
            agent.add(&json!({"content": content}));
        }
    });
    join_all(replies).await;
}

#[tokio::test]
async fn streams_do_not_mix_and_leave_no_memory() {
    let count = streams();
    let bound = format!("gateway.max_streams={}", count.max(100) + 10);
    let world = World::start(&[&bound, "gateway.max_connections=4000"]).await;
    let agents = (0..count).map(|number| {
        let name = format!("stream-{number}");
        let mut agent = Agent::new(Api::Messages, &world.url, Some(&name));
        agent.key = format!("key-{name}");
        agent.model = format!("claude-fake-{name}");
        agent
    });
    let mut agents: Vec<Agent> = agents.collect();
    for number in 0..2 {
        wave(&world, &mut agents, number).await;
    }
    // The first two waves fill caches and the pools of the allocator, which are no leak.
    let before = resident(world.server.pid());
    for number in 2..6 {
        wave(&world, &mut agents, number).await;
    }
    let after = resident(world.server.pid());
    println!("{count} streams at a time: {before} KiB after 2 waves, {after} KiB after 6");
    // The conversations themselves grow, by about 4 KiB in each wave.
    let grown = u64::try_from(count).unwrap() * 4 * 64;
    assert!(
        after < before + before / 4 + grown,
        "{before} KiB, then {after} KiB"
    );
    let mut sessions = world.server.sessions().await;
    let request = ListSessionsRequest {
        parent: "projects/default".into(),
        page_size: 1_000,
        ..ListSessionsRequest::default()
    };
    let listed = sessions.list_sessions(request).await.unwrap().into_inner();
    assert_eq!(listed.sessions.len(), count.min(1_000));
}
