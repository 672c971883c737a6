//! Working state: files, plans, tasks, permissions and pins of an agent, as data. A compaction cannot lose it.
//!
//! The policy limits its size. Each entry has a key and is changed by it. `levels::attachments` selects the entries
//! that return to the view after a compaction, and writes their text.

mod change;
mod pins;

pub use change::{WorkingStateChange, WorkingStateRemoval};
pub use pins::Pins;

use std::sync::Arc;

use crate::ids::{MessageId, Ordinal, Timestamp};

/// The size of an entry without its texts, in bytes. It bounds the number of entries with empty texts.
const ENTRY_BYTES: u64 = 64;

/// All working state of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkingState {
    /// Files that the agent has read or written.
    pub files: Vec<FileState>,
    /// Instruction files.
    pub instruction_files: Vec<FileState>,
    /// The plan.
    pub plan: Option<Plan>,
    /// Plan mode.
    pub plan_mode: Option<PlanMode>,
    /// Skills that were invoked.
    pub skills: Vec<Skill>,
    /// Tasks.
    pub tasks: Vec<Task>,
    /// The tools that the model may use.
    pub tools: Vec<Capability>,
    /// The agents that the model may start.
    pub agents: Vec<Capability>,
    /// MCP servers and their instructions.
    pub mcp_servers: Vec<Capability>,
    /// The permissions of the agent.
    pub permissions: Option<Permissions>,
    /// Decisions, constraints and known issues.
    pub notes: Vec<Note>,
    /// Content that every level keeps byte for byte.
    pub pins: Vec<Pin>,
}

/// A file that the agent has read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    /// The path in the form that the tools use.
    pub path: Box<str>,
    /// The content. If the caller has not sent it, it is rebuilt from the transcript.
    pub content: Option<Arc<str>>,
    /// The time of the last read or write.
    pub accessed: Timestamp,
    /// The first message that can contain a newer state of the file.
    pub since: Ordinal,
}

/// The plan that the agent follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The path of its file. Empty if unknown.
    pub path: Box<str>,
    /// The text of the plan.
    pub content: Box<str>,
}

/// Plan mode: the agent plans and must not act yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanMode {
    /// True if plan mode is on.
    pub active: bool,
    /// The instructions for the model. Empty selects the default text.
    pub instructions: Box<str>,
}

/// A skill that was invoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// The name of the skill. The key of the entry.
    pub name: Box<str>,
    /// The instructions of the skill.
    pub content: Box<str>,
    /// The path of its file. Empty if unknown.
    pub path: Box<str>,
    /// The time of the last invocation.
    pub invoked: Timestamp,
}

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// The work has not started.
    Pending,
    /// The work has started.
    InProgress,
    /// The work is finished.
    Completed,
    /// The work was abandoned.
    Cancelled,
}

/// A task of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The id of the task. The key of the entry.
    pub id: Box<str>,
    /// The work to do, in one line.
    pub subject: Box<str>,
    /// Details of the work.
    pub description: Box<str>,
    /// The status.
    pub status: TaskStatus,
    /// Ids of the tasks that must be completed first.
    pub blocked_by: Vec<Box<str>>,
    /// Ids of the tasks that wait for this one.
    pub blocks: Vec<Box<str>>,
    /// The agent that works on the task. Empty for none.
    pub agent: Box<str>,
    /// The caller's own attributes, by name.
    pub metadata: Vec<(Box<str>, Box<str>)>,
}

/// A tool, an agent or an MCP server that the model may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// The name of the capability. The key of the entry.
    pub name: Box<str>,
    /// The description for the model.
    pub description: Box<str>,
    /// True if the model found it during the session.
    pub discovered: bool,
}

/// The permissions of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// The name of the mode.
    pub mode: Box<str>,
    /// The rules in order.
    pub rules: Vec<PermissionRule>,
}

