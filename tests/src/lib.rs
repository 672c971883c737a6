//! Shared code of the end-to-end tests: the real binary as a process, its clients, and builders of messages.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(
    clippy::disallowed_methods,
    reason = "a process takes real time to end"
)]

pub mod array;
pub mod authority;
pub mod calls;
pub mod chance;
pub mod changed_session;
pub mod command;
pub mod cores;
pub mod files;
pub mod markdown;
pub mod passing;
pub mod port;
pub mod say;
pub mod server;
pub mod tenant;
pub mod turns;
pub mod unreadable;

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

pub use array::Array;
pub use changed_session::{
    CHANGED_SESSION_SETTINGS, HIDDEN_TEXTS, SHOWN_TEXTS, create_changed_session,
};
pub use command::{palimpsest, palimpsest_with};
pub use files::files_below;
pub use port::ReservedPort;
pub use server::{Context, Server, Sessions, Shared, binary, is_on_a_database};

/// Returns the resource name of a session in the tests' default project.
pub fn name(session: &str) -> String {
    format!("projects/p/sessions/{session}")
}

/// Asserts the code and the reason of an error. Returns its metadata.
#[track_caller]
pub fn refused(status: &Status, code: Code, reason: &str) -> HashMap<String, String> {
    let info = status.get_details_error_info();
    let info = info.unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"));
    assert_eq!(
        (status.code(), info.reason.as_str(), info.domain.as_str()),
        (code, reason, "palimpsest"),
        "{status:?}"
    );
    assert!(status.message().len() < 1_024, "{status:?}");
    info.metadata
}

/// Asserts that an error rejects exactly this field.
#[track_caller]
pub fn refused_field(status: &Status, field: &str) {
    refused(status, Code::InvalidArgument, "INVALID_FIELD");
    assert_eq!(fields(status), [field], "{status:?}");
}

/// Returns the field paths that an error names.
pub fn fields(status: &Status) -> Vec<String> {
    let details = status.get_details_bad_request();
    let violations = details.map(|details| details.field_violations);
    let violations = violations.unwrap_or_default().into_iter();
    violations.map(|violation| violation.field).collect()
}
