//! The search for names in a text.

use crate::memory::fact::NameKind;

/// The lengths of names in bytes.
const MIN_LENGTH: usize = 5;
const MIN_FILE: usize = 4;
const MAX_IDENTIFIER: usize = 64;
const MAX_PATH: usize = 160;
const MAX_EXTENSION: usize = 5;
/// The maximum number of digits in an identifier. Names with more are ids and hashes.
const MAX_DIGITS: usize = 4;

/// Folders of files that other programs manage.
const MANAGED_FOLDERS: [&str; 8] = [
    "node_modules/", ".git/", "target/", "__pycache__/", ".venv/", "site-packages/", "dist/",
    ".cache/",
];

/// The kinds of bytes in tokens, as bits. Zero ends a token.
const SMALL: u8 = 1;
const CAPITAL: u8 = 2;
const DIGIT: u8 = 4;
const UNDERSCORE: u8 = 8;
const JOINT: u8 = 16;
const SLASH: u8 = 32;
/// The kind of each byte. A table, because the search visits every byte of a conversation.
const KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        kinds[byte as usize] = match byte {
            b'a'..=b'z' => SMALL,
            b'A'..=b'Z' => CAPITAL,
            b'0'..=b'9' => DIGIT,
            b'_' => UNDERSCORE,
            // A tilde is the home directory at the beginning of a path.
            b'.' | b'-' | b'~' => JOINT,
            b'/' => SLASH,
            _ => 0,
        };
        byte += 1;
    }
    kinds
};

/// Calls `take` for every name in a text.
pub(super) fn scan<'a>(text: &'a str, mut take: impl FnMut(NameKind, &'a str)) {
    let bytes = text.as_bytes();
    let kind_at = |at: usize| bytes.get(at).map_or(0, |byte| KINDS[usize::from(*byte)]);
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let (mut kinds, mut has_capital_after_small, mut before) = (0, false, 0);
        loop {
            let kind = kind_at(at);
            if kind == 0 {
                break;
            }
            kinds |= kind;
            has_capital_after_small |= kind == CAPITAL && before == SMALL;
            before = kind;
            at += 1;
        }
        // Only ASCII bytes are in tokens, so the ranges of texts are valid.
        if kinds & SLASH != 0 {
            if let Some(path) = path_of(&text[start..at], &text[..start]) {
                take(NameKind::Path, path);
            }
        } else if has_capital_after_small || kinds & UNDERSCORE != 0 {
            let parts = text[start..at].split(['.', '-', '~']);
            parts
                .filter(|part| is_identifier(part))
                .for_each(|part| take(NameKind::Identifier, part));
        }
        at += 1;
    }
}

/// Returns the path in a token.
fn path_of<'a>(token: &'a str, before: &str) -> Option<&'a str> {
    let token = token.trim_end_matches(['.', '-', '/']);
    if !(MIN_LENGTH..=MAX_PATH).contains(&token.len())
        // The rest of an address such as `https://a.org/b.html`. The colon ends a token.
        || token.starts_with("//")
        // The rest of `host:/src/c.rs` or `<folder>/src/c.rs`.
        || before.ends_with([':', '>']) && token.starts_with('/')
        // An import names a file relative to the file of the text.
        || before.ends_with(['\'', '"']) && token.starts_with("./")
        // The rest of a pattern or of a path with a variable.
        || before.ends_with(['*', '$', '}', '{'])
    {
        return None;
    }
    let mut path = token.strip_prefix("./").unwrap_or(token);
    // Git marks the two sides of a diff with `a/` and `b/`, which are no folders.
    if let Some(file) = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/"))
        && ["--- ", "+++ ", "diff --git "]
            .iter()
            .any(|mark| before.ends_with(mark))
    {
        path = file;
    }
    let (folder, file) = path.rsplit_once('/')?;
    let (stem, extension) = file.rsplit_once('.')?;
    // A number such as the one in `1.2/3.4` is no extension.
    let is_extension = (1..=MAX_EXTENSION).contains(&extension.len())
        && extension.as_bytes()[0].is_ascii_alphabetic()
        && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_managed = MANAGED_FOLDERS.iter().any(|name| path.contains(name));
    let is_plain = !folder.is_empty()
        && !folder.contains("//")
        && !folder.contains("..")
        && !path.strip_prefix("~/").unwrap_or(path).contains('~');
    (is_extension && !stem.is_empty() && is_plain && !is_managed).then_some(path)
}

/// Returns true if a text that is known to be a path can be a name.
pub(super) fn is_file(path: &str) -> bool {
    let is_plain = |byte: &u8| KINDS[usize::from(*byte)] != 0 || matches!(byte, b'@' | b'+');
    (MIN_FILE..=MAX_PATH).contains(&path.len())
        && path.as_bytes().iter().all(is_plain)
        && path.bytes().filter(u8::is_ascii_alphabetic).count() > 1
        && !path.contains("..")
        && !MANAGED_FOLDERS.iter().any(|name| path.contains(name))
}

/// Returns true if a text contains a path that is no part of a longer name. A path in a folder names the folder too.
pub(super) fn is_named(text: &str, path: &str) -> bool {
    let is_in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    text.match_indices(path).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + path.len()..]);
        let mut after = after.chars();
        let ends = match after.next() {
            // The full stop of a sentence.
            Some('.') => !after.next().is_some_and(is_in_name),
            Some(next) => !is_in_name(next),
            None => true,
        };
        ends && !before.ends_with(|c| is_in_name(c) || matches!(c, '.' | '/'))
    })
}

/// Returns true if a word is the name of something in a program: with an inner underscore, or with a capital letter
/// after a small one.
fn is_identifier(word: &str) -> bool {
    let inner = word.trim_matches('_');
    let bytes = inner.as_bytes();
    if !(MIN_LENGTH..=MAX_IDENTIFIER).contains(&bytes.len()) || bytes[0].is_ascii_digit() {
        return false;
    }
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    let mut pairs = bytes.windows(2);
    digits <= MAX_DIGITS
        && pairs.any(|pair| {
            pair[1] == b'_' || (pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(NameKind, &str)> {
        let mut found = Vec::new();
        scan(text, |kind, name| {
            found.push((kind, name));
        });
        found
    }

    use NameKind::{Identifier, Path};

    #[test]
    fn paths_have_a_folder_and_an_extension() {
        let text = "/work/app/src/main.rs:12: and ./lib/a.ts, b.rs\n+++ b/src/x.go\nhttps://a.org/b/c.html";
        let expected = [
            (Path, "/work/app/src/main.rs"),
            (Path, "lib/a.ts"),
            (Path, "src/x.go"),
        ];
        assert_eq!(names(text), expected);
        assert_eq!(names("node_modules/a/b.js src/a src/../b.rs 1.2/3.4"), []);
        assert_eq!(names("In src/lib.rs."), [(Path, "src/lib.rs")]);
        assert_eq!(names("import { a } from './lib/a.js';"), []);
        assert_eq!(names("~/.app/a.toml"), [(Path, "~/.app/a.toml")]);
        let parts = "${dir}/src/a.rs **/src/b.rs <folder>/src/c.rs $HOME/d.rs /e.rs src/f.rs~";
        assert_eq!(names(parts), []);
    }

    #[test]
    fn identifiers_have_a_joint_and_few_digits() {
        let text = "func parseHeader(readFrame, value) // SOME_NAME é x_y toolu_0123456789";
        let expected = [
            (Identifier, "parseHeader"),
            (Identifier, "readFrame"),
            (Identifier, "SOME_NAME"),
        ];
        assert_eq!(names(text), expected);
    }
}
