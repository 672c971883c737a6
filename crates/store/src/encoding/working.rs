//! Encoding of the working state, and of its parts that compactions attached.

use palimpsest_core::event::WorkingStateUpdated;
use palimpsest_core::ids::{MessageId, Ordinal, Revision, Timestamp};
use palimpsest_core::levels::attachments::{AttachmentKind, AttachmentRecord};
use palimpsest_core::session::{DelistedName, SessionWorkingState};
use palimpsest_core::working::{
    Capability, CapabilityKind, FileState, Note, NoteKind, PermissionLevel, PermissionRule,
    Permissions, Pin, PinTarget, Plan, PlanMode, Skill, StateChange, Task, TaskStatus,
    WorkingState, WorkingStateRemoval,
};
use uuid::Uuid;

use super::error::{DecodeError, sixteen};
use super::stamp::{read_stamp, write_stamp};
use super::v1;

/// Generates both conversions for an enum with the same variant names in the domain and in the storage
/// proto.
macro_rules! same_names {
    ($write:ident, $read:ident, $type:ident, [$($name:ident),*], $unknown:literal) => {
        const fn $write(value: $type) -> v1::$type {
            match value {
                $($type::$name => v1::$type::$name,)*
            }
        }

        const fn $read(stored: v1::$type) -> Result<$type, DecodeError> {
            match stored {
                $(v1::$type::$name => Ok($type::$name),)*
                v1::$type::Unspecified => Err(DecodeError::Damaged($unknown)),
            }
        }
    };
}

same_names!(
    write_status,
    read_status,
    TaskStatus,
    [Pending, InProgress, Completed, Cancelled],
    "a task that stands nowhere"
);
same_names!(
    write_level,
    read_level,
    PermissionLevel,
    [Allow, Ask, Deny],
    "a permission of no level"
);
same_names!(
    write_note_kind,
    read_note_kind,
    NoteKind,
    [Decision, Constraint, KnownIssue],
    "a note of no kind"
);
same_names!(
    write_list,
    read_list,
    CapabilityKind,
    [Tools, Agents, McpServers],
    "a capability of no list"
);
same_names!(
    write_kind,
    read_kind,
    AttachmentKind,
    [
        File,
        Instructions,
        Plan,
        PlanMode,
        Skill,
        Tasks,
        Tools,
        Agents,
        McpServers,
        Permissions,
        Notes,
        Pin
    ],
    "an attachment of no kind"
);

pub(super) fn write_updated(event: &WorkingStateUpdated) -> v1::WorkingStateUpdated {
    v1::WorkingStateUpdated {
        remove: Some(write_removal(&event.change.remove)),
        set: Some(write_state(&event.change.set)),
        request: event.request.as_ref().map(write_stamp),
    }
}

pub(super) fn read_updated(
    stored: v1::WorkingStateUpdated,
) -> Result<WorkingStateUpdated, DecodeError> {
    Ok(WorkingStateUpdated {
        change: StateChange {
            remove: read_removal(stored.remove.unwrap_or_default()),
            set: read_state(stored.set.unwrap_or_default())?,
        },
        request: read_stamp(stored.request)?,
    })
}

pub(super) fn write(working: &SessionWorkingState) -> Option<v1::Working> {
    // Most sessions have no working state, so the default is not stored.
    (*working != SessionWorkingState::default()).then(|| v1::Working {
        state: Some(write_state(&working.state)),
        delisted: working
            .delisted
            .iter()
            .map(|gone| v1::Delisted {
                kind: write_list(gone.kind).into(),
                name: gone.name.to_string(),
                revision: gone.revision.get(),
            })
            .collect(),
    })
}

pub(super) fn read(stored: Option<v1::Working>) -> Result<SessionWorkingState, DecodeError> {
    let stored = stored.unwrap_or_default();
    let gone = |gone: v1::Delisted| {
        Ok::<_, DecodeError>(DelistedName {
            kind: read_list(gone.kind())?,
            name: gone.name.into(),
            revision: Revision::new(gone.revision),
        })
    };
    let state = read_state(stored.state.unwrap_or_default())?;
    Ok(SessionWorkingState::restore(
        state,
        all(stored.delisted, gone)?,
    ))
}

pub(super) fn write_attached(attached: &[AttachmentRecord]) -> Vec<v1::Attached> {
    let one = |one: &AttachmentRecord| v1::Attached {
        kind: write_kind(one.kind).into(),
        name: one.name.to_string(),
        message: one.message.map(Ordinal::get),
        tokens: one.tokens,
        truncated: one.truncated,
        stale: one.stale,
    };
    attached.iter().map(one).collect()
}

