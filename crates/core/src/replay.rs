//! Drives an imported transcript through a session, step by step as its agent would have, and checks
//! every view on the way: it is valid, it continues the one before, and a caller that follows
//! `keep_messages` has exactly the whole of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::codec;
use crate::command::{Append, Command, Context, Create, Decision, Rewind, Serve, create, decide};
use crate::event::{Event, Recorded};
use crate::ids::{MessageId, SessionKey, Timestamp};
use crate::import::{Defect, ImportedSession, Step};
use crate::limits::Limits;
use crate::message::{Message, Role};
use crate::session::{Session, Standing};
use crate::validate::{Violation, validate};
use crate::view::{Etag, Provider, RepairKind, Target, WireRole, flatten};

/// How often the view is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Before every response, as an agent does.
    PerResponse,
    /// After every message, which seals each fragment by itself: the hardest case.
    PerLine,
}

/// What came of a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Messages that were taken in.
    pub messages: usize,
    /// Those of them that said again what an earlier one said.
    pub reemissions: usize,
    /// Those that were there already, under the same id.
    pub known: usize,
    /// Views that were prepared.
    pub prepares: usize,
    /// Those of them that could be sent.
    pub sendable: usize,
    /// View-changing events.
    pub view_changes: usize,
    /// Views that could be sent and should not have been: the line, and what the provider would say.
    pub invalid: Vec<(usize, Violation)>,
    /// Lines after which the view did not continue the one before, though nothing had changed it.
    pub prefix_breaks: Vec<usize>,
    /// Lines after which a caller's array was not the whole view.
    pub delta_breaks: Vec<usize>,
    /// What was repaired, and how often.
    pub repairs: BTreeMap<&'static str, usize>,
    /// The largest view, in bytes of JSON.
    pub largest_view_bytes: usize,
    /// Messages that could not be decoded.
    pub defects: Vec<Defect>,
}

impl Report {
    /// Whether everything held.
    pub fn holds(&self) -> bool {
        self.invalid.is_empty() && self.prefix_breaks.is_empty() && self.delta_breaks.is_empty()
    }
}

/// Replays one session for one provider.
pub fn replay(imported: &ImportedSession<'_>, provider: Provider, pace: Pace) -> Report {
    let target = Target {
        provider,
        model: first_model(imported).unwrap_or_default(),
        thinking: provider == Provider::Anthropic,
    };
    let mut replay = Replay::new(target);
    let mut next_id = 0;
    for step in &imported.steps {
        next_id += 1;
        let id = MessageId::new(uuid::Uuid::from_u128(next_id));
        match step {
            Step::Rewind(to) => replay.rewind(*to),
            Step::Message(imported) => match imported.decode(id) {
                Ok(message) => {
                    if pace == Pace::PerResponse && replay.begins_response(&message) {
                        replay.prepare();
                    }
                    replay.append(imported.line, message);
                    if pace == Pace::PerLine {
                        replay.prepare();
                    }
                }
                Err(error) => replay.report.defects.push(Defect {
                    line: imported.line,
                    what: error.to_string(),
                }),
            },
        }
    }
    replay.prepare();
    replay.report
}

fn first_model(imported: &ImportedSession<'_>) -> Option<Box<str>> {
    imported.steps.iter().find_map(|step| match step {
        Step::Message(message) => message
            .decode(MessageId::new(uuid::Uuid::nil()))
            .ok()
            .and_then(|message| message.model),
        Step::Rewind(_) => None,
    })
}

struct Replay {
    target: Target,
    limits: Limits,
    session: Session,
    report: Report,
    line: usize,
    last_response: Option<Box<str>>,
    /// The caller: its array, and the etag that it was given.
    array: Vec<Vec<u8>>,
    etag: Option<Etag>,
    flat: Vec<(WireRole, Vec<u8>)>,
    epoch: u32,
}

impl Replay {
    fn new(target: Target) -> Self {
        let limits = Limits::default();
        let key = SessionKey::parse("projects/replay/sessions/replay")
            .expect("the name is legal because it is written here");
        let at = Timestamp::default();
        let context = Context {
            now: at,
            limits: &limits,
            can_store: true,
        };
        let created = create(Create::default(), context).expect("nothing is over a limit");
        let Event::SessionCreated(created) = created else {
            unreachable!("a creation makes its own event");
        };
        Self {
            target,
            session: Session::create(key, at, &created),
            limits,
            report: Report::default(),
            line: 0,
            last_response: None,
            array: Vec::new(),
            etag: None,
            flat: Vec::new(),
            epoch: 0,
        }
    }

