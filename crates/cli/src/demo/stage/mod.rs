//! Where it is shown: a live picture on a terminal, plain lines anywhere else.
//!
//! The picture is drawn on a grid of cells of our own: it goes to the terminal, into the scrollback and into
//! an SVG, and tests read it. What `ratatui` would add to that is layout, at thirty crates.

mod chart;
mod frame;
mod grid;
mod style;
mod svg;
mod terminal;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use self::grid::runs;
use self::terminal::Terminal;
use super::picture::Picture;
use super::timeline::TimelineEntry;
use crate::output::{number, print, print_line, print_styled};

/// The size of the picture as SVG, and at most of the one that stays in the scrollback.
const PAGE: (usize, usize) = (110, 34);

/// Where it is shown.
pub(super) enum Display {
    Live(Terminal),
    Plain {
        /// How many times a person had spoken when it was told last.
        asked: usize,
    },
}

impl Display {
    /// A live picture where there is a terminal for it.
    pub(super) fn open() -> Self {
        Terminal::open().map_or(Self::Plain { asked: 0 }, Self::Live)
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    /// Something happened.
    pub(super) fn print_entry(&mut self, happened: &TimelineEntry) -> anyhow::Result<()> {
        match self {
            Self::Live(_) => Ok(()),
            Self::Plain { .. } => print_line(&happened.line()),
        }
    }

    /// Things are as the picture says.
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

    /// Gives the terminal back, and leaves the last picture in its scrollback.
    pub(super) fn close(self, picture: &Picture) -> anyhow::Result<()> {
        let Self::Live(terminal) = self else {
            return Ok(());
        };
        let coloured = terminal.colour();
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

/// Where it stands, at the beginning of a turn.
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

/// The picture as SVG.
pub(super) fn svg(picture: &Picture) -> String {
    svg::draw(&frame::draw(picture, PAGE, true))
}
