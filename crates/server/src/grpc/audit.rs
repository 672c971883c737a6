//! The audit log of calls: who changed or deleted what, and the outcome.

use palimpsest_core::ids::ProjectId;
use palimpsest_http::code_name;
use tonic::Code;

use super::call_context::CallContext;
use crate::access::{RequiredAccess, Right, required_access};
use crate::telemetry::{AUDIT, TraceId, is_audited};

/// Adds a call to the audit log if it can change or delete something, or was denied a right.
pub(super) fn write(
    context: &CallContext,
    path: &str,
    (code, reason): (Code, Option<&str>),
    trace: TraceId,
) {
    if !is_audited() {
        return;
    }
    let right = match required_access(&format!("/{path}"), false) {
        RequiredAccess::Right(right) => context.further_right().unwrap_or(right),
        RequiredAccess::Nothing | RequiredAccess::Credential => return,
    };
    let is_denied = matches!(code, Code::PermissionDenied | Code::Unauthenticated);
    if right == Right::Read && !is_denied {
        return;
    }
    let authentication = context.authentication();
    let who = authentication.map(|authentication| &*authentication.principal.name);
    let method = path.rsplit_once('/').map_or(path, |(_, method)| method);
    tracing::info!(
        target: AUDIT,
        who,
        method,
        right = right.name(),
        project = context.project().map(ProjectId::as_str),
        session = context.session().map(tracing::field::display),
        outcome = code_name(code),
        reason,
        trace_id = %trace,
    );
}
