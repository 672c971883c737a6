//! Extraction of standing summary instructions from a text with a heading for them.

use crate::memory::{Fence, heading};

/// The headings of such instructions, in lower case.
const TITLES: [&str; 2] = ["compact instructions", "summary instructions"];
/// The maximum length in characters. Longer instructions are cut, because they would outgrow the
/// request.
const MAX_CHARS: usize = 4_000;

/// Returns the text under a heading `Compact Instructions` or `Summary instructions`, up to the next heading of the same
/// or a higher level. Returns `None` if there is no such text.
pub fn standing_instructions(text: &str) -> Option<String> {
    let mut found = String::new();
    let mut level = None;
    let mut fence = Fence::default();
    for line in text.lines() {
        let in_fence = fence.take(line);
        let title = heading(line).filter(|_| !in_fence);
        let depth = line
            .trim_start()
            .bytes()
            .take_while(|byte| *byte == b'#')
            .count();
        match (title, level) {
            (Some(title), _) if is_title(title) => level = Some(depth),
            (Some(_), Some(open)) if depth <= open => level = None,
            (_, Some(_)) => {
                found.push_str(line);
                found.push('\n');
            }
            (_, None) => {}
        }
    }
    let found = found.trim();
    (!found.is_empty()).then(|| found.chars().take(MAX_CHARS).collect())
}

fn is_title(heading: &str) -> bool {
    let heading = heading.trim_end_matches(':');
    TITLES
        .iter()
        .any(|title| heading.eq_ignore_ascii_case(title))
}
