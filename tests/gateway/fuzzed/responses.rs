//! Fuzzed responses.

use fastrand::Rng;
use futures::future::join;
use palimpsest_fake_provider::{Behaviour, Call, Pace, Plan, ScriptedTurn, Turn};
use serde_json::json;

use super::upstream::{Answers, UpstreamExchange};
use super::wire::{self, HttpMessage};
use super::{FuzzedWorld, Talk, body_of, run_cases, session_of, two_apis};
use crate::agent::Agent;
use crate::read_back::{answer, bash, compacted, search, step, turn};

/// Sends the conversation once, with a changed answer. Returns the response and the exchanges with the upstream.
async fn talk(
    fuzzed: &FuzzedWorld,
    talk: &Talk,
    mut random: Rng,
) -> (HttpMessage, Vec<UpstreamExchange>) {
    let body = body_of(&talk.agent, &mut random).to_string();
    fuzzed
        .upstream
        .begin(&talk.id, Answers::Changed(random.u64(..)));
    let gateway = fuzzed.world.server.gateway();
    let head = talk.head(body.len(), "");
    let reply = wire::exchange(&gateway, &head, body.as_bytes()).await;
    let reply = reply.unwrap();
    let exchanges = fuzzed.upstream.end(&talk.id);
    assert!(reply.status() > 0, "{}: no answer", talk.id);
    assert!(!exchanges.is_empty(), "{}: {reply:?}", talk.id);
    (reply, exchanges)
}

/// Asserts that the agent got what the upstream sent.
fn is_forwarded(talk: &Talk, reply: &HttpMessage, exchange: &UpstreamExchange) {
    let (id, sent) = (&talk.id, &exchange.sent);
    assert_eq!(
        reply.body.escape_ascii().to_string(),
        sent.escape_ascii().to_string(),
        "{id} {}",
        reply.head
    );
    assert_eq!(reply.is_whole, exchange.is_whole, "{id}: {}", reply.head);
}

/// Asserts that neither conversation has a part of the other one.
async fn is_apart(
    fuzzed: &FuzzedWorld,
    other: &Talk,
    reply: &HttpMessage,
    exchanges: &[UpstreamExchange],
) {
    other.is_not_in(&reply.body, "a response");
    for exchange in exchanges {
        other.is_not_in(&exchange.request.body, "a request");
    }
    if let Some(session) = session_of(reply) {
        let transcript = json!(fuzzed.world.transcript(&session).await).to_string();
        other.is_not_in(transcript.as_bytes(), "a transcript");
    }
}

#[tokio::test]
async fn a_changed_response_arrives_as_it_is() {
    let fuzzed = FuzzedWorld::start(&[]).await;
    let case = async |mut random: Rng, id: String| {
        let apis = two_apis(&mut random);
        let talks = [("a", apis[0]), ("b", apis[1])]
            .map(|(side, api)| Talk::new(api, &fuzzed.world.url, format!("{id}{side}")));
        for talk in &talks {
            let call = Call {
                namespace: None,
                name: "Bash".to_owned(),
                input: json!({"command": format!("echo {}", talk.marker)}),
            };
            let turn = Turn {
                text: format!(
                    "Answer-{} of {} words",
                    talk.marker,
                    "some ".repeat(random.usize(0..60))
                ),
                calls: vec![call; random.usize(0..3)],
                ..Turn::default()
            };
            let plan = Plan {
                pace: Pace {
                    // Each text is one event, so that a search finds its marker.
                    delta_bytes: 4_096,
                    ..Pace::default()
                },
                ..Behaviour::Turn(turn).into()
            };
            fuzzed.world.provider.script(&talk.agent.model, [plan]);
        }
        let randoms = [random.fork(), random.fork()];
        let [first, second] = randoms;
        let ((one, of_one), (two, of_two)) = join(
            talk(&fuzzed, &talks[0], first),
            talk(&fuzzed, &talks[1], second),
        )
        .await;
        for (talk, reply, exchanges) in [(&talks[0], &one, &of_one), (&talks[1], &two, &of_two)] {
            assert_eq!(exchanges.len(), 1, "{}", talk.id);
            assert_eq!(
                reply.header("x-palimpsest-body"),
                Some("original"),
                "{}",
                reply.head
            );
            is_forwarded(talk, reply, &exchanges[0]);
        }
        is_apart(&fuzzed, &talks[1], &one, &of_one).await;
        is_apart(&fuzzed, &talks[0], &two, &of_two).await;
        for talk in talks {
            let marker = talk.marker.clone();
            fuzzed.is_honest(talk.agent, &marker).await;
        }
    };
    run_cases("response", 24, case).await;
    fuzzed.has_no_panic();
}

