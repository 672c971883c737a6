//! A screen of a terminal: a grid of characters, the alternate screen on which the grid is painted, and the signals that
//! end it. The live pictures of `demo` and `top` use it.

mod grid;
mod interrupt;
mod terminal;

pub(crate) use self::grid::{Cell, Grid, runs};
pub(crate) use self::interrupt::{INTERRUPTED, Interrupt};
pub(crate) use self::terminal::Terminal;
