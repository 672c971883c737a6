//! A frame as SVG, for documentation pages.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Color, Effects, Style};

use crate::screen::{Cell, Grid};

/// The width and height of a cell in a common monospaced font of 14 pixels.
const CELL: (f64, f64) = (8.4, 18.0);
const PADDING: f64 = 18.0;
/// The distance from the top of a cell to the baseline of its text.
const BASE: f64 = 13.5;

/// Draws a frame.
pub(super) fn draw(grid: &Grid) -> String {
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut svg, grid);
    svg
}

#[expect(clippy::cast_precision_loss, reason = "coordinates are small")]
fn write_all(svg: &mut String, grid: &Grid) -> std::fmt::Result {
    let width = grid.width as f64 * CELL.0 + 2.0 * PADDING;
    let height = grid.height as f64 * CELL.1 + 2.0 * PADDING;
    writeln!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img" aria-label="palimpsest demo: the last picture" font-family="ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="14">
<title>palimpsest demo: the last picture</title>
<rect width="100%" height="100%" rx="8" fill="#12161d"/>"##
    )?;
    for y in 0..grid.height {
        let top = PADDING + y as f64 * CELL.1;
        let row = grid.row(y);
        let mut x = 0;
        while x < row.len() {
            let end = (x..row.len()).find(|at| !alike(&row[*at], &row[x]));
            let end = end.unwrap_or(row.len());
            let left = PADDING + x as f64 * CELL.0;
            let width = (end - x) as f64 * CELL.0;
            run(svg, &row[x..end], (left, top, width))?;
            x = end;
        }
    }
    svg.push_str("</svg>\n");
    Ok(())
}

/// Returns true if two cells are drawn as one element.
fn alike(a: &Cell, b: &Cell) -> bool {
    // Two blanks look the same in any style, so a change of style between them ends no element.
    let same = a.style == b.style || (a.glyph == ' ' && b.glyph == ' ');
    match (shape(a.glyph), shape(b.glyph)) {
        (None, None) => same,
        // Cells of one height become one rectangle. Letters and rectangles are different elements.
        (a_shape, b_shape) => same && a_shape == b_shape,
    }
}

/// Returns the filled share of a cell from below and its opacity, for a block character.
fn shape(glyph: char) -> Option<(f64, f64)> {
    const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let share = |at: usize| [0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0][at];
    match glyph {
        '░' => Some((1.0, 0.28)),
        '▒' => Some((1.0, 0.5)),
        '▓' => Some((1.0, 0.75)),
        _ => EIGHTHS
            .iter()
            .position(|one| *one == glyph)
            .map(|at| (share(at), 1.0)),
    }
}

fn run(svg: &mut String, cells: &[Cell], (left, top, width): (f64, f64, f64)) -> std::fmt::Result {
    let Some(first) = cells.first() else {
        return Ok(());
    };
    let fill = fill(first.style);
    if let Some((share, density)) = shape(first.glyph) {
        let tall = CELL.1 * share;
        let y = top + CELL.1 - tall;
        // The overlap prevents visible seams between neighbours.
        return writeln!(
            svg,
            r#"<rect x="{left:.1}" y="{y:.1}" width="{:.1}" height="{:.1}" fill="{fill}" fill-opacity="{density}"/>"#,
            width + 0.2,
            tall + 0.2
        );
    }
    let text: String = cells.iter().map(|cell| cell.glyph).collect();
    // The background is one rectangle, so blanks need no element.
    if text.trim().is_empty() {
        return Ok(());
    }
    let is_bold = first.style.get_effects().contains(Effects::BOLD);
    let weight = if is_bold { r#" font-weight="700""# } else { "" };
    // `textLength` keeps the columns aligned in any font.
    writeln!(
        svg,
        r#"<text x="{left:.1}" y="{:.1}" fill="{fill}"{weight} textLength="{width:.1}" xml:space="preserve">{}</text>"#,
        top + BASE,
        escaped(&text)
    )
}

/// Returns the colour of a style in the dark theme of the SVG.
fn fill(style: Style) -> &'static str {
    match style.get_fg_color() {
        Some(Color::Ansi(AnsiColor::Red)) => "#e5707a",
        Some(Color::Ansi(AnsiColor::Green)) => "#7fbf7f",
        Some(Color::Ansi(AnsiColor::Yellow)) => "#dcb05a",
        Some(Color::Ansi(AnsiColor::Blue)) => "#6ca5e8",
        Some(Color::Ansi(AnsiColor::Magenta)) => "#c58fe0",
        Some(Color::Ansi(AnsiColor::Cyan)) => "#5fc2c9",
        Some(Color::Ansi(AnsiColor::BrightBlack)) => "#6f7a8a",
        _ => "#d5dae2",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn svg_draws_letters_as_text_and_block_characters_as_rectangles() {
        let mut grid = Grid::new(12, 2);
        grid.put(0, 0, "a<b", Style::new().bold());
        grid.put(4, 1, "██▄", Style::new());
        let svg = draw(&grid);
        assert!(
            svg.contains(">a&lt;b<") && svg.contains("font-weight"),
            "{svg}"
        );
        // The background, the two full cells as one, and the half cell.
        assert_eq!(svg.matches("<rect").count(), 3, "{svg}");
        assert!(svg.trim_end().ends_with("</svg>"));
    }
}
