//! Measures the latency of requests with long conversations through the gateway. The limit is the latency of the same
//! requests to the same provider directly, in turn with the others, and what the gateway may add.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use palimpsest_tests::Server;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::row::{MILLIS, Row, Target};

/// The sizes of this part.
pub(crate) struct Extent {
    /// The number of conversations, each with connections of its own.
    pub(crate) conversations: usize,
    /// The size of a conversation in tokens.
    pub(crate) tokens: usize,
    pub(crate) rounds: usize,
    /// The number of requests of each conversation in a round, direct ones and others.
    pub(crate) requests: usize,
    /// The interval of requests, in milliseconds.
    pub(crate) interval_ms: u64,
}

/// The bytes of a token in the generated text.
const TOKEN_BYTES: usize = 4;
/// The bytes of one tool result.
const RESULT_BYTES: usize = 8_000;
/// The end of a streamed response.
const LAST_EVENT: &[u8] = b"message_stop\"}\n\n\r\n0\r\n\r\n";

/// Measures the rows of the gateway.
pub(crate) fn rows(folder: &Path, extent: &Extent, mut tell: impl FnMut(&Row)) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir_in(folder).context("no folder for the server's data")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let rows = runtime.block_on(measured(folder.path(), extent))?;
    rows.iter().for_each(&mut tell);
    Ok(rows)
}

/// The latencies of one round, in milliseconds.
#[derive(Default)]
struct Round {
    direct: Vec<Latency>,
    through: Vec<Latency>,
}

#[derive(Clone, Copy)]
struct Latency {
    first_byte: f64,
    end: f64,
}

async fn measured(folder: &Path, extent: &Extent) -> Result<Vec<Row>> {
    let provider = provider().await?;
    let settings = [
        "gateway.enabled=true".to_owned(),
        "gateway.listen=127.0.0.1:0".to_owned(),
        format!("gateway.upstreams.anthropic.base_url=http://{provider}"),
        // No level acts, so that both sides send the same bytes.
        "policy.tokens.default_window_tokens=1000000".to_owned(),
    ];
    let args: Vec<&str> = settings.iter().flat_map(|it| ["--set", it]).collect();
    let server = Server::start(folder, &args);
    let gateway = server.gateway();
    let provider = provider.to_string();
    let mut conversations = Vec::new();
    let mut first = Vec::new();
    for number in 0..extent.conversations {
        let mut conversation =
            Conversation::new(number, extent.tokens, &provider, &gateway).await?;
        first.push(conversation.request(true).await?.end);
        conversations.push(conversation);
    }
    let mut rounds = Vec::new();
    for _ in 0..extent.rounds {
        let running = round(conversations, extent);
        let (round, back) = running.await?;
        rounds.push(round);
        conversations = back;
    }
    let what = format!("{} × {} tokens", extent.conversations, extent.tokens);
    let row = |name: &str, quantile: f64, allowed: f64, of: fn(&Latency) -> f64| {
        let at = |latencies: &[Latency]| at(latencies.iter().map(of), quantile);
        let pair = |round: &Round| (at(&round.through), at(&round.direct) + allowed);
        let pairs: Vec<_> = rounds.iter().map(pair).collect();
        let added: Vec<_> = pairs
            .iter()
            .map(|(through, limit)| through - (limit - allowed))
            .collect();
        let added = at_median(added);
        Row::new(
            format!("gateway, {name}, {what}"),
            &pairs,
            (MILLIS, "directly, and what it may add"),
            Target::AtMost(1.0),
        )
        .beside(format!("it adds {added:.2} ms of the allowed {allowed} ms"))
    };
    let first = at_median(first);
    Ok(vec![
        row("median", 0.5, 1.0, |one| one.end).beside(format!(
            "the first request of a conversation takes {first:.1} ms"
        )),
        row("p99", 0.99, 5.0, |one| one.end),
        row("first byte", 0.5, 1.0, |one| one.first_byte),
    ])
}

fn at_median(values: Vec<f64>) -> f64 {
    at(values.into_iter(), 0.5)
}

/// Sends requests at a fixed rate, the conversations in turn. Every second request of a conversation is a direct one.
async fn round(
    conversations: Vec<Conversation>,
    extent: &Extent,
) -> Result<(Round, Vec<Conversation>)> {
    let mut ticks = interval(Duration::from_millis(extent.interval_ms));
    let count = conversations.len();
    let mut idle: Vec<Option<Conversation>> = conversations.into_iter().map(Some).collect();
    let mut running: Vec<Option<Running>> = (0..count).map(|_| None).collect();
    let mut round = Round::default();
    for request in 0..extent.requests {
        let through = request % 2 == 1;
        for at in 0..count {
            ticks.tick().await;
            if let Some(task) = running[at].take() {
                let (conversation, latency) = task.await??;
                idle[at] = Some(conversation);
                round.add(latency, !through);
            }
            let mut conversation = idle[at].take().context("a conversation is missing")?;
            running[at] = Some(tokio::spawn(async move {
                let latency = conversation.request(through).await?;
                Ok((conversation, latency))
            }));
        }
    }
    for at in 0..count {
        if let Some(task) = running[at].take() {
            let (conversation, latency) = task.await??;
            idle[at] = Some(conversation);
            round.add(latency, extent.requests.is_multiple_of(2));
        }
    }
    Ok((round, idle.into_iter().flatten().collect()))
}

