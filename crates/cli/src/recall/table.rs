//! The recall of each text as a table: one row per text.

use std::path::{Path, PathBuf};

use palimpsest_transcripts::replay::recall::{
    HORIZONS, NeedKind, RecallCounts, RecallSums, TextSource,
};

use super::run::RecallResults;
use crate::output::{align_right, number, print, print_line, table};

/// The maximum number of printed problems per file.
const MAX_SHOWN: usize = 20;

pub(super) fn show(measured: &RecallResults, texts: &[PathBuf]) -> anyhow::Result<()> {
    for is_recorded in [true, false] {
        let all = measured.compactions().map(|(_, one)| one);
        let chosen: Vec<_> = all.filter(|one| one.is_recorded == is_recorded).collect();
        if chosen.is_empty() {
            continue;
        }
        let needs: usize = chosen.iter().map(|one| one.needs.len()).sum();
        let calls: usize = chosen.iter().map(|one| one.calls).sum();
        print_line(&format!(
            "{} compactions {}: {} needs in {} tool calls",
            number(chosen.len() as u64),
            if is_recorded {
                "of the transcripts"
            } else {
                "by the policy"
            },
            number(needs as u64),
            number(calls as u64),
        ))?;
        let sums = RecallSums::of(chosen);
        let kinds: Vec<NeedKind> = NeedKind::ALL
            .into_iter()
            .filter(|kind| sums.values().any(|sum| sum.by_kind.contains_key(kind)))
            .collect();
        let mut header = vec!["text".to_owned(), "needs".to_owned()];
        header.extend(kinds.iter().map(|kind| kind.name().to_owned()));
        header.push("from memory".to_owned());
        header.extend(HORIZONS.map(|calls| format!("{calls} calls")));
        header.push("characters".to_owned());
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut rows = table(&header);
        for (source, sum) in &sums {
            let mut row = vec![name(*source, texts), percent(sum.all)];
            let of_kind = |kind| percent(sum.by_kind.get(kind).copied().unwrap_or_default());
            row.extend(kinds.iter().map(of_kind));
            row.push(percent(sum.from_memory));
            row.extend(sum.by_horizon.map(percent));
            row.push(number(sum.mean_chars() as u64));
            rows.add_row(row);
        }
        align_right(&mut rows, &(1..header.len()).collect::<Vec<_>>());
        print(&format!("{rows}\n\n"))?;
    }
    show_problems(measured)
}

/// Returns the name of a text in reports.
pub(super) fn name(source: TextSource, texts: &[PathBuf]) -> String {
    let name = match source {
        TextSource::Recorded => "recorded summary",
        TextSource::RecordedWithNames => "  with names",
        TextSource::Summary => "summary",
        TextSource::View => "view",
        TextSource::TailOfRecorded | TextSource::TailOfSummary | TextSource::TailOfView => {
            "  tail of this length"
        }
        TextSource::Given(at) => {
            let path = texts.get(at).map_or(Path::new(""), PathBuf::as_path);
            return path.display().to_string();
        }
    };
    name.to_owned()
}

/// Formats a share as `65.7 %`.
fn percent(counts: RecallCounts) -> String {
    match (counts.shown * 1_000).checked_div(counts.needs) {
        None => "–".to_owned(),
        Some(milli) => format!("{}.{} %", milli / 10, milli % 10),
    }
}

fn show_problems(measured: &RecallResults) -> anyhow::Result<()> {
    for reason in measured.unrecognized() {
        print_line(&format!("  UNRECOGNIZED: {reason}"))?;
    }
    for file in measured.files.iter().filter(|it| it.unrecognized.is_none()) {
        for defect in file.unreadable.iter().take(MAX_SHOWN) {
            print_line(&format!("  unreadable: {} {defect}", file.file))?;
        }
    }
    Ok(())
}
