//! The figures of a replay as a table: one row per figure, one column per policy.

use std::collections::BTreeSet;

use palimpsest_transcripts::replay::{FactRetention, ProbeKind, ReplayCompaction, ReplayMetrics};

use super::report::relative_cost;
use super::run::ReplayResults;
use crate::output::{align_right, number, print, print_line, table};

/// The maximum number of printed problems of each kind.
const MAX_SHOWN: usize = 20;

pub(super) fn show(replayed: &ReplayResults) -> anyhow::Result<()> {
    let mut header = vec![""];
    header.extend(replayed.policies.iter().map(String::as_str));
    let mut table = table(&header);
    let totals = &replayed.totals;
    let mut row = |name: &str, value: &dyn Fn(&ReplayMetrics) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(totals.iter().map(value));
        table.add_row(cells);
    };
    let count = |n: usize| number(n as u64);
    row("sessions", &|m| count(m.sessions));
    row("prepares", &|m| count(m.prepares));
    row("view changes", &|m| count(m.changes.values().sum()));
    // A row exists for each trigger of any policy, so that all columns have the same rows.
    for trigger in triggers(totals) {
        row(&format!("  {trigger}"), &|m| {
            count(m.changes.get(trigger).copied().unwrap_or(0))
        });
    }
    row("results stored", &|m| count(m.stored));
    row("results cleared", &|m| count(m.cleared));
    row("messages collapsed", &|m| count(m.collapsed));
    let compacted = |m: &ReplayMetrics| !m.compactions.is_empty();
    if totals.iter().any(compacted) {
        rows_of_compactions(totals, &mut row);
    }
    row("invalid views", &|m| count(m.invalid.len()));
    row("prefix violations", &|m| count(m.prefix_breaks.len()));
    row("delta violations", &|m| count(m.delta_breaks.len()));
    row("tokens sent", &|m| number(m.token_split.total()));
    row("  read from the cache", &|m| {
        number(m.token_split.cache_read)
    });
    row("  written to the cache", &|m| {
        number(m.token_split.cache_write)
    });
    row("  uncached", &|m| number(m.token_split.uncached));
    let prices = replayed.prices();
    row("cost, in uncached tokens", &|m| {
        number(m.token_split.cost_milli(&prices) / 1_000)
    });
    if let Some(model) = replayed.model {
        row("cost, in US dollars", &|m| {
            let usd = model.input_usd(&m.token_split);
            usd.map_or_else(|| "–".to_owned(), |usd| format!("{usd:.2}"))
        });
    }
    row(
        "  compared with none",
        &|m| match relative_cost(m, totals, &prices) {
            Some(share) => format!("{:.1} %", share * 100.0),
            None => "–".to_owned(),
        },
    );
    row("largest view, in tokens", &|m| number(m.largest_view));
    row("probes visible", &|m| count(m.probe_totals().visible));
    row("  recoverable", &|m| count(m.probe_totals().recoverable));
    row("  lost", &|m| count(m.probe_totals().lost));
    align_right(&mut table, &(1..header.len()).collect::<Vec<_>>());
    print(&format!("{table}\n"))?;
    show_problems(replayed)
}

/// Adds the rows about compactions: tokens before and after, and the facts of replaced messages in the summaries.
fn rows_of_compactions(
    totals: &[ReplayMetrics],
    row: &mut impl FnMut(&str, &dyn Fn(&ReplayMetrics) -> String),
) {
    let sum = |m: &ReplayMetrics, of: fn(&ReplayCompaction) -> u64| {
        number(m.compactions.iter().map(of).sum::<u64>())
    };
    row("compactions", &|m| number(m.compactions.len() as u64));
    for means in ReplayCompaction::MEANS {
        row(&format!("  {means}"), &|m| {
            let all = m.compactions.iter();
            number(all.filter(|it| it.strategy_name() == means).count() as u64)
        });
    }
    row("  tokens before", &|m| sum(m, |it| it.before_tokens));
    row("  tokens after", &|m| sum(m, |it| it.after_tokens));
    let kinds: BTreeSet<ProbeKind> = totals
        .iter()
        .flat_map(|total| total.survival().0.into_keys())
        .collect();
    for kind in kinds {
        row(&format!("  in summaries: {}", kind.name()), &|m| {
            share(m.survival().0.get(&kind).copied().unwrap_or_default())
        });
    }
    row("  in summaries: commands, exact", &|m| {
        let share = m.survival().0.get(&ProbeKind::Command).copied();
        exact(share.unwrap_or_default())
    });
    row("  in summaries, without errors", &|m| {
        share(m.survival().combined())
    });
}

fn exact(share: FactRetention) -> String {
    self::share(FactRetention {
        kept: share.kept_verbatim,
        ..share
    })
}

/// Formats a share as `8 of 10 (80 %)`.
fn share(share: FactRetention) -> String {
    match (share.kept * 100).checked_div(share.total) {
        None => "–".to_owned(),
        Some(percent) => {
            let (told, all) = (number(share.kept as u64), number(share.total as u64));
            format!("{told} of {all} ({percent} %)")
        }
    }
}

/// Returns the causes of view changes under all policies.
fn triggers(totals: &[ReplayMetrics]) -> BTreeSet<&'static str> {
    let all = totals.iter().flat_map(|total| total.changes.keys());
    all.copied().collect()
}

/// Prints failed checks and unreadable lines, without any message content.
fn show_problems(replayed: &ReplayResults) -> anyhow::Result<()> {
    for file in &replayed.files {
        let name = &file.file;
        if let Some(what) = &file.unrecognized {
            print_line(&format!("  UNRECOGNIZED: {name} {what}"))?;
            continue;
        }
        for defect in file.unreadable.iter().take(MAX_SHOWN) {
            print_line(&format!("  unreadable: {name} {defect}"))?;
        }
        for (policy, measured) in replayed.policies.iter().zip(&file.measured) {
            for line in problems(measured) {
                print_line(&format!("  {policy}: {name} {line}"))?;
            }
        }
    }
    Ok(())
}

pub(super) fn problems(measured: &ReplayMetrics) -> Vec<String> {
    let rejected = measured
        .defects
        .iter()
        .map(|defect| format!("rejected: {defect}"));
    let invalid = measured
        .invalid
        .iter()
        .map(|(line, violation)| format!("INVALID: line {line}: {violation}"));
    let prefix = measured
        .prefix_breaks
        .iter()
        .map(|line| format!("PREFIX: line {line}: a served view changed"));
    let delta = measured
        .delta_breaks
        .iter()
        .map(|line| format!("DELTA: line {line}: the array of the caller differs from the view"));
    let lost = measured.lost.iter().map(|lost| {
        let (kind, line, block) = (lost.kind.name(), lost.line, lost.block);
        format!("LOST: line {line}, block {block}: one of the {kind} cannot be read back")
    });
    let forgotten = measured.lost_requests().map(|compaction| {
        let line = compaction.line;
        format!("LOST REQUEST: line {line}: the view lacks the latest user message")
    });
    let mut lines: Vec<String> = rejected.take(MAX_SHOWN).collect();
    lines.extend(invalid.take(MAX_SHOWN));
    lines.extend(prefix.take(MAX_SHOWN));
    lines.extend(delta.take(MAX_SHOWN));
    lines.extend(lost.take(MAX_SHOWN));
    lines.extend(forgotten.take(MAX_SHOWN));
    lines
}
