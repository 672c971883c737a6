//! Measures the latency of requests with long conversations through the gateway. The limit is the latency of the same
//! requests to the same provider directly, in turn with the others, and what the gateway may add. A gateway that only
//! forwards shows the part of the difference that the further hop costs.

mod conversation;
mod provider;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use palimpsest_load::test_server::cpu;
use palimpsest_tests::Server;
use tokio::task::JoinHandle;
use tokio::time::interval;

use self::conversation::{Conversation, Latency, Response, Side};
use crate::row::{MILLIS, Row, Target};

/// The sizes of this part.
pub(crate) struct Extent {
    /// The number of conversations, each with connections of its own.
    pub(crate) conversations: usize,
    /// The size of a conversation in tokens.
    pub(crate) tokens: usize,
    pub(crate) rounds: usize,
    /// The number of requests of each conversation in a round to each side.
    pub(crate) requests: usize,
    /// The interval of requests, in milliseconds.
    pub(crate) interval_ms: u64,
    /// The number of conversations that are compacted.
    pub(crate) compactions: usize,
}

/// The bytes of a token in the generated text.
const TOKEN_BYTES: usize = 4;
/// A model with a window that the bench does not fill: no level acts, so all sides send the same bytes.
const LARGE_MODEL: &str = "claude-bench";
/// A model with a window of 200,000 tokens.
const SMALL_MODEL: &str = "claude-sonnet-4-5";
/// The size of a conversation shortly before its compaction, and its growth with each request, in tokens.
const BEFORE_COMPACTION_TOKENS: usize = 120_000;
const GROWTH_TOKENS: usize = 2_000;
/// The maximum time of a compaction inside a request, in milliseconds.
const COMPACTION_MS: f64 = 50.0;

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

/// The latencies of one round, by side.
#[derive(Default)]
struct Round([Vec<Latency>; 3]);

/// The gateways, and the addresses of all sides.
struct Servers {
    forwarding: Server,
    managed: Server,
    addresses: [String; 3],
}

impl Servers {
    async fn start(folder: &Path) -> Result<Self> {
        let provider = provider::start().await?.to_string();
        let start = |name: &str, setting: &str| {
            let settings = [
                "gateway.enabled=true".to_owned(),
                "gateway.listen=127.0.0.1:0".to_owned(),
                format!("gateway.upstreams.anthropic.base_url=http://{provider}"),
                "policy.tokens.default_window_tokens=1000000".to_owned(),
                setting.to_owned(),
            ];
            let args: Vec<&str> = settings.iter().flat_map(|it| ["--set", it]).collect();
            Server::start(&folder.join(name), &args)
        };
        let forwarding = start("forwarding", "gateway.manage=false");
        let managed = start("managed", "gateway.manage=true");
        let addresses = [provider, forwarding.gateway(), managed.gateway()];
        Ok(Self {
            forwarding,
            managed,
            addresses,
        })
    }

    /// Returns the processor time of both gateways so far, in milliseconds.
    fn processor_ms(&self) -> [f64; 2] {
        [&self.forwarding, &self.managed].map(|server| cpu(server.pid()).as_secs_f64() * 1e3)
    }
}

async fn measured(folder: &Path, extent: &Extent) -> Result<Vec<Row>> {
    let servers = Servers::start(folder).await?;
    let mut conversations = Vec::new();
    let mut first = Vec::new();
    for number in 0..extent.conversations {
        let name = (format!("bench-{number}"), LARGE_MODEL);
        let mut conversation = Conversation::new(name, extent.tokens, &servers.addresses).await?;
        // The first request appends the whole conversation, so it is no part of the rounds.
        first.push(conversation.request(Side::Managed).await?.latency.end);
        conversations.push(conversation);
    }
    let mut rounds = Vec::new();
    let before = servers.processor_ms();
    for _ in 0..extent.rounds {
        let (round, back) = round(conversations, extent).await?;
        rounds.push(round);
        conversations = back;
    }
    let requests = rounds.iter().map(|round| round.0[0].len()).sum::<usize>();
    let used = servers.processor_ms();
    let [forwarding, managed] = [0, 1].map(|at| (used[at] - before[at]) / count(requests));
    let first = at_median(first);
    let mut rows = added_rows(&rounds, extent);
    rows[0].beside.extend([
        format!("the first request of a conversation takes {first:.1} ms"),
        format!("processor time of the gateway for a request: {managed:.2} ms, {forwarding:.2} ms to forward it"),
    ]);
    rows.extend(compaction_row(&servers, extent).await?);
    Ok(rows)
}

