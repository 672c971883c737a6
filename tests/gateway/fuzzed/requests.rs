//! Fuzzed requests.

use std::io::Write as _;

use fastrand::Rng;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::future::join;
use serde_json::json;

use super::upstream::{Answers, UpstreamExchange};
use super::wire::{self, HttpMessage};
use super::{FuzzedWorld, Talk, body_of, mutate, run_cases, session_of, two_apis};

/// A request on the wire.
struct Fuzzed {
    head: String,
    body: Vec<u8>,
    /// True if the head announces the body as it is.
    is_framed: bool,
}

/// Changes the body, its coding, the headers or the framing of a request.
fn fuzzed(talk: &Talk, random: &mut Rng) -> Fuzzed {
    let mut json = body_of(&talk.agent, random);
    let kind = random.u8(0..8);
    if kind < 4 {
        for _ in 0..random.usize(1..=3) {
            mutate::json_value(random, &mut json);
        }
    }
    let mut body = json.to_string().into_bytes();
    match kind {
        4 | 5 => body = mutate::json_text(random, &json.to_string()),
        6 => mutate::bytes(random, &mut body),
        _ => {}
    }
    let mut further = header(random).to_owned();
    if random.u8(0..6) == 0 {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&body).unwrap();
        body = encoder.finish().unwrap();
        if random.bool() {
            mutate::bytes(random, &mut body);
        }
        further.push_str("content-encoding: gzip\r\n");
    }
    let length = match random.u8(0..8) {
        0 => body.len() + random.usize(1..100),
        1 => random.usize(0..=body.len()),
        _ => body.len(),
    };
    Fuzzed {
        head: talk.head(length, &further),
        is_framed: length == body.len(),
        body,
    }
}

/// Returns a header that a client rarely sends, or none.
fn header(random: &mut Rng) -> &'static str {
    let headers = [
        "content-encoding: identity\r\n",
        "content-encoding: gzip\r\n",
        "content-encoding: gzip, br\r\n",
        "content-encoding: br\r\ncontent-encoding: gzip\r\n",
        "content-encoding: zstd\r\n",
        "content-encoding: none\r\n",
        "x-palimpsest-session: a/../b\r\n",
        "x-palimpsest-session: \u{fc}\u{fc}\r\n",
        "x-session-affinity: \r\n",
        "accept-encoding: \r\n",
        "expect: 100-continue\r\n",
        "te: trailers, deflate\r\n",
        "traceparent: 00-zz-zz-00\r\n",
        "anthropic-beta: a, , b\r\n",
        "x-padding: \t \r\n",
    ];
    // Half of the requests get no such header.
    let at = random.usize(0..2 * headers.len());
    headers.get(at).copied().unwrap_or_default()
}

/// Sends a changed request. The upstream answers it, whatever it is.
async fn talk(
    world: &FuzzedWorld,
    talk: &Talk,
    mut random: Rng,
) -> (HttpMessage, Vec<UpstreamExchange>) {
    let request = fuzzed(talk, &mut random);
    let text = format!("Answer-{}", talk.marker);
    world.upstream.begin(&talk.id, Answers::Text(text));
    let gateway = world.world.server.gateway();
    let (head, body) = (&request.head, &request.body);
    let reply = if request.is_framed {
        wire::exchange(&gateway, head, body).await
    } else {
        // The gateway would wait for the rest of the body.
        wire::exchange_and_close(&gateway, head, body).await
    };
    let reply = reply.unwrap();
    let exchanges = world.upstream.end(&talk.id);
    if request.is_framed {
        assert!(
            reply.status() > 0,
            "{}: no answer to {}",
            talk.id,
            request.head
        );
        // No level has acted, so the provider gets the bytes of the agent.
        let kind = reply.header("x-palimpsest-body");
        assert!(
            matches!(kind, None | Some("original" | "unmanaged")),
            "{}",
            reply.head
        );
        assert_eq!(
            kind.is_some(),
            !exchanges.is_empty(),
            "{}: {}",
            talk.id,
            reply.head
        );
        for exchange in &exchanges {
            assert_eq!(exchange.request.body, request.body, "{}", talk.id);
            assert_eq!(reply.body, exchange.sent, "{}", talk.id);
            assert!(reply.is_whole);
        }
    }
    for exchange in &exchanges {
        assert!(
            request.body.starts_with(&exchange.request.body),
            "{}",
            talk.id
        );
    }
    (reply, exchanges)
}

#[tokio::test]
async fn a_changed_request_arrives_as_it_is() {
    let world = FuzzedWorld::start(&[]).await;
    let case = async |mut random: Rng, id: String| {
        let apis = two_apis(&mut random);
        let talks = [("a", apis[0]), ("b", apis[1])].map(|(side, api)| {
            let mut talk = Talk::new(api, &world.world.url, format!("{id}{side}"));
            let (agent, marker) = (&mut talk.agent, &talk.marker);
            for round in 0..random.usize(0..3) {
                let answer = match api {
                    crate::agent::Api::Responses => json!({"type": "message", "role": "assistant",
                        "content": [{"type": "output_text", "text": format!("Earlier-{marker}")}]}),
                    _ => {
                        json!({"role": "assistant", "content": format!("Earlier-{marker} {round}")})
                    }
                };
                agent.conversation.push(answer);
                agent.say(&format!("Then-{marker} {round}"));
            }
            talk
        });
        let [first, second] = [random.fork(), random.fork()];
        let ((one, of_one), (two, of_two)) = join(
            talk(&world, &talks[0], first),
            talk(&world, &talks[1], second),
        )
        .await;
        for (other, reply, exchanges) in [(&talks[1], &one, &of_one), (&talks[0], &two, &of_two)] {
            other.is_not_in(&reply.body, "a response");
            for exchange in exchanges {
                other.is_not_in(&exchange.request.body, "a request");
            }
            if let Some(session) = session_of(reply) {
                let transcript = json!(world.world.transcript(&session).await).to_string();
                other.is_not_in(transcript.as_bytes(), "a transcript");
            }
        }
        for mut talk in talks {
            let honest = Talk::new(talk.agent.api, &world.world.url, talk.id.clone());
            talk.agent.conversation = honest.agent.conversation;
            world.is_honest(talk.agent, &talk.marker).await;
        }
    };
    run_cases("request", 40, case).await;
    world.has_no_panic();
}
