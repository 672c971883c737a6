//! The lines of a section, told apart: those that this module has written in a form of its own, and
//! may write anew, and all others, which are a person's or a model's and stay as they are.

use super::text::outside_of_quotes;

/// A line of ours, read back. A form is a line of ours only if writing it again gives the same bytes:
/// whatever a person has changed about it makes it theirs.
pub(super) trait ManagedLine: Sized {
    /// Reads a line that has this form.
    fn read(line: &str) -> Option<Self>;
    /// Writes it.
    fn write(&self) -> String;
}

/// Takes the lines of one form out of a body; gives them, and the body that is left.
pub(super) fn take<T: ManagedLine>(body: &str) -> (Vec<T>, String) {
    let mut ours = Vec::new();
    let mut theirs = String::with_capacity(body.len());
    // The blank lines that a line of ours leaves behind would add up.
    let mut gap = true;
    for line in body.lines() {
        match T::read(line).filter(|read| read.write() == line) {
            Some(read) => {
                ours.push(read);
                gap = true;
            }
            None if gap && line.trim().is_empty() => {}
            None => {
                theirs.push_str(line);
                theirs.push('\n');
                gap = false;
            }
        }
    }
    theirs.truncate(theirs.trim_end().len());
    (ours, theirs)
}

/// What stands between `begin` and `end` of a line, when what is outside of its quotes is one sentence.
pub(super) fn between<'a>(line: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let inner = line.strip_prefix(begin)?.strip_suffix(end)?;
    let plain = outside_of_quotes(inner)?;
    (!plain.contains(". ") && !plain.contains("! ")).then_some(inner)
}

/// What a line has in its only quotes: `begin“…”end`.
pub(super) fn quote_in<'a>(line: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let inner = line.strip_prefix(begin)?.strip_suffix(end)?;
    let inner = inner.strip_prefix('“')?.strip_suffix('”')?;
    (!inner.contains(['“', '”'])).then_some(inner)
}

/// Paragraphs, one after another, without blank ones.
pub(super) fn join(parts: impl IntoIterator<Item = String>) -> String {
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.collect::<Vec<_>>().join("\n\n")
}

/// Names between backticks, as many to a line as a reader takes in.
const MAX_NAMES: usize = 20;

/// Lines that name several things: `begin` and then each name in backticks.
pub(super) fn write_names(begin: &str, names: &[&str]) -> Vec<String> {
    let lines = names.chunks(MAX_NAMES).map(|names| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        format!("{begin}{}.", names.join(", "))
    });
    lines.collect()
}

/// The names in such a line.
pub(super) fn read_names(line: &str, begin: &str) -> Option<Vec<String>> {
    let names = line
        .strip_prefix(begin)?
        .strip_prefix('`')?
        .strip_suffix("`.")?;
    let names: Vec<String> = names.split("`, `").map(Into::into).collect();
    names
        .iter()
        .all(|name| !name.is_empty() && !name.contains('`'))
        .then_some(names)
}
