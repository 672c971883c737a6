//! Where it is shown: a live picture on a terminal, plain lines anywhere else.

use super::happened::Happened;
use super::picture::Picture;

pub(super) enum Stage { Plain }
impl Stage {
    pub(super) fn open() -> Self { Self::Plain }
    pub(super) fn is_live(&self) -> bool { false }
    pub(super) fn tell(&mut self, happened: &Happened) { let _ = crate::cli::output::print(&format!("{}\n", happened.line())); }
    pub(super) fn show(&mut self, _picture: &Picture) {}
    pub(super) fn close(&mut self) {}
}
pub(super) fn svg(_picture: &Picture) -> String { String::new() }
