//! Conversion of the working state.

use std::sync::Arc;

use palimpsest_core::event::WorkingStateUpdated;
use palimpsest_core::ids::{Ordinal, Timestamp};
use palimpsest_core::levels::attachments::{AttachmentKind, AttachmentRecord, ReconstructedFile};
use palimpsest_core::limits::Limits;
use palimpsest_core::session::Session;
use palimpsest_core::working::{
    Capability, FileState, Note, NoteKind, PermissionLevel, PermissionRule, Permissions, Pin,
    PinTarget, Plan, PlanMode, Skill, Task, TaskStatus, WorkingState, WorkingStateChange,
    WorkingStateRemoval,
};
use palimpsest_proto::context::v1;
use sha2::{Digest as _, Sha256};

use super::scalars::{
    export_message_id, export_timestamp, message_id, optional_timestamp, unknown,
};
use super::{FieldError, WithFieldPath as _, required};

/// The maximum length of a path in bytes. No common file system allows longer paths.
const MAX_PATH_BYTES: usize = 4_096;

/// Validates a change of the working state. `now` replaces omitted times.
pub fn working_change(
    remove: Option<v1::WorkingStateRemoval>,
    set: Option<v1::WorkingState>,
    now: Timestamp,
    limits: &Limits,
) -> Result<WorkingStateChange, FieldError> {
    let reader = WorkingStateReader { now, limits };
    Ok(WorkingStateChange {
        remove: removal(remove.unwrap_or_default()),
        set: reader.state(set.unwrap_or_default()).under("set")?,
    })
}

/// Validates files of the working state. `now` replaces omitted times.
pub(super) fn files(
    files: Vec<v1::FileState>,
    now: Timestamp,
    limits: &Limits,
) -> Result<Vec<FileState>, FieldError> {
    let reader = WorkingStateReader { now, limits };
    each(files, "files", |file| reader.file(file))
}

fn boxed(texts: Vec<String>) -> Vec<Box<str>> {
    texts.into_iter().map(String::into_boxed_str).collect()
}

fn removal(remove: v1::WorkingStateRemoval) -> WorkingStateRemoval {
    WorkingStateRemoval {
        files: boxed(remove.file_paths),
        instruction_files: boxed(remove.instruction_file_paths),
        plan: remove.plan,
        plan_mode: remove.plan_mode,
        skills: boxed(remove.skill_names),
        tasks: boxed(remove.task_ids),
        tools: boxed(remove.tool_names),
        agents: boxed(remove.agent_names),
        mcp_servers: boxed(remove.mcp_server_names),
        permissions: remove.permissions,
        notes: boxed(remove.note_ids),
        pins: boxed(remove.pin_ids),
    }
}

/// Validates the entries of a working state.
struct WorkingStateReader<'a> {
    now: Timestamp,
    limits: &'a Limits,
}

fn each<I, T>(
    items: Vec<I>,
    list: &str,
    read: impl Fn(I) -> Result<T, FieldError>,
) -> Result<Vec<T>, FieldError> {
    let numbered = items.into_iter().enumerate();
    numbered
        .map(|(index, item)| read(item).at(list, index))
        .collect()
}

fn key(text: &str, field: &str, limit: usize) -> Result<Box<str>, FieldError> {
    let text = required(text, field)?;
    if text.len() > limit {
        let what = format!("must have at most {limit} bytes, has {}", text.len());
        return Err(FieldError::invalid(field, what));
    }
    Ok(text.into())
}

