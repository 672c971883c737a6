//! The figures of a measurement as JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

use palimpsest_transcripts::replay::recall::{
    HORIZONS, MeasuredCompaction, Need, RecallSums, TextSource,
};
use serde::Serialize;

use super::run::RecallResults;
use crate::shown_counts::ShownCounts;

#[derive(Serialize)]
struct Report {
    /// The sums over compactions that the transcripts contain, by text.
    recorded: BTreeMap<String, Sums>,
    /// The sums over compactions by the policy, by text.
    by_policy: BTreeMap<String, Sums>,
    compactions: Vec<Compaction>,
    /// The unreadable lines and the unrecognized files.
    defects: Vec<String>,
}

#[derive(Serialize)]
struct Sums {
    compactions: usize,
    mean_characters: usize,
    needs: ShownCounts,
    needs_from_memory: ShownCounts,
    needs_by_kind: BTreeMap<&'static str, ShownCounts>,
    needs_by_calls: BTreeMap<usize, ShownCounts>,
}

#[derive(Serialize)]
struct Compaction {
    file: String,
    line: usize,
    is_recorded: bool,
    calls: usize,
    characters: BTreeMap<String, usize>,
    needs: Vec<NeedReport>,
}

#[derive(Serialize)]
struct NeedReport {
    kind: &'static str,
    name: String,
    call: usize,
    is_from_memory: bool,
    last_line: usize,
    last_place: &'static str,
    /// The texts that show it.
    shown_in: Vec<String>,
}

pub(super) fn json(measured: &RecallResults, texts: &[PathBuf]) -> anyhow::Result<String> {
    // A policy compacts only transcripts without recorded compactions, so both sums are of different transcripts.
    let sums = |is_recorded: bool| {
        let all = measured.compactions().map(|(_, one)| one);
        let sums = RecallSums::of(all.filter(|one| one.is_recorded == is_recorded));
        sums.into_iter()
            .map(|(source, sum)| (key(source, texts), Sums::from(sum)))
            .collect()
    };
    let compactions = measured.compactions().map(|(file, one)| Compaction {
        file: file.file.clone(),
        line: one.line,
        is_recorded: one.is_recorded,
        calls: one.calls,
        characters: one
            .texts
            .iter()
            .map(|text| (key(text.source, texts), text.chars))
            .collect(),
        needs: (0..)
            .zip(&one.needs)
            .map(|(at, need)| need_report(one, at, need, texts))
            .collect(),
    });
    let files = measured.files.iter();
    let unreadable = files.flat_map(|file| {
        let lines = file.unreadable.iter();
        lines.map(|defect| format!("{} {defect}", file.file))
    });
    let report = Report {
        recorded: sums(true),
        by_policy: sums(false),
        compactions: compactions.collect(),
        defects: measured.unrecognized().chain(unreadable).collect(),
    };
    Ok(serde_json::to_string_pretty(&report)?)
}

impl From<RecallSums> for Sums {
    fn from(sum: RecallSums) -> Self {
        Self {
            compactions: sum.compactions,
            mean_characters: sum.mean_chars(),
            needs: sum.all.into(),
            needs_from_memory: sum.from_memory.into(),
            needs_by_kind: sum
                .by_kind
                .into_iter()
                .map(|(kind, counts)| (kind.name(), counts.into()))
                .collect(),
            needs_by_calls: HORIZONS
                .into_iter()
                .zip(sum.by_horizon.map(ShownCounts::from))
                .collect(),
        }
    }
}

fn need_report(one: &MeasuredCompaction, at: usize, need: &Need, texts: &[PathBuf]) -> NeedReport {
    let shown = one
        .texts
        .iter()
        .filter(|text| text.shows.get(at) == Some(&true));
    NeedReport {
        kind: need.kind.name(),
        name: need.text.to_string(),
        call: need.call,
        is_from_memory: need.is_from_memory,
        last_line: need.last_mention.line,
        last_place: need.last_mention.place.name(),
        shown_in: shown.map(|text| key(text.source, texts)).collect(),
    }
}

/// Returns the name of a text in JSON.
fn key(source: TextSource, texts: &[PathBuf]) -> String {
    let name = match source {
        TextSource::Recorded => "recorded_summary",
        TextSource::TailOfRecorded => "tail_as_long_as_recorded_summary",
        TextSource::RecordedWithNames => "recorded_summary_with_names",
        TextSource::Summary => "summary",
        TextSource::TailOfSummary => "tail_as_long_as_summary",
        TextSource::View => "view",
        TextSource::TailOfView => "tail_as_long_as_view",
        TextSource::Given(_) => return super::table::name(source, texts),
    };
    name.to_owned()
}
