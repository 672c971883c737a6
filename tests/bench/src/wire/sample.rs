//! Samples the data that the service commits for a call. It is read from the log of a real server, so that the engine
//! alone can append the same.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use palimpsest_core::ids::Revision;
use palimpsest_load::requests::requests;
use palimpsest_load::test_server::TestServer;
use palimpsest_load::workloads::{Workload, WorkloadKind};
use palimpsest_server::LOG_FOLDER;
use palimpsest_store::sled::{SledLog, SledOptions};
use palimpsest_store::{Batch, DueChange, MAX_LIST, Position, SessionLog, Store as _};

use super::client::{Callers, Requests};
use super::method;

/// Number of sampled calls of each work.
const CALLS: usize = 512;
/// A time limit that is never reached. The run ends with its last request.
const TIME: Duration = Duration::from_mins(1);

/// Returns the batches that calls of these works commit, by the names of the works.
pub(super) async fn batches(
    folder: &Path,
    works: &[&'static Workload],
) -> Result<BTreeMap<&'static str, Vec<Batch>>> {
    let site = TestServer::without_worker(folder)?;
    let callers = Callers::connect(site.server.address(), 1).await?;
    for work in works {
        let mut made = requests(work, &site, &run(work), (0..CALLS, 1)).await?;
        if work.repeats() {
            made = first(&made, CALLS)?;
        }
        let sent = Arc::new(Requests::new(method(work), made, true)?);
        let outcome = callers.run(&sent, 8, TIME).await?;
        ensure!(
            outcome.failed.is_empty(),
            "{}: calls failed with {:?}",
            work.name,
            outcome.failed
        );
    }
    let data = site.stop();
    let log = SledLog::open(&SledOptions::new(data.path().join(LOG_FOLDER)))?;
    let mut found = BTreeMap::new();
    for work in works {
        let batches = committed(&log, work).await?;
        ensure!(!batches.is_empty(), "{} committed nothing", work.name);
        found.insert(work.name, batches);
    }
    log.close().await?;
    Ok(found)
}

fn run(work: &Workload) -> String {
    format!("sample-{}", work.name)
}

/// Returns the first `count` requests.
fn first(delimited: &[u8], count: usize) -> Result<Vec<u8>> {
    let mut rest = delimited;
    for _ in 0..count {
        if rest.is_empty() {
            break;
        }
        let length = prost::decode_length_delimiter(&mut rest)?;
        rest = rest.get(length..).context("a request is cut off")?;
    }
    Ok(delimited[..delimited.len() - rest.len()].to_vec())
}

/// Returns the batches that the calls of a work committed, without those of its preparation.
async fn committed(log: &SledLog, work: &Workload) -> Result<Vec<Batch>> {
    let prepared = match work.kind {
        // The append of the messages, and the serving of the view that contains them.
        WorkloadKind::Snip => 2,
        // The creation of the session.
        _ => 1,
    };
    let mut batches = Vec::new();
    for (key, head) in log.list(None, None, MAX_LIST).await? {
        if !key.to_string().contains(&format!("/{}-", run(work))) {
            continue;
        }
        let frames = log
            .read(&key, head.position().at(Revision::ZERO), usize::MAX)
            .await?;
        for frame in frames.into_iter().skip(prepared) {
            batches.push(Batch {
                expected: Position::START,
                events: NonZeroU32::new(frame.events).context("a frame without events")?,
                frame: frame.bytes,
                list_row: head.list_row.clone(),
                parent: None,
                due: DueChange::Keep,
                blob_bytes: 0,
                completed_intents: Vec::new(),
                tips: None,
            });
        }
    }
    Ok(batches)
}
