//! Writers of transcript files. `import` reads the complete format and those of Claude Code and Codex.

mod claude_code;
mod codex;
mod complete;
mod line;
mod messages;
mod original;
mod view_items;

pub use self::claude_code::ClaudeCodeWriter;
pub use self::codex::CodexWriter;
pub use self::complete::CompleteWriter;
pub use self::messages::{json_messages, messages_to_continue};
pub use self::original::{BlobLoss, OriginalMessage, PendingResult, UnreadableResult};
