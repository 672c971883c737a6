//! The service's tools for the model: their definitions, and the form of their answers.

mod definitions;
mod page;
mod runner;

pub use self::definitions::{ToolDefinition, all, by_name, tokens};
pub use self::page::{NOTE_BYTES, page};
pub use self::runner::{ToolAnswer, ToolRunner};
