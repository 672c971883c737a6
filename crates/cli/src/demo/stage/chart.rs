//! A chart of the tokens of each request, for both sessions.

use anstyle::{AnsiColor, Style};

use super::style::{colour, dim};
use crate::demo::picture::Picture;
use crate::screen::Grid;

/// Bars with a height of 0 to 8 eighths of a cell.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The width of the labels of the axis.
const AXIS: usize = 6;

/// The position and size of the chart.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChartArea {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// Draws the chart. Requests with the levels are solid. The excess of the other session is hatched, and red above the
/// context window.
pub(super) fn draw(grid: &mut Grid, picture: &Picture, place: ChartArea) {
    let window = u64::from(picture.budget.window_tokens).max(1);
    let largest = picture.without.largest().max(picture.with.largest());
    // The chart always includes the context window and a quarter more, so that early requests do not fill it.
    let top = u64::from(largest).max(window + window / 4);
    let (plot, columns) = (place.x + AXIS + 1, place.width.saturating_sub(AXIS + 1));
    let eighths = |tokens: u64| {
        let all = (place.height * 8) as u64;
        // Rounded up, so that even the smallest request has a visible bar.
        usize::try_from((tokens * all).div_ceil(top)).unwrap_or(0)
    };
    let with = max_per_column(&picture.with.sent, None, picture.requests, columns);
    let bare = max_per_column(
        &picture.without.sent,
        Some(&picture.without_at),
        picture.requests,
        columns,
    );
    for row in 0..place.height {
        // Rows are counted from below.
        let (y, from) = (place.y + place.height - 1 - row, row * 8);
        let over = (row as u64 * top) / place.height as u64 >= window;
        for column in 0..columns {
            let solid = with[column].map_or(0, |tokens| eighths(tokens.into()));
            let hatched = bare[column].map_or(0, |tokens| eighths(tokens.into()));
            let part = solid.saturating_sub(from).min(8);
            if part > 0 {
                grid.set(plot + column, y, EIGHTHS[part], colour(AnsiColor::Green));
            } else if hatched >= from + 4 {
                // A hatched cell is always full, so it stands for at least half of a cell.
                let style = if over { colour(AnsiColor::Red) } else { dim() };
                grid.set(plot + column, y, '░', style);
            }
        }
    }
    axis(grid, place, plot, columns, (window, top));
}

/// Draws the line of the context window and the labels.
fn axis(grid: &mut Grid, place: ChartArea, plot: usize, columns: usize, (window, top): (u64, u64)) {
    let end = place.x + AXIS;
    let line = usize::try_from(window * place.height as u64 / top).unwrap_or(0);
    let y = (place.y + place.height)
        .saturating_sub(line + 1)
        .max(place.y);
    for column in 0..columns {
        if grid
            .row(y)
            .get(plot + column)
            // The line is drawn on blank cells only, so that it covers no bar.
            .is_some_and(|cell| cell.glyph == ' ')
        {
            grid.set(plot + column, y, '┄', dim());
        }
    }
    grid.put_right(end, y, &short(window), Style::new());
    // In the top row, both labels would overlap.
    if y > place.y {
        grid.put_right(end, place.y, &short(top), dim());
    }
    grid.put_right(end, place.y + place.height - 1, "0", dim());
}

/// Returns the largest request of each column, or `None` for a column without a request.
fn max_per_column(
    tokens: &[u32],
    at: Option<&[usize]>,
    requests: usize,
    columns: usize,
) -> Vec<Option<u32>> {
    let mut largest = vec![None; columns];
    let requests = requests.max(1);
    let mut until = 0;
    for (index, tokens) in tokens.iter().enumerate() {
        // Requests count from 1, so `request - 1` below cannot underflow.
        let request = at.map_or(index + 1, |at| at.get(index).copied().unwrap_or(index + 1));
        // Each request extends to the start of the next one, so that a wide chart has no gaps.
        let (from, to) = (
            until.min((request - 1) * columns / requests),
            (request * columns).div_ceil(requests).min(columns),
        );
        for column in &mut largest[from.min(to)..to] {
            *column = (*column).max(Some(*tokens));
        }
        until = request * columns / requests;
    }
    largest
}

/// Formats tokens with K for thousands and M for millions.
pub(super) fn short(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..1_000_000 => format!("{}K", (tokens + 500) / 1_000),
        _ => format!("{}.{}M", tokens / 1_000_000, tokens % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_shows_the_maximum_of_its_requests() {
        let one =
            |tokens: &[u32], requests, columns| max_per_column(tokens, None, requests, columns);
        assert_eq!(one(&[5], 2, 4), [Some(5), Some(5), None, None]);
        assert_eq!(one(&[5, 9, 2], 4, 2), [Some(9), Some(2)]);
        // A request of only one session leaves no gap in the other.
        assert_eq!(
            max_per_column(&[5, 9], Some(&[1, 3]), 3, 3),
            [Some(5), Some(9), Some(9)]
        );
        assert_eq!(one(&[], 0, 3), [None; 3]);
    }

    #[test]
    fn large_numbers_are_abbreviated() {
        assert_eq!(
            [0, 999, 147_000, 1_250_000].map(short),
            ["0", "999", "147K", "1.2M"]
        );
    }
}
