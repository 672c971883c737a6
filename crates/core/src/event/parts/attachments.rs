//! Contents that a compaction attaches.

use crate::ids::Ordinal;

/// What kind of thing an attachment is. The order is that in which they are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttachmentKind {
    /// A file that was read recently.
    File,
    /// An instruction file.
    Instructions,
    /// The plan.
    Plan,
    /// A skill that was invoked.
    Skill,
    /// That plan mode is on.
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
    /// A pin.
    Pin,
}

/// What a compaction attached, or could not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentRecord {
    /// What it is.
    pub kind: AttachmentKind,
    /// Its name; empty where there is only one.
    pub name: Box<str>,
    /// The message that holds it; none when it found no room.
    pub message: Option<Ordinal>,
    /// Its estimated size as attached; of one that found no room, what it would have had.
    pub tokens: u32,
    /// Whether it was cut to its limit.
    pub truncated: bool,
    /// Whether its content may be out of date.
    pub stale: bool,
}
