//! Originals of tool results, and selections of their text.

mod locate;
mod persist;
mod read;
mod select;

pub use self::locate::{CallName, LocateError, LocatedResult, ResultLocation, ResultName, locate};
pub use self::persist::persist;
pub use self::read::{in_file, in_message, stored_text};
pub use self::select::{MatchingLines, ResultSelection, line_of, newlines, range, search};
