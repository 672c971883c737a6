//! The step of the door at which a call must be within its project's quotas, and within its time.

use palimpsest_core::ids::ProjectId;

use super::Service;
use crate::errors::ServiceError;
use crate::grpc::CallContext;

impl Service {
    /// Refuses a call that is late or more than its project may make; what it uses is counted until its
    /// last byte is sent.
    pub(super) fn within_quotas(
        &self,
        ticket: &CallContext,
        project: &ProjectId,
    ) -> Result<(), ServiceError> {
        // Its body took all of its time: nobody waits for the answer any more.
        if ticket.is_late() {
            return Err(ServiceError::DeadlineExceeded);
        }
        if let Some(quotas) = &self.quotas {
            let held = quotas.enter(project, ticket.need());
            ticket.hold(held.map_err(ServiceError::QuotaExceeded)?);
        }
        Ok(())
    }
}
