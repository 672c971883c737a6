//! The lines of rpcs in the audit log.

use palimpsest_edge::telemetry::AuditedCall;
use palimpsest_http::code_name;
use tonic::Code;

use super::call_context::CallContext;
use crate::access::{RequiredAccess, required_access};
use crate::telemetry::{TraceId, is_audited};

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
    // The setting for public reflection does not matter, because reflection never has a line.
    let right = match required_access(&format!("/{path}"), false) {
        RequiredAccess::Right(right) => context.further_right().unwrap_or(right),
        RequiredAccess::Nothing | RequiredAccess::Credential => return,
    };
    let authentication = context.authentication();
    let line = AuditedCall {
        who: authentication.map(|authentication| &*authentication.principal.name),
        method: path.rsplit_once('/').map_or(path, |(_, method)| method),
        right,
        is_denied: context.is_denied()
            || matches!(code, Code::PermissionDenied | Code::Unauthenticated),
        project: context.project(),
        session: context.session(),
        outcome: code_name(code),
        reason,
        trace,
    };
    line.write();
}
