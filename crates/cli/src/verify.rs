//! `palimpsest verify`: replays transcripts and checks every view.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use palimpsest_core::view::Provider;
use palimpsest_transcripts::import::Imported;
use palimpsest_transcripts::replay::{PrepareFrequency, RecordedSession, VerifyReport, verify};

use super::each_file::{each_file, file_name};
use super::files::{self, Format};
use super::output::{align_right, bytes, number, print, print_line, table};
use super::view::ProviderArg;

/// The maximum number of printed problems per file and kind.
const MAX_SHOWN: usize = 20;

/// Replay transcripts and check every view
#[derive(Debug, Args)]
#[command(
    after_help = "Every view must be valid for the provider and extend the view before it, and the deltas must give the \
caller the same array. Every transcript is replayed twice: with a view before each response, as an agent \
does, and with a view after every line, which is the hardest case. The replay runs in this process: it \
needs no server and sends nothing. The exit code is 1 if a check fails or a file is not recognized.

Examples:
  palimpsest verify ~/.claude/projects/my-project
  palimpsest verify conversations.jsonl --provider openai"
)]
pub(super) struct Verify {
    /// Format of the files
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Provider whose rules the views must meet [default: the provider of the format]
    #[arg(long, value_enum)]
    provider: Option<ProviderArg>,
    /// Transcript files, or folders with such files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// The results of one file.
#[derive(Debug, Default)]
struct FileVerification {
    file: String,
    sessions: usize,
    per_response: VerifyReport,
    per_line: VerifyReport,
    import_defects: Vec<String>,
    unrecognized: Option<String>,
}

impl Verify {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let files = files::find(&self.paths)?;
        let provider = self.provider.map(ProviderArg::of_views);
        let outcomes = each_file(&files, |file| check(file, self.format, provider))?;
        show(&outcomes)
    }
}

fn check(
    file: &Path,
    format: Format,
    provider: Option<Provider>,
) -> anyhow::Result<FileVerification> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let imported: Imported<'_> = format.read(&text);
    let provider = provider.unwrap_or_else(|| files::provider_of(&imported));
    let mut outcome = FileVerification {
        file: file_name(file),
        sessions: imported.sessions.len(),
        import_defects: imported.defects.iter().map(ToString::to_string).collect(),
        unrecognized: imported.unrecognized.clone(),
        ..FileVerification::default()
    };
    for session in &imported.sessions {
        let tape = RecordedSession::new(session);
        let report = |pace| verify(&tape, provider, pace);
        add(
            &mut outcome.per_response,
            report(PrepareFrequency::PerResponse),
        );
        add(&mut outcome.per_line, report(PrepareFrequency::PerLine));
    }
    Ok(outcome)
}

fn add(sum: &mut VerifyReport, report: VerifyReport) {
    sum.messages += report.messages;
    sum.reemissions += report.reemissions;
    sum.duplicates += report.duplicates;
    sum.prepares += report.prepares;
    sum.sendable += report.sendable;
    sum.view_changes += report.view_changes;
    sum.invalid.extend(report.invalid);
    sum.prefix_breaks.extend(report.prefix_breaks);
    sum.delta_breaks.extend(report.delta_breaks);
    for (name, count) in report.repairs {
        *sum.repairs.entry(name).or_default() += count;
    }
    sum.largest_view_bytes = sum.largest_view_bytes.max(report.largest_view_bytes);
    sum.defects.extend(report.defects);
}

const HEADER: [&str; 12] = [
    "file", "sessions", "messages", "repeated", "prepares", "sendable", "changes", "repairs",
    "largest", "invalid", "prefix", "delta",
];

