//! Checks of races on one session name. Every acknowledged append must be present once until its
//! session is deleted, and every session must be deleted at most once.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use bytes::Bytes;
use futures::future::join_all;
use palimpsest_core::ids::{Revision, SessionKey};

use crate::harness::{Harness, Log, batch, bytes, key, lease, time};
use palimpsest_store::{Batch, Position, StoreError};

const PROCESSES: u64 = 6;
const ACTS: u64 = 60;

/// The acknowledged operations of one process.
#[derive(Default)]
struct ProcessLog {
    appended: Vec<(Position, Bytes)>,
    deleted: Vec<u64>,
    removed: Vec<u64>,
}

pub(super) async fn run(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let name = key("p/one");
    let processes = (0..PROCESSES).map(|number| {
        let (log, name) = (log.clone(), name.clone());
        tokio::spawn(async move { act(&log, &name, number).await })
    });
    let mut appended = BTreeMap::new();
    let (mut deleted, mut removed) = (BTreeSet::new(), BTreeSet::new());
    for told in join_all(processes).await {
        let told = told.expect("a process ends");
        for (at, frame) in told.appended {
            let twice = appended.insert((at.incarnation, at.revision), frame);
            assert_eq!(twice, None, "{at:?} was acknowledged twice");
        }
        for incarnation in told.deleted {
            assert!(deleted.insert(incarnation), "deleted twice");
        }
        for incarnation in told.removed {
            assert!(removed.insert(incarnation), "removed twice");
        }
    }
    // Without enough of each operation, the checks below would prove nothing.
    assert!(appended.len() > 20 && deleted.len() > 2 && removed.len() > 2);
    assert!(removed.is_subset(&deleted));
    let head = log.head(&name).await.expect("reads");
    let Some(head) = head else {
        let created: BTreeSet<_> = appended
            .keys()
            .map(|(incarnation, _)| *incarnation)
            .collect();
        assert_eq!(created, deleted, "each of them was deleted");
        return;
    };
    let there = head.position();
    assert!(!deleted.contains(&there.incarnation));
    let frames = log.read(&name, there.at(Revision::ZERO), usize::MAX).await;
    let frames = frames.expect("reads").into_iter();
    let found: Vec<_> = frames.map(|frame| (frame.last(), frame.bytes)).collect();
    // Revisions of other incarnations belong to deleted sessions and must not be read.
    let own = appended
        .range((there.incarnation, Revision::ZERO)..(there.incarnation + 1, Revision::ZERO));
    let own: Vec<_> = own.map(|((_, at), frame)| (*at, frame.clone())).collect();
    assert_eq!(
        found, own,
        "the log must contain exactly the acknowledged appends"
    );
}

async fn act(log: &Log, name: &SessionKey, process: u64) -> ProcessLog {
    let mut told = ProcessLog::default();
    for number in 0..ACTS {
        let frame = bytes(process * ACTS + number, 50);
        let stands = log
            .head(name)
            .await
            .expect("reads")
            .map(|head| head.position());
        // The offset lets the processes run different operations at the same time.
        match (number + process) % 7 {
            0 => told.deleted.extend(delete(log, name, stands).await),
            1 | 2 => told.removed.extend(remove(log, name, process).await),
            _ => {
                let batch = Batch {
                    expected: stands.unwrap_or(Position::START),
                    events: NonZeroU32::MIN,
                    ..batch(0, 1, frame.clone())
                };
                match log.append(name, batch).await {
                    Ok(at) => told.appended.push((at, frame)),
                    Err(StoreError::Conflict { .. } | StoreError::Deleting(_)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
    }
    told
}

async fn delete(log: &Log, name: &SessionKey, stands: Option<Position>) -> Option<u64> {
    let stands = stands?;
    match log.delete(name, stands, time(1)).await {
        Ok(()) => Some(stands.incarnation),
        Err(StoreError::Conflict { .. }) => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// Removes the remaining data of a deleted session, unless another process has claimed it. Returns the
/// removed incarnation.
async fn remove(log: &Log, name: &SessionKey, process: u64) -> Option<u64> {
    let tombstone = log.tombstone(name).await.expect("reads")?;
    let incarnation = tombstone.incarnation;
    let process = format!("process {process}");
    let claim = lease(&process, 10);
    let claim = log.claim_removal(name, incarnation, claim, time(1)).await;
    if !claim.expect("answers") {
        return None;
    }
    // An engine may remove the records of a session in several steps.
    while !log
        .forget(name, incarnation, &process)
        .await
        .expect("forgets")
    {
        tokio::task::yield_now().await;
    }
    Some(incarnation)
}
