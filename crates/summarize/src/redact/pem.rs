//! Detection of private keys as text: PEM, OpenSSH, PGP, SSH2 and `PuTTY`.
//!
//! A transcript can contain a key in many forms: indented, quoted, with line numbers or with CRLF.
//! It can also be a JSON string (also nested), be on one line, be split into program strings, or be
//! cut off at either end. A block is therefore parsed as long runs of base64 with arbitrary
//! separators.

use std::ops::Range;

/// The kind in the placeholder.
pub(super) const KIND: &str = "private key";

/// The words that both the first and the last line of a block contain.
const WORDS: &str = "PRIVATE KEY";
/// The maximum length of a marker line in bytes.
const MARKER: usize = 96;
/// The maximum length of a block that is removed whole, in bytes. A 16,384-bit key has about 13 KB.
const WHOLE: usize = 32 * 1024;
/// The minimum length of a base64 run within a key, in bytes. The last line of a key may be shorter.
const RUN: usize = 24;

const PUTTY_LINES: &str = "Private-Lines:";
const PUTTY_MAC: &str = "Private-MAC:";

/// Returns the ranges of all private keys, in order and without overlaps.
pub(super) fn spans(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let (mut keys, mut putties) = (
        Occurrences::of(text, WORDS),
        Occurrences::of(text, PUTTY_LINES),
    );
    let mut from = 0;
    loop {
        let (at, is_putty) = match (keys.next_from(from), putties.next_from(from)) {
            (Some(key), Some(putty)) if putty < key => (putty, true),
            (Some(key), _) => (key, false),
            (None, Some(putty)) => (putty, true),
            (None, None) => return spans,
        };
        let span = if is_putty {
            putty(text, at)
        } else {
            block(text, at, from)
        };
        from = span.as_ref().map_or(at + 1, |span| span.end);
        spans.extend(span);
    }
}

/// An iterator over the positions of a word. Each part of the text is searched only once, which
/// keeps the total time linear.
struct Occurrences<'t> {
    text: &'t str,
    words: &'static str,
    next: Option<usize>,
}

impl<'t> Occurrences<'t> {
    fn of(text: &'t str, words: &'static str) -> Self {
        let next = text.find(words);
        Self { text, words, next }
    }

    fn next_from(&mut self, from: usize) -> Option<usize> {
        if self.next? < from {
            let from = self.text.ceil_char_boundary(from);
            let found = self.text[from..].find(self.words);
            self.next = found.map(|at| from + at);
        }
        self.next
    }
}

/// A first or last line of a block: words between dashes.
struct PemBoundary {
    range: Range<usize>,
    begins: bool,
}

/// Returns the marker around the words at `at`: `-----BEGIN RSA PRIVATE KEY-----`, `---- END SSH2
/// ENCRYPTED PRIVATE KEY ----` or `-----BEGIN PGP PRIVATE KEY BLOCK-----`.
fn pem_boundary(text: &str, at: usize, least: usize) -> Option<PemBoundary> {
    let bytes = text.as_bytes();
    let before = &bytes[at.saturating_sub(MARKER).max(least)..at];
    let word = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b' ';
    let words = before.iter().rev().take_while(|byte| word(byte)).count();
    let dashes = before[..before.len() - words].iter().rev();
    let dashes = dashes.take_while(|byte| **byte == b'-').count();
    let label = text[at - words..at].trim_start();
    let begins = label.starts_with("BEGIN ");
    // PEM has five dashes, SSH2 four.
    if dashes < 4 || !(begins || label.starts_with("END ")) {
        return None;
    }
    let mut end = at + WORDS.len();
    let rest = &text[end..];
    let after = rest.strip_prefix(" BLOCK").unwrap_or(rest);
    let after = after
        .strip_prefix(' ')
        .filter(|it| it.starts_with("--"))
        .unwrap_or(after);
    let closing = after.bytes().take_while(|byte| *byte == b'-').count();
    if closing >= 4 {
        end = text.len() - after.len() + closing;
    } else if !after.trim_start_matches('-').is_empty() {
        // Text after the words without closing dashes is an ordinary sentence. Only a text that ends
        // here can be a cut marker.
        return None;
    } else {
        end = text.len();
    }
    Some(PemBoundary {
        range: at - words - dashes..end,
        begins,
    })
}

