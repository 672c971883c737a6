//! A provider whose answers are changed on their way to the gateway.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::mutate;
use super::wire::{self, HttpMessage};

/// The header that names the case of a request. A request without it gets the answer of the provider.
pub(super) const CASE_HEADER: &str = "x-fuzz-case";

/// The answers to the requests of a case.
#[derive(Debug, Clone)]
pub(super) enum Answers {
    /// Those of the provider, changed by this seed.
    Changed(u64),
    /// A valid response with this text, whatever the request is.
    Text(String),
}

/// A request, and the answer to it.
#[derive(Debug, Clone)]
pub(super) struct UpstreamExchange {
    pub(super) request: HttpMessage,
    /// The body of the answer.
    pub(super) sent: Vec<u8>,
    /// True if the body ended as its head announces.
    pub(super) is_whole: bool,
    /// True if the answer differs from that of the provider.
    pub(super) is_changed: bool,
}

#[derive(Debug)]
struct Case {
    answers: Answers,
    exchanges: Vec<UpstreamExchange>,
}

type Cases = Arc<Mutex<HashMap<String, Case>>>;

/// A running upstream. It stops on drop.
pub(super) struct FuzzedUpstream {
    pub(super) url: String,
    cases: Cases,
    server: JoinHandle<()>,
}

impl Drop for FuzzedUpstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FuzzedUpstream {
    /// Starts an upstream in front of a provider.
    pub(super) async fn start(provider: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let cases = Cases::default();
        let shared = Arc::clone(&cases);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, provider, Arc::clone(&shared)));
            }
        });
        Self { url, cases, server }
    }

    /// Sets the answers to the requests of a case.
    pub(super) fn begin(&self, case: &str, answers: Answers) {
        let exchanges = Vec::new();
        let mut cases = self.cases.lock().unwrap();
        cases.insert(case.to_owned(), Case { answers, exchanges });
    }

    /// Returns the exchanges of a case, and forgets the case.
    pub(super) fn end(&self, case: &str) -> Vec<UpstreamExchange> {
        let ended = self.cases.lock().unwrap().remove(case);
        ended.map(|case| case.exchanges).unwrap_or_default()
    }
}

/// Answers the request of a connection.
async fn serve(mut stream: TcpStream, provider: SocketAddr, cases: Cases) {
    stream.set_nodelay(true).unwrap();
    let request = wire::read_request(&mut stream).await;
    let name = request.header(CASE_HEADER).unwrap_or_default().to_owned();
    let of_case = |cases: &HashMap<String, Case>| {
        let case = cases.get(&name)?;
        Some((case.answers.clone(), case.exchanges.len() as u64))
    };
    let case = of_case(&cases.lock().unwrap());
    let (answer, random) = match case {
        // The gateway has given up the request, so no answer could reach it.
        _ if !request.is_whole => return record(&cases, &name, request, &Answer::none()),
        Some((Answers::Text(text), _)) => (Answer::text(&request, &text), None),
        Some((Answers::Changed(seed), number)) => {
            let mut random = Rng::with_seed(seed.wrapping_add(number));
            let answer = ask(provider, &request).await.changed(&mut random);
            (answer, Some(random))
        }
        None => (ask(provider, &request).await, None),
    };
    // The answer is known before the gateway can pass it on.
    record(&cases, &name, request, &answer);
    // The gateway can disconnect at any time.
    let _ = answer.send(&mut stream, random).await;
}

fn record(cases: &Cases, name: &str, request: HttpMessage, answer: &Answer) {
    if let Some(case) = cases.lock().unwrap().get_mut(name) {
        case.exchanges.push(UpstreamExchange {
            request,
            sent: answer.body.clone(),
            is_whole: answer.is_whole,
            is_changed: answer.is_changed,
        });
    }
}

/// Returns the answer of the provider.
async fn ask(provider: SocketAddr, request: &HttpMessage) -> Answer {
    let head = with_framing(&request.head, request.body.len());
    let response = wire::exchange(&provider.to_string(), &head, &request.body).await;
    let response = response.unwrap();
    Answer {
        head: response.head,
        body: response.body,
        is_whole: response.is_whole,
        is_changed: false,
    }
}

