//! Originals of tool results, and selections of their text.

mod read;
mod select;

pub use self::read::{in_file, in_message, stored_text};
pub use self::select::{MatchingLines, ResultSelection, line_of, newlines, range, search};
