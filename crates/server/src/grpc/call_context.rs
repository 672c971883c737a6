//! What a call carries from the edge to its handler, and keeps until its last byte is sent.
//!
//! The edge knows who calls and which method; only the handler knows which project it is about. The
//! ticket is where the two meet. A change that outlives its caller keeps it too.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_engine::call::{self, Caller, Deadline};
use palimpsest_engine::quotas::{QuotaDemand, QuotaPermit};

use super::span::CallSpan;

use super::admission::WorkPermit;
use super::budget::BudgetShare;
use crate::access::Authentication;
use crate::errors::ServiceError;

/// One call's. Every request carries one among its extensions.
#[derive(Debug, Clone, Default)]
pub struct CallContext(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    project: OnceLock<ProjectId>,
    pass: OnceLock<Authentication>,
    /// The call's place among those of its project.
    held: OnceLock<Option<QuotaPermit>>,
    /// Its part of the memory for requests, kept until the call is over.
    share: BudgetShare,
    /// Its part of the memory for replies, beside the parts that are made.
    reply: BudgetShare,
    /// Its place among those that are worked on, once it has come.
    place: OnceLock<WorkPermit>,
    watch: bool,
    deadline: Option<Deadline>,
    began: AtomicBool,
    span: Option<CallSpan>,
}

tokio::task_local! {
    static CURRENT: CallContext;
}

impl CallContext {
    /// The ticket of a call that was let in.
    pub(super) fn new(
        span: CallSpan,
        (share, reply): (BudgetShare, BudgetShare),
        watch: bool,
        deadline: Deadline,
    ) -> Self {
        Self(Arc::new(Inner {
            span: Some(span),
            share,
            reply,
            watch,
            deadline: Some(deadline),
            ..Inner::default()
        }))
    }

    /// Says which session the call is about. It stays on the span: as a label of a metric it would be one for
    /// each session.
    pub fn about(&self, session: &SessionKey) {
        if let Some(span) = &self.0.span {
            span.about(session);
        }
    }

    /// Says which project the call is about. A call is about one.
    pub fn enter(&self, project: ProjectId) {
        let _ = self.0.project.set(project);
    }

    /// Which project the call is about, once its handler has said so.
    pub fn project(&self) -> Option<&ProjectId> {
        self.0.project.get()
    }

    /// Says who calls.
    pub fn identify(&self, pass: Authentication) {
        let _ = self.0.pass.set(pass);
    }

    /// Who calls, where callers have to say so.
    pub fn pass(&self) -> Option<&Authentication> {
        self.0.pass.get()
    }

    /// What the call needs of its project's quotas.
    pub fn need(&self) -> QuotaDemand {
        QuotaDemand {
            watch: self.0.watch,
            bytes: self.0.share.used(),
        }
    }

    /// Keeps a place in the project's quotas until the call is over.
    pub fn hold(&self, held: Option<QuotaPermit>) {
        let _ = self.0.held.set(held);
    }

    /// Whether the caller's time is over.
    pub fn is_late(&self) -> bool {
        self.0.is_late()
    }

    /// Takes memory for the reply of the current call until the call is over: for what its handler holds of it while its
    /// parts go one by one. Refused when callers that do not take their replies hold too much.
    pub fn hold_reply(bytes: usize) -> Result<(), ServiceError> {
        let hold = |ticket: &Self| ticket.0.reply.grow(bytes);
        CURRENT.try_with(hold).unwrap_or(Ok(()))
    }

    /// Its part of the memory for requests.
    pub(super) fn share(&self) -> &BudgetShare {
        &self.0.share
    }

    /// Gives it its place among the calls that are worked on.
    pub(super) fn set_place(&self, place: Option<WorkPermit>) {
        if let Some(place) = place {
            let _ = self.0.place.set(place);
        }
    }

    /// The place among the calls that are worked on.
    pub(super) fn place(&self) -> Option<&WorkPermit> {
        self.0.place.get()
    }

    /// The ticket of the call that the current task works on.
    pub(super) fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs a future as a part of this call.
    pub(super) fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        let caller = Arc::clone(&self.0);
        call::scope(caller, CURRENT.scope(self, future))
    }
}

impl Inner {
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|d| d.remaining().is_zero())
    }
}

impl Caller for Inner {
    fn begins(&self) -> bool {
        if !self.began.load(Ordering::Relaxed) && self.is_late() {
            return false;
        }
        self.began.store(true, Ordering::Relaxed);
        true
    }

    fn pause(&self) -> bool {
        self.place.get().is_some_and(WorkPermit::pause)
    }

    fn resume(&self) {
        if let Some(place) = self.place.get() {
            place.resume();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::time::Duration;

    use palimpsest_engine::call::CurrentCall;

    use super::*;

    fn expired(began: bool) -> CallContext {
        CallContext(Arc::new(Inner {
            deadline: Some(Deadline::after(Duration::ZERO)),
            began: AtomicBool::new(began),
            ..Inner::default()
        }))
    }

    #[tokio::test]
    async fn an_expired_call_begins_no_change_and_goes_on_with_its_own() {
        assert!(CurrentCall::begins(), "work without a caller");
        assert!(!expired(false).scope(async { CurrentCall::begins() }).await);
        assert!(expired(true).scope(async { CurrentCall::begins() }).await);
        // A call without a place waits all the same.
        assert_eq!(expired(true).scope(CurrentCall::wait(ready(7))).await, 7);
    }
}