fn show(outcomes: &[FileVerification]) -> anyhow::Result<()> {
    let mut table = table(&HEADER);
    let mut total = (0, VerifyReport::default());
    for outcome in outcomes {
        let mut both = VerifyReport::default();
        add(&mut both, outcome.per_response.clone());
        add(&mut both, outcome.per_line.clone());
        // Both replays have the same messages, which count once.
        both.messages = outcome.per_line.messages;
        both.reemissions = outcome.per_line.reemissions;
        both.view_changes = outcome.per_line.view_changes;
        both.repairs.clone_from(&outcome.per_line.repairs);
        table.add_row(row(&outcome.file, outcome.sessions, &both));
        total.0 += outcome.sessions;
        add(&mut total.1, both);
    }
    let label = format!("{} files", outcomes.len());
    table.add_row(row(&label, total.0, &total.1));
    align_right(&mut table, &(1..HEADER.len()).collect::<Vec<_>>());
    print(&format!("{table}\n"))?;
    show_repairs(&total.1)?;
    let broken = show_problems(outcomes)?;
    if broken > 0 {
        bail!("{broken} checks failed: see the lines INVALID, PREFIX and DELTA above");
    }
    let foreign = outcomes
        .iter()
        .filter(|it| it.unrecognized.is_some())
        .count();
    files::require_recognized(foreign, outcomes.len(), "checked")?;
    if total.1.messages == 0 {
        bail!(
            "no message was found in {} files, so nothing was checked: check --format",
            outcomes.len()
        );
    }
    print(
        "Every sendable view is valid, extends the view before it, and equals the array of the caller.\n",
    )
}

fn row(file: &str, sessions: usize, report: &VerifyReport) -> Vec<String> {
    let count = |n: usize| number(n as u64);
    vec![
        file.to_owned(),
        count(sessions),
        count(report.messages),
        count(report.reemissions + report.duplicates),
        count(report.prepares),
        count(report.sendable),
        count(report.view_changes),
        count(report.repairs.values().sum()),
        bytes(report.largest_view_bytes as u64),
        count(report.invalid.len()),
        count(report.prefix_breaks.len()),
        count(report.delta_breaks.len()),
    ]
}

fn show_repairs(total: &VerifyReport) -> anyhow::Result<()> {
    for (name, count) in &total.repairs {
        print(&format!("  repaired: {name}: {}\n", number(*count as u64)))?;
    }
    Ok(())
}

/// Prints the problems of all files. Returns the number of failed checks.
fn show_problems(outcomes: &[FileVerification]) -> anyhow::Result<usize> {
    let mut broken = 0;
    for outcome in outcomes {
        // A file of another format has a defect in every line, so only the reason is printed.
        if let Some(what) = &outcome.unrecognized {
            print_line(&format!("  UNRECOGNIZED: {} {what}", outcome.file))?;
            continue;
        }
        let more = outcome.import_defects.len().saturating_sub(MAX_SHOWN);
        if more > 0 {
            print_line(&format!(
                "  unreadable: {} has {more} more unreadable lines than these",
                outcome.file
            ))?;
        }
        for defect in outcome.import_defects.iter().take(MAX_SHOWN) {
            print_line(&format!("  unreadable: {} {defect}", outcome.file))?;
        }
        for defect in &outcome.per_line.defects {
            print_line(&format!("  rejected: {} {defect}", outcome.file))?;
        }
        for report in [&outcome.per_response, &outcome.per_line] {
            for (line, violation) in report.invalid.iter().take(MAX_SHOWN) {
                print_line(&format!(
                    "  INVALID: {} line {line}: {violation}",
                    outcome.file
                ))?;
            }
            for line in report.prefix_breaks.iter().take(MAX_SHOWN) {
                print_line(&format!(
                    "  PREFIX: {} line {line}: a served view changed",
                    outcome.file
                ))?;
            }
            for line in report.delta_breaks.iter().take(MAX_SHOWN) {
                print_line(&format!(
                    "  DELTA: {} line {line}: the array of the caller differs from the view",
                    outcome.file
                ))?;
            }
            broken += report.invalid.len() + report.prefix_breaks.len() + report.delta_breaks.len();
        }
    }
    Ok(broken)
}
