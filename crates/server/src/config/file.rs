//! Reads a TOML file into single settings with their lines.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::problem::{Origin, Problem};
use super::settings::{SETTINGS, Setting, by_key, did_you_mean};
use super::value::Raw;

/// A setting that a file gives.
pub(super) struct Given {
    pub(super) setting: &'static Setting,
    pub(super) raw: Raw,
    pub(super) origin: Origin,
}

/// Every setting that the text gives, and every mistake in it.
pub(super) fn read(path: &Path, text: &str) -> (Vec<Given>, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        path,
        text,
        given: Vec::new(),
        problems: Vec::new(),
    };
    if errors.is_empty() {
        reader.table("", table.get_ref());
    }
    // What the parser recovered from a broken file is a guess: only its syntax is reported.
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        reader.problem(at, None, format!("is not TOML: {}", error.message()));
    }
    (reader.given, reader.problems)
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    given: Vec<Given>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        // The parser's tables are sorted by name; people expect mistakes in the order of the file.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            self.entry(prefix, name, value);
        }
    }

    fn entry(&mut self, prefix: &str, name: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) {
        let key = match prefix {
            "" => name.get_ref().to_string(),
            _ => format!("{prefix}.{}", name.get_ref()),
        };
        let at = name.span().start;
        let is_section = SETTINGS.iter().any(|setting| {
            setting
                .key
                .strip_prefix(&key)
                .is_some_and(|rest| rest.starts_with('.'))
        });
        match (value.get_ref(), by_key(&key)) {
            (DeValue::Table(table), None) if is_section => self.table(&key, table),
            (value, Some(setting)) => {
                let origin = self.origin(at);
                self.given.push(Given {
                    setting,
                    raw: raw(value),
                    origin,
                });
            }
            (_, None) if is_section => {
                self.problem(at, None, format!("{key} is a section: write [{key}]"));
            }
            (_, None) => {
                let keys = SETTINGS.iter().map(|setting| setting.key.to_owned());
                let hint = did_you_mean(&key, keys);
                self.problem(at, None, format!("{key} is not a setting{hint}"));
            }
        }
    }

    fn origin(&self, at: usize) -> Origin {
        let before = self.text.get(..at).unwrap_or(self.text);
        Origin::File {
            path: self.path.to_owned(),
            line: 1 + before.matches('\n').count(),
        }
    }

    fn problem(&mut self, at: usize, key: Option<&'static str>, what: String) {
        let origin = self.origin(at);
        self.problems.push(Problem { origin, key, what });
    }
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::String(text.to_string()),
        DeValue::Boolean(truth) => Raw::Bool(*truth),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or(Raw::Other("integer that is too long"), Raw::Integer),
        other => Raw::Other(other.type_str()),
    }
}
