//! The outcome of a compaction that an earlier call started. A repeated call waits for its end.

use std::time::Duration;

use crate::sessions::{MissingSession, Transaction};
use palimpsest_core::command::{AdvanceCompaction, Command, CompactionInput};
use palimpsest_core::compaction::CompactionOutcome;
use palimpsest_core::event::{CompactionFailureReason, Event};
use palimpsest_core::ids::{CompactionKey, Revision, SessionKey};
use palimpsest_core::session::{RunningCompaction, Session};
use tokio::time::Instant;

use super::{CompactionCall, CompactionError};
use crate::Engine;

/// Returns the outcome of an idempotent repeat, starting from the event that answered the original call.
pub async fn outcome(
    engine: &Engine,
    key: &SessionKey,
    call: &CompactionCall,
    mut revision: Revision,
) -> Result<CompactionOutcome, CompactionError> {
    loop {
        let recorded = engine.sessions.event(key, revision).await?;
        let event = recorded.map(|recorded| recorded.event);
        let started = match event {
            Some(Event::CompactionStarted(started)) => started.key,
            Some(event) => return Ok(CompactionOutcome::Event(Box::new(event), revision)),
            None => return Err(CompactionError::content_lost()),
        };
        let running = running(engine, key, started).await?;
        let delegated = running
            .as_ref()
            .is_some_and(RunningCompaction::is_delegated);
        let now = engine.sessions.clock().now();
        let over = running.is_none_or(|running| running.is_expired(now));
        // A delegated compaction ends when the caller commits its summary, so nobody waits for it. An ended or
        // expired compaction has an outcome for every caller.
        let waits = over || (call.waits && !delegated);
        if !waits || !wait_until_ended(engine, key, started).await? {
            return Ok(CompactionOutcome::Running(started));
        }
        // From now on, the request id leads to the event that ended the compaction.
        let now = engine.sessions.clock().now();
        let found = |session: &Session| {
            let stamp = call.request.request.as_ref()?;
            session.requests().find(stamp, now)
        };
        let found = engine.sessions.read(key, found).await?;
        // The event that was just read would lead to the same start again and repeat the loop without end.
        let found = found.filter(|found| found.revision != revision);
        revision = found.ok_or_else(CompactionError::content_lost)?.revision;
    }
}

/// Returns the compaction with this key if it is running.
pub(super) fn find_running(session: &Session, which: CompactionKey) -> Option<&RunningCompaction> {
    let running = session.compactions().running.as_ref();
    running.filter(|running| running.key == which)
}

/// Reads the compaction with this key, if it is running.
pub(super) async fn running(
    engine: &Engine,
    key: &SessionKey,
    which: CompactionKey,
) -> Result<Option<RunningCompaction>, CompactionError> {
    let look = |session: &Session| find_running(session, which).cloned();
    Ok(engine.sessions.read(key, look).await?)
}

/// Waits until a compaction has ended. Closes it after its deadline, because its process has stopped. Returns false
/// if the server shuts down first.
pub(super) async fn wait_until_ended(
    engine: &Engine,
    key: &SessionKey,
    which: CompactionKey,
) -> Result<bool, CompactionError> {
    let (sessions, draining) = (&engine.sessions, &engine.draining);
    while let Some(running) = running(engine, key, which).await? {
        let now = sessions.clock().now();
        if running.is_expired(now) {
            // If another call ended the compaction first, the failure makes no event.
            close(engine, key, &running).await?;
            continue;
        }
        if draining.is_cancelled() {
            return Ok(false);
        }
        let left = Duration::from_millis(running.deadline.millis_since(now));
        let has_ended = |session: &Session, _| find_running(session, which).is_none().then_some(());
        sessions
            .until(key, Instant::now() + left, draining, has_ended)
            .await?;
    }
    Ok(true)
}

async fn close(
    engine: &Engine,
    key: &SessionKey,
    running: &RunningCompaction,
) -> Result<(), CompactionError> {
    let now = engine.sessions.clock().now();
    let close = |transaction: &mut Transaction<'_>| {
        let failed = CompactionInput::Failed {
            why: CompactionFailureReason::Expired,
            detail: "it did not finish in time; compact again".into(),
        };
        transaction.run(Command::AdvanceCompaction(AdvanceCompaction {
            attempt: running.attempt,
            duration_ms: now.millis_since(running.started_at),
            ..AdvanceCompaction::new(running.key, failed)
        }))?;
        Ok(())
    };
    let (sessions, missing) = (&engine.sessions, &MissingSession::Reject);
    Ok(sessions.write(key, missing, close, |_, ()| Ok(())).await?)
}
