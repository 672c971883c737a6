//! Measures a compaction from session memory, without a model. Runs with the log in memory, and for comparison with the
//! log on disk.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use palimpsest_conformance::MemoryLog;
use palimpsest_load::figures::{count, short};
use palimpsest_proto::context::v1::{CompactRequest, CompactionStrategy};
use palimpsest_store::sled::{SledLog, SledOptions};

use super::Extent;
use crate::row::{MILLIS, Row, Spread, Target};
use palimpsest_bench::in_process::{InProcessServer, name};

const LIMIT_MS: f64 = 5.0;

/// Creates, grows and compacts a session for each round, after its session memory is up to date.
pub(super) async fn from_memory(extent: &Extent, folder: &Path) -> Result<Row> {
    let durable = SledLog::open(&SledOptions::new(folder.join("compactions")))?;
    let in_memory = InProcessServer::new(Arc::new(MemoryLog::new()))?;
    let on_disk = InProcessServer::new(Arc::new(durable))?;
    let (mut rounds, mut committed, mut tokens) = (Vec::new(), Vec::new(), 0);
    for server in [&in_memory, &on_disk] {
        server.start_worker();
    }
    for round in 0..extent.rounds {
        let (took, before) = compaction(&in_memory, round).await?;
        rounds.push((took, LIMIT_MS));
        tokens = before;
        committed.push(compaction(&on_disk, round).await?.0);
    }
    let what = format!("Compact, session memory, {} tokens", count(tokens));
    let row = Row::new(what, &rounds, (MILLIS, "in process"), Target::AtMost(1.0));
    on_disk.log().close().await?;
    Ok(row.beside(format!(
        "with its commit on this disk: {} ms",
        short(Spread::of(committed).median)
    )))
}

/// Returns the duration in milliseconds and the tokens of the view.
async fn compaction(server: &InProcessServer, number: usize) -> Result<(f64, u64)> {
    let session = format!("long-{number}");
    server.grow_to_tokens(&session).await?;
    server.settled(&session).await?;
    let request = CompactRequest {
        session: name(&session),
        strategy: CompactionStrategy::SessionMemory.into(),
        ..CompactRequest::default()
    };
    let (reply, took) = server.compact(request).await?;
    let boundary = reply.compaction.and_then(|done| done.boundary);
    let boundary = boundary.context("it was not compacted")?;
    Ok((took.as_secs_f64() * 1e3, boundary.before_tokens.into()))
}
