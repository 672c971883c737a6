//! Whether a caller may do what they ask where they ask it.

use super::Service;
use crate::access::{self, ResourceScope, Right};
use crate::errors::ServiceError;
use crate::grpc::CallContext;

impl Service {
    /// Refuses what the caller's credential does not allow, before anything is read.
    pub(super) fn authorize(
        &self,
        ticket: Option<&CallContext>,
        place: Option<&ResourceScope>,
    ) -> Result<(), ServiceError> {
        if !self.auth_required {
            return Ok(());
        }
        let pass = ticket.and_then(CallContext::pass).ok_or_else(unknown)?;
        pass.right.ok_or_else(unknown)?;
        access::authorize(pass, place)
    }

    /// Refuses a call about all projects, unless the caller's credential has its right in all of them.
    pub(super) fn authorize_everywhere(
        &self,
        ticket: Option<&CallContext>,
    ) -> Result<(), ServiceError> {
        if !self.auth_required {
            return Ok(());
        }
        let pass = ticket.and_then(CallContext::pass).ok_or_else(unknown)?;
        let right = pass.right.ok_or_else(unknown)?;
        let grant = &pass.caller.grant;
        if grant.projects.are_all() && grant.rights.contains(&right) {
            return Ok(());
        }
        Err(ServiceError::PermissionDenied {
            right,
            project: None,
        })
    }

    /// Refuses a call that turned out to take another right than its rpc does.
    pub(super) fn authorize_also(
        &self,
        ticket: Option<&CallContext>,
        right: Right,
        session: &palimpsest_core::ids::SessionKey,
    ) -> Result<(), ServiceError> {
        if !self.auth_required {
            return Ok(());
        }
        let pass = ticket.and_then(CallContext::pass).ok_or_else(unknown)?;
        let place = ResourceScope::Session(session.clone());
        access::allowed(pass, right, &place)
    }
}

/// A call that came past the gate, or whose rpc has no right: rather no answer than one to nobody knows whom.
fn unknown() -> ServiceError {
    ServiceError::Internal {
        doing: "tell who calls: the call did not come through the gate, or its rpc has no right",
        source: None,
    }
}
