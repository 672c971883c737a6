//! The names of a summary from structure that a model's summary leaves out.

use std::borrow::Cow;
use std::collections::HashSet;

use super::braces::{NameGroups, expand};
use super::scan::scan;

/// The beginning of the line with the names.
const LEAD: &str = "Names that the text above leaves out, the likeliest first: ";
/// The maximum length of all names, in characters.
const MAX_CHARS: usize = 1_500;

/// Returns a line with the names in the sources that the text does not contain, in their order. Returns `None` if it
/// contains all of them.
///
/// A model writes better sentences than the structure provides, and forgets more names.
pub fn omitted_names(sources: &[&str], text: &str) -> Option<String> {
    let text = with_paths(text);
    // A source has its names in backticks. The paths of each group must come before the next name.
    let parts = sources.iter().flat_map(|source| source.split('`'));
    let parts: Vec<Cow<'_, str>> = parts.map(with_paths).collect();
    let mut known: HashSet<&str> = HashSet::new();
    scan(&text, |_, name| {
        // The text may contain an absolute path and the sources a relative one, so every end of a path is known.
        let mut rest = Some(name);
        while let Some(name) = rest {
            known.insert(name);
            rest = name.split_once('/').map(|(_, below)| below);
        }
    });
    let mut groups = NameGroups::default();
    let mut left = MAX_CHARS;
    for part in &parts {
        scan(part, |_, name| {
            let place = groups.place(name);
            if place.chars <= left && known.insert(name) {
                left -= place.chars;
                groups.push(name, place);
            }
        });
    }
    (left < MAX_CHARS).then(|| format!("{LEAD}{}", groups.render()))
}

/// Returns a text with the paths of its brace notations.
fn with_paths(text: &str) -> Cow<'_, str> {
    expand(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_text_contains_are_left_out() {
        let source = "- `src/parse.rs`: edited\n- `src/lib.rs`: read\nOther names: `read_frame` · `headerLength`";
        let text = "I changed /work/app/src/parse.rs, and read_frame now checks the length.";
        assert_eq!(
            omitted_names(&[source, "`src/lib.rs` · `docs/format.md`"], text).unwrap(),
            "Names that the text above leaves out, the likeliest first: `src/lib.rs`, `headerLength`, `docs/format.md`"
        );
        assert_eq!(omitted_names(&[text], text), None);
    }

    #[test]
    fn the_paths_of_a_group_keep_their_place() {
        let source = "`src/{first.rs,second.rs}`, `docs/third.md`";
        assert_eq!(
            omitted_names(&[source], "").unwrap(),
            "Names that the text above leaves out, the likeliest first: `src/first.rs`, `src/second.rs`, `docs/third.md`"
        );
    }

    #[test]
    fn the_line_has_a_maximum_length() {
        let names: Vec<String> = (0..900).map(|n| format!("`lib/file_{n}.rs`")).collect();
        let line = omitted_names(&[&names.join(" ")], "").unwrap();
        assert!((1_000..2_000).contains(&line.len()), "{}", line.len());
    }
}
