//! What it came to, in a table that a person and a script can read.

use std::fmt::Write as _;

use super::happened::{Actor, count};
use super::play::Outcome;
use crate::cli::output::{align_right, bytes, number, table};

/// The whole report.
pub(super) fn text(outcome: &Outcome) -> String {
    let mut out = String::from("\n");
    // Writing to a string cannot fail.
    let _ = write(&mut out, outcome);
    out
}

fn write(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let picture = &outcome.picture;
    writeln!(out, "{}", compared(outcome))?;
    writeln!(
        out,
        "\nCosts are in uncached tokens at the prices of the configuration; output is not counted. The second\n\
         session took the same messages with every level off, in a window that no model has.\n"
    )?;
    for level in 1..=5 {
        let acted = || {
            picture
                .happened
                .iter()
                .filter(move |one| one.actor == Actor::Level(level))
        };
        let times = acted().count();
        if times > 0 {
            let freed: u64 = acted().filter_map(|one| one.freed).map(u64::from).sum();
            let name = LEVELS[usize::from(level) - 1];
            writeln!(
                out,
                "level {level}  {name:<28} {:>9}  {:>9} tokens freed",
                count(times, "time"),
                number(freed)
            )?;
        }
    }
    let memory = &picture.memory;
    writeln!(
        out,
        "memory   summary.md, version {:<15} {:>9}  {:>9} tokens\n",
        memory.version,
        "",
        number(memory.tokens.into())
    )?;
    writeln!(
        out,
        "Every view was valid: {} checked by the provider's rules.",
        number(outcome.checked as u64)
    )?;
    let back = &outcome.read_back;
    writeln!(
        out,
        "Nothing was lost: {} of {} that left the view came back byte for byte through ReadTranscript, {} in all.",
        number(back.same as u64),
        count(back.messages, "message"),
        bytes(back.bytes as u64)
    )?;
    if let Some((same, all)) = outcome.undone {
        writeln!(
            out,
            "The last compaction was undone: {same} of {all} messages are the bytes that were sent before it."
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

fn compared(outcome: &Outcome) -> String {
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
