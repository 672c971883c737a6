//! Separation of a section's lines into managed lines, which this crate wrote and may rewrite, and
//! all others. The others belong to a person or a model and are never changed.

use super::text::outside_of_quotes;

/// A line that this crate manages. A line counts as managed only if writing the parsed value yields
/// the same bytes. An edit by a person therefore makes the line unmanaged.
pub(super) trait ManagedLine: Sized {
    /// Parses a line of this form.
    fn read(line: &str) -> Option<Self>;
    /// Writes the line.
    fn write(&self) -> String;
}

/// Removes the lines of one form from a body. Returns them and the remaining body.
pub(super) fn take<T: ManagedLine>(body: &str) -> (Vec<T>, String) {
    let mut ours = Vec::new();
    let mut theirs = String::with_capacity(body.len());
    // Blank lines next to removed lines are dropped, because they would accumulate.
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

/// Returns the text between `begin` and `end` if the text outside of quotes is a single sentence.
pub(super) fn between<'a>(line: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let inner = line.strip_prefix(begin)?.strip_suffix(end)?;
    let plain = outside_of_quotes(inner)?;
    (!plain.contains(". ") && !plain.contains("! ")).then_some(inner)
}

/// Returns the text of the only quote in a line of the form `begin“…”end`.
pub(super) fn quote_in<'a>(line: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let inner = line.strip_prefix(begin)?.strip_suffix(end)?;
    let inner = inner.strip_prefix('“')?.strip_suffix('”')?;
    (!inner.contains(['“', '”'])).then_some(inner)
}

/// Joins paragraphs with blank lines. Skips empty paragraphs.
pub(super) fn join(parts: impl IntoIterator<Item = String>) -> String {
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.collect::<Vec<_>>().join("\n\n")
}

/// The maximum number of names per line.
const MAX_NAMES: usize = 20;

/// Writes lines that start with `begin` and list names in backticks.
pub(super) fn write_names(begin: &str, names: &[&str]) -> Vec<String> {
    let lines = names.chunks(MAX_NAMES).map(|names| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        format!("{begin}{}.", names.join(", "))
    });
    lines.collect()
}

/// Parses the names of such a line.
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
