//! The paths of a session's files.

use palimpsest_core::ids::SessionKey;

use super::error::BlobError;
use crate::MAX_FILE_BYTES;

/// Returns the folder of a session. The trailing slash ensures that the path is not a prefix of another
/// session's path.
pub(super) fn session_dir(session: &SessionKey) -> String {
    format!("{}/{}/", session.project, session.session)
}

/// Returns the path of a tool result.
pub fn result_path(session: &SessionKey, file: &str) -> Result<String, BlobError> {
    check_name(file)?;
    Ok(format!("{}{file}", tool_results(session)))
}

pub(super) fn tool_results(session: &SessionKey) -> String {
    format!("{}tool-results/", session_dir(session))
}

/// Rejects a file name that is longer than the log allows, or with characters that are illegal in session names. The
/// legal ones are safe in paths and URLs.
pub(super) fn check_name(file: &str) -> Result<(), BlobError> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    // A leading dot would allow `.` and `..`, and hidden files.
    let begins = file.bytes().next().is_some_and(|b| b != b'.');
    if begins && file.len() <= MAX_FILE_BYTES && file.bytes().all(legal) {
        return Ok(());
    }
    Err(BlobError::Name(file.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_names_must_be_safe_path_segments() {
        assert!(check_name(&"f".repeat(MAX_FILE_BYTES)).is_ok());
        for bad in [
            &"f".repeat(MAX_FILE_BYTES + 1),
            "",
            ".",
            "..",
            ".f",
            "a/b",
            "a b",
            "\u{e4}",
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
