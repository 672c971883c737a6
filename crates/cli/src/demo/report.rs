//! The final report of a demo, readable for people and scripts.

use std::fmt::Write as _;

use super::play::DemoOutcome;
use super::player::WINDOW;
use super::timeline::Actor;
use crate::output::{align_right, bytes, count, number, table};

/// Returns the report as text.
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
            "With every level off, the same messages exceed the context window of {} tokens at request {first}.\n\
             A model would reject this request and all later ones.",
            number(WINDOW.into())
        )?;
    }
    let prices = &picture.prices;
    writeln!(
        out,
        "Costs are in uncached input tokens. A token read from the cache costs {}, a written one {}.\n",
        prices.cache_read.get(),
        prices.cache_write.get()
    )?;
    for level in 1..=5 {
        let acted = picture.timeline.iter();
        let acted = acted.filter(|one| one.actor == Actor::Level(level));
        let freed: Vec<u64> = acted.map(|one| one.freed.unwrap_or(0).into()).collect();
        // A level can have nothing to do with some seeds, and then has no row.
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
        "checked    {checked} views with the rules of the provider, all valid"
    )?;
    writeln!(
        out,
        "read back  {} of {} that left the view, byte for byte, with ReadTranscript ({})",
        number(back.same as u64),
        count(back.messages, "message"),
        bytes(back.bytes as u64)
    )?;
    if let Some((same, all)) = outcome.undone {
        writeln!(
            out,
            "undone     the last compaction: {same} of {} equal the bytes that were sent before it",
            count(all, "message")
        )?;
    }
    writeln!(
        out,
        "\nNext: run `palimpsest serve`, or `palimpsest replay` with your own transcripts."
    )
}

const LEVELS: [&str; 5] = [
    "large results stored",
    "turns snipped by the model",
    "old results cleared",
    "old rounds collapsed",
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
