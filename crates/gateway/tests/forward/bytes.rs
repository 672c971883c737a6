//! Requests and responses that are forwarded byte for byte.

use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::mpsc;

use crate::raw::{
    Message, connect, gateway, in_time, read_head, read_message, read_to_end, upstream,
    write_pieces,
};

/// The framing of a body.
#[derive(Debug, Clone)]
enum Framing {
    None,
    Length(Vec<u8>),
    Chunks(Vec<Vec<u8>>),
}

impl Framing {
    fn content(&self) -> Vec<u8> {
        match self {
            Self::None => Vec::new(),
            Self::Length(body) => body.clone(),
            Self::Chunks(chunks) => chunks.concat(),
        }
    }

    fn header(&self) -> Option<(String, String)> {
        match self {
            Self::None => None,
            Self::Length(body) => Some(("content-length".into(), body.len().to_string())),
            Self::Chunks(_) => Some(("transfer-encoding".into(), "chunked".into())),
        }
    }

    fn wire(&self) -> Vec<u8> {
        let Self::Chunks(chunks) = self else {
            return self.content();
        };
        let mut wire = Vec::new();
        for chunk in chunks {
            wire.extend(format!("{:X}\r\n", chunk.len()).into_bytes());
            wire.extend(chunk);
            wire.extend(b"\r\n");
        }
        wire.extend(b"0\r\n\r\n");
        wire
    }
}

fn framing() -> impl Strategy<Value = Framing> {
    let content = || vec(any::<u8>(), 1..300);
    prop_oneof![
        Just(Framing::None),
        vec(any::<u8>(), 0..600).prop_map(Framing::Length),
        vec(content(), 0..8).prop_map(Framing::Chunks),
    ]
}

/// A header in a random spelling, with a value that may contain bytes outside of ASCII.
fn header() -> impl Strategy<Value = (String, Vec<u8>)> {
    let value = prop_oneof![
        8 => "[!-~]([ -~\t]{0,40}[!-~])?".prop_map(String::into_bytes),
        1 => vec(0x80_u8..=0xff, 1..8),
        1 => Just(Vec::new()),
    ];
    ("[A-Za-z][A-Za-z0-9_.]{0,10}", value)
}

/// Spells a name by the bits of `spelling`.
fn spelled(name: &str, spelling: u32) -> String {
    let letter = |(at, letter): (usize, char)| {
        if spelling >> (at % 32) & 1 == 1 {
            letter.to_ascii_uppercase()
        } else {
            letter
        }
    };
    name.chars().enumerate().map(letter).collect()
}

/// The parts of a head: the first line, and names and values in their order.
#[derive(Debug, Clone)]
struct Head {
    line: String,
    headers: Vec<(String, Vec<u8>)>,
}

impl Head {
    /// Returns the head on the wire. hyper writes a request's header without a value without a space.
    fn wire(&self, empty: &str) -> Vec<u8> {
        let mut wire = format!("{}\r\n", self.line).into_bytes();
        for (name, value) in &self.headers {
            let space = if value.is_empty() { empty } else { " " };
            wire.extend(format!("{name}:{space}").into_bytes());
            wire.extend(value);
            wire.extend(b"\r\n");
        }
        wire.extend(b"\r\n");
        wire
    }
}

/// Headers with unique names. Those that agents and providers send are among them, in random spellings and places.
fn headers(
    usual: &'static [(&'static str, &'static str)],
) -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let own = vec(header(), 0..12).prop_map(|headers| {
        // hyper writes the values of a repeated name together, so each name gets a number of its own.
        let number =
            |(at, (name, value)): (usize, (String, Vec<u8>))| (format!("{name}-{at}"), value);
        headers
            .into_iter()
            .enumerate()
            .map(number)
            .collect::<Vec<_>>()
    });
    let usual = proptest::sample::subsequence(usual, 0..=usual.len());
    let usual = (usual, any::<u32>()).prop_map(|(usual, spelling)| {
        let spell =
            |(name, value): (&str, &str)| (spelled(name, spelling), value.as_bytes().to_vec());
        usual.into_iter().map(spell).collect::<Vec<_>>()
    });
    (own, usual)
        .prop_map(|(own, usual)| [own, usual].concat())
        .prop_shuffle()
}

