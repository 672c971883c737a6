//! Quota and deadline checks of the entry.

use palimpsest_core::ids::ProjectId;

use super::Service;
use crate::errors::ServiceError;
use crate::grpc::CallContext;

impl Service {
    /// Rejects a call that has timed out or exceeds its project's quotas. Its usage is counted until the last byte
    /// is sent.
    pub(super) fn check_quotas(
        &self,
        ticket: &CallContext,
        project: &ProjectId,
    ) -> Result<(), ServiceError> {
        // The deadline passed while the body was received, so the caller does not wait any more.
        if ticket.is_past_deadline() {
            return Err(ServiceError::deadline_exceeded());
        }
        if let Some(quotas) = &self.quotas {
            let held = quotas.admit(project, ticket.quota_demand());
            ticket.set_quota_permit(held?);
        }
        Ok(())
    }
}
