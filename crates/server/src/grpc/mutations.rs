//! Changes that continue after their caller disconnects.

use std::future::Future;
use std::ops::Deref;
use std::panic;

use futures::FutureExt as _;
use palimpsest_engine::background::Background;
use palimpsest_engine::call::Deadline;
use tracing::Instrument as _;

use super::call_context::CallContext;
use crate::telemetry::TraceId;

/// The changes in flight and the background tasks that they start.
#[derive(Debug, Clone, Default)]
pub struct Mutations {
    background: Background,
}

impl Mutations {
    /// Runs a change to completion, even if the caller disconnects or its deadline passes.
    ///
    /// A partial change would be worse than an unread response. A panic in the change is passed on to the caller.
    pub async fn uncancelled<T>(&self, change: impl Future<Output = T> + Send + 'static) -> T
    where
        T: Send + 'static,
    {
        let change = change.in_current_span();
        // A change that outlives its caller keeps the call's permits and memory shares.
        let change = match CallContext::current() {
            Some(context) => context.scope(change).left_future(),
            None => change.right_future(),
        };
        // Task-local values do not cross a spawn, so they are set again in the new task.
        let task = match (TraceId::current(), Deadline::current()) {
            (Some(trace), Some(deadline)) => {
                self.background.spawn(trace.scope(deadline.scope(change)))
            }
            (Some(trace), None) => self.background.spawn(trace.scope(change)),
            (None, _) => self.background.spawn(change),
        };
        match task.await {
            Ok(outcome) => outcome,
            Err(error) => match error.try_into_panic() {
                Ok(payload) => panic::resume_unwind(payload),
                // Only the shutdown of the runtime aborts a task, and this task ends with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl Deref for Mutations {
    type Target = Background;

    fn deref(&self) -> &Background {
        &self.background
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_change_outlives_its_caller_and_delays_shutdown() {
        let mutations = Mutations::default();
        let done = Arc::new(AtomicBool::new(false));
        let change = {
            let done = Arc::clone(&done);
            async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                done.store(true, Ordering::SeqCst);
            }
        };
        // The timeout drops the future of the caller, as a disconnect does.
        let caller = tokio::time::timeout(Duration::from_millis(1), mutations.uncancelled(change));
        assert!(caller.await.is_err());
        assert_eq!(mutations.count(), 1);
        mutations.finished().await;
        assert!(done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_panic_in_a_change_is_propagated_to_its_caller() {
        let mutations = Mutations::default();
        let change = mutations.uncancelled(async { panic!("on purpose") });
        let caught: Result<(), _> = panic::AssertUnwindSafe(change).catch_unwind().await;
        assert!(caught.is_err());
        assert_eq!(mutations.uncancelled(async { 7 }).await, 7);
    }
}
