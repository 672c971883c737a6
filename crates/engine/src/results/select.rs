//! The selection of a part of a text: bytes, lines, the beginning, the end, or matches of a search.

use std::ops::Range;

use regex::Regex;

use crate::search_threads::{SearchBudget, SearchEnd};

/// A part of a text.
#[derive(Debug, Clone)]
pub enum ResultSelection {
    /// The whole text.
    All,
    /// A range of bytes. Without a length it extends to the end.
    Bytes {
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes.
        length: Option<u64>,
    },
    /// A range of lines, starting at 1. Without a count it extends to the end.
    Lines {
        /// The number of the first line.
        first: u64,
        /// The number of lines.
        lines: Option<u64>,
    },
    /// The last lines, up to this number.
    Tail(u64),
    /// The lines that match, with `context` lines before and after each.
    Search {
        /// The pattern.
        pattern: Regex,
        /// The number of context lines on each side.
        context: usize,
    },
}

/// A range of adjacent lines with matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchingLines {
    /// The number of the first line, starting at 1.
    pub first_line: usize,
    /// The byte range in the text.
    pub range: Range<usize>,
    /// The numbers of the matching lines.
    pub matching: Vec<usize>,
}

/// Returns the byte range of a selection. A search selects the whole text. A selection past the end is empty.
pub fn range(text: &str, selection: &ResultSelection) -> Range<usize> {
    let len = text.len();
    let at = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).min(len);
    match selection {
        ResultSelection::All | ResultSelection::Search { .. } => 0..len,
        ResultSelection::Bytes { offset, length } => {
            let end = length.map_or(len, |length| at(offset.saturating_add(length)));
            at(*offset)..end.max(at(*offset))
        }
        ResultSelection::Lines { first, lines } => {
            let start = line_start(text, first.saturating_sub(1));
            let end = lines.map_or(len, |lines| start + line_start(&text[start..], lines));
            start..end
        }
        ResultSelection::Tail(lines) => {
            let all = text.lines().count() as u64;
            line_start(text, all.saturating_sub(*lines))..len
        }
    }
}

/// Returns the offset of the line that follows `lines` lines.
fn line_start(text: &str, lines: u64) -> usize {
    let Some(skipped) = usize::try_from(lines)
        .ok()
        .and_then(|lines| lines.checked_sub(1))
    else {
        // A number that does not fit is beyond the end of every text.
        return if lines == 0 { 0 } else { text.len() };
    };
    let mut ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    ends.nth(skipped).map_or(text.len(), |(end, _)| end + 1)
}

/// Returns the line number of a byte, starting at 1.
pub fn line_of(text: &str, offset: usize) -> u64 {
    let before = &text.as_bytes()[..offset.min(text.len())];
    newlines(before) + 1
}

/// Returns the number of line breaks.
pub fn newlines(bytes: &[u8]) -> u64 {
    // A split returns at least one part, so the difference is never negative.
    bytes.split(|byte| *byte == b'\n').count() as u64 - 1
}

/// Returns the ranges with matches, starting at a line, within `max_bytes` and the call's work limit. Also returns
/// the line at which the next page continues. Ranges that touch are merged.
pub fn search(
    text: &str,
    pattern: &Regex,
    context: usize,
    (from_line, max_bytes): (u64, usize),
    work: &mut SearchBudget,
) -> Result<(Vec<MatchingLines>, Option<u64>), SearchEnd> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        lines.push(start..start + line.len());
        start += line.len();
    }
    let skip = usize::try_from(from_line.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut found: Vec<MatchingLines> = Vec::new();
    let mut bytes = 0;
    for (index, line) in lines.iter().enumerate().skip(skip) {
        let words = text[line.clone()].trim_end_matches('\n');
        match work.is_match(pattern, words) {
            Ok(true) => {}
            Ok(false) => continue,
            // A spent budget ends the page before this line, unless it is the first, where another page would not
            // progress.
            Err(SearchEnd::TooMuch) if index > skip => return Ok((found, Some(index as u64 + 1))),
            Err(ended) => return Err(ended),
        }
        // Context lines that an earlier page contained are not repeated.
        let first = index.saturating_sub(context).max(skip);
        let last = (index + context).min(lines.len() - 1);
        let range = lines[first].start..lines[last].end;
        let touches = found
            .last()
            .is_some_and(|last| range.start <= last.range.end);
        let more = match found.last() {
            Some(last) if touches => range.end - last.range.end.min(range.end),
            _ => range.len(),
        };
        // The first range is returned whatever its size. Otherwise the next page would begin at the same line.
        if bytes + more > max_bytes && !found.is_empty() {
            return Ok((found, Some(index as u64 + 1)));
        }
        bytes += more;
        match found.last_mut() {
            Some(last) if touches => {
                last.range.end = last.range.end.max(range.end);
                last.matching.push(index + 1);
            }
            _ => found.push(MatchingLines {
                first_line: first + 1,
                range,
                matching: vec![index + 1],
            }),
        }
    }
    Ok((found, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "one\ntwo\nthree\nfour\nfive";

    fn part(selection: &ResultSelection) -> &'static str {
        &TEXT[range(TEXT, selection)]
    }

    #[test]
    fn selections_return_exact_parts_and_stop_at_the_end() {
        let lines = |first, lines| ResultSelection::Lines { first, lines };
        assert_eq!(part(&lines(2, Some(2))), "two\nthree\n");
        assert_eq!(part(&lines(5, None)), "five");
        assert_eq!(part(&lines(9, Some(2))), "");
        assert_eq!(part(&lines(1, Some(0))), "");
        assert_eq!(part(&ResultSelection::Tail(2)), "four\nfive");
        assert_eq!(part(&ResultSelection::Tail(99)), TEXT);
        let bytes = |offset, length| ResultSelection::Bytes { offset, length };
        assert_eq!(part(&bytes(4, Some(3))), "two");
        assert_eq!(part(&bytes(99, Some(3))), "");
        assert_eq!(part(&bytes(u64::MAX, Some(u64::MAX))), "");
        assert_eq!(part(&bytes(19, None)), "five");
        assert_eq!(part(&ResultSelection::All), TEXT);
        assert_eq!(
            (line_of(TEXT, 0), line_of(TEXT, 8), line_of(TEXT, 999)),
            (1, 3, 5)
        );
    }

    #[test]
    fn matches_include_context_and_continue_after_a_cut() {
        let pattern = Regex::new("^t|five").unwrap();
        let found_in = |text, pattern: &Regex, context, from, max| {
            search(
                text,
                pattern,
                context,
                (from, max),
                &mut SearchBudget::default(),
            )
            .unwrap()
        };
        let (found, next) = found_in(TEXT, &pattern, 0, 1, 1_000);
        let lines: Vec<_> = found
            .iter()
            .map(|f| (f.first_line, f.matching.clone()))
            .collect();
        assert_eq!(lines, [(2, vec![2, 3]), (5, vec![5])]);
        assert_eq!(next, None);
        let (found, _) = found_in(TEXT, &pattern, 1, 1, 1_000);
        assert_eq!(found.len(), 1);
        assert_eq!(&TEXT[found[0].range.clone()], TEXT);
        let (found, next) = found_in(TEXT, &pattern, 0, 1, 5);
        assert_eq!((found.len(), next), (1, Some(3)));
        let (found, next) = found_in(TEXT, &pattern, 0, 3, 5);
        assert_eq!((found[0].first_line, next), (3, Some(5)));
        assert_eq!(found_in("", &pattern, 3, 1, 5), (vec![], None));
    }
}