const USUAL_IN_REQUESTS: &[(&str, &str)] = &[
    ("accept", "application/json"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("anthropic-beta", "a-2025-01-01,b-2025-02-02"),
    ("anthropic-version", "2023-06-01"),
    ("authorization", "Bearer sk-dummy"),
    ("connection", "keep-alive"),
    ("content-type", "application/json"),
    (
        "traceparent",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
    ("user-agent", "agent/1.0 (linux; x64)"),
    ("x-api-key", "sk-dummy"),
    ("x-stainless-retry-count", "0"),
];

const USUAL_IN_RESPONSES: &[(&str, &str)] = &[
    ("cf-ray", "8c1-FRA"),
    ("connection", "keep-alive"),
    ("content-encoding", "br"),
    ("content-type", "text/event-stream; charset=utf-8"),
    ("date", "Mon, 01 Jan 2024 00:00:00 GMT"),
    ("request-id", "req_011"),
    ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"),
    ("server", "cloudflare"),
    ("set-cookie", "a=b; Path=/"),
    ("x-ratelimit-remaining-tokens", "1000"),
];

#[derive(Debug, Clone)]
struct Request {
    head: Head,
    body: Framing,
    /// The places of the host and of the framing among the headers, and their spellings.
    places: (usize, usize, u32),
    cuts: Vec<usize>,
}

impl Request {
    /// Returns the head as a client sends it to `host`.
    fn head(&self, host: &str) -> Vec<u8> {
        let mut head = self.head.clone();
        let (host_at, body_at, spelling) = self.places;
        let mut put = |at: usize, (name, value): (String, String)| {
            let at = at % (head.headers.len() + 1);
            head.headers
                .insert(at, (spelled(&name, spelling), value.into_bytes()));
        };
        put(host_at, ("host".into(), host.into()));
        if let Some(header) = self.body.header() {
            put(body_at, header);
        }
        head.wire("")
    }
}

fn request() -> impl Strategy<Value = Request> {
    let method = select(vec![
        "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW",
    ]);
    let path = select(vec![
        "/",
        "/v1/messages",
        "/v1/chat/completions",
        "/v1/responses",
        "/x",
    ]);
    let rest = "(/[A-Za-z0-9._~!$&'()*+,;=:@%-]{0,12})?(\\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{0,24})?";
    let line = (method, path, rest)
        .prop_map(|(method, path, rest)| format!("{method} {path}{rest} HTTP/1.1"));
    let places = (any::<usize>(), any::<usize>(), any::<u32>());
    (
        line,
        headers(USUAL_IN_REQUESTS),
        framing(),
        places,
        vec(1_usize..200, 0..12),
    )
        .prop_map(|(line, headers, body, places, cuts)| Request {
            head: Head { line, headers },
            body,
            places,
            cuts,
        })
}

#[derive(Debug, Clone)]
struct Response {
    head: Head,
    body: Framing,
    cuts: Vec<usize>,
}

fn response() -> impl Strategy<Value = Response> {
    let status = select(vec![
        200, 201, 202, 301, 400, 401, 404, 413, 429, 500, 503, 529, 599,
    ]);
    let line = (status, "[A-Za-z ]{0,12}")
        .prop_map(|(status, reason)| format!("HTTP/1.1 {status} {reason}"));
    let body = framing().prop_map(|body| match body {
        // Without a length, the end of the connection is the end of the body. Another test covers that.
        Framing::None => Framing::Length(Vec::new()),
        body => body,
    });
    (
        line,
        headers(USUAL_IN_RESPONSES),
        body,
        any::<(usize, u32)>(),
        vec(1_usize..200, 0..12),
    )
        .prop_map(|(line, mut headers, body, (at, spelling), cuts)| {
            let at = at % (headers.len() + 1);
            if let Some((name, value)) = body.header() {
                headers.insert(at, (spelled(&name, spelling), value.into_bytes()));
            }
            let head = Head { line, headers };
            Response { head, body, cuts }
        })
}

/// The number of random cases of each property.
fn cases() -> Config {
    Config {
        cases: 128,
        failure_persistence: None,
        ..Config::default()
    }
}

#[test]
fn upstream_receives_the_bytes_of_a_direct_client() {
    let runtime = Runtime::new().unwrap();
    let (received, messages) = mpsc::channel(1);
    let (upstream, gateway) = runtime.block_on(async {
        let upstream = upstream(move |mut stream| {
            let received = received.clone();
            async move {
                while let Some(message) = read_message(&mut stream).await {
                    received.send(message).await.unwrap();
                    stream
                        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                        .await
                        .unwrap();
                }
            }
        })
        .await;
        (upstream, gateway(upstream).await)
    });
    let messages = AsyncMutex::new(messages);
    let check = |request: Request| {
        runtime.block_on(in_time(async {
            let mut client = connect(gateway.address).await;
            // The agent names another host than upstream, whose name has to appear at the same place.
            let wire = [request.head("agent.example:8080"), request.body.wire()].concat();
            let ((), received) =
                tokio::join!(write_pieces(&mut client, &wire, &request.cuts), async {
                    messages.lock().await.recv().await.unwrap()
                });
            let expected = request.head(&upstream.to_string());
            assert_eq!(received.head_text(), String::from_utf8_lossy(&expected));
            assert_eq!(received.head, expected);
            assert_eq!(received.body, request.body.content());
            // The borders of chunks can change, so only their content is compared.
            if !matches!(request.body, Framing::Chunks(_)) {
                assert_eq!(received.framed, request.body.wire());
            }
            let answer = read_head(&mut client).await.unwrap();
            assert_eq!(answer.head_text(), "HTTP/1.1 204 No Content\r\n\r\n");
        }));
        Ok(())
    };
    TestRunner::new(cases()).run(&request(), check).unwrap();
}

#[test]
fn a_client_receives_the_bytes_of_upstream() {
    let runtime = Runtime::new().unwrap();
    let next: Arc<Mutex<Option<Response>>> = Arc::default();
    let to_send = Arc::clone(&next);
    let gateway = runtime.block_on(async {
        let upstream = upstream(move |mut stream| {
            let to_send = Arc::clone(&to_send);
            async move {
                while read_message(&mut stream).await.is_some() {
                    let response = to_send.lock().unwrap().take().unwrap();
                    let wire = [response.head.wire(" "), response.body.wire()].concat();
                    write_pieces(&mut stream, &wire, &response.cuts).await;
                }
            }
        })
        .await;
        gateway(upstream).await
    });
    let check = |response: Response| {
        *next.lock().unwrap() = Some(response.clone());
        runtime.block_on(in_time(async {
            let mut client = connect(gateway.address).await;
            client.write_all(crate::raw::REQUEST).await.unwrap();
            let received = read_message(&mut client).await.unwrap();
            let expected = response.head.wire(" ");
            assert_eq!(received.head_text(), String::from_utf8_lossy(&expected));
            assert_eq!(received.head, expected);
            assert_eq!(received.body, response.body.content());
            if !matches!(response.body, Framing::Chunks(_)) {
                assert_eq!(received.framed, response.body.wire());
            }
        }));
        Ok(())
    };
    TestRunner::new(cases()).run(&response(), check).unwrap();
}

/// Sends a request through a gateway to an upstream with a fixed answer. Returns the request that upstream received, and
/// the connection to read the response from.
async fn exchange(request: &'static [u8], answer: &'static [u8]) -> (Message, TcpStream) {
    let (received, mut messages) = mpsc::channel(1);
    let upstream = upstream(move |mut stream| {
        let received = received.clone();
        async move {
            let message = read_message(&mut stream).await.unwrap();
            received.send(message).await.unwrap();
            stream.write_all(answer).await.unwrap();
        }
    })
    .await;
    let gateway = gateway(upstream).await;
    let mut client = connect(gateway.address).await;
    client.write_all(request).await.unwrap();
    (messages.recv().await.unwrap(), client)
}

#[tokio::test]
async fn responses_without_a_body_keep_their_headers() {
    let check = async |request: &'static [u8], answer: &'static [u8]| {
        let (_, mut client) = exchange(request, answer).await;
        let received = read_head(&mut client).await.unwrap();
        assert_eq!(received.head_text(), String::from_utf8_lossy(answer));
    };
    let head = b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n";
    let get = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    in_time(async {
        check(
            head,
            b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nServer: s\r\n\r\n",
        )
        .await;
        check(head, b"HTTP/1.1 404 Not Found\r\nServer: s\r\n\r\n").await;
        check(get, b"HTTP/1.1 204 No Content\r\nServer: s\r\n\r\n").await;
        check(
            get,
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 12\r\nETag: \"x\"\r\n\r\n",
        )
        .await;
        check(
            get,
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: s\r\n\r\n",
        )
        .await;
    })
    .await;
}

/// Returns the lines of a head without `Host`, whose value is another port in each run.
fn lines_without_host(message: &Message) -> Vec<String> {
    let head = message.head_text();
    let lines = head.lines().filter(|line| !line.starts_with("Host"));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn values_of_a_repeated_header_keep_their_order_and_spelling() {
    let request =
        b"GET / HTTP/1.1\r\nX-Dup: 1\r\nHost: h\r\nx-dup: 2\r\nAccept: */*\r\nX-DUP: 3\r\n\r\n";
    let answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: 1\r\nContent-Length: 0\r\nset-cookie: 2\r\n\r\n";
    in_time(async {
        let (received, mut client) = exchange(request, answer).await;
        // hyper writes the values of one name together, at the place of the first one.
        assert_eq!(
            lines_without_host(&received),
            [
                "GET / HTTP/1.1", "X-Dup: 1", "x-dup: 2", "X-DUP: 3", "Accept: */*", ""
            ]
        );
        let answer = read_message(&mut client).await.unwrap();
        assert_eq!(
            answer.head_text(),
            "HTTP/1.1 200 OK\r\nSet-Cookie: 1\r\nset-cookie: 2\r\nContent-Length: 0\r\n\r\n"
        );
    })
    .await;
}

#[tokio::test]
async fn headers_of_the_agents_connection_stay_on_it() {
    let request =
        b"GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nX-Palimpsest-Session: s\r\nX-Hop: 1\r\n\
        Connection: TE, X-Hop\r\nProxy-Authorization: p\r\nX-End: 2\r\n\r\n";
    let answer = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n";
    in_time(async {
        let (received, mut client) = exchange(request, answer).await;
        assert_eq!(
            lines_without_host(&received),
            ["GET / HTTP/1.1", "X-End: 2", ""]
        );
        let answer = read_message(&mut client).await.unwrap();
        assert_eq!(
            answer.head_text(),
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n"
        );
    })
    .await;
}

#[tokio::test]
async fn a_body_that_ends_with_its_connection_arrives_in_chunks() {
    let answer = b"HTTP/1.1 200 OK\r\nServer: s\r\n\r\nall of it";
    in_time(async {
        let (_, mut client) = exchange(crate::raw::REQUEST, answer).await;
        let received = read_message(&mut client).await.unwrap();
        assert_eq!(
            received.head_text(),
            "HTTP/1.1 200 OK\r\nServer: s\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        assert_eq!(received.body_text(), "all of it");
    })
    .await;
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_a_body_that_ends_with_its_connection() {
    let request = b"GET / HTTP/1.0\r\nHost: h\r\n\r\n";
    let answer =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    in_time(async {
        let (received, mut client) = exchange(request, answer).await;
        assert!(
            received.head_text().starts_with("GET / HTTP/1.0\r\n"),
            "{}",
            received.head_text()
        );
        let (bytes, _) = read_to_end(&mut client).await;
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            "HTTP/1.0 200 OK\r\n\r\nabcde"
        );
    })
    .await;
}
