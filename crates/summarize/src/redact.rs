//! Takes secrets out of text: a pure function, linear in the text.
//!
//! The rules are here. A set of rules that others maintain, `kingfisher-rules` 3.0.1, states Rust 1.99 as its
//! minimum and the licences Apache-2.0, MIT and CC-BY-SA-4.0; this workspace builds with Rust 1.95, and
//! `deny.toml` does not allow the last of them.
//!
//! `vendors` has the forms that issuers publish, `patterns` what a name or a place says, both in one alternation
//! of the `regex` crate, whose time is linear whatever the input; `pem` walks over private keys, `kubernetes`
//! over Secrets. What is taken out leaves `[redacted: kind]`.
//!
//! Known forms of keys are recognised wherever they stand. Other secrets only where something says that
//! they are one (`password=`, `"api_key": "…"`, `://user:…@`): bare hashes, UUIDs and base64 stay.

mod kubernetes;
mod patterns;
mod pem;
mod vendors;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use patterns::{PATTERNS, Pattern};
use vendors::{INFIXES, VENDORS};

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
    let mut text = Cow::Borrowed(text);
    let mut count = 0;
    // Keys of many lines first: a part of one may look like something else.
    let without_keys = without(&text, &pem::spans(&text), pem::KIND);
    take(&mut text, &mut count, without_keys);
    if kubernetes::is_possible(&text) {
        let without_values = without(&text, &kubernetes::in_yaml(&text), kubernetes::KIND);
        take(&mut text, &mut count, without_values);
        for escapes in kubernetes::JSON_ESCAPES {
            let values = kubernetes::in_json(&text, escapes);
            let without_values = without(&text, &values, kubernetes::KIND);
            take(&mut text, &mut count, without_values);
        }
    }
    for infix in INFIXES {
        let spans = around(&text, infix);
        let without_these = without(&text, &spans, infix.kind);
        take(&mut text, &mut count, without_these);
    }
    for _ in 0..PASSES {
        let next = pass(&text);
        if next.is_none() {
            break;
        }
        take(&mut text, &mut count, next);
    }
    Redacted { text, count }
}

/// Puts a text with fewer secrets in the place of the one before.
fn take(text: &mut Cow<'_, str>, count: &mut usize, next: Option<(String, usize)>) {
    if let Some((next, more)) = next {
        *text = Cow::Owned(next);
        *count += more;
    }
}

/// A text with a placeholder for each span; `None` when there is none.
fn without(text: &str, spans: &[Range<usize>], kind: &str) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut copied = 0;
    for span in spans {
        out.push_str(&text[copied..span.start]);
        // Writing to a string cannot fail.
        let _ = write!(out, "[redacted: {kind}]");
        copied = span.end;
    }
    out.push_str(&text[copied..]);
    (!spans.is_empty()).then_some((out, spans.len()))
}

/// The tokens of a form that is known by its middle.
fn around(text: &str, infix: &patterns::Infix) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for (at, _) in text.match_indices(infix.words) {
        let least = spans.last().map_or(0, |span| span.end);
        if at >= least {
            spans.extend(infix.around(text, at, least));
        }
    }
    spans
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
        let beginning = captures.get(0).map_or(start, |all| all.start() + 1);
        let skipped = if pattern.is_guess() { beginning } else { start };
        *from = text.ceil_char_boundary(skipped.max(*from + 1));
    }
    None
}

/// Every pattern, the surest first.
fn rules() -> impl Iterator<Item = &'static Pattern> {
    VENDORS.iter().chain(PATTERNS)
}

/// Each pattern has one group: what is to go.
fn secret(captures: &Captures<'_>) -> Option<(&'static Pattern, usize, usize)> {
    rules()
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
    let all: Vec<String> = rules()
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