fn block(text: &str, at: usize, least: usize) -> Option<Range<usize>> {
    let marker = pem_boundary(text, at, least)?;
    if !marker.begins {
        // The beginning of the key was cut off. The base64 lines before the end marker belong to the
        // key.
        let start = material_before(text, marker.range.start, least);
        return (start < marker.range.start).then_some(start..marker.range.end);
    }
    let begin = marker.range.end;
    let near = &text[begin..text.floor_char_boundary(begin + WHOLE)];
    let mut from = 0;
    // A second begin marker shows that the first key was cut off. Its end is then found by the form of the lines.
    while let Some(found) = near[from..].find(WORDS) {
        let end = pem_boundary(text, begin + from + found, begin);
        match end {
            Some(end) if end.begins => break,
            Some(end) => return Some(marker.range.start..end.range.end),
            None => from += found + WORDS.len(),
        }
    }
    Some(marker.range.start..material_after(text, begin))
}

/// Returns the length of a separator between two lines of a key. A separator consists of white space,
/// line breaks and their escapes, quotes, comment and concatenation symbols, and line numbers.
fn separator(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let step = match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b'`' | b',' | b'>' | b'|' | b'#'
            | b'*' | b';' | b'(' | b')' | b':' => 1,
            b'+' | b'-'
                if matches!(
                    rest.get(1),
                    Some(b' ' | b'"' | b'\'' | b'\r' | b'\n' | b'\\')
                ) =>
            {
                1
            }
            // A diff prefixes lines with `+` or `-`. A single plus sign is also base64, so both
            // readings are accepted.
            b'+' | b'-' if at > 0 && bytes[at - 1] == b'\n' => 1,
            // Each level of nested JSON multiplies the backslashes of a line break.
            b'\\' => {
                1 + rest[1..]
                    .iter()
                    .take(8)
                    .take_while(|byte| **byte == b'\\')
                    .count()
            }
            b'n' | b'r' | b't' if at > 0 && bytes[at - 1] == b'\\' => 1,
            b'<' if rest.starts_with(b"<br>") || rest.starts_with(b"<br/>") => {
                rest.iter().position(|byte| *byte == b'>').unwrap_or(0) + 1
            }
            b'0'..=b'9' if at == 0 || !bytes[at - 1].is_ascii_alphanumeric() => numbered(text, at),
            // Both characters, the arrow and the bar of numbered listings, have three bytes in UTF-8.
            _ if text[at..].starts_with('→') || text[at..].starts_with('│') => 3,
            _ => 0,
        };
        if step == 0 {
            break;
        }
        at += step;
    }
    at
}

