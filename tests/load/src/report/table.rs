//! The report as tables for a terminal.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use super::limits::{OF_LIMIT_PERCENT, promises};
use super::{Both, Crowd, Growth, Mix, Report, Row};
use palimpsest_load::figures::{count, megabytes, or_dash, short};

/// The columns of the table of all runs of ghz.
pub(super) const HEAD: [&str; 11] = [
    "rpc", "size", "conns", "loop", "offered/s", "done/s", "of limit", "p50 ms", "p99 ms",
    "refused", "errors",
];

/// Returns the cells of a row.
pub(super) fn cells(row: &Row) -> [String; 11] {
    let of_limit = row
        .limit
        .map(|limit| format!("{:.0} %", 100.0 * row.rate / limit));
    [
        row.rpc.to_owned(),
        row.size.clone(),
        row.connections.to_string(),
        row.pace().to_owned(),
        row.offered
            .map_or_else(|| "–".to_owned(), |rate| count(rate.into())),
        short(row.rate),
        of_limit.unwrap_or_else(|| "–".to_owned()),
        or_dash(row.p50_ms),
        or_dash(row.p99_ms),
        count(row.shed),
        count(row.failed()),
    ]
}

/// Returns one row, which is printed as soon as its run ends.
pub(crate) fn line(row: &Row) -> String {
    let offered = row
        .offered
        .map_or_else(String::new, |rate| format!(" at {rate}/s"));
    format!(
        "{:<20} {:>3} {:<6}{offered:<12} {:>8}/s  p50 {:>8} ms  p99 {:>8} ms  {} refused  {} errors",
        row.name,
        row.connections,
        row.pace(),
        short(row.rate),
        or_dash(row.p50_ms),
        or_dash(row.p99_ms),
        row.shed,
        row.failed(),
    )
}

fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>, words: usize) -> String {
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')))
        .set_header(head);
    for row in rows {
        table.add_row(row);
    }
    for column in words..head.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// Returns the complete report.
pub(crate) fn print(report: &Report) -> String {
    let mut parts = Vec::new();
    if !report.rows.is_empty() {
        parts.push(table(
            &HEAD,
            report.rows.iter().map(|row| cells(row).to_vec()),
            2,
        ));
        parts.push(format!(
            "of limit: calls a second against what a service without work does with the same bytes; at least \
             {OF_LIMIT_PERCENT:.0} % is wanted, and – was not measured. refused: the server sheds load."
        ));
    }
    if !report.mix.is_empty() {
        parts.push(table(&MIX_HEAD, report.mix.iter().flat_map(mix_cells), 1));
    }
    if !report.growth.is_empty() {
        parts.push(table(
            &GROWTH_HEAD,
            report.growth.iter().map(growth_cells),
            0,
        ));
    }
    if !report.sessions.is_empty() {
        parts.push(table(
            &SESSIONS_HEAD,
            report.sessions.iter().map(sessions_cells),
            0,
        ));
    }
    parts.extend(errors(report));
    let promises = promises(report).into_iter().map(|promise| {
        vec![
            promise.what.to_owned(),
            promise.measured,
            promise.limit.to_owned(),
            verdict(promise.kept).to_owned(),
        ]
    });
    parts.push(table(&PROMISE_HEAD, promises, 1));
    parts.join("\n\n")
}

/// Returns the error messages with their counts.
fn errors(report: &Report) -> Option<String> {
    let of_rows = report.rows.iter().map(|row| (row.name, &row.errors));
    let of_mix = report.mix.iter().map(|mix| ("mix", &mix.errors));
    let each = of_rows.chain(of_mix).flat_map(|(name, errors)| {
        let line = move |(said, times): (&String, &u64)| format!("{name}: {times} × {said}");
        errors.iter().map(line)
    });
    let lines: Vec<_> = each.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

pub(super) const PROMISE_HEAD: [&str; 4] = ["what", "measured", "limit", "kept"];

pub(super) fn verdict(kept: Option<bool>) -> &'static str {
    match kept {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not run",
    }
}

pub(super) const MIX_HEAD: [&str; 7] = [
    "agents", "calls", "a second", "p50 ms", "p99 ms", "refused", "errors",
];

/// Returns a row for the turns and one for each method within them.
pub(super) fn mix_cells(mix: &Mix) -> Vec<Vec<String>> {
    let offered = mix.offered.map_or_else(String::new, |rate| {
        format!(", {} turns/s offered", short(rate))
    });
    let mut rows = vec![vec![
        format!("{} agents, {} loop{offered}: turns", mix.agents, mix.pace),
        count(mix.turns),
        short(mix.rate),
        or_dash(mix.p50_ms),
        or_dash(mix.p99_ms),
        count(mix.shed),
        count(mix.errors.values().sum()),
    ]];
    rows.extend(mix.calls.iter().map(|call| {
        vec![
            format!("  {}", call.rpc),
            count(call.calls),
            short(call.rate),
            or_dash(call.p50_ms),
            or_dash(call.p99_ms),
            String::new(),
            String::new(),
        ]
    }));
    rows
}

pub(super) const GROWTH_HEAD: [&str; 10] = [
    "messages", "append p50", "p99", "delta p50", "p99", "snip p50", "p99", "full view p50", "p99",
    "opening p50",
];

pub(super) fn growth_cells(row: &Growth) -> Vec<String> {
    let mut cells = vec![count(row.messages as u64)];
    let each: [Both; 4] = [row.append_ms, row.delta_ms, row.snip_ms, row.full_ms];
    cells.extend(
        each.iter()
            .flat_map(|(p50, p99)| [or_dash(*p50), or_dash(*p99)]),
    );
    cells.push(or_dash(row.open_ms));
    cells
}

pub(super) const SESSIONS_HEAD: [&str; 6] = [
    "sessions", "ready ms", "memory MB", "without files MB", "first call p50 ms", "p99 ms",
];

pub(super) fn sessions_cells(row: &Crowd) -> Vec<String> {
    vec![
        count(row.sessions as u64),
        short(row.ready_ms),
        short(megabytes(row.resident)),
        short(megabytes(row.own)),
        or_dash(row.p50_ms),
        or_dash(row.p99_ms),
    ]
}
