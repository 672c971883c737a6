//! The parts that importers of files with one entry per line share: the loop, the defects, and the counts of lines
//! without a message.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::imported::{ImportDefect, Imported, ImportedSession, lines};

/// An importer of a file with one entry per line.
pub(super) trait LineReader<'a>: Default {
    /// Reads a line. The error describes a defect of the line.
    fn line(&mut self, number: usize, text: &'a str) -> Result<(), String>;

    /// Returns the remarks about the lines so far.
    fn remarks(&mut self) -> &mut Remarks;

    /// Returns the content of the file.
    fn finish(self) -> Imported<'a>;
}

/// Reads all lines of a file.
pub(super) fn read_lines<'a, R: LineReader<'a>>(bytes: &'a [u8]) -> Imported<'a> {
    let mut reader = R::default();
    for (number, line) in lines(bytes) {
        let text = std::str::from_utf8(line).map_err(|_| "is not UTF-8".to_owned());
        if let Err(problem) = text.and_then(|text| reader.line(number, text)) {
            reader.remarks().defect(number, problem);
        }
    }
    reader.finish()
}

/// Parses a line or a part of it. The error describes the defect without text of the file.
pub(super) fn parse_line<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| {
        if error.is_data() {
            "is JSON, but not a line of this format".to_owned()
        } else {
            format!("is not JSON (column {})", error.column())
        }
    })
}

/// The defects of a file, and its lines without a message.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    defects: Vec<ImportDefect>,
    /// The number of lines without a message, by type.
    skipped: BTreeMap<String, usize>,
}

impl Remarks {
    /// Adds a defect of a line.
    pub(super) fn defect(&mut self, line: usize, problem: impl Into<String>) {
        self.defects.push(ImportDefect {
            line,
            problem: problem.into(),
        });
    }

    /// Counts a line without a message.
    pub(super) fn skip(&mut self, kind: &str) {
        let kind = if kind.is_empty() {
            "without a type"
        } else {
            kind
        };
        *self.skipped.entry(kind.to_owned()).or_default() += 1;
    }

    /// Returns the content of the file. Sessions without steps are left out.
    pub(super) fn with_sessions<'a>(
        self,
        sessions: impl IntoIterator<Item = ImportedSession<'a>>,
    ) -> Imported<'a> {
        let sessions = sessions.into_iter();
        Imported {
            sessions: sessions
                .filter(|session| !session.steps.is_empty())
                .collect(),
            defects: self.defects,
            skipped: self.skipped.into_iter().collect(),
            ..Imported::default()
        }
    }
}
