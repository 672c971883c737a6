//! Pages of a stored result, with notes that lead a model to the next page.

use std::ops::Range;

use crate::results::line_of;

/// The maximum length of the note about how to continue, in bytes.
pub const NOTE_BYTES: usize = 200;

/// Returns a part of a stored result, at most `max` bytes. A note at the end says how to read the rest.
pub fn page(text: &str, part: Range<usize>, max: usize) -> String {
    let wanted = &text[part.clone()];
    if wanted.len() <= max {
        return wanted.to_owned();
    }
    // The space for the note at the end is reserved within the limit.
    let end = wanted.floor_char_boundary(max.saturating_sub(NOTE_BYTES));
    // The cut is at the end of a line where possible. Inside a longer line, a line number would return the same page.
    let (end, rest) = match wanted[..end].rfind('\n') {
        Some(line) => {
            let (end, last) = (line + 1, line_of(text, part.end.saturating_sub(1)));
            let next = line_of(text, part.start + end);
            let lines = if part.end == text.len() {
                String::new()
            } else {
                format!(" and lines {}", last + 1 - next)
            };
            (end, format!("first_line {next}{lines}"))
        }
        None => (end, format!("offset {}", part.start + end)),
    };
    let (lines, bytes) = (text.lines().count(), text.len());
    format!(
        "{}\n[cut: {lines} lines, {bytes} bytes in all; ask again with {rest}]",
        &wanted[..end]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{ResultSelection, range};

    /// Follows the notes until the end, and returns the pages without them.
    fn read_on(text: &str, mut part: Range<usize>) -> String {
        let mut read = String::new();
        for _ in 0..100 {
            let answer = page(text, part.clone(), 1_000);
            assert!(answer.len() <= 1_000);
            let Some((shown, note)) = answer.rsplit_once("\n[cut: ") else {
                return read + &answer;
            };
            read.push_str(shown);
            let number = |name: &str| {
                let (_, rest) = note.split_once(name)?;
                rest.split([' ', ']']).next()?.parse::<u64>().ok()
            };
            let next = match number("offset ") {
                Some(offset) => ResultSelection::Bytes {
                    offset,
                    length: None,
                },
                None => ResultSelection::Lines {
                    first: number("first_line ").expect("a note names the next line"),
                    lines: number("and lines "),
                },
            };
            part = range(text, &next);
        }
        panic!("the notes never reach the end");
    }

    #[test]
    fn truncation_notes_lead_through_all_pages_of_a_result() {
        let lines = (0..2_000).fold(String::new(), |text, line| text + &format!("line {line}\n"));
        assert_eq!(read_on(&lines, 0..lines.len()), lines);
        // A model that asked for some lines gets these lines and no more.
        let some = ResultSelection::Lines {
            first: 10,
            lines: Some(500),
        };
        let some = range(&lines, &some);
        assert_eq!(read_on(&lines, some.clone()), lines[some]);
        // One line, of characters with three bytes, is longer than a page.
        let long = "\u{2713}".repeat(9_000);
        assert_eq!(read_on(&long, 0..long.len()), long);
        let mixed = format!("first\n{long}\nlast\n");
        assert_eq!(read_on(&mixed, 0..mixed.len()), mixed);
    }
}
