//! The last line of `summary.md`, the mark. It names the version of the file and proves that the file was not edited.
//!
//! The log contains the texts of its own versions only. After a failover or a restored backup it lacks later
//! versions, whose text would be mistaken for an edit without the mark. The mark is an HTML comment, which Markdown
//! renderers hide. It is not part of the text in the log.

use std::fmt::Write as _;

use bytes::Bytes;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::text_digest;

const BEGIN: &str = "<!-- palimpsest: version ";
const END: &str = " -->";

/// A file and the result of checking its mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MarkedFile {
    /// The text without the mark.
    pub(crate) text: Bytes,
    /// The version that the service wrote, or `None` if the file was edited.
    pub(crate) version: Option<u64>,
}

/// Renders the file of a version.
pub(crate) fn render_file(
    session: &SessionKey,
    version: u64,
    source: Revision,
    text: &str,
) -> Bytes {
    let mut file = text.to_owned();
    // The mark must be a line of its own.
    if !file.ends_with('\n') {
        file.push('\n');
    }
    let digest = digest(session, version, source, file.as_bytes());
    // Writing to a string cannot fail.
    let _ = writeln!(file, "{BEGIN}{version}, revision {source}, {digest}{END}");
    file.into()
}

/// Checks and removes the mark of a file. In an edited file the mark may be at any line or missing.
pub(crate) fn read(session: &SessionKey, file: &Bytes) -> MarkedFile {
    let text = String::from_utf8_lossy(file);
    if let Some((body, version, source, digest)) = last_mark(&text)
        && digest == self::digest(session, version, source, body.as_bytes())
    {
        return MarkedFile {
            text: file.slice(..body.len()),
            version: Some(version),
        };
    }
    MarkedFile {
        text: if text.contains(BEGIN) {
            Bytes::from(without_marks(&text))
        } else {
            file.clone()
        },
        version: None,
    }
}

/// Parses a mark at the end of a text. Returns the text before it, the version, the revision and the digest.
fn last_mark(text: &str) -> Option<(&str, u64, Revision, &str)> {
    // Some editors add a line break at the end of a file, which is no edit.
    let line = text.trim_ascii_end();
    let at = line.rfind('\n').map_or(0, |before| before + 1);
    let (version, rest) = mark_content(&line[at..])?.split_once(", revision ")?;
    let (source, digest) = rest.split_once(", ")?;
    let source = Revision::new(source.parse().ok()?);
    Some((&text[..at], version.parse().ok()?, source, digest))
}

fn mark_content(line: &str) -> Option<&str> {
    line.trim().strip_prefix(BEGIN)?.strip_suffix(END)
}

fn without_marks(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.filter(|line| mark_content(line).is_none()).collect()
}

/// The digest covers the session name, so a file that was copied from another session counts as an edit.
fn digest(session: &SessionKey, version: u64, source: Revision, body: &[u8]) -> String {
    let mut whole = format!("{session}\n{version}\n{source}\n").into_bytes();
    whole.extend_from_slice(body);
    let mut out = String::new();
    for byte in text_digest(&whole) {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SessionKey {
        SessionKey::parse(&format!("projects/p/sessions/{name}")).unwrap()
    }

    fn file(text: &str) -> String {
        let file = render_file(&key("s"), 7, Revision::new(90), text);
        String::from_utf8(file.to_vec()).unwrap()
    }

    /// Asserts the text and the version that are read from a file.
    #[track_caller]
    fn check(file: &str, text: &str, version: Option<u64>) {
        let read = read(&key("s"), &Bytes::from(file.to_owned()));
        assert_eq!((&*read.text, read.version), (text.as_bytes(), version));
    }

    #[test]
    fn an_unedited_summary_file_is_recognized_without_the_log() {
        for text in ["# Task\nMend it.\n", "no break at its end", "", "\n\n"] {
            let ended = if text.ends_with('\n') {
                text.to_owned()
            } else {
                format!("{text}\n")
            };
            check(&file(text), &ended, Some(7));
            // Some editors add a line break at the end of a file.
            check(&format!("{}\n", file(text)), &ended, Some(7));
        }
    }

    #[test]
    fn an_edited_summary_file_is_read_without_its_version_mark() {
        let file = file("# Task\nMend it.\n");
        check(&file.replace("Mend", "Leave"), "# Task\nLeave it.\n", None);
        check(
            &format!("{file}And this.\n"),
            "# Task\nMend it.\nAnd this.\n",
            None,
        );
        check(
            &file.replace("version 7", "version 8"),
            "# Task\nMend it.\n",
            None,
        );
        check("# Task\nMend it.\n", "# Task\nMend it.\n", None);
        check("<!-- a note -->\n", "<!-- a note -->\n", None);
        check("", "", None);
    }

    #[test]
    fn a_file_of_another_session_counts_as_edited() {
        let read = read(&key("other"), &Bytes::from(file("# Task\nMend it.\n")));
        assert_eq!(
            (&*read.text, read.version),
            (&b"# Task\nMend it.\n"[..], None)
        );
    }
}
