//! The paths of a session's files.

use std::fmt::Write as _;

use palimpsest_core::ids::SessionKey;

use super::error::BlobError;

/// Ends with a slash, so that it is no other session's prefix.
pub(super) fn session_dir(session: &SessionKey) -> String {
    format!("{}/{}/", session.project, session.session)
}

/// Where a tool result is, by the name of its file.
pub fn result_path(session: &SessionKey, file: &str) -> Result<String, BlobError> {
    check_name(file)?;
    Ok(format!("{}{file}", tool_results(session)))
}

pub(super) fn tool_results(session: &SessionKey) -> String {
    format!("{}tool-results/", session_dir(session))
}

/// The same letters that a session's name may have: they are safe in a path and a URL alike.
pub(super) fn check_name(call: &str) -> Result<(), BlobError> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let begins = call.bytes().next().is_some_and(|b| b != b'.');
    if begins && call.len() <= 128 && call.bytes().all(legal) {
        return Ok(());
    }
    Err(BlobError::Name(call.to_owned()))
}

/// The text of a digest.
pub fn hex(digest: &[u8]) -> String {
    let mut out = String::with_capacity(digest.len() * 2);
    for byte in digest {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}
