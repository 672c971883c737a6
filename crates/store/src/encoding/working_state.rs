//! Encoding of the working state, and of its parts that compactions attached.

use palimpsest_core::event::WorkingStateUpdated;
use palimpsest_core::levels::attachments::{AttachmentKind, AttachmentRecord};
use palimpsest_core::session::{DelistedName, SessionWorkingState};
use palimpsest_core::working::{
    Capability, CapabilityKind, FileState, Note, NoteKind, PermissionLevel, PermissionRule,
    Permissions, Pin, PinTarget, Plan, PlanMode, Skill, Task, TaskStatus, WorkingState,
    WorkingStateChange, WorkingStateRemoval,
};

use super::error::DecodeError;
use super::stored_as::StoredAs;
use super::v1;

stored_enum! {
    TaskStatus = TaskStatus { Pending, InProgress, Completed, Cancelled }
    or "a task without a status"
}

stored_enum! {
    PermissionLevel = PermissionLevel { Allow, Ask, Deny }
    or "a permission without a level"
}

stored_enum! {
    NoteKind = NoteKind { Decision, Constraint, KnownIssue }
    or "a note without a kind"
}

stored_enum! {
    CapabilityKind = CapabilityKind { Tools, Agents, McpServers }
    or "a capability without a list"
}

stored_enum! {
    AttachmentKind = AttachmentKind {
        File, Instructions, Plan, PlanMode, Skill, Tasks, Tools, Agents, McpServers, Permissions, Notes, Pin,
    }
    or "an attachment without a kind"
}

stored_struct! {
    AttachmentRecord = Attached { kind, name, message, tokens, truncated, stale }
}

stored_struct! {
    WorkingStateUpdated = WorkingStateUpdated { request }
    inlined { change: WorkingStateChange { remove, set } }
}

stored_struct! {
    WorkingStateRemoval = WorkingStateRemoval {
        files, instruction_files, plan, plan_mode, skills, tasks, tools, agents, mcp_servers, permissions,
        notes, pins,
    }
    or default
}

stored_struct! {
    WorkingState = WorkingState {
        files, instruction_files, plan, plan_mode, skills, tasks, tools, agents, mcp_servers, permissions,
        notes, pins,
    }
    or default
}

stored_struct! {
    FileState = FileState { path, content, since }
    renamed { accessed = accessed_ms }
}

stored_struct! { Plan = Plan { path, content } }

stored_struct! { PlanMode = PlanMode { active, instructions } }

stored_struct! {
    Skill = Skill { name, content, path }
    renamed { invoked = invoked_ms }
}

stored_struct! {
    Task = Task { id, subject, description, status, blocked_by, blocks, agent }
    paired { metadata = metadata_names + metadata_values }
}

stored_struct! { Capability = Capability { name, description, discovered } }

stored_struct! { Permissions = Permissions { mode, rules } }

stored_struct! { PermissionRule = PermissionRule { level, tool, path } }

stored_struct! { Note = Note { id, kind, text } }

stored_struct! { DelistedName = Delisted { kind, name, revision } }

/// A pin. One without a message is a pinned text.
impl StoredAs<v1::Pin> for Pin {
    fn to_proto(&self) -> v1::Pin {
        let (message, block, text) = match &self.target {
            PinTarget::Message(message) => (Some(*message), None, None),
            PinTarget::Block(message, block) => (Some(*message), Some(*block), None),
            PinTarget::Text(text) => (None, None, Some(text)),
        };
        v1::Pin {
            id: self.id.to_proto(),
            message: message.to_proto(),
            block: block.to_proto(),
            text: text.map(ToString::to_string).unwrap_or_default(),
        }
    }

    fn from_proto(stored: v1::Pin) -> Result<Self, DecodeError> {
        let block: Option<u16> = StoredAs::from_proto(stored.block)?;
        let target = match (StoredAs::from_proto(stored.message)?, block) {
            (None, _) => PinTarget::Text(stored.text.into()),
            (Some(message), None) => PinTarget::Message(message),
            (Some(message), Some(block)) => PinTarget::Block(message, block),
        };
        Ok(Self {
            id: stored.id.into(),
            target,
        })
    }
}

/// The working state of a snapshot. Most sessions have none, so the default is not stored.
impl StoredAs<Option<v1::Working>> for SessionWorkingState {
    fn to_proto(&self) -> Option<v1::Working> {
        (*self != Self::default()).then(|| v1::Working {
            state: self.state.to_proto(),
            delisted: self.delisted.to_proto(),
        })
    }

    fn from_proto(stored: Option<v1::Working>) -> Result<Self, DecodeError> {
        let stored = stored.unwrap_or_default();
        Ok(Self::restore(
            StoredAs::from_proto(stored.state)?,
            StoredAs::from_proto(stored.delisted)?,
        ))
    }
}
