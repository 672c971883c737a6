//! Writers of transcript files. `import` reads the complete format and that of Claude Code.

mod claude_code;
mod complete;
mod line;
mod messages;
mod original;

pub use self::claude_code::ClaudeCodeWriter;
pub use self::complete::CompleteWriter;
pub use self::messages::json_messages;
pub use self::original::{BlobLoss, OriginalMessage, PendingResult, UnreadableResult};