/// Returns the rows about the latency that the gateway adds.
fn added_rows(rounds: &[Round], extent: &Extent) -> Vec<Row> {
    let what = format!("{} × {} tokens", extent.conversations, extent.tokens);
    let row = |name: &str, quantile: f64, allowed: f64, of: fn(&Latency) -> f64| {
        let at = |round: &Round, side: Side| at(round.0[side as usize].iter().map(of), quantile);
        let added = |side: Side, to: Side| {
            at_median(
                rounds
                    .iter()
                    // The difference is taken within a round, in which the machine is equally fast for both sides.
                    .map(|round| at(round, side) - at(round, to))
                    .collect(),
            )
        };
        let pairs: Vec<_> = rounds
            .iter()
            .map(|round| (at(round, Side::Managed), at(round, Side::Direct) + allowed))
            .collect();
        Row::new(
            format!("gateway, {name}, {what}"),
            &pairs,
            (MILLIS, "directly, and what it may add"),
            Target::AtMost(1.0),
        )
        .beside(format!(
            "it adds {:.2} ms of the allowed {allowed} ms: {:.2} ms for the further hop, and {:.2} ms for the session",
            added(Side::Managed, Side::Direct),
            added(Side::Forwarding, Side::Direct),
            added(Side::Managed, Side::Forwarding),
        ))
    };
    vec![
        row("median", 0.5, 1.0, |one| one.end),
        row("p99", 0.99, 5.0, |one| one.end),
        row("first byte", 0.5, 1.0, |one| one.first_byte),
    ]
}

/// Measures compactions inside of requests, one conversation after the other.
async fn compaction_row(servers: &Servers, extent: &Extent) -> Result<Option<Row>> {
    let mut pairs = Vec::new();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for number in 0..extent.compactions {
        let name = (format!("compacted-{number}"), SMALL_MODEL);
        let mut conversation =
            Conversation::new(name, BEFORE_COMPACTION_TOKENS, &servers.addresses).await?;
        let mut last = conversation.request(Side::Managed).await?;
        let compacted = loop {
            conversation.grow(GROWTH_TOKENS * TOKEN_BYTES);
            let next = conversation.request(Side::Managed).await?;
            // The provider reports the tokens of the body that it got. A smaller number therefore shows a compaction.
            if next.tokens < last.tokens {
                break next;
            }
            before.push(next.latency.end);
            last = next;
        };
        pairs.push((compacted.latency.end, COMPACTION_MS));
        for _ in 0..4 {
            conversation.grow(GROWTH_TOKENS * TOKEN_BYTES);
            let next: Response = conversation.request(Side::Managed).await?;
            after.extend(next.is_view.then_some(next.latency.end));
        }
    }
    if pairs.is_empty() {
        return Ok(None);
    }
    let row = Row::new(
        "gateway, a request with a compaction",
        &pairs,
        (MILLIS, "a promise"),
        Target::AtMost(1.0),
    );
    Ok(Some(row.beside(format!(
        "a request before the compaction takes {:.1} ms, and one after it {:.1} ms",
        at_median(before),
        at_median(after)
    ))))
}

fn at_median(values: Vec<f64>) -> f64 {
    at(values.into_iter(), 0.5)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the number of requests is small"
)]
fn count(requests: usize) -> f64 {
    requests.max(1) as f64
}

/// Sends requests at a fixed rate, the conversations in turn, and each conversation to all sides in turn. A conversation
/// grows after a managed request.
async fn round(
    conversations: Vec<Conversation>,
    extent: &Extent,
) -> Result<(Round, Vec<Conversation>)> {
    let mut ticks = interval(Duration::from_millis(extent.interval_ms));
    let count = conversations.len();
    let mut idle: Vec<Option<Conversation>> = conversations.into_iter().map(Some).collect();
    let mut running: Vec<Option<Running>> = (0..count).map(|_| None).collect();
    let mut round = Round::default();
    let sides = (0..extent.requests).flat_map(|_| Side::ALL);
    for side in sides {
        for at in 0..count {
            ticks.tick().await;
            // A conversation has one request at a time, so the previous one must end first.
            if let Some(task) = running[at].take() {
                idle[at] = Some(round.finish(task).await?);
            }
            let mut conversation = idle[at].take().context("a conversation is missing")?;
            running[at] = Some(tokio::spawn(async move {
                let response = conversation.request(side).await?;
                // The managed side is the last one, so all sides get the same body.
                if side == Side::Managed {
                    conversation.grow(1_000);
                }
                Ok((conversation, side, response.latency))
            }));
        }
    }
    for at in 0..count {
        if let Some(task) = running[at].take() {
            idle[at] = Some(round.finish(task).await?);
        }
    }
    Ok((round, idle.into_iter().flatten().collect()))
}

impl Round {
    /// Waits for a request and adds its latency. Returns its conversation.
    async fn finish(&mut self, task: Running) -> Result<Conversation> {
        let (conversation, side, latency) = task.await??;
        self.0[side as usize].push(latency);
        Ok(conversation)
    }
}

/// A request that runs.
type Running = JoinHandle<Result<(Conversation, Side, Latency)>>;

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