/// The decision of a permission rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PermissionLevel {
    /// The action is allowed.
    Allow,
    /// A person decides.
    Ask,
    /// The action is denied.
    Deny,
}

/// One permission rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRule {
    /// The decision.
    pub level: PermissionLevel,
    /// The tool to which the rule applies. Empty for all tools.
    pub tool: Box<str>,
    /// The path or pattern to which the rule applies. Empty for all.
    pub path: Box<str>,
}

/// The kind of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoteKind {
    /// A decision.
    Decision,
    /// A condition that must stay true.
    Constraint,
    /// A known fault.
    KnownIssue,
}

/// A decision, a constraint or a known issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The id of the note. The key of the entry.
    pub id: Box<str>,
    /// The kind.
    pub kind: NoteKind,
    /// The text.
    pub text: Box<str>,
}

/// A pin: content that every level keeps byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The id of the pin. The key of the entry.
    pub id: Box<str>,
    /// The pinned content.
    pub target: PinTarget,
}

/// The pinned content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinTarget {
    /// A message of the transcript.
    Message(MessageId),
    /// A block of a message, by its index.
    Block(MessageId, u16),
    /// A text of the caller.
    Text(Box<str>),
}

/// The kind of a list of capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapabilityKind {
    /// Tools.
    Tools,
    /// Agents.
    Agents,
    /// MCP servers.
    McpServers,
}

impl CapabilityKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Agents, Self::McpServers];
}

impl WorkingState {
    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a list of capabilities.
    pub fn capabilities(&self, kind: CapabilityKind) -> &[Capability] {
        match kind {
            CapabilityKind::Tools => &self.tools,
            CapabilityKind::Agents => &self.agents,
            CapabilityKind::McpServers => &self.mcp_servers,
        }
    }

    /// Returns the size that the policy limits, in bytes: the texts, and 64 bytes per entry.
    pub fn bytes(&self) -> u64 {
        let mut size = Bytes::default();
        for file in self.files.iter().chain(&self.instruction_files) {
            size.entry([&*file.path, file.content.as_deref().unwrap_or_default()]);
        }
        if let Some(plan) = &self.plan {
            size.entry([&*plan.path, &plan.content]);
        }
        if let Some(mode) = &self.plan_mode {
            size.entry([&*mode.instructions]);
        }
        for skill in &self.skills {
            size.entry([&*skill.name, &skill.content, &skill.path]);
        }
        for task in &self.tasks {
            size.entry([&*task.id, &task.subject, &task.description, &task.agent]);
            // Each reference counts as an entry, because a list of empty ids would otherwise have no size.
            for other in task.blocked_by.iter().chain(&task.blocks) {
                size.entry([&**other]);
            }
            for (name, value) in &task.metadata {
                size.entry([&**name, value]);
            }
        }
        for capability in CapabilityKind::ALL
            .iter()
            .flat_map(|kind| self.capabilities(*kind))
        {
            size.entry([&*capability.name, &capability.description]);
        }
        if let Some(permissions) = &self.permissions {
            size.entry([&*permissions.mode]);
            for rule in &permissions.rules {
                size.entry([&*rule.tool, &rule.path]);
            }
        }
        for note in &self.notes {
            size.entry([&*note.id, &note.text]);
        }
        for pin in &self.pins {
            let text = match &pin.target {
                PinTarget::Text(text) => &**text,
                // The pinned content is in the transcript, so only the entry counts.
                PinTarget::Message(_) | PinTarget::Block(..) => "",
            };
            size.entry([&*pin.id, text]);
        }
        size.0
    }
}

/// A sum of sizes, in bytes.
#[derive(Default)]
struct Bytes(u64);

impl Bytes {
    fn entry<'t>(&mut self, texts: impl IntoIterator<Item = &'t str>) {
        let texts = texts.into_iter().map(|text| text.len() as u64);
        self.0 += ENTRY_BYTES + texts.sum::<u64>();
    }
}
