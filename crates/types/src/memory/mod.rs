//! `summary.md`: what a session's work is and where it stands, in ten sections.
//!
//! Headings and the line of guidance under each never change; bodies do. A person may edit the
//! document by hand, so it is read back tolerantly and nothing of it is lost. Not here: what is
//! written into it (`palimpsest-facts`, or a model), and when.

mod apply;
mod document;
mod fit;
mod parse;
mod placeholder;
mod section;
#[cfg(test)]
mod tests;
mod text;

pub use apply::{Applied, ApplyError, apply_sections};
pub use document::{Memory, changed_sections};
pub use fit::is_cut_note;
pub use fit::{Cut, Fitted};
pub(crate) use section::Fence;
pub use section::SectionKind;
pub use section::heading;
pub use text::{MemoryText, SectionView};
