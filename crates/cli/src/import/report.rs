//! The report of an import, for people and programs.

use std::path::Path;

use palimpsest_proto::context::v1::{AppendOutcome, AppendResult};
use serde::Serialize;

use crate::output::{align_right, number, print, print_json, print_line, table};

/// The maximum number of printed kinds of skipped lines per file.
const MAX_KINDS: usize = 6;
/// The maximum number of printed defects per file.
const MAX_SHOWN: usize = 10;

/// The result of one file.
#[derive(Debug, Serialize)]
pub(super) struct FileReport {
    pub(super) file: String,
    pub(super) sessions: Vec<SessionReport>,
    /// The unreadable lines and the rejected messages.
    pub(super) defects: Vec<String>,
    /// The number of lines without a message, by their types.
    pub(super) skipped: Vec<(String, usize)>,
    /// The reason if the import of the file stopped early.
    pub(super) failure: Option<String>,
}

/// The result of one session.
#[derive(Debug, Serialize)]
pub(super) struct SessionReport {
    pub(super) name: String,
    /// The appended messages, including summaries.
    pub(super) appended: usize,
    /// The messages that were stored already.
    pub(super) duplicates: usize,
    /// The messages that repeat an earlier message under a new id.
    pub(super) re_emissions: usize,
    /// The rewinds from abandoned branches.
    pub(super) rewinds: usize,
    /// The summaries that replaced messages.
    pub(super) compactions: usize,
    /// The calls that removed messages from the view.
    pub(super) removals: usize,
}

impl FileReport {
    pub(super) fn new(file: &Path) -> Self {
        Self {
            file: file.display().to_string(),
            sessions: Vec::new(),
            defects: Vec::new(),
            skipped: Vec::new(),
            failure: None,
        }
    }
}

impl SessionReport {
    pub(super) fn new(parent: &str, id: &str) -> Self {
        Self {
            name: format!("{parent}/sessions/{id}"),
            appended: 0,
            duplicates: 0,
            re_emissions: 0,
            rewinds: 0,
            compactions: 0,
            removals: 0,
        }
    }

    /// Returns true if the session has no message of the file.
    pub(super) fn is_empty(&self) -> bool {
        self.appended + self.duplicates + self.re_emissions == 0
    }

    /// Counts the outcomes of appended messages.
    pub(super) fn count(&mut self, result: &AppendResult) {
        for message in &result.messages {
            match message.outcome() {
                AppendOutcome::Duplicate => self.duplicates += 1,
                AppendOutcome::ReEmission => self.re_emissions += 1,
                AppendOutcome::Appended | AppendOutcome::Unspecified => self.appended += 1,
            }
        }
    }
}

pub(super) fn show(reports: &[FileReport], json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(&serde_json::to_string_pretty(reports)?);
    }
    let header = [
        "session", "appended", "duplicates", "re-emissions", "rewinds", "compactions", "removals",
    ];
    let mut table = table(&header);
    let mut sum = [0_usize; 6];
    for session in reports.iter().flat_map(|report| &report.sessions) {
        let counts = [
            session.appended, session.duplicates, session.re_emissions, session.rewinds,
            session.compactions, session.removals,
        ];
        for (sum, count) in sum.iter_mut().zip(counts) {
            *sum += count;
        }
        table.add_row(row(&session.name, &counts));
    }
    table.add_row(row("all", &sum));
    align_right(&mut table, &[1, 2, 3, 4, 5, 6]);
    print(&format!("{table}\n"))?;
    for report in reports {
        for defect in report.defects.iter().take(MAX_SHOWN) {
            print_line(&format!("{}: {defect}", report.file))?;
        }
        if report.defects.len() > MAX_SHOWN {
            let more = report.defects.len() - MAX_SHOWN;
            print_line(&format!(
                "{}: and {more} more (--json shows all)",
                report.file
            ))?;
        }
        if let Some(skipped) = skipped(&report.skipped) {
            print_line(&format!("{}: {skipped}", report.file))?;
        }
        if let Some(failure) = &report.failure {
            print_line(&format!("{}: failed: {failure}", report.file))?;
        }
    }
    Ok(())
}

/// Describes the lines without a message, by their types.
fn skipped(kinds: &[(String, usize)]) -> Option<String> {
    let all: usize = kinds.iter().map(|(_, count)| count).sum();
    let mut kinds: Vec<_> = kinds.iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown = kinds.iter().take(MAX_KINDS);
    let mut shown: Vec<String> = shown
        .map(|(kind, count)| format!("{} {kind}", number(*count as u64)))
        .collect();
    if kinds.len() > MAX_KINDS {
        shown.push("…".to_owned());
    }
    let (all, shown) = (number(all as u64), shown.join(", "));
    (!kinds.is_empty()).then(|| format!("skipped {all} lines without a message ({shown})"))
}

fn row(name: &str, counts: &[usize]) -> Vec<String> {
    std::iter::once(name.to_owned())
        .chain(counts.iter().map(|count| number(*count as u64)))
        .collect()
}
