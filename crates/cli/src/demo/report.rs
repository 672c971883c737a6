//! What it came to, in a table that a person and a script can read.

use std::fmt::Write as _;

use super::play::DemoOutcome;
use super::player::WINDOW;
use super::timeline::{Actor, count};
use crate::output::{align_right, bytes, number, table};

/// The whole report.
pub(super) fn text(outcome: &DemoOutcome) -> String {
    let mut out = String::from("\n");
    // Writing to a string cannot fail.
    let _ = write(&mut out, outcome);
    out
}

fn write(out: &mut String, outcome: &DemoOutcome) -> std::fmt::Result {
    let picture = &outcome.picture;
    writeln!(out, "{}\n", compared(outcome))?;
    if let Some(first) = picture.without.first_over {
        writeln!(
            out,
            "With every level off the same messages leave the window of {} at request {first}: a model would\n\
             have refused from there on.",
            number(WINDOW.into())
        )?;
    }
    let prices = &picture.prices;
    writeln!(
        out,
        "Costs are in uncached input tokens: one read from the cache costs {}, one written to it {}.\n",
        prices.cache_read.get(),
        prices.cache_write.get()
    )?;
    for level in 1..=5 {
        let acted = picture.timeline.iter();
        let acted = acted.filter(|one| one.actor == Actor::Level(level));
        let freed: Vec<u64> = acted.map(|one| one.freed.unwrap_or(0).into()).collect();
        if freed.is_empty() {
            continue;
        }
        writeln!(
            out,
            "level {level}  {:<27} {:>8} {:>9} tokens freed",
            LEVELS[usize::from(level) - 1],
            count(freed.len(), "time"),
            number(freed.iter().sum())
        )?;
    }
    let memory = &picture.memory;
    writeln!(
        out,
        "memory   {:<27} {:>8} {:>9} tokens\n",
        "summary.md",
        count(
            usize::try_from(memory.version).unwrap_or(usize::MAX),
            "version"
        ),
        number(memory.tokens.into())
    )?;
    let (checked, back) = (number(outcome.checked as u64), &outcome.read_back);
    writeln!(
        out,
        "checked    {checked} views by the provider's rules, all valid"
    )?;
    writeln!(
        out,
        "read back  {} of {} that left the view, byte for byte, through ReadTranscript ({})",
        number(back.same as u64),
        count(back.messages, "message"),
        bytes(back.bytes as u64)
    )?;
    if let Some((same, all)) = outcome.undone {
        writeln!(
            out,
            "undone     the last compaction: {same} of {} are the bytes that were sent before it",
            count(all, "message")
        )?;
    }
    writeln!(
        out,
        "\nNext: `palimpsest serve`, or `palimpsest replay` with transcripts of your own."
    )
}

const LEVELS: [&str; 5] = [
    "large results stored",
    "turns snipped by the model",
    "old results cleared",
    "old rounds folded",
    "compacted",
];

fn compared(outcome: &DemoOutcome) -> String {
    let picture = &outcome.picture;
    let (with, without) = (&picture.with, &picture.without);
    let (cost, bare_cost, share) = picture.costs();
    let mut table = table(&["", "with palimpsest", "every level off"]);
    let mut row = |name: &str, with: u64, without: u64| {
        table.add_row([name.to_owned(), number(with), number(without)]);
    };
    row(
        "requests",
        with.sent.len() as u64,
        without.sent.len() as u64,
    );
    row(
        "  larger than the window",
        with.over_window as u64,
        without.over_window as u64,
    );
    row(
        "largest request, tokens",
        with.largest().into(),
        without.largest().into(),
    );
    row("tokens sent", with.split.total(), without.split.total());
    row(
        "  read from the cache",
        with.split.cache_read,
        without.split.cache_read,
    );
    row(
        "  written to the cache",
        with.split.cache_write,
        without.split.cache_write,
    );
    row("cost", cost, bare_cost);
    table.add_row([
        "  compared".to_owned(),
        format!("{}.{} %", share / 10, share % 10),
        "100.0 %".to_owned(),
    ]);
    align_right(&mut table, &[1, 2]);
    table.to_string()
}
