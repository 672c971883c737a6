//! Redaction of secrets in text: a pure function with linear run time.
//!
//! The rules are part of this crate. The maintained rule set `kingfisher-rules` 3.0.1 requires Rust
//! 1.99 and includes the licence CC-BY-SA-4.0. This workspace builds with Rust 1.95, and `deny.toml`
//! does not allow that licence.
//!
//! `vendors` contains the key formats that issuers publish, and `patterns` those identified by a
//! name or position. Both form one alternation of the `regex` crate, which runs in linear time for
//! any input. `pem` detects private keys and `kubernetes` detects Secrets. A removed secret is
//! replaced by `[redacted: kind]`.
//!
//! Published key formats are recognized anywhere. Other secrets are recognized only in a context
//! that identifies them (`password=`, `"api_key": "…"`, `://user:…@`). Bare hashes, UUIDs and base64
//! remain.

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

/// A text without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redacted<'a> {
    /// The text. Borrowed if nothing was removed.
    pub text: Cow<'a, str>,
    /// The number of removed secrets.
    pub count: usize,
}

/// The maximum number of pattern passes. A removal can reveal another secret only if two overlap, so
/// the second pass rarely finds any. The limit keeps the run time linear.
const PASSES: usize = 4;

/// Redacts the secrets in a text. The function is idempotent.
pub fn redact(text: &str) -> Redacted<'_> {
    let mut text = Cow::Borrowed(text);
    let mut count = 0;
    // Private keys are removed first, because a part of one may match another pattern.
    let without_keys = replace_spans(&text, &pem::spans(&text), pem::KIND);
    take(&mut text, &mut count, without_keys);
    if kubernetes::is_possible(&text) {
        let without_values = replace_spans(&text, &kubernetes::in_yaml(&text), kubernetes::KIND);
        take(&mut text, &mut count, without_values);
        // Each escape level needs its own scan, because the quotes of other levels are content
        // there.
        for escapes in kubernetes::JSON_ESCAPES {
            let values = kubernetes::in_json(&text, escapes);
            let without_values = replace_spans(&text, &values, kubernetes::KIND);
            take(&mut text, &mut count, without_values);
        }
    }
    for infix in INFIXES {
        let spans = infix_spans(&text, infix);
        let without_these = replace_spans(&text, &spans, infix.kind);
        take(&mut text, &mut count, without_these);
    }
    for _ in 0..PASSES {
        let next = redact_once(&text);
        if next.is_none() {
            break;
        }
        take(&mut text, &mut count, next);
    }
    Redacted { text, count }
}

/// Replaces the text by one with fewer secrets.
fn take(text: &mut Cow<'_, str>, count: &mut usize, next: Option<(String, usize)>) {
    if let Some((next, more)) = next {
        *text = Cow::Owned(next);
        *count += more;
    }
}

/// Returns the text with a placeholder for each span. Returns `None` if there are no spans.
fn replace_spans(text: &str, spans: &[Range<usize>], kind: &str) -> Option<(String, usize)> {
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

/// Returns the tokens of a form that is identified by its middle part.
fn infix_spans(text: &str, infix: &patterns::Infix) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for (at, _) in text.match_indices(infix.words) {
        let least = spans.last().map_or(0, |span| span.end);
        if at >= least {
            spans.extend(infix.around(text, at, least));
        }
    }
    spans
}

/// Runs all patterns over the text once. Returns `None` if nothing was found.
fn redact_once(text: &str) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut count = 0;
    let (mut copied, mut from) = (0, 0);
    while let Some((pattern, start, end)) = next_secret(text, &mut from) {
        out.push_str(&text[copied..start]);
        // Writing to a string cannot fail.
        let _ = write!(out, "[redacted: {}]", pattern.kind);
        (copied, from) = (end, end);
        count += 1;
    }
    out.push_str(&text[copied..]);
    (count > 0).then_some((out, count))
}

/// Returns the next secret at or after `from`. A rejected candidate is skipped only up to its start,
/// because another secret may begin inside it. The inspected length is bounded, so the run time
/// stays linear.
fn next_secret(text: &str, from: &mut usize) -> Option<(&'static Pattern, usize, usize)> {
    while let Some(captures) = ALL.captures_at(text, *from) {
        let (pattern, start, end) = secret(&captures)?;
        if let Some(end) = pattern.end(text, start, end) {
            return Some((pattern, start, end));
        }
        let beginning = captures.get(0).map_or(start, |all| all.start() + 1);
        let skipped = if pattern.is_guess() { beginning } else { start };
        // At least one byte is skipped. A rejected match at `from` would otherwise be found forever.
        *from = text.ceil_char_boundary(skipped.max(*from + 1));
    }
    None
}

/// Returns all patterns, the most specific first.
fn rules() -> impl Iterator<Item = &'static Pattern> {
    VENDORS.iter().chain(PATTERNS)
}

/// Returns the pattern that matched and the range of its group. Each pattern has exactly one group.
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
