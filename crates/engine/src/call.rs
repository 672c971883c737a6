//! The call that the current task works for, as far as the domain needs it: its deadline, and whether a change may
//! still begin.
//!
//! The server sets both for the handler of a call (`grpc::edge`). A background task has neither.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::Instant;

/// The target of the spans that leave the process. Crates below name the text itself.
pub const SPANS: &str = "palimpsest::span";

/// The target of the events of the audit log: calls and tasks that change or delete something, without content. Crates
/// below name the text itself.
pub const AUDIT: &str = "palimpsest::audit";

tokio::task_local! {
    static DEADLINE: Deadline;
    static CALLER: Arc<dyn Caller>;
}

/// The time by which the reply must have begun. Every request has one among its extensions. A handler that waits for
/// something can return a partial result before the deadline.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// The deadline of the call that the current task works on.
    pub fn current() -> Option<Self> {
        DEADLINE.try_with(|deadline| *deadline).ok()
    }

    /// Runs a future as a part of the call with this deadline.
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        DEADLINE.scope(self, future)
    }

    /// A deadline `timeout` from now.
    pub fn after(timeout: Duration) -> Self {
        Self(Instant::now() + timeout)
    }

    /// The time that is left.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// The moment itself.
    pub const fn instant(self) -> Instant {
        self.0
    }
}

/// The call that waits for the result.
pub trait Caller: Send + Sync {
    /// Returns true if a change may begin, and records that it has. Returns false when the call expired before it
    /// changed anything.
    fn may_start_change(&self) -> bool;

    /// Returns the credential of the call: the id of a key, or the subject of a token. `None` if it has none.
    fn credential(&self) -> Option<&str> {
        None
    }

    /// Stops counting the call as worked on. Returns false if it is not counted, as within another pause.
    fn pause(&self) -> bool;

    /// Counts the call as worked on again, after a `pause` that returned true.
    fn resume(&self);
}

/// Runs a future on behalf of a caller.
pub fn scope<F: Future>(caller: Arc<dyn Caller>, future: F) -> impl Future<Output = F::Output> {
    CALLER.scope(caller, future)
}

/// Runs a future on behalf of the caller that the current task works for, if there is one. A spawned task does not inherit
/// the caller.
pub fn in_current_call<F: Future>(future: F) -> impl Future<Output = F::Output> {
    match CALLER.try_with(Arc::clone) {
        Ok(caller) => CALLER.scope(caller, future).left_future(),
        Err(_) => future.right_future(),
    }
}

/// The credential of a call, for work that can outlast it. Nothing else of the call applies to such work.
struct Initiator(Box<str>);

impl Caller for Initiator {
    fn may_start_change(&self) -> bool {
        true
    }

    fn credential(&self) -> Option<&str> {
        Some(&self.0)
    }

    fn pause(&self) -> bool {
        false
    }

    fn resume(&self) {}
}

/// Runs a future that can outlast the current call, whose credential its events contain.
pub fn initiated<F: Future>(future: F) -> impl Future<Output = F::Output> {
    match CurrentCall::credential() {
        Some(credential) => CALLER
            .scope(Arc::new(Initiator(credential)), future)
            .left_future(),
        None => future.right_future(),
    }
}

/// The current call's turn to do something.
#[derive(Debug)]
pub struct CurrentCall;

impl CurrentCall {
    /// Returns true if a change may begin. An expired call begins none. A call that has begun one continues, because
    /// half of a change would be worse. Work without a caller always begins.
    pub fn may_start_change() -> bool {
        CALLER
            .try_with(|caller| caller.may_start_change())
            .unwrap_or(true)
    }

    /// Returns the credential of the call. `None` if it has none, and for work without a caller.
    pub fn credential() -> Option<Box<str>> {
        let credential = |caller: &Arc<dyn Caller>| caller.credential().map(Box::from);
        CALLER.try_with(credential).ok().flatten()
    }

    /// Waits for a model, a hook or another call of the session. Meanwhile the call does not count as worked on, and
    /// the wait does not count as load.
    pub async fn pause_while<F: Future>(other: F) -> F::Output {
        let _paused = PauseGuard::current();
        other.await
    }
}

/// A caller whose call is paused until this is dropped.
struct PauseGuard(Arc<dyn Caller>);

impl PauseGuard {
    fn current() -> Option<Self> {
        let caller = CALLER.try_with(Arc::clone).ok()?;
        // A nested pause returns false, so only the outer one resumes the call.
        caller.pause().then(|| Self(caller))
    }
}

impl Drop for PauseGuard {
    fn drop(&mut self) {
        self.0.resume();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    /// A call that is worked on while the number is 1.
    struct Counted(AtomicUsize);

    impl Caller for Counted {
        fn may_start_change(&self) -> bool {
            true
        }

        fn pause(&self) -> bool {
            self.0.compare_exchange(1, 0, Relaxed, Relaxed).is_ok()
        }

        fn resume(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[tokio::test]
    async fn a_spawned_task_works_for_the_caller_of_its_parent() {
        struct Named;

        impl Caller for Named {
            fn may_start_change(&self) -> bool {
                true
            }

            fn credential(&self) -> Option<&str> {
                Some("key 1")
            }

            fn pause(&self) -> bool {
                false
            }

            fn resume(&self) {}
        }

        let credential = async { CurrentCall::credential() };
        let spawned = async { tokio::spawn(in_current_call(credential)).await.unwrap() };
        let of_call = scope(Arc::new(Named), spawned).await;
        assert_eq!(of_call.as_deref(), Some("key 1"));
        let credential = async { CurrentCall::credential() };
        let initiated = async { tokio::spawn(initiated(credential)).await.unwrap() };
        let later = scope(Arc::new(Named), initiated).await;
        assert_eq!(later.as_deref(), Some("key 1"));
        let alone = tokio::spawn(in_current_call(async { CurrentCall::credential() }));
        assert_eq!(alone.await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_call_is_paused_while_it_waits_and_resumed_once() {
        let call = Arc::new(Counted(AtomicUsize::new(1)));
        let working = || call.0.load(Relaxed);
        let waits = CurrentCall::pause_while(CurrentCall::pause_while(async { working() }));
        assert_eq!(scope(Arc::clone(&call) as _, waits).await, 0);
        assert_eq!(working(), 1);
        let mut cancelled = Box::pin(scope(
            Arc::clone(&call) as _,
            CurrentCall::pause_while(std::future::pending::<()>()),
        ));
        assert!(futures::poll!(&mut cancelled).is_pending());
        assert_eq!(working(), 0);
        drop(cancelled);
        assert_eq!(working(), 1, "a cancelled wait must resume the call");
    }
}
