//! The kinds and records of attachments that a compaction adds.

use crate::ids::Ordinal;

/// The kind of an attachment. Attachments are added in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttachmentKind {
    /// A recently read file.
    File,
    /// An instruction file.
    Instructions,
    /// The plan.
    Plan,
    /// An invoked skill.
    Skill,
    /// A statement that plan mode is on.
    PlanMode,
    /// The tasks.
    Tasks,
    /// The tools.
    Tools,
    /// The agents.
    Agents,
    /// MCP servers and their instructions.
    McpServers,
    /// Permission rules.
    Permissions,
    /// Decisions, constraints and known issues.
    Notes,
    /// A pinned text.
    Pin,
}

/// The record of an attachment that was added or omitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentRecord {
    /// The kind of the attachment.
    pub kind: AttachmentKind,
    /// The name. Empty for kinds with a single attachment.
    pub name: Box<str>,
    /// The message that contains the attachment. `None` if it exceeded the budget.
    pub message: Option<Ordinal>,
    /// Estimated tokens as attached. For an omitted attachment, the tokens that it would have had.
    pub tokens: u32,
    /// True if the content was cut to its limit.
    pub truncated: bool,
    /// True if the content may be outdated.
    pub stale: bool,
}

impl AttachmentRecord {
    /// Returns true if the attachment shows the current content of a whole file.
    pub fn shows_file(&self, path: &str) -> bool {
        let is_file = matches!(
            self.kind,
            AttachmentKind::File | AttachmentKind::Instructions
        );
        is_file && &*self.name == path && self.message.is_some() && !self.truncated && !self.stale
    }
}