impl Round {
    fn add(&mut self, latency: Latency, through: bool) {
        let latencies = if through {
            &mut self.through
        } else {
            &mut self.direct
        };
        latencies.push(latency);
    }
}

/// A request that runs.
type Running = JoinHandle<Result<(Conversation, Latency)>>;

/// A conversation with a connection to each side.
struct Conversation {
    name: String,
    /// The body without its end.
    body: Vec<u8>,
    steps: usize,
    direct: TcpStream,
    through: TcpStream,
}

impl Conversation {
    async fn new(number: usize, tokens: usize, direct: &str, through: &str) -> Result<Self> {
        let mut conversation = Self {
            name: format!("bench-{number}"),
            body: br#"{"model":"claude-bench","max_tokens":1000,"stream":true,"tools":[{"name":"Bash","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"Work."}"#.to_vec(),
            steps: 0,
            direct: TcpStream::connect(direct).await?,
            through: TcpStream::connect(through).await?,
        };
        conversation.direct.set_nodelay(true)?;
        conversation.through.set_nodelay(true)?;
        while conversation.body.len() < tokens * TOKEN_BYTES {
            conversation.grow(RESULT_BYTES);
        }
        Ok(conversation)
    }

    /// Adds a call and its result.
    fn grow(&mut self, bytes: usize) {
        self.steps += 1;
        let id = format!("toolu_{}", self.steps);
        let line = format!("line {} of {}\n", self.steps, self.name);
        let call = json!({"role": "assistant", "content": [
            {"type": "text", "text": "ok"},
            {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": "ls"}}]});
        let result = json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": line.repeat(bytes / line.len() + 1)}]});
        self.body
            .extend_from_slice(format!(",{call},{result}").as_bytes());
    }

    /// Sends the conversation, and grows after a request through the gateway.
    async fn request(&mut self, through: bool) -> Result<Latency> {
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: provider\r\nx-api-key: k\r\nanthropic-version: 2023-06-01\r\n\
             x-palimpsest-session: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.name,
            self.body.len() + 2
        );
        let request = [head.as_bytes(), &self.body, b"]}"].concat();
        let stream = if through {
            &mut self.through
        } else {
            &mut self.direct
        };
        let began = Instant::now();
        let since = || began.elapsed().as_secs_f64() * 1e3;
        stream.write_all(&request).await?;
        let mut received = Vec::with_capacity(4096);
        let mut first_byte = None;
        while !received.ends_with(LAST_EVENT) {
            if stream.read_buf(&mut received).await? == 0 {
                bail!("the response ended: {}", String::from_utf8_lossy(&received));
            }
            first_byte.get_or_insert_with(since);
        }
        let latency = Latency {
            first_byte: first_byte.unwrap_or_default(),
            end: since(),
        };
        if through {
            let text = String::from_utf8_lossy(&received);
            if !text.contains("x-palimpsest-body: original") {
                bail!("a session did not take the conversation: {text}");
            }
            self.grow(1_000);
        }
        Ok(latency)
    }
}

/// Starts a provider that answers each request at once.
async fn provider() -> Result<std::net::SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let events = [
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "claude-bench",
            "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ];
    let mut response =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_owned();
    for event in events {
        let kind = event["type"].as_str().unwrap_or_default();
        let event = format!("event: {kind}\ndata: {event}\n\n");
        let _ = write!(response, "{:x}\r\n{event}\r\n", event.len());
    }
    response += "0\r\n\r\n";
    let response = Arc::new(response);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, Arc::clone(&response)));
        }
    });
    Ok(address)
}

async fn answer(mut stream: TcpStream, response: Arc<String>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::with_capacity(1 << 20);
    loop {
        received.clear();
        let body = loop {
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
            if let Some(at) = received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = String::from_utf8_lossy(&received[..body]).to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.context("no length")?.trim().parse()?;
        while received.len() < body + length {
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        }
        stream.write_all(response.as_bytes()).await?;
    }
}

/// Returns a quantile.
fn at(values: impl Iterator<Item = f64>, quantile: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number of requests is small"
    )]
    let index = ((sorted.len() as f64 - 1.0) * quantile).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}
