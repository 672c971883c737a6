//! Escapes of control characters in stored content.
//!
//! Messages, titles, paths, file names and error texts can contain any character. Control characters make a terminal
//! set the clipboard, forge links, clear the screen or overwrite earlier lines. Every command prints through `output`,
//! which replaces control characters by visible escapes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};

/// Escapes text of several lines. Line breaks and tabs stay.
pub(super) fn lines(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| is_active(c) && !matches!(c, '\n' | '\t'),
        escape_rust,
    )
}

/// Escapes text of one line. Line breaks are escaped too, so that content cannot forge a line of output.
pub(super) fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_active, escape_rust)
}

/// Escapes a JSON or TOML document. An escape in a string means the same character, so the document keeps its meaning.
pub(super) fn document(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| is_active(c) && !matches!(c, '\n' | '\t'),
        escape_json,
    )
}

/// Escapes text of several lines that this program coloured. Only sequences for colour and weight stay.
pub(super) fn styled(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return lines(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        let (before, from) = rest.split_at(at);
        out.push_str(&lines(before));
        let len = style_len(from);
        if len == 0 {
            escape_rust(&mut out, '\u{1b}');
            // The escape character is one byte. The text after it is searched for further sequences.
            rest = &from[1..];
        } else {
            out.push_str(&from[..len]);
            rest = &from[len..];
        }
    }
    out.push_str(&lines(rest));
    Cow::Owned(out)
}

/// Returns the length of the colour sequence (`ESC [ 1;31 m`) at the start of a text, or 0.
fn style_len(text: &str) -> usize {
    let Some(inner) = text.strip_prefix("\u{1b}[") else {
        return 0;
    };
    // Other sequences, such as `ESC [ 2 J`, end with another letter. They move the cursor or clear the screen.
    let end = inner.find(|c: char| !(c.is_ascii_digit() || c == ';'));
    end.filter(|end| inner[*end..].starts_with('m'))
        .map_or(0, |end| "\u{1b}[".len() + end + 1)
}

/// Returns true if a terminal interprets the character instead of showing it: C0, DEL and C1 controls, Unicode line
/// breaks, and characters that reorder text.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
        )
}

fn escaped(text: &str, active: fn(char) -> bool, escape: fn(&mut String, char)) -> Cow<'_, str> {
    let Some(first) = text.find(active) else {
        return Cow::Borrowed(text);
    };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..first]);
    for c in text[first..].chars() {
        if active(c) {
            escape(&mut out, c);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Writes a character as a Rust escape, such as `\u{1b}` or `\r`.
fn escape_rust(out: &mut String, c: char) {
    out.extend(c.escape_default());
}

/// Writes a character as a JSON escape, such as `\u001b`. Active characters are in the basic multilingual plane, so one
/// escape is enough.
fn escape_json(out: &mut String, c: char) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\u{:04x}", u32::from(c));
}

/// Standard output for a document in chunks: unchanged to files and pipes, escaped on a terminal.
pub(super) struct TerminalDocument {
    out: io::Stdout,
    escapes: bool,
    /// The first bytes of a character that continues in the next chunk.
    partial: Vec<u8>,
}

impl TerminalDocument {
    pub(super) fn stdout() -> Self {
        let out = io::stdout();
        Self {
            escapes: out.is_terminal(),
            out,
            partial: Vec::new(),
        }
    }
}

impl Write for TerminalDocument {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Files and pipes get the exact bytes, so that an export can be imported again.
        if !self.escapes {
            return self.out.write(bytes);
        }
        self.partial.extend_from_slice(bytes);
        // A chunk can end within a character. Its first bytes wait for the next chunk.
        let complete = match std::str::from_utf8(&self.partial) {
            Ok(_) => self.partial.len(),
            // Invalid bytes are shown as replacement characters.
            Err(error) if error.error_len().is_some() => self.partial.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8_lossy(&self.partial[..complete]);
        self.out.write_all(document(&text).as_bytes())?;
        self.partial.drain(..complete);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_and_bidi_characters_are_escaped() {
        let cases = [
            ("\u{1b}]52;c;aGk=\u{7}", r"\u{1b}]52;c;aGk=\u{7}"),
            ("\u{1b}]8;;http://x\u{1b}\\y", r"\u{1b}]8;;http://x\u{1b}\y"),
            ("\u{9b}2J", r"\u{9b}2J"),
            ("a\rb\u{8}\u{7f}", r"a\rb\u{8}\u{7f}"),
            ("\u{202e}fdp\u{2066}", r"\u{202e}fdp\u{2066}"),
            ("a\u{2028}b", r"a\u{2028}b"),
        ];
        for (hostile, shown) in cases {
            assert_eq!(line(hostile), shown);
            assert_eq!(lines(hostile), shown);
            assert_eq!(styled(hostile), shown);
        }
        assert_eq!(line("a\nb\tc"), r"a\nb\tc");
        assert_eq!(lines("a\nb\tc"), "a\nb\tc");
        // The zero-width joiner in the emoji is no control character, so it stays.
        let plain = "naïve 日本語 👩\u{200d}💻 ─ ┊ é\n";
        assert!(matches!(lines(plain), Cow::Borrowed(same) if same == plain));
    }

    #[test]
    fn an_escaped_json_document_parses_to_the_same_value() {
        let text = "{\"a\": \"\u{9b}2J\u{202e}\u{7f}\",\n\t\"b\": 1}";
        let shown = document(text);
        assert!(
            !shown
                .chars()
                .any(|c| is_active(c) && c != '\n' && c != '\t')
        );
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&shown), value(text));
    }

    #[test]
    fn styled_text_escapes_all_sequences_except_colors() {
        let text = "\u{1b}[1;31mred\u{1b}[0m \u{1b}[2J \u{1b}[31";
        let shown = "\u{1b}[1;31mred\u{1b}[0m \\u{1b}[2J \\u{1b}[31";
        assert_eq!(styled(text), shown);
    }

    #[test]
    fn a_character_split_between_writes_is_buffered_until_complete() {
        let mut document = TerminalDocument {
            out: io::stdout(),
            escapes: true,
            partial: Vec::new(),
        };
        let bytes = "é".as_bytes();
        assert_eq!(document.write(&bytes[..1]).unwrap(), 1);
        assert_eq!(document.partial, bytes[..1]);
        assert_eq!(document.write(&bytes[1..]).unwrap(), 1);
        assert!(document.partial.is_empty());
    }
}
