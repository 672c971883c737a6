//! Faults of the provider: the agent of a managed conversation sees what it would see without the gateway.

use std::io;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::agent::{Agent, Api};
use crate::world::World;

/// Properties of an answer, as directives of the provider for tests.
const ANSWERS: [&str; 20] = [
    "status=429+retry-after=7",
    "retry-after-date=5",
    "retry-after-limits=5",
    "status=500",
    "status=529",
    "html=502",
    "reset",
    "drop",
    "cut-event=3",
    "cut-byte=150",
    "reset-event=3",
    "malformed=2",
    "error-event=3",
    "failed=3",
    "refuse",
    "empty",
    "split=utf8+crlf",
    "one-byte",
    "coding=gzip",
    "coding=zstd+first-byte=30",
];

/// The end of a connection.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Closed,
    Reset,
}

/// A response on the wire, as far as it is equal for equal requests.
#[derive(Debug, PartialEq, Eq)]
struct Observed {
    head: Vec<String>,
    /// The content of all complete chunks or the bytes of the body.
    body: String,
    end: End,
}

/// Sends a request over a connection of its own, and reads until the end of the connection.
async fn observe(address: &str, agent: &Agent) -> Observed {
    let mut body = agent.body();
    body["stream"] = json!(true);
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).await.unwrap();
    // Each API reads its own header with the key, so the same head serves all of them.
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: provider\r\nx-api-key: {key}\r\nauthorization: Bearer {key}\r\n\
         anthropic-version: 2023-06-01\r\nx-session-id: {}\r\naccept-encoding: gzip, zstd\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        agent.api.path(),
        agent.session.as_deref().unwrap(),
        body.len(),
        key = agent.key,
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let end = loop {
        match stream.read_buf(&mut bytes).await {
            Ok(0) => break End::Closed,
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                break End::Reset;
            }
        }
    };
    // A reset before the head leaves no border. All bytes, usually none, are then the head.
    let border = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let (head, body) = border.map_or((&bytes[..], &[][..]), |at| bytes.split_at(at));
    let head = String::from_utf8_lossy(head).into_owned();
    let is_added = |line: &&str| line.starts_with("x-palimpsest-") || line.starts_with("date:");
    let chunked = head.contains("transfer-encoding: chunked");
    let body = body.get(4..).unwrap_or_default();
    let body = if chunked {
        complete_chunks(body)
    } else {
        body.to_vec()
    };
    Observed {
        head: head
            .lines()
            .filter(|line| !is_added(line))
            .map(without_numbers)
            .collect(),
        body: body.iter().map(|byte| char::from(*byte)).collect(),
        end,
    }
}

/// Returns the content of the complete chunks.
fn complete_chunks(mut bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).unwrap();
        let Ok(size) = usize::from_str_radix(size, 16) else {
            break;
        };
        // The arrived part of an incomplete chunk depends on timing, so it does not count.
        let Some(chunk) = bytes.get(end + 2..end + 2 + size) else {
            break;
        };
        content.extend_from_slice(chunk);
        bytes = bytes.get(end + 4 + size..).unwrap_or_default();
    }
    content
}

/// Replaces long numbers, which the provider assigns, and points in time.
fn without_numbers(line: &str) -> String {
    // A time such as `12:34:56`.
    let has_time = line.as_bytes().windows(8).any(|window| {
        let is_digit = |at: &usize| window[*at].is_ascii_digit();
        [0, 1, 3, 4, 6, 7].iter().all(is_digit) && window[2] == b':' && window[5] == b':'
    });
    if has_time {
        // Two requests can arrive in two seconds.
        return line.replace(|c: char| c.is_ascii_digit(), "#");
    }
    let mut parts: Vec<String> = Vec::new();
    for part in line.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.chars().take_while(char::is_ascii_digit).count();
        let rest: String = part.chars().skip(digits).collect();
        parts.push(if digits >= 12 {
            format!("#{rest}")
        } else {
            part.to_owned()
        });
    }
    parts.concat()
}

#[tokio::test]
async fn an_agent_sees_the_faults_of_its_provider() {
    let world = World::start(&[]).await;
    let direct_address = world.provider.address().to_string();
    for api in Api::ALL {
        for (number, answer) in ANSWERS.iter().enumerate() {
            let mut agent = Agent::new(api, "", Some(&format!("faults-{api:?}-{number}")));
            agent.model = format!("{}+{answer}", api.model());
            agent.say("A question with \u{e9} and \u{1f600}.");
            let gateway = world.server.gateway();
            let through = observe(&gateway, &agent).await;
            let direct = observe(&direct_address, &agent).await;
            assert_eq!(through.head, direct.head, "{api:?} {answer}");
            assert_eq!(through.end, direct.end, "{api:?} {answer}");
            // Compressed bytes contain the numbers in a form that cannot be removed.
            if !answer.contains("coding") {
                let (through, direct) = (
                    without_numbers(&through.body),
                    without_numbers(&direct.body),
                );
                assert_eq!(through, direct, "{api:?} {answer}");
            }
            // The retry of the agent is the same array. It has no second message in the session.
            agent.url.clone_from(&world.url);
            agent.model = api.model().to_owned();
            let (reply, _) = agent.step().await;
            assert_eq!(reply.header("x-palimpsest-body"), Some("original"));
            let session = reply.header("x-palimpsest-session").unwrap();
            let transcript = world.transcript(session).await;
            let questions = transcript
                .iter()
                .filter(|message| message["role"] == "user");
            assert_eq!(questions.count(), 1, "{api:?} {answer} {transcript:#?}");
        }
    }
}

#[tokio::test]
async fn a_streamed_response_is_recorded_before_its_last_event_arrives() {
    let world = World::start(&[]).await;
    for api in Api::ALL {
        let mut agent = Agent::new(api, "", Some(&format!("streamed-{api:?}")));
        agent.model = format!(
            "{}+say=An_answer_in_several_events.+split=utf8",
            api.model()
        );
        agent.say("A question.");
        let observed = observe(&world.server.gateway(), &agent).await;
        assert_eq!(observed.end, End::Closed);
        let session = format!("projects/default/sessions/streamed-{api:?}");
        let transcript = world.transcript(&session).await;
        assert_eq!(transcript.len(), 2, "{api:?} {transcript:#?}");
        let text = transcript[1].to_string();
        assert!(
            text.contains("An answer in several events."),
            "{api:?} {text}"
        );
    }
}
