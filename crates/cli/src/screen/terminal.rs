//! The terminal: the alternate screen, of which only changed rows are painted. The former state is restored afterwards.

use std::io::{self, IsTerminal as _, Write as _};

use anstyle::Style;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::queue;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, size,
};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use super::grid::{Grid, runs};

/// The columns and rows of a terminal that does not report its size.
const USUAL_SIZE: (u16, u16) = (80, 24);
/// The value that disables a special character.
const NO_CHARACTER: u8 = 0;

/// The terminal while a command shows a screen. Dropping the value restores the terminal, also after an error or a panic.
pub(crate) struct Terminal {
    colour: bool,
    /// The input mode before, if standard input is a terminal.
    keys: Option<Termios>,
    painted: Option<Grid>,
}

impl Terminal {
    /// Opens the alternate screen, if standard output is a terminal that supports it.
    pub(crate) fn open() -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if !io::stdout().is_terminal() || is_dumb {
            return None;
        }
        let mut out = Vec::new();
        queue!(out, EnterAlternateScreen, Hide).ok()?;
        io::stdout().write_all(&out).ok()?;
        let choice = anstream::AutoStream::choice(&io::stdout());
        Some(Self {
            colour: choice != anstream::ColorChoice::Never,
            keys: disable_echo(),
            painted: None,
        })
    }

    pub(crate) fn colour(&self) -> bool {
        self.colour
    }

    /// Returns the current columns and rows.
    pub(crate) fn size() -> (usize, usize) {
        let (width, height) = match size() {
            // A new pseudoterminal has the size 0 until a program sets another one.
            Ok((0, _) | (_, 0)) | Err(_) => USUAL_SIZE,
            Ok(size) => size,
        };
        (width.into(), height.into())
    }

    /// Paints the rows that changed.
    pub(crate) fn paint(&mut self, grid: Grid) -> io::Result<()> {
        let mut out = Vec::new();
        // The terminal shows all changes at once, so no half-painted frame is visible.
        queue!(out, BeginSynchronizedUpdate)?;
        // After a change of the size, terminals can move or wrap rows, so no old row is known.
        let same_size = |old: &&Grid| (old.width, old.height) == (grid.width, grid.height);
        let old = self.painted.as_ref().filter(same_size);
        if old.is_none() {
            queue!(out, Clear(ClearType::All))?;
        }
        for y in 0..grid.height {
            if old.is_some_and(|old| old.row(y) == grid.row(y)) {
                continue;
            }
            let row = u16::try_from(y).unwrap_or(u16::MAX);
            queue!(out, MoveTo(0, row), Clear(ClearType::CurrentLine))?;
            for (_, style, text) in runs(grid.row(y)) {
                // The writer is no stream of `anstream`, which would remove colors that the user disabled.
                let style = if self.colour { style } else { Style::new() };
                write!(out, "{style}{text}{style:#}")?;
            }
        }
        queue!(out, EndSynchronizedUpdate)?;
        let mut stdout = io::stdout().lock();
        stdout.write_all(&out)?;
        stdout.flush()?;
        self.painted = Some(grid);
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut out = Vec::new();
        // The terminal can be closed already, so errors are ignored.
        let _ = queue!(out, Show, LeaveAlternateScreen);
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(&out).and_then(|()| stdout.flush());
        if let Some(keys) = &self.keys {
            // The flush discards keys that were typed meanwhile, which are not meant for the shell.
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, keys);
        }
    }
}

/// Disables echo, so that keys do not show in the picture, and Ctrl-Z, which would stop the process on the alternate
/// screen. Ctrl-C still sends SIGINT. Returns the former mode.
fn disable_echo() -> Option<Termios> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return None;
    }
    let before = tcgetattr(&stdin).ok()?;
    let mut silent = before.clone();
    silent
        .local_modes
        // Without `ICANON`, a key such as `q` arrives without Enter.
        .remove(LocalModes::ECHO | LocalModes::ICANON);
    silent.special_codes[SpecialCodeIndex::VSUSP] = NO_CHARACTER;
    tcsetattr(&stdin, OptionalActions::Flush, &silent).ok()?;
    Some(before)
}
