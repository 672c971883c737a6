//! Writes the rows as a table for people and as JSON for programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use palimpsest_load::figures::short;
use serde::Serialize;

use crate::row::{Figure, Row, Target};

/// All rows of a run, with the machine and the binary.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) when: String,
    pub(crate) machine: String,
    pub(crate) binary: String,
    /// True if the run was too short to quote its figures.
    pub(crate) quick: bool,
    pub(crate) rows: Vec<Row>,
}

const HEAD: [&str; 6] = ["what", "measured", "limit", "ratio (range)", "target", ""];

fn told(figure: Figure) -> String {
    let Figure { value, unit } = figure;
    format!("{} {unit}", short(value)).replace(" /s", "/s")
}

fn cells(row: &Row) -> [String; 6] {
    let ratio = row.ratio;
    let limit = match row.limit_is {
        "" => told(row.limit),
        what => format!("{} ({what})", told(row.limit)),
    };
    let target = match row.target {
        Target::AtLeast(least) => format!("at least {least:.2}"),
        Target::AtMost(most) => format!("at most {most:.2}"),
        Target::None => "–".to_owned(),
    };
    let met = match row.is_met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    };
    [
        row.what.clone(),
        told(row.measured),
        limit,
        format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.least, ratio.most),
        target,
        met.to_owned(),
    ]
}

/// Returns the table, with further values below each row.
pub(crate) fn print(figures: &Figures) -> String {
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')))
        .set_header(HEAD);
    for row in &figures.rows {
        table.add_row(cells(row));
    }
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut out = format!(
        "{}, {}, {}{}\n\n{table}\n",
        figures.when,
        figures.binary,
        figures.machine,
        if figures.quick {
            "; a quick run, no figures to quote"
        } else {
            ""
        }
    );
    for row in figures.rows.iter().filter(|row| !row.beside.is_empty()) {
        out.push('\n');
        for line in [&row.what].into_iter().chain(&row.beside) {
            let indent = if *line == row.what { "" } else { "    " };
            out.extend([indent, line, "\n"]);
        }
    }
    out
}

/// Writes the figures, and the limits that `make load LIMITS=` reads, to a folder.
pub(crate) fn write(figures: &Figures, folder: &Path) -> Result<()> {
    let limits: BTreeMap<_, _> = figures
        .rows
        .iter()
        .filter_map(|row| Some((row.work?, row.limit.value.round())))
        .collect();
    save(&folder.join("figures.json"), figures)?;
    save(&folder.join("limits.json"), &limits)
}

fn save(file: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    fs::write(file, text + "\n").with_context(|| format!("{} cannot be written", file.display()))
}

/// Returns one row, which is printed as soon as it is complete.
pub(crate) fn line(row: &Row) -> String {
    let [what, measured, limit, ratio, _, met] = cells(row);
    format!("{what:<48} {measured:>12} of {limit:<28} {ratio} {met}")
}
