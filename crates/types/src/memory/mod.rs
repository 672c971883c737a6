//! `summary.md`: session memory, a document of ten sections about the task and its state.
//!
//! Headings and the guidance under them are fixed; bodies change. A person may edit the document, so
//! it is parsed tolerantly and no text is lost. The content is written by `palimpsest-facts` or a
//! model.

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
pub use document::{MemoryDocument, changed_sections};
pub use fit::is_cut_note;
pub use fit::{Fitted, SectionCut};
pub(crate) use section::Fence;
pub use section::SectionKind;
pub use section::heading;
pub use text::{MemoryText, SectionView};
