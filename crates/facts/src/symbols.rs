//! Extraction of function and type names from code, and of titles from documents.

use super::text::label;

/// Keywords that precede a defined name.
const DEFINING: [&str; 22] = [
    "fn", "struct", "enum", "trait", "union", "mod", "macro_rules!", "class", "interface", "def",
    "defmodule", "defp", "func", "function", "function*", "type", "object", "module", "protocol",
    "fun", "record", "impl",
];

/// Modifiers that may precede these keywords.
const MODIFIERS: [&str; 25] = [
    "pub", "pub(crate)", "pub(super)", "async", "unsafe", "extern", "const", "static", "export",
    "default", "declare", "abstract", "public", "private", "protected", "internal", "final",
    "override", "open", "data", "sealed", "virtual", "inline", "partial", "suspend",
];

const MAX_NAME: usize = 60;
/// The maximum number of inspected lines. The beginning of a large file is sufficient.
const MAX_LINES: usize = 4_000;

/// Adds the names that a piece of code defines, without duplicates, up to `max` names.
pub(super) fn defined_in(code: &str, max: usize, found: &mut Vec<Box<str>>) {
    for line in code.lines().take(MAX_LINES) {
        if found.len() >= max {
            return;
        }
        if let Some(name) = defined_by(line)
            && !found.iter().any(|known| **known == *name)
        {
            found.push(name.into());
        }
    }
}

fn defined_by(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().peekable();
    while words.next_if(|word| MODIFIERS.contains(word)).is_some() {}
    let keyword = words.next()?;
    let keyword = if keyword.starts_with("impl<") {
        "impl"
    } else {
        keyword
    };
    if !DEFINING.contains(&keyword) {
        return constant(line);
    }
    let mut rest = words.next()?;
    // A Go method has its receiver before its name. `impl Trait for Type` belongs to the type.
    if keyword == "func" && rest.starts_with('(') {
        rest = line.split_once(") ")?.1;
    }
    if keyword == "impl" {
        rest = line.split_once(" for ").map_or(rest, |(_, of)| of);
        rest = rest.trim_start_matches('<');
    }
    let name = if keyword == "defmodule" {
        rest.trim_end_matches(',')
    } else {
        identifier(rest)
    };
    let is_name = name.len() > 1 && name.len() <= MAX_NAME && !name.as_bytes()[0].is_ascii_digit();
    // Words such as `type` and `object` also begin sentences. A definition continues with a
    // punctuation mark.
    let after = line.split_once(name)?.1.trim_start();
    let is_code = !matches!(
        keyword,
        "type" | "object" | "module" | "record" | "open" | "fun"
    ) || after.is_empty()
        || after.starts_with(['=', '{', '<', '(', ':'])
        || (keyword == "type" && (after.starts_with("struct") || after.starts_with("interface")));
    (is_name && is_code).then_some(name)
}

/// Returns the name of a function that is defined as a constant: `export const name = (…) => …`.
fn constant(line: &str) -> Option<&str> {
    // Indented lines are local to a function and are ignored.
    let rest = line.strip_prefix("export ").unwrap_or(line);
    let rest = rest.strip_prefix("const ")?;
    let name = identifier(rest);
    let value = rest.split_once('=')?.1;
    let is_function = value.contains("=>") || value.trim_start().starts_with("function");
    (is_function && name.len() > 1 && name.len() <= MAX_NAME).then_some(name)
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'));
    &text[..end.unwrap_or(text.len())]
}

/// Returns the titles of a document in a tool's output, with or without line numbers.
pub(super) fn titles_in(shown: &str, max: usize) -> Vec<Box<str>> {
    let mut titles: Vec<Box<str>> = Vec::new();
    for line in shown.lines().take(MAX_LINES) {
        // Tools that read files print line numbers, as in `     3→## Set up`.
        let line = line
            .trim_start()
            .trim_start_matches(|c: char| c.is_ascii_digit());
        let line = line.trim_start_matches(['→', '\t', ':', '|']);
        if let Some(title) =
            palimpsest_types::memory::heading(line).filter(|title| !title.is_empty())
        {
            let title: Box<str> = label(title, MAX_NAME).into();
            if !titles.contains(&title) {
                titles.push(title);
            }
        }
        if titles.len() >= max {
            break;
        }
    }
    titles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_found_in_several_languages() {
        let code = "pub(crate) fn one(x: u8) {\nimpl<T> Fold for Two<T> {\nfunc (s *Store) Three() {\n\
            export const four = async () => {\nexport type Five = {\n    def six(self):\n\
            type of thing\nclass Seven(Base):\nconst MAX = 3;\nfor one in\nexport default function eight() {";
        let mut found = Vec::new();
        defined_in(code, 20, &mut found);
        let found: Vec<&str> = found.iter().map(|name| &**name).collect();
        assert_eq!(
            found,
            [
                "one", "Two", "Three", "four", "Five", "six", "Seven", "eight"
            ]
        );
    }

    #[test]
    fn titles_are_found_after_line_numbers() {
        let shown = "     1→# Guide\n     2→\n     3→## Set up ##\ntext";
        assert_eq!(titles_in(shown, 9), ["Guide".into(), Box::from("Set up")]);
    }
}
