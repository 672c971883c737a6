//! Standing instructions for summaries, which people write under a heading of their own.

use crate::memory::{Fence, heading};

const TITLE: &str = "compact instructions";
/// Longer instructions would outgrow the request that they belong to.
const MAX_CHARS: usize = 4_000;

/// What stands under a heading `Compact Instructions` in a text, up to the next heading that is as high.
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
            (Some(title), _) if title.trim_end_matches(':').eq_ignore_ascii_case(TITLE) => {
                level = Some(depth);
            }
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