/// Returns a head whose body has this length.
fn with_framing(head: &str, length: usize) -> String {
    let framing = format!("content-length: {length}\r\nconnection: close");
    format!("{}{framing}\r\n\r\n", without_framing(head))
}

fn without_framing(head: &str) -> String {
    let is_kept = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        let framing = ["content-length", "transfer-encoding", "connection"];
        !framing.iter().any(|field| name.eq_ignore_ascii_case(field))
    };
    let lines = head.lines().filter(is_kept);
    lines.flat_map(|line| [line, "\r\n"]).collect()
}

/// An answer on its way to the gateway.
struct Answer {
    head: String,
    body: Vec<u8>,
    is_whole: bool,
    is_changed: bool,
}

impl Answer {
    fn none() -> Self {
        Self {
            head: String::new(),
            body: Vec::new(),
            is_whole: false,
            is_changed: false,
        }
    }

    /// Returns a valid response with a text.
    fn text(request: &HttpMessage, text: &str) -> Self {
        let path = request.head.split(' ').nth(1).unwrap_or_default();
        let body = if path.contains("chat") {
            json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [{"index": 0,
                "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}})
        } else if path.contains("responses") {
            json!({"id": "r", "object": "response", "status": "completed", "model": "m",
                "output": [{"type": "message", "id": "i", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}]}],
                "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}})
        } else {
            json!({"id": "m", "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
                "usage": {"input_tokens": 9, "output_tokens": 2}})
        };
        Self {
            head: "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n".to_owned(),
            body: body.to_string().into_bytes(),
            is_whole: true,
            is_changed: false,
        }
    }

    /// Changes the answer.
    fn changed(mut self, random: &mut Rng) -> Self {
        let before = self.body.clone();
        let is_stream = self.head.contains("event-stream");
        match random.u8(0..10) {
            // A fifth of the bodies stay as they are.
            0 | 1 => {}
            2..=5 if is_stream => self.body = mutate::events(random, &self.body),
            6 if is_stream => {
                self.body = mutate::events(random, &self.body);
                mutate::bytes(random, &mut self.body);
            }
            _ => mutate::bytes(random, &mut self.body),
        }
        self.is_changed = self.body != before;
        let has_coding = self.head.to_ascii_lowercase().contains("content-encoding");
        if !has_coding && random.u8(0..5) == 0 {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&self.body).unwrap();
            self.body = encoder.finish().unwrap();
            self.head.push_str("\r\ncontent-encoding: gzip");
            self.is_changed = true;
            if random.u8(0..3) == 0 {
                mutate::bytes(random, &mut self.body);
            }
        }
        if random.u8(0..6) == 0 {
            self.is_whole = false;
            self.is_changed = true;
        }
        self
    }

    /// Sends the answer in frames that end anywhere. Without `random`, in one frame.
    async fn send(&self, stream: &mut TcpStream, random: Option<Rng>) -> std::io::Result<()> {
        let mut random = random.unwrap_or_else(|| Rng::with_seed(0));
        let is_chunked = self.head.contains("event-stream") || random.bool();
        let framing = if is_chunked {
            "transfer-encoding: chunked".to_owned()
        } else {
            // A body that breaks is shorter than announced.
            let missing = usize::from(!self.is_whole);
            format!("content-length: {}", self.body.len() + missing)
        };
        let head = without_framing(&self.head);
        let head = format!("{head}{framing}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut rest = &self.body[..];
        // A large body in single bytes would take long.
        let least = self.body.len() / 300;
        while !rest.is_empty() {
            let most = [1, 3, 40, 1_000, rest.len()];
            let most = most[random.usize(0..most.len())].min(rest.len());
            let size = random.usize(1..=most).max(least).min(rest.len());
            let (frame, after) = rest.split_at(size);
            rest = after;
            let frame = if is_chunked {
                [format!("{size:x}\r\n").as_bytes(), frame, b"\r\n"].concat()
            } else {
                frame.to_vec()
            };
            stream.write_all(&frame).await?;
            if random.u8(0..4) == 0 {
                tokio::task::yield_now().await;
            }
        }
        if is_chunked && self.is_whole {
            stream.write_all(b"0\r\n\r\n").await?;
        }
        stream.shutdown().await
    }
}
