//! The table as a screen: the headline, the column names and as many rows as fit.

use std::time::Duration;

use anstyle::{AnsiColor, Style};

use super::table::{COLUMNS, NUMBERS, TopRows};
use crate::screen::Grid;

/// The maximum width of each column. The last one takes the rest.
const WIDTHS: [usize; 6] = [36, 16, 8, 9, 13, 24];
/// The blanks between two columns.
const GAP: usize = 2;

/// Draws the table. `problem` is the error of the last read.
pub(super) fn draw(
    table: &TopRows<'_>,
    problem: Option<&str>,
    interval: Duration,
    (width, height): (usize, usize),
) -> Grid {
    let mut grid = Grid::new(width, height);
    grid.put_cut(0, 0, &table.headline(), width, Style::new().bold());
    if let Some(problem) = problem {
        let red = Style::new().fg_color(Some(AnsiColor::Red.into()));
        grid.put_cut(0, 1, problem, width, red);
    } else {
        let hint = format!("updated every {interval:?} · q ends");
        grid.put_cut(0, 1, &hint, width, Style::new().dimmed());
    }
    let widths = widths(table, width);
    let header = COLUMNS.map(str::to_owned);
    put_row(&mut grid, 2, &header, &widths, Style::new().invert());
    for (at, row) in table
        .rows()
        .iter()
        .take(height.saturating_sub(3))
        .enumerate()
    {
        put_row(&mut grid, at + 3, row, &widths, Style::new());
    }
    grid
}

/// Returns the widths of the columns: as wide as their content, up to their limits.
fn widths(table: &TopRows<'_>, width: usize) -> [usize; 7] {
    let mut widths = [0; 7];
    for (at, limit) in WIDTHS.into_iter().enumerate() {
        let cells = table.rows().iter().map(|row| row[at].chars().count());
        let longest = cells.max().unwrap_or(0).max(COLUMNS[at].len());
        widths[at] = longest.min(limit);
    }
    let used: usize = widths.iter().map(|width| width + GAP).sum::<usize>() - GAP;
    // `used` contains the gap before the last column, whose own width is still 0.
    widths[6] = width.saturating_sub(used);
    widths
}

fn put_row(grid: &mut Grid, y: usize, cells: &[String; 7], widths: &[usize; 7], style: Style) {
    // The style of the header also covers the blanks.
    let blank = " ".repeat(grid.width);
    grid.put(0, y, &blank, style);
    let mut x = 0;
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let length = cell.chars().count();
        let indent = if NUMBERS.contains(&at) {
            width.saturating_sub(length)
        } else {
            0
        };
        grid.put_cut(x + indent, y, cell, width - indent, style);
        x += width + GAP;
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::Timestamp;

    use super::super::table::SortKey;
    use super::super::table::tests::page;
    use super::*;
    use crate::screen::runs;

    #[test]
    fn the_screen_shows_the_rows_that_fit_and_the_error_of_a_read() {
        let page = page();
        let now = Timestamp::from_millis(1_000_000);
        let rows = TopRows::new("p", &page, SortKey::Changed, now);
        let shown = |problem| {
            let grid = draw(&rows, problem, Duration::from_secs(2), (100, 5));
            let row = |y| {
                runs(grid.row(y))
                    .into_iter()
                    .map(|(_, _, text)| text)
                    .collect()
            };
            (0..5).map(row).collect::<Vec<String>>()
        };
        let lines = shown(None);
        assert!(lines[1].contains("updated every 2s"), "{lines:?}");
        assert!(lines[2].starts_with("session  state"), "{lines:?}");
        assert!(
            lines[3].starts_with("b        idle") && lines[3].ends_with("Mend b."),
            "{lines:?}"
        );
        assert!(lines[4].contains("1,700"), "{lines:?}");
        let failed = shown(Some("no server answers"));
        assert_eq!(failed[1], "no server answers");
        assert_eq!(failed[4], lines[4]);
    }
}