    /// Whether the model begins to speak with this message.
    fn begins_response(&self, message: &Message) -> bool {
        message.role == Role::Assistant
            && (message.provider_message_id.is_none()
                || message.provider_message_id != self.last_response)
    }

    fn append(&mut self, line: usize, message: Message) {
        self.line = line;
        if message.role == Role::Assistant {
            self.last_response.clone_from(&message.provider_message_id);
        }
        let append = Append {
            messages: vec![Arc::new(message)],
            ..Append::default()
        };
        for event in self.run(Command::Append(append)) {
            if let Event::MessagesAppended(event) = event {
                self.report.messages += event.messages.len();
                self.report.known += event.known.len();
                self.report.reemissions += event
                    .messages
                    .iter()
                    .filter(|appended| matches!(appended.standing, Standing::Reemission(_)))
                    .count();
            }
        }
    }

    fn rewind(&mut self, to: Option<MessageId>) {
        self.run(Command::Rewind(Rewind {
            to,
            ..Rewind::default()
        }));
    }

    fn run(&mut self, command: Command) -> Vec<Event> {
        let now = Timestamp::default();
        let context = Context {
            now,
            limits: &self.limits,
            can_store: true,
        };
        let events = match decide(&self.session, command, context) {
            Ok(Decision::Events(events)) => events,
            Ok(Decision::Answered(_) | Decision::Skipped(_)) => Vec::new(),
            Err(rejection) => {
                self.report.defects.push(Defect {
                    line: self.line,
                    what: rejection.to_string(),
                });
                Vec::new()
            }
        };
        for event in &events {
            self.report.view_changes += usize::from(event.changes_view());
            let recorded = Recorded {
                at: now,
                event: event.clone(),
            };
            self.session
                .apply(&recorded)
                .expect("an event applies to the session that it was decided upon");
        }
        events
    }

    fn prepare(&mut self) {
        self.run(Command::Serve(Serve {
            target: self.target.clone(),
            ..Serve::default()
        }));
        self.report.prepares += 1;
        let held = "a session that was never unloaded holds its messages";
        let delta = self.session.view(&self.target, self.etag).expect(held);
        let full = self.session.view(&self.target, None).expect(held);
        for repair in &delta.repairs {
            *self.report.repairs.entry(name(repair.kind)).or_default() += 1;
        }
        let json = |messages: &[_]| -> Vec<Vec<u8>> {
            let write = |message| {
                let mut out = Vec::new();
                codec::write(self.target.provider, message, &mut out);
                out
            };
            messages.iter().map(write).collect()
        };
        self.array.truncate(delta.keep as usize);
        self.array.extend(json(&delta.messages));
        if self.array != json(&full.messages) {
            self.report.delta_breaks.push(self.line);
        }
        let flat = flatten(&self.target, &full.messages);
        let epoch = self.session.sealed().epoch().get();
        if epoch == self.epoch && !flat.starts_with(&self.flat) {
            self.report.prefix_breaks.push(self.line);
        }
        let bytes = self.array.iter().map(Vec::len).sum();
        self.report.largest_view_bytes = self.report.largest_view_bytes.max(bytes);
        if full.unsendable.is_none() {
            self.report.sendable += 1;
            let found = validate(&self.target, &self.array);
            let found = found.into_iter().map(|violation| (self.line, violation));
            self.report.invalid.extend(found);
        }
        let etag = full.etag;
        (self.flat, self.epoch, self.etag) = (flat, epoch, Some(etag));
    }
}

/// A repair's name in reports.
pub fn name(kind: RepairKind) -> &'static str {
    match kind {
        RepairKind::BlankText => "blank text left out",
        RepairKind::DuplicateResult(_) => "duplicate result left out",
        RepairKind::OrphanResult => "orphan result as text",
        RepairKind::LateResult(_) => "late result as text",
        RepairKind::LateResultHidden(_) => "late result left out",
        RepairKind::InterruptedCall(_) => "call interrupted",
        RepairKind::Media(_) => "picture or document as marker",
        RepairKind::TrailingThinking => "trailing thinking left out",
        RepairKind::UnsignedThinking => "unsigned thinking left out",
        RepairKind::WrongRole => "block in the wrong role left out",
        RepairKind::Opening => "opening added",
        RepairKind::MappedCallId(_) => "call id mapped",
    }
}
