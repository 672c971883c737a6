//! What becomes of callers when twice as much is asked of a server as it can do.
//!
//! The real server as a process of its own, and clients that send at a fixed rate whether or not they
//! are answered. In one run: what a call takes without load, how many calls a second the server can
//! do, then twice as many for some seconds, then how soon calls are fast again. Every figure is a ratio
//! with its limit beside it.
//!
//! `cargo bench -p palimpsest-server --bench overload -- 60` for a minute of it. Clients and server
//! share the machine, so that what the clients take is missing to the server, in every phase alike.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    reason = "a bench prints, measures time, and stops where it cannot go on"
)]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, Format, MessageInput, Payload, message_input,
};
use tokio::sync::mpsc;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

/// How many connections the clients have.
const CONNECTIONS: usize = 8;
/// The sessions that calls go to, in turn.
const SESSIONS: u64 = 512;
/// How long the phases take that are no overload.
const PHASE: Duration = Duration::from_secs(4);
/// The deadline of every call.
const DEADLINE: Duration = Duration::from_secs(5);

type Client = ContextServiceClient<Channel>;

/// The server under test; it dies with its value.
struct Server {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_palimpsest"))
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(["--admin-listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path())
            .args(["--set", "worker.enabled=false"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut address = String::new();
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some((_, rest)) = line.split_once("\"grpc\":\"") {
                rest.split('"').next().unwrap().clone_into(&mut address);
            }
            if line.contains("\"ready\"") {
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            address,
            _folder: folder,
        }
    }

    async fn clients(&self) -> Vec<Client> {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
            let endpoint = endpoint.tcp_nodelay(true).timeout(DEADLINE);
            clients.push(Client::new(endpoint.connect().await.unwrap()));
        }
        clients
    }

    /// Resident memory, in megabytes.
    fn memory_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS"));
        let kb = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        kb.unwrap_or(0.0) / 1_024.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(number: u64) -> AppendMessagesRequest {
    let json = format!(
        "{{\"role\":\"user\",\"content\":\"{number} {}\"}}",
        "some words of a message ".repeat(40)
    );
    AppendMessagesRequest {
        session: format!("projects/bench/sessions/s{}", number % SESSIONS),
        messages: vec![MessageInput {
            content: Some(message_input::Content::Payload(Payload {
                format: Format::AnthropicMessages.into(),
                json: json.into(),
            })),
            ..MessageInput::default()
        }],
        ..AppendMessagesRequest::default()
    }
}

/// What came of the calls of a phase.
#[derive(Default)]
struct Outcome {
    done: Vec<Duration>,
    shed: u64,
    failed: u64,
    took: Duration,
}

impl Outcome {
    fn rate(&self) -> f64 {
        self.done.len() as f64 / self.took.as_secs_f64()
    }

    fn quantile_ms(&self, quantile: f64) -> f64 {
        let mut sorted = self.done.clone();
        sorted.sort();
        let at = ((sorted.len() as f64 * quantile) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(at).map_or(0.0, |t| t.as_secs_f64() * 1_000.0)
    }
}

/// Callers each of which waits for its answer before it calls again.
async fn closed(clients: &[Client], callers: usize, numbers: &Arc<AtomicU64>) -> Outcome {
    let began = Instant::now();
    let tasks = (0..callers).map(|caller| {
        let mut client = clients[caller % clients.len()].clone();
        let numbers = Arc::clone(numbers);
        tokio::spawn(async move {
            let mut outcome = Outcome::default();
            while began.elapsed() < PHASE {
                let sent = Instant::now();
                match client
                    .append_messages(request(numbers.fetch_add(1, Relaxed)))
                    .await
                {
                    Ok(_) => outcome.done.push(sent.elapsed()),
                    Err(status) if status.code() == Code::ResourceExhausted => {
                        outcome.shed += 1;
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Err(_) => outcome.failed += 1,
                }
            }
            outcome
        })
    });
    let mut all = Outcome::default();
    for task in tasks.collect::<Vec<_>>() {
        let one = task.await.unwrap();
        all.done.extend(one.done);
        all.shed += one.shed;
        all.failed += one.failed;
    }
    all.took = began.elapsed();
    all
}

/// Calls at a fixed rate, whatever becomes of those before.
async fn open(clients: &[Client], rate: f64, time: Duration, numbers: &Arc<AtomicU64>) -> Outcome {
    let (sender, mut results) = mpsc::unbounded_channel();
    let began = Instant::now();
    let mut count = 0_u64;
    while began.elapsed() < time {
        let due = (began.elapsed().as_secs_f64() * rate) as u64;
        while count < due {
            count += 1;
            let mut client = clients[count as usize % clients.len()].clone();
            let (results, number) = (sender.clone(), numbers.fetch_add(1, Relaxed));
            tokio::spawn(async move {
                let started = Instant::now();
                let answer = client.append_messages(request(number)).await;
                let _ = results.send((started.elapsed(), answer.map(drop).map_err(|s| s.code())));
            });
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = began.elapsed();
    drop(sender);
    let mut outcome = Outcome {
        took,
        ..Outcome::default()
    };
    while let Some((took, answer)) = results.recv().await {
        match answer {
            Ok(()) => outcome.done.push(took),
            Err(Code::ResourceExhausted) => outcome.shed += 1,
            Err(_) => outcome.failed += 1,
        }
    }
    outcome
}

fn row(what: &str, value: impl std::fmt::Display, limit: &str) {
    println!("{what:<44} {value:>14}   {limit}");
}

#[tokio::main]
async fn main() {
    let seconds = std::env::args().filter_map(|arg| arg.parse::<u64>().ok());
    let overload = Duration::from_secs(seconds.max().unwrap_or(10));
    let server = Server::start();
    let clients = server.clients().await;
    let numbers = Arc::new(AtomicU64::new(0));
    // The sessions are there, and what calls take without load is known.
    open(&clients, 200.0, PHASE, &numbers).await;
    let unloaded = open(&clients, 200.0, PHASE, &numbers).await;
    let mut capacity = Outcome::default();
    for callers in [16, 32, 64] {
        let outcome = closed(&clients, callers, &numbers).await;
        if capacity.done.is_empty() || outcome.rate() > capacity.rate() {
            capacity = outcome;
        }
    }
    let before = server.memory_mb();
    let offered = capacity.rate() * 2.0;
    let half = open(&clients, offered, overload / 2, &numbers).await;
    let during = server.memory_mb();
    let rest = open(&clients, offered, overload / 2, &numbers).await;
    let after = server.memory_mb();
    let ended = Instant::now();
    let slow = unloaded.quantile_ms(0.99) * 1.5;
    let recovery = loop {
        let probe = open(&clients, 200.0, Duration::from_millis(250), &numbers).await;
        if probe.shed == 0 && probe.quantile_ms(0.9) <= slow {
            break ended.elapsed().saturating_sub(Duration::from_millis(250));
        }
        if ended.elapsed() > Duration::from_secs(20) {
            break ended.elapsed();
        }
    };
    let mut loaded = half;
    loaded.took += rest.took;
    loaded.done.extend(rest.done);
    loaded.shed += rest.shed;
    loaded.failed += rest.failed;
    row(
        "without load, 200/s: p50, p99 ms",
        format!(
            "{:.1}, {:.1}",
            unloaded.quantile_ms(0.5),
            unloaded.quantile_ms(0.99)
        ),
        "",
    );
    row("capacity, calls/s", format!("{:.0}", capacity.rate()), "");
    row(
        "  p99 at capacity, ms",
        format!("{:.1}", capacity.quantile_ms(0.99)),
        "",
    );
    row(
        "offered, calls/s",
        format!("{offered:.0}"),
        &format!("for {} s", overload.as_secs()),
    );
    row(
        "goodput, of capacity",
        format!("{:.2}", loaded.rate() / capacity.rate()),
        ">= 0.90",
    );
    row(
        "p99 of accepted, of that without load",
        format!(
            "{:.2}",
            loaded.quantile_ms(0.99) / unloaded.quantile_ms(0.99)
        ),
        "<= 3",
    );
    row(
        "  p50, p99 ms",
        format!(
            "{:.1}, {:.1}",
            loaded.quantile_ms(0.5),
            loaded.quantile_ms(0.99)
        ),
        "",
    );
    row(
        "accepted, shed, failed otherwise",
        format!("{}, {}, {}", loaded.done.len(), loaded.shed, loaded.failed),
        "failed: 0",
    );
    row(
        "memory before, half way, after, MB",
        format!("{before:.0}, {during:.0}, {after:.0}"),
        "flat",
    );
    row(
        "recovery, s",
        format!("{:.2}", recovery.as_secs_f64()),
        "< 2",
    );
}