/// Sends each text in one event, so that a part of another conversation cannot hide between two events.
fn whole_texts(turn: ScriptedTurn) -> ScriptedTurn {
    let pace = Pace {
        delta_bytes: 4_096,
        ..turn.pace
    };
    ScriptedTurn { pace, ..turn }
}

/// Makes the model call tools of the service in some of its answers.
fn script(fuzzed: &FuzzedWorld, talk: &Talk, random: &mut Rng) {
    let rounds = random.usize(1..=3);
    let turns = (0..rounds).map(|round| {
        let text = format!("Answer-{} {round}. ", talk.marker);
        let calls = match random.u8(0..6) {
            0 => vec![],
            1 => vec![bash()],
            2 => vec![search(), bash()],
            3 => vec![search(), search()],
            _ => vec![search()],
        };
        whole_texts(turn(&text, calls))
    });
    let question = format!("Question-{}", talk.marker);
    let last = whole_texts(turn("It ends.", vec![]));
    let turns = turns.chain([last]).collect();
    answer(&fuzzed.world, &talk.agent, &question, turns);
}

#[tokio::test]
async fn changed_responses_with_calls_of_the_gateway_stay_apart() {
    let settings = ["policy.tokens.default_window_tokens=60000"];
    let fuzzed = FuzzedWorld::start(&settings).await;
    let mut agents: Vec<Agent> = Vec::new();
    for api in crate::agent::Api::ALL {
        let name = format!("joined-{api:?}").to_lowercase();
        agents.push(compacted(&fuzzed.world, api, &name).await);
    }
    let case = async |mut random: Rng, id: String| {
        let talks = two_apis(&mut random).map(|api| {
            let agent = agents.iter().find(|agent| agent.api == api).unwrap();
            let id = format!("{id}{api:?}").to_lowercase();
            let mut talk = Talk::new(api, &fuzzed.world.url, id);
            let question = talk.agent.conversation.pop().unwrap();
            talk.agent = agent.clone();
            talk.agent.conversation.push(question);
            talk
        });
        for talk in &talks {
            script(&fuzzed, talk, &mut random);
        }
        let [first, second] = [random.fork(), random.fork()];
        let ((one, of_one), (two, of_two)) = join(
            talk(&fuzzed, &talks[0], first),
            talk(&fuzzed, &talks[1], second),
        )
        .await;
        for (talk, reply, exchanges) in [(&talks[0], &one, &of_one), (&talks[1], &two, &of_two)] {
            assert_eq!(
                reply.header("x-palimpsest-body"),
                Some("view"),
                "{}",
                reply.head
            );
            let is_own = |exchange: &UpstreamExchange| {
                exchange
                    .sent
                    .windows(11)
                    .any(|window| window == b"palimpsest_")
            };
            if exchanges.len() == 1 && !is_own(&exchanges[0]) {
                is_forwarded(talk, reply, &exchanges[0]);
            }
            // A changed answer can spell the name of a tool in another way.
            if exchanges.iter().all(|exchange| !exchange.is_changed) {
                let text = String::from_utf8_lossy(&reply.body);
                assert!(!text.contains("palimpsest_"), "{}: {text}", talk.id);
                assert!(
                    reply.is_whole && text.contains(&talk.marker),
                    "{}: {text}",
                    talk.id
                );
            }
        }
        is_apart(&fuzzed, &talks[1], &one, &of_one).await;
        is_apart(&fuzzed, &talks[0], &two, &of_two).await;
    };
    run_cases("joined", 24, case).await;
    fuzzed.has_no_panic();
    for mut agent in agents {
        for streams in [false, true] {
            let question = format!("An honest question {streams}?");
            let turns = vec![turn("Looking. ", vec![search()]), turn("Found.", vec![])];
            answer(&fuzzed.world, &agent, &question, turns);
            agent.say(&question);
            let (reply, response, has_calls) = step(&mut agent, streams).await;
            assert!(!has_calls, "{response:#}");
            assert!(!reply.text.contains("palimpsest_"), "{}", reply.text);
            assert!(reply.text.contains("Looking. "), "{}", reply.text);
        }
    }
}
