//! The outcome of a compaction that an earlier call started. A repeated call waits for its end.

use std::time::Duration;

use palimpsest_core::command::{AdvanceCompaction, Command, CompactionInput};
use palimpsest_core::event::{CompactionFailureReason, Event};
use palimpsest_core::ids::{CompactionKey, Revision, SessionKey};
use palimpsest_core::session::{RunningCompaction, Session};
use palimpsest_engine::sessions::{MissingSession, Transaction};

use super::super::Service;
use super::{CompactionOutcome, CompactionRequest, WaitMode, lost};
use crate::errors::ServiceError;

/// The interval of the check whether another replica has ended the compaction: 1 s.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Returns the outcome of an idempotent repeat, starting from the event that answered the original call.
pub(in crate::services) async fn outcome(
    service: &Service,
    key: &SessionKey,
    wanted: &CompactionRequest,
    mut revision: Revision,
) -> Result<CompactionOutcome, ServiceError> {
    loop {
        let recorded = service.sessions.event(key, revision).await?;
        let event = recorded.map(|recorded| recorded.event);
        let started = match event {
            Some(Event::CompactionStarted(started)) => started.key,
            Some(event) => return Ok(CompactionOutcome::Event(Box::new(event), revision)),
            None => return Err(lost()),
        };
        let running = running(service, key, started).await?;
        let delegated = running
            .as_ref()
            .is_some_and(RunningCompaction::is_delegated);
        let now = service.sessions.clock().now();
        let over = running.is_none_or(|running| running.is_over(now));
        // A delegated compaction ends when the caller commits its summary, so nobody waits for it. An ended or
        // expired compaction has an outcome for every caller.
        let waits = over || (wanted.when == WaitMode::Waited && !delegated);
        if !waits || !ends(service, key, started).await? {
            return Ok(CompactionOutcome::Running(started));
        }
        // From now on, the request id leads to the event that ended the compaction.
        let now = service.sessions.clock().now();
        let found = |session: &Session| {
            let stamp = wanted.request.as_ref()?;
            session.requests().find(stamp, now)
        };
        let found = service.sessions.read(key, found).await?;
        let found = found.filter(|found| found.revision != revision);
        revision = found.ok_or_else(lost)?.revision;
    }
}

/// Waits for the end of a running prepared summary.
pub(super) async fn ahead_ends(service: &Service, key: &SessionKey) -> Result<(), ServiceError> {
    let ahead = |session: &Session| {
        let running = session.compactions().running.as_ref();
        running.filter(|running| running.ahead).map(|one| one.key)
    };
    if let Some(ahead) = service.sessions.read(key, ahead).await? {
        ends(service, key, ahead).await?;
    }
    Ok(())
}

/// Ends a compaction that a stopped process left behind. If other processes can write to the log, only the deadline
/// shows that the compaction is orphaned.
pub(super) async fn expire_orphaned(
    service: &Service,
    key: &SessionKey,
) -> Result<(), ServiceError> {
    if !service.sessions.log().is_exclusive() {
        return Ok(());
    }
    let born = service.started_at;
    let dead = |session: &Session| {
        let running = session.compactions().running.as_ref();
        // A delegated compaction survives a restart: the caller's model writes its summary.
        let running = running.filter(|running| !running.is_delegated() && running.at < born);
        running.cloned()
    };
    match service.sessions.read(key, dead).await? {
        Some(dead) => close(service, key, &dead, "the server that was at it has ended").await,
        None => Ok(()),
    }
}

async fn running(
    service: &Service,
    key: &SessionKey,
    which: CompactionKey,
) -> Result<Option<RunningCompaction>, ServiceError> {
    let look = |session: &Session| {
        let running = session.compactions().running.as_ref();
        running.filter(|running| running.key == which).cloned()
    };
    Ok(service.sessions.read(key, look).await?)
}

/// Waits until a compaction has ended. Closes it after its deadline, because its process has stopped. Returns false
/// if the server shuts down first.
async fn ends(
    service: &Service,
    key: &SessionKey,
    which: CompactionKey,
) -> Result<bool, ServiceError> {
    let mut watcher = service.sessions.watch(key);
    loop {
        let Some(running) = running(service, key, which).await? else {
            return Ok(true);
        };
        let now = service.sessions.clock().now();
        let left = Duration::from_millis(running.expires.millis_since(now));
        if running.is_over(now) {
            let why = "it did not finish in time; compact again";
            close(service, key, &running, why).await?;
            continue;
        }
        // The watcher reports changes. The timer covers other replicas and the deadline.
        tokio::select! {
            _ = watcher.changed() => {}
            () = tokio::time::sleep(left.min(LOOK_EVERY)) => {}
            () = service.draining.cancelled() => return Ok(false),
        }
    }
}

async fn close(
    service: &Service,
    key: &SessionKey,
    running: &RunningCompaction,
    why: &str,
) -> Result<(), ServiceError> {
    let now = service.sessions.clock().now();
    let close = |transaction: &mut Transaction<'_>| {
        let failed = CompactionInput::Failed {
            why: CompactionFailureReason::Expired,
            detail: why.into(),
        };
        transaction.run(Command::AdvanceCompaction(AdvanceCompaction {
            attempt: running.attempt,
            took_ms: now.millis_since(running.at),
            ..AdvanceCompaction::new(running.key, failed)
        }))?;
        Ok(())
    };
    let (sessions, missing) = (&service.sessions, &MissingSession::Refuse);
    Ok(sessions.write(key, missing, close, |_, ()| Ok(())).await?)
}
