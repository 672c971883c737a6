//! The difference of two texts of session memory, section by section.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use palimpsest_proto::context::v1::SessionMemory;
use similar::{ChangeTag, TextDiff};

use crate::escapes;

/// A section that differs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SectionChange {
    title: String,
    /// The removed and the added lines, with their sign.
    lines: Vec<(char, String)>,
}

impl SectionChange {
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Returns the heading and the lines, in color. Control characters in the lines are escaped.
    pub(super) fn styled(&self) -> String {
        let mut out = format!("# {}\n", self.title);
        for (sign, line) in &self.lines {
            let color = if *sign == '-' {
                AnsiColor::Red
            } else {
                AnsiColor::Green
            };
            let style = Style::new().fg_color(Some(color.into()));
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{style}{sign} {}{style:#}", escapes::line(line));
        }
        out.push('\n');
        out
    }
}

/// Returns the sections that differ, in the order of the file.
pub(super) fn changes(before: &SessionMemory, after: &SessionMemory) -> Vec<SectionChange> {
    let body = |memory: &SessionMemory, title: &str| {
        let found = memory
            .sections
            .iter()
            .find(|section| section.title == title);
        found.map_or_else(String::new, |section| section.body.clone())
    };
    // A memory without a text has no sections.
    let named = if after.sections.is_empty() {
        before
    } else {
        after
    };
    let titles = named.sections.iter().map(|section| &section.title);
    let changes = titles.map(|title| SectionChange {
        title: title.clone(),
        lines: changed_lines(&body(before, title), &body(after, title)),
    });
    changes.filter(|change| !change.lines.is_empty()).collect()
}

fn changed_lines(before: &str, after: &str) -> Vec<(char, String)> {
    let diff = TextDiff::from_lines(before, after);
    let lines = diff.iter_all_changes().filter_map(|change| {
        let sign = match change.tag() {
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
            ChangeTag::Equal => return None,
        };
        Some((sign, change.value().trim_end_matches('\n').to_owned()))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use palimpsest_proto::context::v1::MemorySection;

    use super::*;

    fn memory(bodies: [&str; 2]) -> SessionMemory {
        let section = |title: &str, body: &str| MemorySection {
            title: title.to_owned(),
            body: body.to_owned(),
            ..MemorySection::default()
        };
        SessionMemory {
            sections: vec![
                section("Learnings", bodies[0]),
                section("Worklog", bodies[1]),
            ],
            ..SessionMemory::default()
        }
    }

    #[test]
    fn only_sections_and_lines_that_differ_are_shown_and_content_is_escaped() {
        let before = memory(["a\nb\nc", "same"]);
        let after = memory(["a\n\u{1b}[31mB\nc", "same"]);
        let changes = changes(&before, &after);
        assert_eq!(changes.len(), 1);
        let plain = anstream::adapter::strip_str(&changes[0].styled()).to_string();
        assert_eq!(plain, "# Learnings\n- b\n+ \\u{1b}[31mB\n\n");
    }

    #[test]
    fn a_first_text_consists_of_added_lines() {
        let changes = changes(&SessionMemory::default(), &memory(["a", ""]));
        let lines = vec![('+', "a".to_owned())];
        assert_eq!(
            changes,
            [SectionChange {
                title: "Learnings".into(),
                lines
            }]
        );
    }
}
