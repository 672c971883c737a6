//! Output for people: tables, numbers and bars.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};

use super::escapes;

/// A table with one line per cell. Control characters in cells are escaped.
pub(super) struct Table(comfy_table::Table);

impl Table {
    pub(super) fn add_row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.0.add_row(safe_cells(cells));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// Cells are escaped before the layout, because an escape is wider than its character.
fn safe_cells<T: AsRef<str>>(cells: impl IntoIterator<Item = T>) -> Vec<String> {
    let cells = cells.into_iter();
    cells
        .map(|cell| escapes::line(cell.as_ref()).into_owned())
        .collect()
}

/// Creates a table with a header.
pub(super) fn table(header: &[&str]) -> Table {
    let mut table = comfy_table::Table::new();
    table
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')))
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(safe_cells(header));
    if !io::stdout().is_terminal() {
        // A pipe has no width, so no cell is wrapped.
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    Table(table)
}

/// Aligns columns of numbers to the right.
pub(super) fn align_right(table: &mut Table, columns: &[usize]) {
    for column in columns {
        if let Some(column) = table.0.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Formats `1234567` as `1,234,567`.
pub(super) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        // In `1234567`, commas precede the indexes 1 and 4, where six and three digits are left.
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with its noun: `3 turns`, `1 turn`.
pub(super) fn count(n: usize, what: &str) -> String {
    let end = if n == 1 { "" } else { "s" };
    format!("{} {what}{end}", number(n as u64))
}

/// Returns the name of an enum value of the contract as words: `TRIGGER_PROMPT_TOO_LONG` of `TRIGGER_` is `prompt too
/// long`.
pub(super) fn words(name: &str, prefix: &str) -> String {
    let own = name.strip_prefix(prefix).unwrap_or(name);
    own.to_lowercase().replace('_', " ")
}

/// Formats a time in UTC, with seconds. Empty if the time is not set.
pub(super) fn time_text(time: Option<&prost_types::Timestamp>) -> String {
    let time = time.and_then(|time| jiff::Timestamp::new(time.seconds, time.nanos).ok());
    time.map_or_else(String::new, |time| {
        time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
    })
}

/// Formats a number of bytes with one decimal, in powers of 1,024.
#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub(super) fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < 1_024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1_024.0;
    let mut unit = 0;
    while value >= 1_024.0 && unit + 1 < UNITS.len() {
        value /= 1_024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A category of tokens in a bar.
#[derive(Debug, Clone)]
pub(super) struct BarSegment {
    pub(super) name: &'static str,
    pub(super) tokens: u64,
    pub(super) color: AnsiColor,
    pub(super) glyph: char,
}

/// Draws the context window as a bar: the tokens of each category and the free rest. A mark shows the compaction
/// threshold.
pub(super) fn context_bar(
    parts: &[BarSegment],
    window: u64,
    compact_at: u64,
    width: usize,
) -> String {
    let window = window.max(1);
    let cells = |tokens: u64| {
        let cells = tokens.saturating_mul(width as u64).div_ceil(window);
        usize::try_from(cells).unwrap_or(width).min(width)
    };
    let mut bar = String::new();
    let (mut used, mut filled) = (0, 0);
    for part in parts.iter().filter(|part| part.tokens > 0) {
        used += part.tokens;
        // The end of each segment is computed from the running sum, so rounding errors do not add up.
        let until = cells(used).max(filled);
        let style = Style::new().fg_color(Some(part.color.into()));
        let glyphs: String = std::iter::repeat_n(part.glyph, until - filled).collect();
        // Writing to a string cannot fail.
        let _ = write!(bar, "{style}{glyphs}{style:#}");
        filled = until;
    }
    // `mark` counts cells, so its last cell has the index `mark - 1`.
    let mark = cells(compact_at);
    for cell in filled..width {
        bar.push(if cell + 1 == mark { '┊' } else { '·' });
    }
    bar
}

/// Writes text to standard output. Control characters other than line breaks and tabs are escaped.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    write(anstream::stdout(), &escapes::lines(text))
}

/// Writes one line to standard output. Line breaks in the text are escaped.
pub(super) fn print_line(text: &str) -> anyhow::Result<()> {
    print_next(text).map(drop)
}

/// Like [`print_line`], for lines without an end. Returns false if the reader has closed the pipe.
pub(super) fn print_next(text: &str) -> anyhow::Result<bool> {
    let mut line = escapes::line(text).into_owned();
    line.push('\n');
    write_open(anstream::stdout(), &line)
}

/// Writes one line to standard error.
pub(super) fn note(text: &str) {
    // An error cannot be reported if standard error is closed.
    let _ = writeln!(anstream::stderr(), "{}", escapes::line(text));
}

/// Writes lines about the folders of agents before a report, or to standard error if the report is JSON.
pub(super) fn show_logs(lines: &[String], is_json: bool) -> anyhow::Result<()> {
    for line in lines {
        if is_json {
            note(line);
        } else {
            print_line(line)?;
        }
    }
    Ok(())
}

/// Writes text with colors to standard output. Control characters other than colors are escaped.
pub(super) fn print_styled(text: &str) -> anyhow::Result<()> {
    write(anstream::stdout(), &escapes::styled(text))
}

/// Writes a line of JSON to standard output. Control characters become JSON escapes.
pub(super) fn print_json(text: &str) -> anyhow::Result<()> {
    print_next_json(text).map(drop)
}

/// Like [`print_json`], for lines without an end. Returns false if the reader has closed the pipe.
pub(super) fn print_next_json(text: &str) -> anyhow::Result<bool> {
    let mut text = escapes::document(text).into_owned();
    text.push('\n');
    write_open(io::stdout(), &text)
}

/// Writes a document to standard output: unchanged to files and pipes, escaped on a terminal.
pub(super) fn print_document(text: &str) -> anyhow::Result<()> {
    write(escapes::TerminalDocument::stdout(), text)
}

/// Writes and flushes text. A closed pipe is no error, because its reader has read enough.
fn write(out: impl io::Write, text: &str) -> anyhow::Result<()> {
    write_open(out, text).map(drop)
}

/// Like [`write`]. Returns false if the pipe is closed.
fn write_open(mut out: impl io::Write, text: &str) -> anyhow::Result<bool> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(true),
    }
}

/// Returns text on one line, truncated to a number of characters.
pub(super) fn one_line(text: &str, max_chars: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(1_234_567), "1,234,567");
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(bytes(5 * 1_024 * 1_024), "5.0 MiB");
    }

    #[test]
    fn the_context_bar_shows_shares_and_the_threshold() {
        let part = |tokens, glyph| BarSegment {
            name: "",
            tokens,
            color: AnsiColor::Blue,
            glyph,
        };
        // Each part has 20 of 100 tokens, which are two of ten cells. The threshold of 90 is the ninth cell.
        let bar = context_bar(&[part(20, '#'), part(20, '=')], 100, 90, 10);
        let plain = anstream::adapter::strip_str(&bar).to_string();
        assert_eq!(plain, "##==····┊·");
        let full = context_bar(&[part(500, '#')], 100, 90, 10);
        assert_eq!(
            anstream::adapter::strip_str(&full).to_string(),
            "##########"
        );
    }
}
