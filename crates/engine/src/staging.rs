//! The background pass of level 4: after a reply, it stages spans for a later collapse. The pass works on a copy of
//! the session, so calls continue meanwhile.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use palimpsest_core::command::{Command, StageSpans};
use palimpsest_core::ids::SessionKey;
use palimpsest_core::levels::collapse::{choose, is_due};
use palimpsest_core::session::Session;

use crate::sessions::{MissingSession, Transaction};
use crate::{Engine, EngineError, span_summaries};

/// The sessions with a running pass. If the maximum is reached, a session is tried again on its next call.
#[derive(Debug, Clone, Default)]
pub struct SpanPasses(Arc<Mutex<HashSet<SessionKey>>>);

/// The maximum number of concurrent passes.
const MAX_PASSES: usize = 4;

impl SpanPasses {
    pub(crate) fn begin(&self, key: &SessionKey) -> Option<PassGuard> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = running.len() < MAX_PASSES && running.insert(key.clone());
        begins.then(|| PassGuard {
            passes: self.clone(),
            key: key.clone(),
        })
    }
}

/// A running pass. Dropping the guard ends it.
pub(crate) struct PassGuard {
    passes: SpanPasses,
    key: SessionKey,
}

impl Drop for PassGuard {
    fn drop(&mut self) {
        let mut running = self.passes.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.key);
    }
}

/// Starts a pass for a session, unless it has one or the maximum is reached.
pub fn begin(engine: &Engine, key: &SessionKey) {
    let Some(running) = engine.span_passes.begin(key) else {
        return;
    };
    let (inner, key) = (engine.clone(), key.clone());
    engine.background.in_background(async move {
        if let Err(error) = run_pass(&inner, &key).await {
            tracing::warn!(session = %key, %error, "failed to choose spans; the next call tries again");
        }
        // The guard belongs to the task, so it also ends the pass if the task panics.
        drop(running);
        span_summaries::write(&inner, &key).await;
    });
}

async fn run_pass(engine: &Engine, key: &SessionKey) -> Result<(), EngineError> {
    let copy = engine.sessions.read_full(key, Session::clone).await?;
    let chosen = tokio::task::spawn_blocking(move || choose(&copy));
    // A failed choice loses nothing. The next turn at the threshold begins another pass.
    let Ok(Ok(spans)) = chosen.await else {
        return Ok(());
    };
    let stage = |transaction: &mut Transaction<'_>| {
        // Another call or replica may have staged spans since the copy was made.
        let due = transaction.session().is_some_and(is_due);
        if due {
            let spans = spans.clone();
            transaction.run(Command::StageSpans(StageSpans { spans }))?;
        }
        Ok(())
    };
    let write = engine
        .sessions
        .write(key, &MissingSession::Reject, stage, |_, ()| Ok(()));
    write.await
}
