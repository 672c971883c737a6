//! Working state: what an agent is in the middle of, as data, so that no model has to remember it.
//!
//! It is bounded by the policy, and changes by key. Not here: what of it comes back after a compaction
//! and in which words (`levels::attachments`).

mod change;
mod pins;

pub use change::{StateChange, WorkingStateRemoval};
pub use pins::Pins;

use std::sync::Arc;

use crate::ids::{MessageId, Ordinal, Timestamp};

/// What an entry costs beside its texts, so that many empty ones are bounded too.
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
    /// The agents that it may start.
    pub agents: Vec<Capability>,
    /// MCP servers and their instructions.
    pub mcp_servers: Vec<Capability>,
    /// What the agent may do.
    pub permissions: Option<Permissions>,
    /// Decisions, constraints and known issues.
    pub notes: Vec<Note>,
    /// What survives every level byte for byte.
    pub pins: Vec<Pin>,
}

/// A file as the agent knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    /// The path, as the tools name it.
    pub path: Box<str>,
    /// The content; rebuilt from the transcript where the caller has not given it.
    pub content: Option<Arc<str>>,
    /// When it was read or written last.
    pub accessed: Timestamp,
    /// The first message that can say something newer about it.
    pub since: Ordinal,
}

/// The plan that the agent follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Where it is kept; empty when that was not said.
    pub path: Box<str>,
    /// Its text.
    pub content: Box<str>,
}

/// Whether the agent is planning and must not act yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanMode {
    /// Whether it is on.
    pub active: bool,
    /// What the model is told about it; empty for the service's own words.
    pub instructions: Box<str>,
}

/// A skill that was invoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: Box<str>,
    /// Its instructions.
    pub content: Box<str>,
    /// Where they are kept; empty when that was not said.
    pub path: Box<str>,
    /// When it was invoked last.
    pub invoked: Timestamp,
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Done.
    Completed,
    /// Given up.
    Cancelled,
}

/// A task of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: Box<str>,
    /// What is to be done.
    pub subject: Box<str>,
    /// More about it.
    pub description: Box<str>,
    /// Where it stands.
    pub status: TaskStatus,
    /// Tasks that must be done before it.
    pub blocked_by: Vec<Box<str>>,
    /// Tasks that wait for it.
    pub blocks: Vec<Box<str>>,
    /// The agent that works on it; empty for none.
    pub agent: Box<str>,
    /// The caller's own attributes, by name.
    pub metadata: Vec<(Box<str>, Box<str>)>,
}

/// A tool, an agent or an MCP server that the model may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// Its name.
    pub name: Box<str>,
    /// What the model is told about it.
    pub description: Box<str>,
    /// Whether the model found it during the session.
    pub discovered: bool,
}

/// What the agent may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// The name of the mode.
    pub mode: Box<str>,
    /// The rules in order.
    pub rules: Vec<PermissionRule>,
}

/// How a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PermissionLevel {
    /// It may be done.
    Allow,
    /// A human is asked.
    Ask,
    /// It may not be done.
    Deny,
}

/// One permission rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRule {
    /// How it decides.
    pub level: PermissionLevel,
    /// The tool it is about; empty for every tool.
    pub tool: Box<str>,
    /// The path or pattern it is about; empty for everything.
    pub path: Box<str>,
}

/// What a note is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoteKind {
    /// Something that was decided.
    Decision,
    /// Something that must hold.
    Constraint,
    /// Something that is known to be wrong.
    KnownIssue,
}

/// A decision, a constraint or a known issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Its id.
    pub id: Box<str>,
    /// What it is.
    pub kind: NoteKind,
    /// Its text.
    pub text: Box<str>,
}

/// What survives every level byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Its id.
    pub id: Box<str>,
    /// What is pinned.
    pub target: PinTarget,
}

/// What is pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinTarget {
    /// A message of the transcript.
    Message(MessageId),
    /// A block of one.
    Block(MessageId, u16),
    /// A text of the caller's own.
    Text(Box<str>),
}

/// A list of capabilities.
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Agents, Self::McpServers];
}

impl WorkingState {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// One of its lists of capabilities.
    pub fn capabilities(&self, kind: CapabilityKind) -> &[Capability] {
        match kind {
            CapabilityKind::Tools => &self.tools,
            CapabilityKind::Agents => &self.agents,
            CapabilityKind::McpServers => &self.mcp_servers,
        }
    }

    /// What counts towards the policy's limit: the bytes of its texts, and some for each entry.
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
                PinTarget::Message(_) | PinTarget::Block(..) => "",
            };
            size.entry([&*pin.id, text]);
        }
        size.0
    }
}

/// A sum of bytes.
#[derive(Default)]
struct Bytes(u64);

impl Bytes {
    fn entry<'t>(&mut self, texts: impl IntoIterator<Item = &'t str>) {
        let texts = texts.into_iter().map(|text| text.len() as u64);
        self.0 += ENTRY_BYTES + texts.sum::<u64>();
    }
}