/// Returns the length of a line number: up to six digits before a tab, space, arrow, bar or colon.
fn numbered(text: &str, at: usize) -> usize {
    let digits = text[at..].bytes().take_while(u8::is_ascii_digit).count();
    let rest = &text[at + digits..];
    let ends = rest.starts_with(['\t', ' ', '→', '│', ':', '|']);
    if digits <= 6 && ends { digits } else { 0 }
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

fn base64_run(text: &str) -> usize {
    text.bytes().take_while(|byte| is_base64(*byte)).count()
}

/// Returns the end of the key material after `from`: headers followed by base64 runs.
fn material_after(text: &str, from: usize) -> usize {
    let (mut at, mut end) = (from, from);
    loop {
        at += separator(&text[at..]);
        let rest = &text[at..];
        let len = base64_run(rest);
        let header = header(rest);
        if header > 0 {
            at += header;
            end = at;
        } else if len >= RUN || (len > 0 && end > from && at + len == text.len()) {
            at += len;
            end = at;
        } else if len > 0 && end > from && is_last(rest, len) {
            return at + len;
        } else {
            break;
        }
    }
    end
}

/// Returns true if a short run is the last line of a key: the run is padded, or no sentence
/// continues after it.
fn is_last(text: &str, len: usize) -> bool {
    let padded = text[..len].ends_with('=');
    let after = text[len..].bytes().next();
    let mixed = text[..len].bytes().any(|byte| byte.is_ascii_digit())
        && text[..len].bytes().any(|byte| byte.is_ascii_uppercase());
    padded
        || (mixed && after.is_none_or(|byte| matches!(byte, b'\r' | b'\n' | b'"' | b'\\' | b'\'')))
}

/// Returns the length of a header inside a key, such as `Proc-Type: 4,ENCRYPTED`, `DEK-Info: …` or
/// `Comment: …`.
fn header(text: &str) -> usize {
    let name = text
        .bytes()
        .take(24)
        .take_while(|byte| byte.is_ascii_alphabetic() || *byte == b'-')
        .count();
    if name < 2 || !text[name..].starts_with(": ") {
        return 0;
    }
    let line = &text[..text.floor_char_boundary(name + 110)];
    line.find(['\n', '\r', '\\', '"']).unwrap_or(0)
}

/// Returns the start of the key material before `to`.
fn material_before(text: &str, to: usize, least: usize) -> usize {
    let bytes = text.as_bytes();
    let least = least.max(to.saturating_sub(WHOLE));
    let mut start = to;
    let mut at = to;
    loop {
        // Escapes cannot be parsed backwards, so the scan looks for complete lines.
        let gap = bytes[least..at]
            .iter()
            .rev()
            .take(32)
            .take_while(|byte| {
                !is_base64(**byte) && !byte.is_ascii_control()
                    || **byte == b'\r'
                    || **byte == b'\n'
                    || **byte == b'\t'
            })
            .count();
        let mut line_end = at - gap;
        // The `n` of an escaped line break is a base64 character too.
        if line_end > least + 1 && bytes[line_end - 1] == b'n' && bytes[line_end - 2] == b'\\' {
            line_end -= 2;
            while line_end > least && bytes[line_end - 1] == b'\\' {
                line_end -= 1;
            }
        }
        let len = bytes[least..line_end]
            .iter()
            .rev()
            .take_while(|byte| is_base64(**byte))
            .count();
        let mut from = line_end - len;
        // The letter of an escape before the line is not part of the line.
        if from > least && bytes[from - 1] == b'\\' && bytes.get(from) == Some(&b'n') {
            from += 1;
        }
        let is_first = start == to;
        let run = &bytes[from.min(line_end)..line_end];
        if run.len() >= RUN || (is_first && run.ends_with(b"=")) {
            start = from;
            at = from;
        } else if !is_first && (1..=6).contains(&run.len()) && run.iter().all(u8::is_ascii_digit) {
            // A line number is skipped.
            at = from;
        } else {
            return start;
        }
    }
}

/// Returns the private part of a `PuTTY` key: the lines after `Private-Lines` and the MAC.
fn putty(text: &str, at: usize) -> Option<Range<usize>> {
    let start = at + PUTTY_LINES.len();
    let count = text[start..].bytes().take(8);
    let count = count
        .take_while(|byte| byte.is_ascii_digit() || *byte == b' ')
        .count();
    let begin = start + count;
    let mut end = material_after(text, begin);
    let rest = &text[end..];
    let gap = separator(rest);
    if rest[gap..].starts_with(PUTTY_MAC) {
        // The extra byte is the space before the MAC. A text that is cut off here can end without it.
        end += gap + PUTTY_MAC.len() + 1;
        end = text.ceil_char_boundary(end.min(text.len()));
        end += base64_run(&text[end..]);
    }
    (end > begin).then_some(at..end)
}
