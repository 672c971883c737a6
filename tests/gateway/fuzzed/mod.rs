//! Fuzzed requests and responses through sessions: the process answers, no byte changes on its way, no conversation gets
//! a byte of another one, and an honest conversation works afterwards.
//!
//! A case is two conversations at the same time. `PROPTEST_RNG_SEED` selects the cases, `GATEWAY_CASES` sets their number,
//! and `GATEWAY_CASE` runs one case alone. A case that fails prints its number.

mod mutate;
mod requests;
mod responses;
mod upstream;
mod wire;

use std::panic::AssertUnwindSafe;

use fastrand::Rng;
use futures::FutureExt as _;
use palimpsest_fake_provider::{Behaviour, FakeProvider, Plan, Turn};
use serde_json::{Value, json};

use self::upstream::{CASE_HEADER, FuzzedUpstream};
use self::wire::HttpMessage;
use crate::agent::{Agent, Api};
use crate::world::{World, visible};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// Runs cases one after another. `case` gets the random numbers of a case and its name.
async fn run_cases(kind: &str, count: u64, mut case: impl AsyncFnMut(Rng, String)) {
    let seed = setting("PROPTEST_RNG_SEED").unwrap_or(1);
    let numbers = match setting("GATEWAY_CASE") {
        Some(number) => number..number + 1,
        None => 0..setting("GATEWAY_CASES").unwrap_or(count),
    };
    for number in numbers {
        // Each case has a seed of its own, so that it can be repeated without the cases before it.
        let random = Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let running = case(random, format!("{kind}{number}"));
        // The panic itself is printed already.
        let outcome = AssertUnwindSafe(running).catch_unwind().await;
        assert!(
            outcome.is_ok(),
            "{kind}: PROPTEST_RNG_SEED={seed} GATEWAY_CASE={number} repeats the failure"
        );
    }
}

/// A server with a gateway behind which each answer can be changed.
struct FuzzedWorld {
    world: World,
    upstream: FuzzedUpstream,
}

impl FuzzedWorld {
    async fn start(settings: &[&str]) -> Self {
        let provider = FakeProvider::start().await.unwrap();
        let upstream = FuzzedUpstream::start(provider.address()).await;
        let world = World::start_with(provider, &upstream.url, settings);
        Self { world, upstream }
    }

    /// Asserts that nothing has panicked so far.
    fn has_no_panic(&self) {
        let log = self.world.server.log();
        let panicked: Vec<&String> = log
            .iter()
            .filter(|line| line.contains("panicked"))
            .collect();
        assert!(panicked.is_empty(), "{panicked:#?}");
        let counts = self.world.server.scrape();
        let is_panic = |line: &&str| line.starts_with("palimpsest_panics_total");
        let panics = counts.lines().find(is_panic).unwrap_or(" 0");
        assert!(panics.ends_with(" 0"), "{panics}");
    }

    /// Runs an honest conversation in the session of the agent, and asserts that the session has all of it, each message
    /// once and in order. The array of the agent ends with an input that has no honest answer yet.
    async fn is_honest(&self, mut agent: Agent, marker: &str) {
        let world = &self.world;
        let say = |text: &str| -> Plan {
            Behaviour::Turn(Turn {
                text: format!("{text}-{marker}"),
                ..Turn::default()
            })
            .into()
        };
        agent.model = format!("{}-honest-{marker}", agent.api.model());
        world
            .provider
            .script(&agent.model, [say("First"), say("Second")]);
        agent.step().await;
        agent.say(&format!("More-{marker}"));
        let (reply, _) = agent.step().await;
        assert_eq!(
            reply.header("x-palimpsest-body"),
            Some("original"),
            "{reply:?}"
        );
        let session = reply.header("x-palimpsest-session").unwrap();
        let shown = json!(visible(&world.server, session).await).to_string();
        let mut at = 0;
        for text in ["Question", "First", "More"] {
            let text = format!("{text}-{marker}");
            assert_eq!(shown.matches(&text).count(), 1, "{text}: {shown}");
            let found = shown.find(&text).unwrap();
            assert!(found >= at, "{text}: {shown}");
            at = found;
        }
        let all = json!(world.transcript(session).await).to_string();
        assert!(all.contains(&format!("Second-{marker}")), "{all}");
    }
}

/// One of the two conversations of a case.
struct Talk {
    agent: Agent,
    /// The name of the case at the upstream.
    id: String,
    /// A text that no other conversation contains.
    marker: String,
}

impl Talk {
    fn new(api: Api, url: &str, id: String) -> Self {
        let mut agent = Agent::new(api, url, Some(&format!("session-{id}")));
        let marker = format!("mark{id}mark");
        agent.key = format!("key-{id}");
        agent.model = format!("{}-{id}", api.model());
        agent.say(&format!("Question-{marker} with \u{e9} and \u{1f600}"));
        Self { agent, id, marker }
    }

    /// Returns the head of a request with a body of this length.
    fn head(&self, length: usize, further: &str) -> String {
        format!(
            "POST {} HTTP/1.1\r\nhost: gateway\r\nx-api-key: {key}\r\nauthorization: Bearer {key}\r\n\
             anthropic-version: 2023-06-01\r\nx-session-id: {}\r\n{CASE_HEADER}: {}\r\n\
             content-type: application/json\r\nconnection: close\r\n{further}content-length: {length}\r\n\r\n",
            self.agent.api.path(),
            self.agent.session.as_deref().unwrap_or_default(),
            self.id,
            key = self.agent.key,
        )
    }

    /// Asserts that a part of another conversation contains nothing of this one.
    #[track_caller]
    fn is_not_in(&self, bytes: &[u8], place: &str) {
        let marker = self.marker.as_bytes();
        let found = bytes.windows(marker.len()).any(|window| window == marker);
        assert!(
            !found,
            "{place} contains a part of {}: {}",
            self.id,
            bytes.escape_ascii()
        );
    }
}

/// Returns two different elements of all APIs.
fn two_apis(random: &mut Rng) -> [Api; 2] {
    let first = random.usize(0..3);
    // An offset of one or two never leads back to the first.
    let second = (first + random.usize(1..3)) % 3;
    [Api::ALL[first], Api::ALL[second]]
}

/// Returns the session that a response names.
fn session_of(reply: &HttpMessage) -> Option<String> {
    reply.header("x-palimpsest-session").map(str::to_owned)
}

/// Returns a body with or without a stream.
fn body_of(agent: &Agent, random: &mut Rng) -> Value {
    let mut body = agent.body();
    body["stream"] = json!(random.u8(0..4) > 0);
    body
}