impl WorkingStateReader<'_> {
    fn state(&self, state: v1::WorkingState) -> Result<WorkingState, FieldError> {
        let capability = |capability| self.capability(capability);
        let plan = state.plan.as_ref().map(plan).transpose();
        Ok(WorkingState {
            files: each(state.files, "files", |file| self.file(file))?,
            instruction_files: each(state.instruction_files, "instruction_files", |file| {
                self.file(file)
            })?,
            plan: plan.under("plan")?,
            plan_mode: state.plan_mode.map(|mode| PlanMode {
                active: mode.active,
                instructions: mode.instructions.into(),
            }),
            skills: each(state.skills, "skills", |skill| self.skill(skill))?,
            tasks: each(state.tasks, "tasks", |task| self.task(task))?,
            tools: each(state.tools, "tools", capability)?,
            agents: each(state.agents, "agents", capability)?,
            mcp_servers: each(state.mcp_servers, "mcp_servers", capability)?,
            permissions: state
                .permissions
                .map(permissions)
                .transpose()
                .under("permissions")?,
            notes: each(state.notes, "notes", |note| self.note(&note))?,
            pins: each(state.pins, "pins", |pin| self.pin(pin))?,
        })
    }

    fn file(&self, file: v1::FileState) -> Result<FileState, FieldError> {
        Ok(FileState {
            path: key(&file.path, "path", MAX_PATH_BYTES)?,
            content: (!file.content.is_empty()).then(|| Arc::from(file.content)),
            accessed: optional_timestamp(file.access_time, "access_time")?.unwrap_or(self.now),
            // The core sets the ordinal when it decides the change.
            since: Ordinal::new(0),
        })
    }

    fn id(&self, id: &str, field: &str) -> Result<Box<str>, FieldError> {
        key(id, field, self.limits.max_id_bytes)
    }

    fn skill(&self, skill: v1::SkillState) -> Result<Skill, FieldError> {
        Ok(Skill {
            name: self.id(&skill.name, "name")?,
            content: required(&skill.content, "content")?.into(),
            path: skill.path.into(),
            invoked: optional_timestamp(skill.invoke_time, "invoke_time")?.unwrap_or(self.now),
        })
    }

    fn task(&self, task: v1::Task) -> Result<Task, FieldError> {
        let status = task_status(task.status, "status")?;
        // Map order is random. Sorted entries make equal maps equal in the log.
        let mut metadata: Vec<(Box<str>, Box<str>)> = task
            .metadata
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        metadata.sort();
        Ok(Task {
            id: self.id(&task.task_id, "task_id")?,
            subject: required(&task.subject, "subject")?.into(),
            description: task.description.into(),
            status,
            blocked_by: boxed(task.blocked_by),
            blocks: boxed(task.blocks),
            agent: task.agent.into(),
            metadata,
        })
    }

    fn capability(&self, capability: v1::Capability) -> Result<Capability, FieldError> {
        Ok(Capability {
            name: self.id(&capability.name, "name")?,
            description: capability.description.into(),
            discovered: capability.discovered,
        })
    }

    fn note(&self, note: &v1::Note) -> Result<Note, FieldError> {
        let kind = note_kind(note.kind, "kind")?;
        Ok(Note {
            id: self.id(&note.note_id, "note_id")?,
            kind,
            text: required(&note.text, "text")?.into(),
        })
    }

    fn pin(&self, pin: v1::Pin) -> Result<Pin, FieldError> {
        use v1::pin::Target;
        let target = match pin.target {
            None => return Err(FieldError::missing("message_id")),
            Some(Target::MessageId(id)) => PinTarget::Message(message_id(&id, "message_id")?),
            Some(Target::Block(block)) => {
                let id = message_id(&block.message_id, "block.message_id")?;
                let index = u16::try_from(block.block_index).map_err(|_| {
                    FieldError::invalid("block.block_index", "is more than a message can have")
                })?;
                PinTarget::Block(id, index)
            }
            Some(Target::Text(text)) => PinTarget::Text(text.into()),
        };
        Ok(Pin {
            id: self.id(&pin.pin_id, "pin_id")?,
            target,
        })
    }
}

fn plan(plan: &v1::Plan) -> Result<Plan, FieldError> {
    // A plan needs no file, so its path may be empty.
    let path = match &*plan.path {
        "" => "".into(),
        path => key(path, "path", MAX_PATH_BYTES)?,
    };
    let content = required(&plan.content, "content")?.into();
    Ok(Plan { path, content })
}

fn permissions(permissions: v1::Permissions) -> Result<Permissions, FieldError> {
    let rule = |rule: v1::PermissionRule| {
        let level = permission_level(rule.level, "level")?;
        Ok(PermissionRule {
            level,
            tool: rule.tool_name.into(),
            path: rule.path.into(),
        })
    };
    Ok(Permissions {
        mode: permissions.mode.into(),
        rules: each(permissions.rules, "rules", rule)?,
    })
}

