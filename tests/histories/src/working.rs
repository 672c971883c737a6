//! Changes of the working state in random histories, including pins of arbitrary targets.

use crate::SessionHarness;
use palimpsest_core::command::{Command, Rejection, UpdateWorkingState};
use palimpsest_core::ids::{Ordinal, Timestamp};
use palimpsest_core::working::{
    Capability, FileState, Note, NoteKind, Pin, PinTarget, Plan, Skill, Task, TaskStatus,
    WorkingState, WorkingStateChange, WorkingStateRemoval,
};

impl SessionHarness {
    /// Changes one part of the working state. A pin of content that left the view is rejected.
    pub(super) fn work(&mut self, what: u8, which: u8) {
        let id: Box<str> = format!("k{}", which % 3).into();
        let text: Box<str> = format!("text {which}").into();
        let set = self.part(what, which, &id, &text);
        let mut remove = WorkingStateRemoval::default();
        if what % 11 == 10 {
            remove.tools.push(id.clone());
            remove.files.push("a".into());
            remove.pins.push(id);
            remove.plan = true;
        }
        let decided = self.try_run(Command::UpdateWorkingState(Box::new(UpdateWorkingState {
            change: WorkingStateChange { remove, set },
            expected_revision: None,
            request: None,
        })));
        let is_expected = matches!(
            decided,
            Ok(_) | Err(Rejection::MessageNotVisible { .. } | Rejection::Invalid { .. })
        );
        assert!(is_expected, "{decided:?}");
    }

    fn part(&self, what: u8, which: u8, id: &str, text: &str) -> WorkingState {
        let mut set = WorkingState::default();
        let capability = Capability {
            name: id.into(),
            description: text.into(),
            discovered: which.is_multiple_of(2),
        };
        // The remainder of 10 sets nothing: `work` then only removes parts.
        match what % 11 {
            0 => set.files.push(FileState {
                path: "a".into(),
                content: which.is_multiple_of(2).then(|| text.into()),
                accessed: Timestamp::from_millis(which.into()),
                since: Ordinal::new(0),
            }),
            1 => set.tasks.push(Task {
                id: id.into(),
                subject: text.into(),
                description: "".into(),
                status: TaskStatus::Pending,
                blocked_by: vec!["k9".into()],
                blocks: Vec::new(),
                agent: "".into(),
                metadata: vec![("n".into(), text.into())],
            }),
            2 => set.tools.push(capability),
            3 => set.agents.push(capability),
            4 => set.notes.push(Note {
                id: id.into(),
                kind: NoteKind::Decision,
                text: text.into(),
            }),
            5 => {
                set.plan = Some(Plan {
                    path: "".into(),
                    content: text.into(),
                });
            }
            6 => set.skills.push(Skill {
                name: id.into(),
                content: text.into(),
                path: "".into(),
                invoked: Timestamp::from_millis(which.into()),
            }),
            7..=9 => set.pins.push(self.pin(what, which, id)),
            _ => {}
        }
        set
    }

    fn pin(&self, what: u8, which: u8, id: &str) -> Pin {
        let ids = self.session.transcript().entries();
        let ids: Vec<_> = ids.map(|(_, entry)| entry.id).collect();
        let message = ids.get(usize::from(which) % ids.len().max(1)).copied();
        let target = match (what % 11, message) {
            (7, Some(message)) => PinTarget::Message(message),
            (8, Some(message)) => PinTarget::Block(message, u16::from(what % 2)),
            _ => PinTarget::Text(format!("pinned {which}").into()),
        };
        Pin {
            id: id.into(),
            target,
        }
    }
}
