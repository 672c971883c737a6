//! The output of the demo: a live picture on a terminal, or plain lines elsewhere.
//!
//! The picture is drawn on a grid of cells. The grid is painted on the terminal, printed into its scrollback, written
//! as SVG and read by tests. `ratatui` would add only layout, at the cost of thirty crates.

mod chart;
mod frame;
mod style;
mod svg;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use super::picture::Picture;
use super::timeline::TimelineEntry;
use crate::output::{number, print, print_line, print_styled};
use crate::screen::{Terminal, runs};

/// The width and height of the SVG in cells. The height also limits the picture in the scrollback.
const PAGE: (usize, usize) = (110, 34);

/// The output of the demo.
pub(super) enum Display {
    Live(Terminal),
    Plain {
        /// The number of user turns at the last printed line.
        asked: usize,
    },
}

impl Display {
    /// Opens a live picture if standard output is a terminal.
    pub(super) fn open() -> Self {
        Terminal::open().map_or(Self::Plain { asked: 0 }, Self::Live)
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    /// Prints a timeline entry, unless the picture shows it.
    pub(super) fn print_entry(&mut self, entry: &TimelineEntry) -> anyhow::Result<()> {
        match self {
            Self::Live(_) => Ok(()),
            Self::Plain { .. } => print_line(&entry.line()),
        }
    }

    /// Paints the picture, or prints a line at the beginning of a user turn.
    pub(super) fn show(&mut self, picture: &Picture) -> anyhow::Result<()> {
        match self {
            Self::Live(terminal) => {
                let frame = frame::draw(picture, Terminal::size(), terminal.colour());
                Ok(terminal.paint(frame)?)
            }
            Self::Plain { asked } if *asked != picture.asked || picture.done => {
                *asked = picture.asked;
                print(&progress(picture))
            }
            Self::Plain { .. } => Ok(()),
        }
    }

    /// Restores the terminal and prints the last picture into its scrollback.
    pub(super) fn close(self, picture: &Picture) -> anyhow::Result<()> {
        let Self::Live(terminal) = self else {
            return Ok(());
        };
        let coloured = terminal.colour();
        // Dropping the terminal leaves the alternate screen. The picture is then printed into the scrollback.
        drop(terminal);
        let (width, height) = Terminal::size();
        let grid = frame::draw(picture, (width, height.min(PAGE.1)), coloured);
        let mut out = String::new();
        for y in 0..grid.height {
            for (_, style, text) in runs(grid.row(y)) {
                // Writing to a string cannot fail.
                let _ = write!(out, "{style}{text}{style:#}");
            }
            out.push('\n');
        }
        print_styled(&out)
    }
}

/// Returns the line at the beginning of a user turn.
fn progress(picture: &Picture) -> String {
    format!(
        "turn {:>2} of {}  request {:>3}  {:>7} tokens  summary.md version {}, {} tokens\n",
        picture.asked,
        picture.asks,
        picture.with.sent.len(),
        number(picture.budget.used_tokens.into()),
        picture.memory.version,
        number(picture.memory.tokens.into()),
    )
}

/// Returns the picture as SVG.
pub(super) fn svg(picture: &Picture) -> String {
    svg::draw(&frame::draw(picture, PAGE, true))
}
