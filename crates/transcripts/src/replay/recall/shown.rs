//! The search for a name in a text.

use super::needs::{Name, NeedKind, is_word};

/// Returns true if a text contains a name.
pub(super) fn shows(text: &str, name: &Name, root: Option<&str>) -> bool {
    last_mention(text, name, root).is_some()
}

/// Returns the position of the last mention of a name.
pub(super) fn last_mention(text: &str, name: &Name, root: Option<&str>) -> Option<usize> {
    let mut until = text.len();
    loop {
        let at = text[..until].rfind(&*name.text)?;
        let (before, after) = (&text[..at], &text[at + name.text.len()..]);
        let is_it = match name.kind {
            NeedKind::Identifier => !before.ends_with(is_word) && !after.starts_with(is_word),
            NeedKind::Path | NeedKind::CommandFile => {
                begins_path(before, name, root) && ends_path(after)
            }
        };
        if is_it {
            return Some(at);
        }
        // The next match must end before this one does.
        let last = name.text.chars().next_back().map_or(1, char::len_utf8);
        until = at + name.text.len() - last;
    }
}

/// Returns true if a path can begin after a text.
fn begins_path(before: &str, name: &Name, root: Option<&str>) -> bool {
    if !before.ends_with(|c| is_in_path(c) || c == '/') {
        return true;
    }
    let Some(folder) = before.strip_suffix('/') else {
        return false;
    };
    // A path from an unknown folder may continue any other one. A complete path continues the root only.
    !name.is_complete || folder.ends_with('.') || root.is_some_and(|root| folder.ends_with(root))
}

/// Returns true if a path can end before a text. A file in a named folder names the folder too.
fn ends_path(after: &str) -> bool {
    let mut rest = after.chars();
    match rest.next() {
        // The full stop of a sentence.
        Some('.') => !rest.next().is_some_and(is_in_path),
        Some(next) => !is_in_path(next),
        None => true,
    }
}

fn is_in_path(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: NeedKind, text: &str, is_complete: bool) -> Name {
        Name {
            kind,
            text: text.into(),
            is_complete,
        }
    }

    #[test]
    fn an_identifier_is_a_whole_word() {
        let name = name(NeedKind::Identifier, "read_frame", true);
        for text in [
            "read_frame",
            "a read_frame(",
            "`read_frame`.",
            "read_frames read_frame",
        ] {
            assert!(shows(text, &name, None), "{text}");
        }
        for text in ["", "read_frames", "xread_frame", "read_frame2", "read"] {
            assert!(!shows(text, &name, None), "{text}");
        }
    }

    #[test]
    fn a_complete_path_is_not_the_end_of_another_one() {
        let path = name(NeedKind::Path, "src/a.rs", true);
        let root = Some("/work/app");
        for text in [
            "in src/a.rs.",
            "`src/a.rs`",
            "/work/app/src/a.rs:12",
            "./src/a.rs",
        ] {
            assert!(shows(text, &path, root), "{text}");
        }
        for text in [
            "src/a.rs.bak",
            "core/src/a.rs",
            "/other/app/src/a.rs",
            "xsrc/a.rs",
        ] {
            assert!(!shows(text, &path, root), "{text}");
        }
        let incomplete = name(NeedKind::CommandFile, "src/a.rs", false);
        assert!(shows("core/src/a.rs", &incomplete, root));
        assert!(!shows("xsrc/a.rs", &incomplete, root));
    }

    #[test]
    fn a_folder_is_named_by_a_file_in_it() {
        let folder = name(NeedKind::Path, "crates/core", true);
        assert!(shows("crates/core/src/lib.rs", &folder, None));
        assert!(!shows("crates/core-api/src/lib.rs", &folder, None));
    }

    #[test]
    fn the_last_mention_is_found() {
        let name = name(NeedKind::Identifier, "ab_ab", true);
        assert_eq!(last_mention("ab_ab, ab_ab_ab", &name, None), Some(0));
        assert_eq!(last_mention("é ab_ab", &name, None), Some(3));
    }
}
