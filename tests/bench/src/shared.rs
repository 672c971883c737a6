//! Measures the engine on PostgreSQL. The limit is pgbench, which runs the same statement over the same number of
//! connections.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use palimpsest_core::ids::SessionKey;
use palimpsest_store::postgres::{PostgresLog, PostgresOptions, append_statement};
use palimpsest_store::{Batch, DueChange, Position, SessionLog, Store as _, StoreError};
use palimpsest_test_servers::{Cluster, binary};

use crate::row::{CALLS, Row, Target};

/// The size of the measurement.
pub(crate) struct Extent {
    pub(crate) rounds: usize,
    /// Duration of one round for each of the two.
    pub(crate) time: Duration,
}

/// Number of connections. Each one has a writer with its own session.
const CONNECTIONS: usize = 16;
/// Bytes of a frame and of a list row, as a turn of an agent has them.
const FRAME: usize = 1_024;
const SUMMARY: usize = 160;

pub(crate) fn rows(extent: &Extent, tell: impl Fn(&Row)) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let cluster = Cluster::start();
    let mut options = PostgresOptions::new(cluster.url());
    options.connections = CONNECTIONS;
    let log = Arc::new(runtime.block_on(PostgresLog::open(&options))?);
    let mut writers = Vec::new();
    for number in 0..CONNECTIONS {
        let key = SessionKey::parse(&format!("projects/bench/sessions/ours-{number}"))?;
        // The first append creates the session. The measured ones extend it, as those of pgbench do.
        let at = runtime.block_on(log.append(&key, batch(Position::START)))?;
        writers.push((key, at));
    }
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("append.pgbench");
    std::fs::write(&script, statement(&options.schema))?;
    let mut rounds = Vec::new();
    for round in 0..extent.rounds {
        let ours = appends(&runtime, &log, &mut writers, extent.time)?;
        let theirs = pgbench(&cluster, &script, round, extent.time)?;
        rounds.push((ours, theirs));
    }
    runtime.block_on(log.close())?;
    let row = Row::new(
        "append to PostgreSQL, 1 KB frame",
        &rounds,
        (CALLS, "pgbench, the same statement"),
        Target::AtLeast(0.6),
    );
    let row = row.beside(format!(
        "{CONNECTIONS} connections each, in turns on the same server"
    ));
    tell(&row);
    Ok(vec![row])
}

fn batch(expected: Position) -> Batch {
    Batch {
        expected,
        events: NonZeroU32::MIN,
        frame: Bytes::from(vec![7; FRAME]),
        list_row: Bytes::from(vec![7; SUMMARY]),
        parent: None,
        due: DueChange::Keep,
        blob_bytes: 0,
        completed_intents: Vec::new(),
        tips: None,
    }
}

/// Returns the appends per second over all connections.
fn appends(
    runtime: &tokio::runtime::Runtime,
    log: &Arc<PostgresLog>,
    writers: &mut [(SessionKey, Position)],
    time: Duration,
) -> Result<f64> {
    let began = Instant::now();
    let tasks = writers.iter().cloned().map(|(key, mut at)| {
        let log = Arc::clone(log);
        runtime.spawn(async move {
            let first = at;
            while began.elapsed() < time {
                at = log.append(&key, batch(at)).await?;
            }
            let done = at.revision.get() - first.revision.get();
            Ok::<_, StoreError>((at, done))
        })
    });
    let tasks = tasks.collect::<Vec<_>>();
    let mut done = 0;
    for (writer, task) in writers.iter_mut().zip(tasks) {
        let (at, appended) = runtime.block_on(task)??;
        writer.1 = at;
        done += appended;
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

/// Returns the statement of an append with values in place of its parameters. Every client appends to its own session,
/// one revision after the other.
fn statement(schema: &str) -> String {
    let bytes = |len: usize| {
        let mut text = String::from("'\\x");
        for _ in 0..len {
            let _ = write!(text, "07");
        }
        text + "'::bytea"
    };
    let mut text = append_statement(schema);
    let values = [
        "('bench!' || :round::text || '-' || :client_id::text)".to_owned(),
        "7::bigint".to_owned(),
        ":revision::bigint".to_owned(),
        ":before::bigint".to_owned(),
        ":token::bigint".to_owned(),
        "1::bigint".to_owned(),
        bytes(FRAME),
        "0::bigint".to_owned(),
        bytes(SUMMARY),
        "false".to_owned(),
        "NULL::bigint".to_owned(),
        "NULL::text[]".to_owned(),
        "NULL::text".to_owned(),
        "NULL::bytea".to_owned(),
        "NULL::bytea[]".to_owned(),
        "''".to_owned(),
    ];
    // From the last parameter to the first, because `$1` is also the beginning of `$16`.
    for (number, value) in (1..=values.len()).rev().zip(values.iter().rev()) {
        text = text.replace(&format!("${number}"), value);
    }
    format!(
        "\\set token random(1, 1000000000)\n{text};\n\\set revision :revision + 1\n\\set before :token\n"
    )
}

/// Returns the transactions per second. Asserts that each transaction appended.
fn pgbench(cluster: &Cluster, script: &Path, round: usize, time: Duration) -> Result<f64> {
    cluster.psql(&format!(
        "INSERT INTO palimpsest.sessions (key, incarnation, revision, token, log_bytes, blob_bytes, summary) \
         SELECT 'bench!{round}-' || client, 7, 1, 1, 0, 0, '' FROM generate_series(0, {}) AS client",
        CONNECTIONS - 1
    ));
    let clients = CONNECTIONS.to_string();
    let done = Command::new(binary("pgbench"))
        .args([
            "--no-vacuum", "--protocol", "prepared", "--client", &clients, "--jobs", "1",
        ])
        .args([
            "--define",
            "revision=1",
            "--define",
            "before=1",
            "--define",
            &format!("round={round}"),
        ])
        // pgbench accepts whole seconds only.
        .args(["--time", &time.as_secs().max(1).to_string(), "--file"])
        .arg(script)
        .arg(cluster.url())
        .output()
        .context("pgbench cannot be run: scripts/install-tools installs PostgreSQL")?;
    let said = String::from_utf8_lossy(&done.stdout);
    ensure!(
        done.status.success(),
        "pgbench failed: {said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let number = |start: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(start));
        let word = line.and_then(|line| line.split([' ', '/']).next());
        word.and_then(|word| word.parse::<f64>().ok())
    };
    let transactions = number("number of transactions actually processed: ");
    let rate = number("tps = ").context("pgbench said no rate")?;
    let appended = cluster.psql(&format!(
        "SELECT count(*) FROM palimpsest.frames WHERE key LIKE 'bench!{round}-%'"
    ));
    ensure!(
        transactions == appended.parse().ok(),
        "pgbench did {transactions:?} and appended {appended}"
    );
    Ok(rate)
}
