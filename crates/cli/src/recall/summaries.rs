//! The summaries as documents for people: all of them, and what the worst ones lack.

use palimpsest_transcripts::replay::recall::{MeasuredCompaction, Need, TextSource};

use super::run::RecallResults;
use crate::output::{one_line, print_line};

/// The maximum length of a printed name in characters.
const MAX_NAME: usize = 120;

pub(super) fn show_worst(measured: &RecallResults, count: usize) -> anyhow::Result<()> {
    let mut worst: Vec<_> = measured
        .compactions()
        .map(|(file, one)| (missing(one, TextSource::Summary).count(), file, one))
        .filter(|(missing, _, _)| *missing > 0)
        .collect();
    // The order of files breaks ties, so that two runs print the same.
    worst.sort_by_key(|(missing, _, _)| std::cmp::Reverse(*missing));
    for (number, file, one) in worst.into_iter().take(count) {
        print_line(&format!(
            "{}, compaction after line {}: the summary lacks {number} of {} needs",
            file.file,
            one.line,
            one.needs.len(),
        ))?;
        for (at, need) in missing(one, TextSource::Summary) {
            print_line(&format!("  {}", describe(one, at, need)))?;
        }
        print_line("")?;
    }
    Ok(())
}

/// Returns a document with all summaries.
pub(super) fn write(measured: &RecallResults) -> String {
    let parts = measured.compactions().map(|(file, one)| {
        format!(
            "<!-- {}, compaction after line {}: lacks {} of {} needs -->\n\n{}\n\n",
            file.file,
            one.line,
            missing(one, TextSource::Summary).count(),
            one.needs.len(),
            one.summary,
        )
    });
    parts.collect()
}

/// Returns the needs that a text lacks, with their indexes.
fn missing(one: &MeasuredCompaction, source: TextSource) -> impl Iterator<Item = (usize, &Need)> {
    let text = one.texts.iter().find(|text| text.source == source);
    // `shows` has one flag for each need, in the same order.
    let shows = text.map_or(&[][..], |text| &text.shows);
    let needs = one.needs.iter().enumerate().zip(shows);
    needs.filter_map(|((at, need), is_shown)| (!is_shown).then_some((at, need)))
}

fn describe(one: &MeasuredCompaction, at: usize, need: &Need) -> String {
    let is_in = |source| {
        let mut texts = one.texts.iter();
        let text = texts.find(|text| text.source == source);
        text.is_some_and(|text| text.shows.get(at) == Some(&true))
    };
    let mut also = Vec::new();
    if is_in(TextSource::Recorded) {
        also.push("in the recorded summary");
    }
    if is_in(TextSource::View) {
        also.push("in the view");
    }
    if need.is_from_memory {
        also.push("used from memory");
    }
    let also = if also.is_empty() {
        String::new()
    } else {
        format!("; {}", also.join(", "))
    };
    let mention = need.last_mention;
    format!(
        "call {}, {}: {}. Last in {}, {} messages before (line {}){also}",
        need.call,
        need.kind.name(),
        one_line(&need.text, MAX_NAME),
        mention.place.name(),
        mention.messages_before,
        mention.line,
    )
}
