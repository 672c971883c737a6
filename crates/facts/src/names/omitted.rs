//! The names of a summary from structure that a model's summary leaves out.

use std::collections::HashSet;

use super::scan::scan;

/// The beginning of the line with the names.
const LEAD: &str = "Names that the text above leaves out, the likeliest first: ";
/// The maximum length of all names, in characters.
const MAX_CHARS: usize = 1_500;
const SEPARATOR: &str = " · ";

/// Returns a line with the names in the sources that the text does not contain, in their order. Returns `None` if it
/// contains all of them.
///
/// A model writes better sentences than the structure provides, and forgets more names.
pub fn omitted_names(sources: &[&str], text: &str) -> Option<String> {
    let mut known: HashSet<&str> = HashSet::new();
    scan(text, |_, name| {
        // The text may contain an absolute path and the sources a relative one, so every end of a path is known.
        let mut rest = Some(name);
        while let Some(name) = rest {
            known.insert(name);
            rest = name.split_once('/').map(|(_, below)| below);
        }
    });
    let mut line = String::new();
    let mut left = MAX_CHARS;
    for source in sources {
        scan(source, |_, name| {
            let chars = name.chars().count() + SEPARATOR.len();
            if chars <= left && known.insert(name) {
                left -= chars;
                line.push_str(if line.is_empty() { LEAD } else { SEPARATOR });
                line.push('`');
                line.push_str(name);
                line.push('`');
            }
        });
    }
    (!line.is_empty()).then_some(line)
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
            "Names that the text above leaves out, the likeliest first: `src/lib.rs` · `headerLength` · `docs/format.md`"
        );
        assert_eq!(omitted_names(&[text], text), None);
    }

    #[test]
    fn the_line_has_a_maximum_length() {
        let names: Vec<String> = (0..900).map(|n| format!("`lib/file_{n}.rs`")).collect();
        let line = omitted_names(&[&names.join(" ")], "").unwrap();
        assert!((1_000..2_000).contains(&line.len()), "{}", line.len());
    }
}
