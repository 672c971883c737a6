//! Authorization of calls inside the services, after the check at the transport.

use super::Service;
use crate::access::{self, ResourceScope, Right};
use crate::errors::ServiceError;
use crate::grpc::CallContext;

impl Service {
    /// Rejects a call that the caller's credential does not permit for the resource. Runs before any data is read.
    pub(super) fn authorize(
        &self,
        ticket: Option<&CallContext>,
        place: Option<&ResourceScope>,
    ) -> Result<(), ServiceError> {
        // Without authentication every caller has all rights.
        if !self.auth_required {
            return Ok(());
        }
        let pass = ticket
            .and_then(CallContext::authentication)
            .ok_or_else(missing_caller)?;
        pass.right.ok_or_else(missing_caller)?;
        Ok(access::authorize(pass, place)?)
    }

    /// Rejects a call about all projects unless the credential grants its right in all of them.
    pub(super) fn authorize_everywhere(
        &self,
        ticket: Option<&CallContext>,
    ) -> Result<(), ServiceError> {
        if !self.auth_required {
            return Ok(());
        }
        let pass = ticket
            .and_then(CallContext::authentication)
            .ok_or_else(missing_caller)?;
        let right = pass.right.ok_or_else(missing_caller)?;
        let grant = &pass.principal.grant;
        if grant.projects.is_all() && grant.rights.contains(&right) {
            return Ok(());
        }
        Err(ServiceError::permission_denied(right, None))
    }

    /// Rejects a call whose request needs a right in addition to that of its rpc.
    pub(super) fn authorize_also(
        &self,
        right: Right,
        session: &palimpsest_core::ids::SessionKey,
    ) -> Result<(), ServiceError> {
        if !self.auth_required {
            return Ok(());
        }
        // Handlers get a request without its extensions, so the context of the task is used.
        let context = CallContext::current();
        let pass = context
            .as_ref()
            .and_then(CallContext::authentication)
            .ok_or_else(missing_caller)?;
        let place = ResourceScope::Session(session.clone());
        Ok(access::check_right(pass, right, &place)?)
    }
}

/// The error for a call without an authenticated caller, or for an rpc without a right. Answering it could expose
/// data to an unauthenticated caller.
fn missing_caller() -> ServiceError {
    ServiceError::fault(
        "tell who calls: the call did not come through the gate, or its rpc has no right",
    )
}
