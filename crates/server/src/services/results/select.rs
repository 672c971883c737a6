//! Which part of a text is asked for: bytes, lines, the beginning, the end, or what matches.

use std::ops::Range;

use regex::Regex;

use super::super::search_threads::{SearchBudget, SearchEnd};

/// Which part.
#[derive(Debug, Clone)]
pub(in crate::services) enum ResultSelection {
    /// All of it.
    All,
    /// A range of bytes; to the end when it has no length.
    Bytes { offset: u64, length: Option<u64> },
    /// A range of lines, the first being 1; to the end when there is no number of them.
    Lines { first: u64, lines: Option<u64> },
    /// So many lines at the end.
    Tail(u64),
    /// The lines that match, with so many around each.
    Search { pattern: Regex, context: usize },
}

/// A stretch of lines that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::services) struct Stretch {
    /// The number of its first line.
    pub(in crate::services) first_line: usize,
    /// The bytes.
    pub(in crate::services) range: Range<usize>,
    /// The numbers of the lines that match.
    pub(in crate::services) matching: Vec<usize>,
}

/// The bytes that a selection means, of every kind but a search. What lies past the end is empty.
pub(in crate::services) fn range(text: &str, selection: &ResultSelection) -> Range<usize> {
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

/// Where the line begins that so many others precede.
fn line_start(text: &str, lines: u64) -> usize {
    let Some(skipped) = usize::try_from(lines)
        .ok()
        .and_then(|lines| lines.checked_sub(1))
    else {
        return if lines == 0 { 0 } else { text.len() };
    };
    let mut ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    ends.nth(skipped).map_or(text.len(), |(end, _)| end + 1)
}

/// The number of the line in which a byte lies, from 1.
pub(in crate::services) fn line_of(text: &str, offset: usize) -> u64 {
    let before = &text.as_bytes()[..offset.min(text.len())];
    newlines(before) + 1
}

/// How many lines end in some bytes.
pub(super) fn newlines(bytes: &[u8]) -> u64 {
    bytes.split(|byte| *byte == b'\n').count() as u64 - 1
}

/// The stretches with matches from a line on, as far as `max_bytes` and the call's work go, and the line
/// with which the rest begins. Neighbours that touch are one.
pub(in crate::services) fn search(
    text: &str,
    pattern: &Regex,
    context: usize,
    (from_line, max_bytes): (u64, usize),
    work: &mut SearchBudget,
) -> Result<(Vec<Stretch>, Option<u64>), SearchEnd> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        lines.push(start..start + line.len());
        start += line.len();
    }
    let skip = usize::try_from(from_line.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut found: Vec<Stretch> = Vec::new();
    let mut bytes = 0;
    for (index, line) in lines.iter().enumerate().skip(skip) {
        let words = text[line.clone()].trim_end_matches('\n');
        match work.is_match(pattern, words) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(SearchEnd::TooMuch) if index > skip => return Ok((found, Some(index as u64 + 1))),
            Err(ended) => return Err(ended),
        }
        // What an earlier answer has shown is not shown again.
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
        if bytes + more > max_bytes && !found.is_empty() {
            return Ok((found, Some(index as u64 + 1)));
        }
        bytes += more;
        match found.last_mut() {
            Some(last) if touches => {
                last.range.end = last.range.end.max(range.end);
                last.matching.push(index + 1);
            }
            _ => found.push(Stretch {
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
    fn parts_are_cut_where_they_should_be_and_never_past_the_end() {
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
    fn matches_come_with_their_neighbours_and_go_on_where_they_were_cut() {
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
