//! The context of a call, shared by the edge and the handler until the last byte of the response is sent.
//!
//! The edge knows the principal and the method, and only the decoded request contains the project. The context connects
//! both. A change that outlives its caller keeps the context too.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_edge::admission::WorkPermit;
use palimpsest_edge::budget::BudgetShare;
use palimpsest_engine::call::{self, Caller, Deadline};
use palimpsest_engine::quotas::{QuotaDemand, QuotaPermit};

use super::span::CallSpan;
use crate::access::{Authentication, Right};
use crate::errors::ServiceError;
use crate::telemetry::is_audited;

/// The context of one call. Each request has one in its extensions.
#[derive(Debug, Clone, Default)]
pub struct CallContext(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    project: OnceLock<ProjectId>,
    /// The session of the call, for the audit log.
    session: OnceLock<SessionKey>,
    /// A right that the request needs in addition to that of its rpc.
    further_right: OnceLock<Right>,
    authentication: OnceLock<Authentication>,
    /// The permit of the project's quotas.
    quota_permit: OnceLock<Option<QuotaPermit>>,
    /// The memory for the request, released at the end of the call.
    share: BudgetShare,
    /// The memory for reply data that the handler holds, in addition to encoded frames.
    reply: BudgetShare,
    /// The admission permit, once the call was admitted.
    permit: OnceLock<WorkPermit>,
    watch: bool,
    deadline: Option<Deadline>,
    is_started: AtomicBool,
    /// True if the credential does not permit the call.
    is_denied: AtomicBool,
    span: Option<CallSpan>,
}

tokio::task_local! {
    static CURRENT: CallContext;
}

impl CallContext {
    /// Creates the context of an accepted call.
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

    /// Records the session of the call on its span. Metrics have no session label, which would be unbounded.
    pub fn set_session(&self, session: &SessionKey) {
        if let Some(span) = &self.0.span {
            span.about(session);
        }
        // Only the audit log reads the session, so it is cloned for that log alone.
        if is_audited() {
            let _ = self.0.session.set(session.clone());
        }
    }

    /// Returns the session of the call, if there is an audit log.
    pub(super) fn session(&self) -> Option<&SessionKey> {
        self.0.session.get()
    }

    /// Records that the request needs another right than its rpc.
    pub fn needs_also(&self, right: Right) {
        // No handler needs two different further rights, so a second call has the same right.
        let _ = self.0.further_right.set(right);
    }

    /// Returns the right that the request needs in addition to that of its rpc.
    pub(super) fn further_right(&self) -> Option<Right> {
        self.0.further_right.get().copied()
    }

    /// Records the project of the call. Later calls have no effect.
    pub fn set_project(&self, project: ProjectId) {
        if let Some(span) = &self.0.span {
            span.of_project(&project);
        }
        let _ = self.0.project.set(project);
    }

    /// Returns the project of the call, if recorded.
    pub fn project(&self) -> Option<&ProjectId> {
        self.0.project.get()
    }

    /// Records the authenticated principal. Later calls have no effect.
    pub fn set_authentication(&self, authentication: Authentication) {
        if let Some(span) = &self.0.span {
            span.by(&authentication.principal.name);
        }
        let _ = self.0.authentication.set(authentication);
    }

    /// Returns the authentication. `None` if authentication is off or the method needs no credential.
    pub fn authentication(&self) -> Option<&Authentication> {
        self.0.authentication.get()
    }

    /// Records that the credential does not permit the call. The error can be that of a missing session.
    pub(super) fn set_denied(&self) {
        self.0.is_denied.store(true, Ordering::Relaxed);
    }

    /// Returns true if the credential does not permit the call.
    pub(super) fn is_denied(&self) -> bool {
        self.0.is_denied.load(Ordering::Relaxed)
    }

    /// Returns the demand on the project's quotas.
    pub fn quota_demand(&self) -> QuotaDemand {
        QuotaDemand {
            watch: self.0.watch,
            bytes: self.0.share.used(),
        }
    }

    /// Holds a quota permit until the end of the call.
    pub fn set_quota_permit(&self, permit: Option<QuotaPermit>) {
        let _ = self.0.quota_permit.set(permit);
    }

    /// Returns true if the deadline of the call has passed.
    pub fn is_past_deadline(&self) -> bool {
        self.0.is_late()
    }

    /// Reserves memory for reply data that the handler of the current call holds while its parts are sent one by one.
    ///
    /// The memory is released at the end of the call. Fails if slow readers use too much of the reply budget.
    pub fn reserve_reply(bytes: usize) -> Result<(), ServiceError> {
        let hold = |context: &Self| context.0.reply.grow(bytes);
        // Code that runs outside of a call has no reply budget.
        Ok(CURRENT.try_with(hold).unwrap_or(Ok(()))?)
    }

    /// Returns the memory share of the request.
    pub(super) fn share(&self) -> &BudgetShare {
        &self.0.share
    }

    /// Stores the admission permit.
    pub(super) fn set_permit(&self, permit: Option<WorkPermit>) {
        if let Some(permit) = permit {
            let _ = self.0.permit.set(permit);
        }
    }

    /// Returns the admission permit, if the call was admitted.
    pub(super) fn permit(&self) -> Option<&WorkPermit> {
        self.0.permit.get()
    }

    /// Returns the context of the call that the current task works on.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs a future in the context of this call.
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
    fn may_start_change(&self) -> bool {
        // A late call starts no change. A change in several steps that has started is finished.
        if !self.is_started.load(Ordering::Relaxed) && self.is_late() {
            return false;
        }
        self.is_started.store(true, Ordering::Relaxed);
        true
    }

    fn credential(&self) -> Option<&str> {
        let authentication = self.authentication.get();
        authentication.map(|authentication| &*authentication.principal.name)
    }

    fn pause(&self) -> bool {
        self.permit.get().is_some_and(WorkPermit::pause)
    }

    fn resume(&self) {
        if let Some(permit) = self.permit.get() {
            permit.resume();
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
            is_started: AtomicBool::new(began),
            ..Inner::default()
        }))
    }

    #[tokio::test]
    async fn an_expired_call_starts_no_change_and_finishes_a_running_one() {
        assert!(CurrentCall::may_start_change(), "work without a caller");
        assert!(
            !expired(false)
                .scope(async { CurrentCall::may_start_change() })
                .await
        );
        assert!(
            expired(true)
                .scope(async { CurrentCall::may_start_change() })
                .await
        );
        // A call without a permit can pause as well.
        assert_eq!(
            expired(true)
                .scope(CurrentCall::pause_while(ready(7)))
                .await,
            7
        );
    }
}