pub(super) fn read_attached(
    stored: Vec<v1::Attached>,
) -> Result<Vec<AttachmentRecord>, DecodeError> {
    all(stored, |one| {
        Ok(AttachmentRecord {
            kind: read_kind(one.kind())?,
            name: one.name.into(),
            message: one.message.map(Ordinal::new),
            tokens: one.tokens,
            truncated: one.truncated,
            stale: one.stale,
        })
    })
}

fn all<S, T>(
    stored: Vec<S>,
    read: impl Fn(S) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    stored.into_iter().map(read).collect()
}

fn texts(texts: &[Box<str>]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn boxed(stored: Vec<String>) -> Vec<Box<str>> {
    stored.into_iter().map(String::into_boxed_str).collect()
}

fn write_removal(removal: &WorkingStateRemoval) -> v1::WorkingStateRemoval {
    v1::WorkingStateRemoval {
        files: texts(&removal.files),
        instruction_files: texts(&removal.instruction_files),
        plan: removal.plan,
        plan_mode: removal.plan_mode,
        skills: texts(&removal.skills),
        tasks: texts(&removal.tasks),
        tools: texts(&removal.tools),
        agents: texts(&removal.agents),
        mcp_servers: texts(&removal.mcp_servers),
        permissions: removal.permissions,
        notes: texts(&removal.notes),
        pins: texts(&removal.pins),
    }
}

fn read_removal(stored: v1::WorkingStateRemoval) -> WorkingStateRemoval {
    WorkingStateRemoval {
        files: boxed(stored.files),
        instruction_files: boxed(stored.instruction_files),
        plan: stored.plan,
        plan_mode: stored.plan_mode,
        skills: boxed(stored.skills),
        tasks: boxed(stored.tasks),
        tools: boxed(stored.tools),
        agents: boxed(stored.agents),
        mcp_servers: boxed(stored.mcp_servers),
        permissions: stored.permissions,
        notes: boxed(stored.notes),
        pins: boxed(stored.pins),
    }
}

fn write_state(state: &WorkingState) -> v1::WorkingState {
    v1::WorkingState {
        files: state.files.iter().map(write_file).collect(),
        instruction_files: state.instruction_files.iter().map(write_file).collect(),
        plan: state.plan.as_ref().map(|plan| v1::Plan {
            path: plan.path.to_string(),
            content: plan.content.to_string(),
        }),
        plan_mode: state.plan_mode.as_ref().map(|mode| v1::PlanMode {
            active: mode.active,
            instructions: mode.instructions.to_string(),
        }),
        skills: state.skills.iter().map(write_skill).collect(),
        tasks: state.tasks.iter().map(write_task).collect(),
        tools: state.tools.iter().map(write_capability).collect(),
        agents: state.agents.iter().map(write_capability).collect(),
        mcp_servers: state.mcp_servers.iter().map(write_capability).collect(),
        permissions: state.permissions.as_ref().map(write_permissions),
        notes: state.notes.iter().map(write_note).collect(),
        pins: state.pins.iter().map(write_pin).collect(),
    }
}

fn read_state(stored: v1::WorkingState) -> Result<WorkingState, DecodeError> {
    let infallible =
        |capabilities: Vec<v1::Capability>| capabilities.into_iter().map(read_capability).collect();
    Ok(WorkingState {
        files: stored.files.into_iter().map(read_file).collect(),
        instruction_files: stored
            .instruction_files
            .into_iter()
            .map(read_file)
            .collect(),
        plan: stored.plan.map(|plan| Plan {
            path: plan.path.into(),
            content: plan.content.into(),
        }),
        plan_mode: stored.plan_mode.map(|mode| PlanMode {
            active: mode.active,
            instructions: mode.instructions.into(),
        }),
        skills: stored.skills.into_iter().map(read_skill).collect(),
        tasks: all(stored.tasks, read_task)?,
        tools: infallible(stored.tools),
        agents: infallible(stored.agents),
        mcp_servers: infallible(stored.mcp_servers),
        permissions: stored.permissions.map(read_permissions).transpose()?,
        notes: all(stored.notes, read_note)?,
        pins: all(stored.pins, read_pin)?,
    })
}

fn write_file(file: &FileState) -> v1::FileState {
    v1::FileState {
        path: file.path.to_string(),
        content: file.content.as_deref().map(str::to_owned),
        accessed_ms: file.accessed.as_millis(),
        since: file.since.get(),
    }
}

fn read_file(stored: v1::FileState) -> FileState {
    FileState {
        path: stored.path.into(),
        content: stored.content.map(Into::into),
        accessed: Timestamp::from_millis(stored.accessed_ms),
        since: Ordinal::new(stored.since),
    }
}

fn write_skill(skill: &Skill) -> v1::Skill {
    v1::Skill {
        name: skill.name.to_string(),
        content: skill.content.to_string(),
        path: skill.path.to_string(),
        invoked_ms: skill.invoked.as_millis(),
    }
}

fn read_skill(stored: v1::Skill) -> Skill {
    Skill {
        name: stored.name.into(),
        content: stored.content.into(),
        path: stored.path.into(),
        invoked: Timestamp::from_millis(stored.invoked_ms),
    }
}

fn write_task(task: &Task) -> v1::Task {
    let metadata = task.metadata.iter();
    v1::Task {
        id: task.id.to_string(),
        subject: task.subject.to_string(),
        description: task.description.to_string(),
        status: write_status(task.status).into(),
        blocked_by: texts(&task.blocked_by),
        blocks: texts(&task.blocks),
        agent: task.agent.to_string(),
        metadata_names: metadata.clone().map(|(name, _)| name.to_string()).collect(),
        metadata_values: metadata.map(|(_, value)| value.to_string()).collect(),
    }
}

fn read_task(stored: v1::Task) -> Result<Task, DecodeError> {
    if stored.metadata_names.len() != stored.metadata_values.len() {
        return Err(DecodeError::Damaged("a list in a task is cut"));
    }
    let status = read_status(stored.status())?;
    let names = boxed(stored.metadata_names).into_iter();
    Ok(Task {
        id: stored.id.into(),
        subject: stored.subject.into(),
        description: stored.description.into(),
        status,
        blocked_by: boxed(stored.blocked_by),
        blocks: boxed(stored.blocks),
        agent: stored.agent.into(),
        metadata: names.zip(boxed(stored.metadata_values)).collect(),
    })
}

fn write_capability(capability: &Capability) -> v1::Capability {
    v1::Capability {
        name: capability.name.to_string(),
        description: capability.description.to_string(),
        discovered: capability.discovered,
    }
}

fn read_capability(stored: v1::Capability) -> Capability {
    Capability {
        name: stored.name.into(),
        description: stored.description.into(),
        discovered: stored.discovered,
    }
}

fn write_permissions(permissions: &Permissions) -> v1::Permissions {
    v1::Permissions {
        mode: permissions.mode.to_string(),
        rules: permissions
            .rules
            .iter()
            .map(|rule| v1::PermissionRule {
                level: write_level(rule.level).into(),
                tool: rule.tool.to_string(),
                path: rule.path.to_string(),
            })
            .collect(),
    }
}

fn read_permissions(stored: v1::Permissions) -> Result<Permissions, DecodeError> {
    Ok(Permissions {
        mode: stored.mode.into(),
        rules: all(stored.rules, |rule| {
            Ok(PermissionRule {
                level: read_level(rule.level())?,
                tool: rule.tool.into(),
                path: rule.path.into(),
            })
        })?,
    })
}

fn write_note(note: &Note) -> v1::Note {
    v1::Note {
        id: note.id.to_string(),
        kind: write_note_kind(note.kind).into(),
        text: note.text.to_string(),
    }
}

fn read_note(stored: v1::Note) -> Result<Note, DecodeError> {
    Ok(Note {
        kind: read_note_kind(stored.kind())?,
        id: stored.id.into(),
        text: stored.text.into(),
    })
}

fn write_pin(pin: &Pin) -> v1::Pin {
    let id = |id: MessageId| bytes::Bytes::copy_from_slice(id.get().as_bytes());
    let empty = v1::Pin {
        id: pin.id.to_string(),
        ..v1::Pin::default()
    };
    match &pin.target {
        PinTarget::Message(message) => v1::Pin {
            message: id(*message),
            ..empty
        },
        PinTarget::Block(message, block) => v1::Pin {
            message: id(*message),
            block: Some((*block).into()),
            ..empty
        },
        PinTarget::Text(text) => v1::Pin {
            text: text.to_string(),
            ..empty
        },
    }
}

fn read_pin(stored: v1::Pin) -> Result<Pin, DecodeError> {
    let target = if stored.message.is_empty() {
        PinTarget::Text(stored.text.into())
    } else {
        let message = MessageId::new(Uuid::from_bytes(sixteen(&stored.message)?));
        match stored.block {
            None => PinTarget::Message(message),
            Some(block) => {
                let block = u16::try_from(block);
                PinTarget::Block(
                    message,
                    block.map_err(|_| DecodeError::Damaged("a pin past any message's end"))?,
                )
            }
        }
    };
    Ok(Pin {
        id: stored.id.into(),
        target,
    })
}
