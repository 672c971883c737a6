//! A grid of characters, independent of the output.

use anstyle::Style;

/// A character with its style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) glyph: char,
    pub(crate) style: Style,
}

/// Rows of cells. Drawing outside the grid has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) width: usize,
    pub(crate) height: usize,
    cells: Vec<Cell>,
}

impl Grid {
    pub(crate) fn new(width: usize, height: usize) -> Self {
        let blank = Cell {
            glyph: ' ',
            style: Style::new(),
        };
        Self {
            width,
            height,
            cells: vec![blank; width * height],
        }
    }

    /// Returns a row, or no cells if the row does not exist.
    pub(crate) fn row(&self, y: usize) -> &[Cell] {
        let cells = y * self.width..(y + 1) * self.width;
        self.cells.get(cells).unwrap_or_default()
    }

    pub(crate) fn set(&mut self, x: usize, y: usize, glyph: char, style: Style) {
        if x < self.width && y < self.height {
            self.cells[y * self.width + x] = Cell { glyph, style };
        }
    }

    /// Writes a text and returns the column after it.
    ///
    /// Control characters and characters that can be wider than a cell are replaced, so that no text breaks the picture.
    pub(crate) fn put(&mut self, x: usize, y: usize, text: &str, style: Style) -> usize {
        let mut at = x;
        for glyph in text.chars() {
            let glyph = match glyph {
                ' '..='~' => glyph,
                _ if glyph.is_control() => ' ',
                // Latin letters, punctuation, and arrows up to block elements. A wide character would shift the rest of
                // its row.
                '\u{a0}'..='\u{24f}' | '\u{2010}'..='\u{205e}' | '\u{2190}'..='\u{25ff}' => glyph,
                _ => '?',
            };
            self.set(at, y, glyph, style);
            at += 1;
        }
        at
    }

    /// Writes a text, truncated to a width with an ellipsis.
    pub(crate) fn put_cut(&mut self, x: usize, y: usize, text: &str, width: usize, style: Style) {
        if text.chars().count() <= width {
            self.put(x, y, text, style);
            return;
        }
        let cut: String = text.chars().take(width.saturating_sub(1)).collect();
        let end = self.put(x, y, &cut, style);
        if width > 0 {
            self.set(end, y, '…', style);
        }
    }

    /// Writes a text that ends before a column. Returns its first column.
    pub(crate) fn put_right(&mut self, end: usize, y: usize, text: &str, style: Style) -> usize {
        let x = end.saturating_sub(text.chars().count());
        self.put(x, y, text, style);
        x
    }
}

/// Returns the cells of a row as runs of one style, without trailing blanks.
pub(crate) fn runs(row: &[Cell]) -> Vec<(usize, Style, String)> {
    let blank = |cell: &Cell| cell.glyph == ' ';
    let end = row
        .iter()
        // A row is cleared before it is painted, so blanks at its end need no output.
        .rposition(|cell| !blank(cell))
        .map_or(0, |at| at + 1);
    let mut runs: Vec<(usize, Style, String)> = Vec::new();
    for (x, cell) in row[..end].iter().enumerate() {
        match runs.last_mut() {
            Some((_, style, text)) if *style == cell.style => text.push(cell.glyph),
            _ => runs.push((x, cell.style, cell.glyph.to_string())),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(grid: &Grid, y: usize) -> String {
        grid.row(y).iter().map(|cell| cell.glyph).collect()
    }

    #[test]
    fn text_is_clipped_to_the_grid_without_control_characters() {
        let mut grid = Grid::new(8, 2);
        grid.put(5, 0, "abcdef", Style::new());
        grid.put(0, 7, "below", Style::new());
        assert_eq!(text(&grid, 0), "     abc");
        grid.put(0, 1, "a\u{1b}[2J\tb", Style::new());
        assert_eq!(text(&grid, 1), "a [2J b ");
        grid.put_cut(0, 0, "abcdef", 4, Style::new());
        assert_eq!(text(&grid, 0), "abc… abc");
        grid.put_right(8, 1, "xy", Style::new());
        assert_eq!(text(&grid, 1), "a [2J xy");
    }

    #[test]
    fn a_row_is_split_into_runs_of_one_style() {
        let mut grid = Grid::new(6, 1);
        let bold = Style::new().bold();
        grid.put(0, 0, "ab", bold);
        grid.put(2, 0, "c", Style::new());
        let expected = vec![
            (0, bold, "ab".to_owned()),
            (2, Style::new(), "c".to_owned()),
        ];
        assert_eq!(runs(grid.row(0)), expected);
    }
}
