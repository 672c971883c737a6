//! Takes secrets out of text: a pure function, linear in the text.
//!
//! The crates that scan for secrets are programs with rule files, or wrap values that are already known
//! to be secret (`secrecy`, `redact`); none gives a maintained set of rules as a library. So the rules
//! are here (`patterns`), in one alternation of the `regex` crate, whose time is linear whatever the
//! input. What is taken out leaves `[redacted: kind]`.
//!
//! Known forms of keys are recognised wherever they stand. Other secrets only where something says that
//! they are one (`password=`, `"api_key": "…"`, `://user:…@`): bare hashes, UUIDs and base64 stay.

mod patterns;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use patterns::{PATTERNS, Pattern};

/// A text without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redacted<'a> {
    /// The text; borrowed when there was nothing to take out.
    pub text: Cow<'a, str>,
    /// How many secrets were taken out.
    pub count: usize,
}

/// Taking a secret out can only bring another to light where two run into each other, so the second
/// pass nearly always finds nothing. The limit keeps the time linear.
const PASSES: usize = 4;

/// Takes secrets out of a text. Doing it again changes nothing.
pub fn redact(text: &str) -> Redacted<'_> {
    let Some((mut text, mut count)) = pass(text) else {
        return Redacted {
            text: Cow::Borrowed(text),
            count: 0,
        };
    };
    for _ in 1..PASSES {
        let Some((next, more)) = pass(&text) else {
            break;
        };
        text = next;
        count += more;
    }
    Redacted {
        text: Cow::Owned(text),
        count,
    }
}

/// One walk over the text; `None` when there was nothing.
fn pass(text: &str) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut count = 0;
    let (mut copied, mut from) = (0, 0);
    while let Some((pattern, start, end)) = next(text, &mut from) {
        out.push_str(&text[copied..start]);
        // Writing to a string cannot fail.
        let _ = write!(out, "[redacted: {}]", pattern.kind);
        (copied, from) = (end, end);
        count += 1;
    }
    out.push_str(&text[copied..]);
    (count > 0).then_some((out, count))
}

/// The next secret at or after `from`. A candidate that turns out to be none is stepped over only as far
/// as its own start, because a real one may stand within it. It was looked at for a bounded length, so
/// this stays linear.
fn next(text: &str, from: &mut usize) -> Option<(&'static Pattern, usize, usize)> {
    while let Some(captures) = ALL.captures_at(text, *from) {
        let (pattern, start, end) = secret(&captures)?;
        if let Some(end) = pattern.end(text, start, end) {
            return Some((pattern, start, end));
        }
        *from = start.max(text.ceil_char_boundary(*from + 1));
    }
    None
}

/// Each pattern has one group: what is to go.
fn secret(captures: &Captures<'_>) -> Option<(&'static Pattern, usize, usize)> {
    PATTERNS
        .iter()
        .zip(captures.iter().skip(1))
        .find_map(|(pattern, group)| {
            let group = group?;
            Some((pattern, group.start(), group.end()))
        })
}

#[expect(
    clippy::expect_used,
    reason = "the patterns are constants, and every test compiles them"
)]
static ALL: LazyLock<Regex> = LazyLock::new(|| {
    let all: Vec<String> = PATTERNS
        .iter()
        .map(|pattern| format!("(?:{})", pattern.regex))
        .collect();
    regex::RegexBuilder::new(&all.join("|"))
        .size_limit(64 * 1024 * 1024)
        .dfa_size_limit(16 * 1024 * 1024)
        .build()
        .expect("the patterns are constants")
});

#[cfg(test)]
mod tests;