/// Converts the current working state without file contents. `rebuilt` contains the files as reconstructed from
/// tool calls.
pub fn working_state(state: &WorkingState, rebuilt: &[ReconstructedFile]) -> v1::WorkingState {
    let file = |file: &FileState| out_file(file, rebuilt);
    let capability = |capability: &Capability| v1::Capability {
        name: capability.name.to_string(),
        description: capability.description.to_string(),
        discovered: capability.discovered,
    };
    let texts = |texts: &[Box<str>]| texts.iter().map(ToString::to_string).collect();
    v1::WorkingState {
        // File contents can be large, so replies contain their size and digest instead.
        files: state.files.iter().map(file).collect(),
        instruction_files: state.instruction_files.iter().map(file).collect(),
        plan: state.plan.as_ref().map(|plan| v1::Plan {
            path: plan.path.to_string(),
            content: plan.content.to_string(),
        }),
        plan_mode: state.plan_mode.as_ref().map(|mode| v1::PlanMode {
            active: mode.active,
            instructions: mode.instructions.to_string(),
        }),
        skills: state
            .skills
            .iter()
            .map(|skill| v1::SkillState {
                name: skill.name.to_string(),
                content: skill.content.to_string(),
                path: skill.path.to_string(),
                invoke_time: Some(export_timestamp(skill.invoked)),
            })
            .collect(),
        tasks: state
            .tasks
            .iter()
            .map(|task| v1::Task {
                task_id: task.id.to_string(),
                subject: task.subject.to_string(),
                description: task.description.to_string(),
                status: export_task_status(task.status).into(),
                blocked_by: texts(&task.blocked_by),
                blocks: texts(&task.blocks),
                agent: task.agent.to_string(),
                metadata: task
                    .metadata
                    .iter()
                    .map(|(name, value)| (name.to_string(), value.to_string()))
                    .collect(),
            })
            .collect(),
        tools: state.tools.iter().map(capability).collect(),
        agents: state.agents.iter().map(capability).collect(),
        mcp_servers: state.mcp_servers.iter().map(capability).collect(),
        permissions: state.permissions.as_ref().map(out_permissions),
        notes: state.notes.iter().map(out_note).collect(),
        pins: state.pins.iter().map(out_pin).collect(),
    }
}

fn out_file(file: &FileState, rebuilt: &[ReconstructedFile]) -> v1::FileState {
    let known = rebuilt.iter().find(|known| known.path == file.path);
    // The reconstructed content includes later tool calls, so it takes precedence over the stored one.
    let content = known.and_then(|known| known.content.as_deref());
    let content = content.or(file.content.as_deref());
    v1::FileState {
        path: file.path.to_string(),
        content: String::new(),
        access_time: Some(export_timestamp(file.accessed)),
        size_bytes: content.map_or(0, |content| content.len() as u64),
        sha256: content.map_or_else(Default::default, |content| {
            Sha256::digest(content.as_bytes()).to_vec().into()
        }),
        stale: known.is_some_and(|known| known.stale),
    }
}

fn out_permissions(permissions: &Permissions) -> v1::Permissions {
    let rule = |rule: &PermissionRule| v1::PermissionRule {
        level: export_permission_level(rule.level).into(),
        tool_name: rule.tool.to_string(),
        path: rule.path.to_string(),
    };
    v1::Permissions {
        mode: permissions.mode.to_string(),
        rules: permissions.rules.iter().map(rule).collect(),
    }
}

fn out_note(note: &Note) -> v1::Note {
    v1::Note {
        note_id: note.id.to_string(),
        kind: export_note_kind(note.kind).into(),
        text: note.text.to_string(),
    }
}

fn out_pin(pin: &Pin) -> v1::Pin {
    use v1::pin::Target;
    v1::Pin {
        pin_id: pin.id.to_string(),
        target: Some(match &pin.target {
            PinTarget::Message(id) => Target::MessageId(id.to_string()),
            PinTarget::Block(id, block) => Target::Block(v1::BlockRef {
                message_id: id.to_string(),
                block_index: (*block).into(),
            }),
            PinTarget::Text(text) => Target::Text(text.to_string()),
        }),
    }
}

/// Returns the changed parts of the working state, or `None` if a request changed nothing.
pub(super) fn updated(event: &WorkingStateUpdated) -> Option<v1::WorkingStateUpdated> {
    let paths: Vec<String> = event
        .change
        .parts()
        .into_iter()
        .map(str::to_owned)
        .collect();
    (!paths.is_empty()).then_some(v1::WorkingStateUpdated { paths })
}

/// Converts an attachment of a compaction, or the record of one that was left out.
pub(super) fn attachment(attached: &AttachmentRecord, session: &Session) -> v1::Attachment {
    v1::Attachment {
        kind: attachment_kind(attached.kind).into(),
        name: attached.name.to_string(),
        message_id: export_message_id(session, attached.message),
        tokens: attached.tokens,
        truncated: attached.truncated,
        stale: attached.stale,
        omitted: attached.message.is_none(),
    }
}

convert_enum! {
    fn export_task_status(TaskStatus) -> v1::TaskStatus { Pending, InProgress, Completed, Cancelled }
    fn task_status: unspecified => Pending
}

convert_enum! {
    fn export_permission_level(PermissionLevel) -> v1::PermissionLevel { Allow, Ask, Deny }
    fn permission_level: unspecified => missing
}

convert_enum! {
    fn export_note_kind(NoteKind) -> v1::NoteKind { Decision, Constraint, KnownIssue }
    fn note_kind: unspecified => missing
}

convert_enum! {
    fn attachment_kind(AttachmentKind) -> v1::AttachmentKind {
        File, Instructions, Plan, PlanMode, Skill, Tasks, Tools, Agents, McpServers, Permissions, Notes, Pin,
    }
}
