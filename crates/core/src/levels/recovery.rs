//! What left a view, and the ways back to each of it: what in the view still leads there, and which of
//! the service's tools reads it. Not here: walking these ways (`replay` and the server do).

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};

use super::results::reference;
use crate::event::{ContentSnipped, Event, Span, Visibility};
use crate::ids::{CallKey, Ordinal, Revision, SpanKey, TurnNumber};
use crate::message::Block;
use crate::policy::ModelTool;
use crate::session::{Calls, Session};
use crate::view::{DropReason, MarkerReason, PieceForm, Target};

/// Something that left the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departed {
    /// What it is.
    pub what: ContentRef,
    /// The event that removed it; none for a result that level 1 replaced some time ago.
    pub cause: Option<Revision>,
    /// What it had, in tokens.
    pub tokens: u64,
}

/// What left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentRef {
    /// A user turn, with so many messages up to this one.
    Turn(TurnNumber, Messages),
    /// Messages in a row.
    Messages(Messages),
    /// Messages for which a placeholder stands.
    Span(SpanKey, Messages),
    /// A block that is no result.
    Block(Ordinal, u16),
    /// A tool's result.
    Result(CallKey),
}

/// Messages of a stretch of the transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Messages {
    /// The first.
    pub first: Ordinal,
    /// The last.
    pub last: Ordinal,
    /// How many of those in between left.
    pub count: u32,
}

/// What in the view still leads to something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryHandle {
    /// Nothing.
    None,
    /// The reference that stands in its place.
    Reference(String),
    /// The id of its call, as the view has it.
    CallId(String),
    /// The placeholder that stands in its place.
    Placeholder(SpanKey),
}

/// A call of one of the service's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelToolUse {
    /// The tool.
    pub tool: ModelTool,
    /// Its name for the model.
    pub name: String,
    /// Its input.
    pub input: Value,
}

/// Looks for ways back into a session, as the model of a target sees it.
#[derive(Debug)]
pub struct Recovery<'s> {
    session: &'s Session,
    target: &'s Target,
    /// What stands for blocks of the transcript, in its order; read when it is asked for first.
    forms: OnceCell<Vec<((Ordinal, u16), PieceForm)>>,
    /// Calls that are shown; the same.
    calls: OnceCell<BTreeSet<CallKey>>,
}

impl<'s> Recovery<'s> {
    /// Ways into a session's view.
    pub fn new(session: &'s Session, target: &'s Target) -> Self {
        Self {
            session,
            target,
            forms: OnceCell::new(),
            calls: OnceCell::new(),
        }
    }

    /// What stands for a block.
    fn form_at(&self, place: (Ordinal, u16)) -> Option<PieceForm> {
        let forms = self.forms.get_or_init(|| {
            let pieces = self.session.sealed().pieces().iter();
            let of_block = pieces.filter(|piece| piece.form.is_of_a_block());
            let mut forms: Vec<_> = of_block
                .map(|piece| ((piece.message, piece.block), piece.form))
                .collect();
            // Nearly all of it is in order.
            forms.sort_by_key(|(place, _)| *place);
            forms
        });
        let found = forms.binary_search_by_key(&place, |(place, _)| *place);
        found.ok().map(|at| forms[at].1)
    }

    /// Whether a call is shown.
    fn shows_call(&self, call: CallKey) -> bool {
        let calls = self.calls.get_or_init(|| {
            let pieces = self.session.sealed().pieces().iter();
            pieces.filter_map(|piece| piece.form.calls()).collect()
        });
        calls.contains(&call)
    }

    /// What an event removed from the view, in the order of the transcript.
    pub fn removed_by(&self, event: &Event, revision: Revision) -> Vec<Departed> {
        let departed = |(what, estimated): (ContentRef, u64)| Departed {
            what,
            cause: Some(revision),
            tokens: self.session.ledger().calibration.apply(estimated),
        };
        let found = match event {
            Event::ResultsPersisted(event) => {
                let calls = event.results.iter().map(|stored| stored.call);
                self.sized(calls.map(|call| self.result_of(call)))
            }
            Event::ResultsCleared(event) => {
                let calls = event.calls.iter().copied();
                self.sized(calls.map(|call| self.result_of(call)))
            }
            Event::ContentSnipped(event) => self.snipped(event),
            Event::Compacted(event) => self.sized(rows(event.leaving.iter().copied())),
            Event::SpansCollapsed(event) => {
                let spans = event.placeholders.iter();
                self.sized(spans.map(|one| of_span(&one.span)))
            }
            Event::SessionRewound(event) => self.sized(rows(event.left.iter().copied())),
            Event::ContextRestored(event) => {
                let left = event.standings.iter();
                // What a compaction had made goes with it, and was never said.
                let left = left.filter(|(message, standing)| {
                    !standing.takes_part() && !self.session.is_framing(*message)
                });
                self.sized(rows(left.map(|(message, _)| *message)))
            }
            _ => Vec::new(),
        };
        found.into_iter().map(departed).collect()
    }

    /// The results that level 1 replaced, as far as what replaced them is still there.
    pub fn replaced(&self) -> Vec<Departed> {
        let stored = self.session.stored().iter();
        let replaced =
            stored.filter_map(
                |(message, block, _)| match self.form_at((message, block))? {
                    PieceForm::Stored(call) => Some(ContentRef::Result(call)),
                    _ => None,
                },
            );
        let sized = self.sized(replaced).into_iter();
        let departed = |(what, estimated)| Departed {
            what,
            cause: None,
            tokens: self.session.ledger().calibration.apply(estimated),
        };
        sized.map(departed).collect()
    }

    /// The parts of it that are not in the view, or those that are: an undo may bring back the beginning
    /// of a row and not its end.
    pub fn parts(&self, departed: Departed, gone: bool) -> Vec<Departed> {
        let row = match departed.what {
            ContentRef::Turn(_, row) | ContentRef::Messages(row) => row,
            what if self.is_gone(what) == gone => return vec![departed],
            _ => return Vec::new(),
        };
        let transcript = self.session.transcript();
        // What a placeholder stands for is told with the placeholder.
        let stays = |message: Ordinal| {
            let entry = transcript.get(message);
            entry.is_some_and(|entry| entry.standing.takes_part())
        };
        let asked = |message: &Ordinal| stays(*message) != gone;
        // What the operator says belongs to no turn, and some messages never were in the view.
        let of_turn = matches!(departed.what, ContentRef::Turn(..));
        let counts = |message: &Ordinal| {
            let entry = transcript.get(*message);
            entry.is_some_and(|entry| {
                let never = matches!(
                    entry.standing,
                    Visibility::TranscriptOnly | Visibility::Reemission(_)
                );
                !(never || of_turn && entry.role.is_system())
            })
        };
        let all = (row.first.get()..=row.last.get()).map(Ordinal::new);
        let all: Vec<Ordinal> = all.filter(counts).collect();
        if all.iter().all(asked) {
            return vec![departed];
        }
        let parts = self.sized(rows(all.into_iter().filter(asked))).into_iter();
        let part = |(what, estimated)| Departed {
            what,
            cause: departed.cause,
            tokens: self.session.ledger().calibration.apply(estimated),
        };
        parts.map(part).collect()
    }

    /// Each thing once, as it left last: what comes first counts. Parts of a row that left by itself
    /// later are not told apart from it.
    pub fn latest_first(&self, departed: impl IntoIterator<Item = Departed>) -> Vec<Departed> {
        let mut seen: HashSet<ContentRef> = HashSet::new();
        let mut messages: HashSet<Ordinal> = HashSet::new();
        // Every message is looked at, so that all of them are known from then on.
        let mut any_new = |all: &mut dyn Iterator<Item = Ordinal>| {
            all.filter(|message| messages.insert(*message)).count() > 0
        };
        let mut kept = Vec::new();
        for departed in departed {
            let is_new = match departed.what {
                ContentRef::Turn(_, row) | ContentRef::Messages(row) => {
                    any_new(&mut (row.first.get()..=row.last.get()).map(Ordinal::new))
                }
                // What had left before from between its messages is not in what its placeholder leads to.
                ContentRef::Span(span, _) => {
                    let placeholder = self.session.spans().placeholder(span);
                    let held = placeholder.map(|one| one.span.messages.iter().copied());
                    held.is_some_and(|mut held| any_new(&mut held))
                }
                what => seen.insert(what),
            };
            if is_new {
                kept.push(departed);
            }
        }
        kept
    }

    /// Whether it is not in the view.
    fn is_gone(&self, what: ContentRef) -> bool {
        match what {
            ContentRef::Turn(_, row) | ContentRef::Messages(row) => {
                !self.session.transcript().is_visible(row.first)
            }
            ContentRef::Span(span, _) => self.session.folds().any(|one| one.span.key == span),
            ContentRef::Block(message, block) => match self.form_at((message, block)) {
                None
                | Some(
                    PieceForm::SnippedCall(_)
                    | PieceForm::Marker(MarkerReason::Snipped)
                    | PieceForm::Dropped(DropReason::Snipped),
                ) => true,
                Some(_) => false,
            },
            ContentRef::Result(call) => !matches!(
                self.form_of(call),
                Some(PieceForm::Result(_) | PieceForm::ResultWithoutMedia(_) | PieceForm::Text(_))
            ),
        }
    }

    /// What in the view leads to it.
    pub fn handle(&self, what: ContentRef) -> RecoveryHandle {
        let call = match what {
            ContentRef::Result(call) => call,
            ContentRef::Span(span, _) if self.is_gone(what) => {
                return RecoveryHandle::Placeholder(span);
            }
            _ => return RecoveryHandle::None,
        };
        match self.form_of(call) {
            Some(PieceForm::Stored(_)) => self
                .reference(call)
                .map_or(RecoveryHandle::None, RecoveryHandle::Reference),
            Some(_) if self.shows_call(call) => RecoveryHandle::CallId(self.wire_id(call)),
            _ => RecoveryHandle::None,
        }
    }

    /// The call with which the model reads it; none when the policy does not give it the tool.
    pub fn tool_call(&self, what: ContentRef) -> Option<ModelToolUse> {
        let (tool, input) = match what {
            ContentRef::Turn(_, row) | ContentRef::Messages(row) if row.first < row.last => {
                let input = json!({"first": number(row.first), "last": number(row.last)});
                (ModelTool::ReadTranscript, input)
            }
            ContentRef::Turn(_, Messages { first, .. })
            | ContentRef::Messages(Messages { first, .. })
            | ContentRef::Block(first, _) => {
                let id = self.session.transcript().get(first)?.id;
                let input = json!({"message_id": id.to_string()});
                (ModelTool::ReadTranscript, input)
            }
            ContentRef::Span(span, _) => {
                let input = json!({"collapse_id": span.to_string()});
                (ModelTool::ReadTranscript, input)
            }
            ContentRef::Result(call) => {
                let input = match self.reference(call) {
                    Some(reference) => json!({"reference": reference}),
                    None => json!({"tool_use_id": self.unique_id(call)}),
                };
                (ModelTool::ReadToolResult, input)
            }
        };
        let name = self.session.policy().model_tools.name_of(tool)?;
        Some(ModelToolUse { tool, name, input })
    }

    /// The revision whose view has it, when an undo brings it back.
    pub fn restore_to(&self, departed: &Departed) -> Option<Revision> {
        let cause = self.session.view_change(departed.cause?)?;
        Some(Revision::new(cause.revision.get() - 1))
    }

    /// Where a result stands in the transcript.
    pub fn place(&self, call: CallKey) -> Option<(Ordinal, u16)> {
        self.session.calls().get(call)?.original
    }

    /// The result that stands where a call's result stood: after an undo it may answer another call.
    fn result_of(&self, call: CallKey) -> ContentRef {
        let answers = self.form_of(call).and_then(PieceForm::answers);
        ContentRef::Result(answers.unwrap_or(call))
    }

    fn form_of(&self, call: CallKey) -> Option<PieceForm> {
        self.form_at(self.place(call)?)
    }

    fn reference(&self, call: CallKey) -> Option<String> {
        let stored = self.session.stored_of(call)?;
        let template = &self.session.policy().tool_results.reference_template;
        Some(reference(template, self.session.key(), &stored.file))
    }

    /// The id under which the view has a call.
    fn wire_id(&self, call: CallKey) -> String {
        let max_len = self.target.provider.max_call_id_len();
        self.session.calls().wire_id(call, max_len).into_owned()
    }

    /// An id that leads to one call alone: the one in the view, unless the caller has used it twice.
    fn unique_id(&self, call: CallKey) -> String {
        let calls = self.session.calls();
        let shown = self.wire_id(call);
        match calls.with_id(&shown) {
            [] | [_] => shown,
            _ => calls.own_id(call),
        }
    }

    fn snipped(&self, event: &ContentSnipped) -> Vec<(ContentRef, u64)> {
        let starts = self.session.turns().starts();
        let mut left: BTreeSet<Ordinal> = event.messages.iter().copied().collect();
        let mut found = Vec::new();
        for turn in &event.turns {
            let first = starts.get(turn.index()).copied();
            let end = starts.get(turn.index() + 1).copied();
            let range = first..Some(end.unwrap_or(self.session.transcript().next()));
            let inside: Vec<Ordinal> = left
                .iter()
                .copied()
                .filter(|message| range.contains(&Some(*message)))
                .collect();
            if let (Some(first), Some(last)) = (inside.first(), inside.last()) {
                let row = Messages {
                    first: *first,
                    last: *last,
                    count: crate::view::count(inside.len()),
                };
                let tokens = inside.iter().map(|message| self.size(*message)).sum();
                found.push((ContentRef::Turn(*turn, row), tokens));
                left.retain(|message| !inside.contains(message));
            }
        }
        found.extend(self.sized(rows(left.into_iter())));
        found.extend(self.sized(event.blocks.iter().map(|place| self.block(*place))));
        found
    }

    /// What stands, or stood, in a block.
    fn block(&self, (message, block): (Ordinal, u16)) -> ContentRef {
        let call = self.form_at((message, block)).and_then(PieceForm::answers);
        let calls = self.session.calls();
        let call = call.or_else(|| {
            let mut all = calls
                .iter()
                .filter(|(_, call)| call.original == Some((message, block)));
            all.next().map(|(key, _)| key)
        });
        call.map_or(ContentRef::Block(message, block), ContentRef::Result)
    }

    fn sized(&self, found: impl IntoIterator<Item = ContentRef>) -> Vec<(ContentRef, u64)> {
        let sized = |what| (what, self.tokens(what));
        found.into_iter().map(sized).collect()
    }

    fn size(&self, message: Ordinal) -> u64 {
        let entry = self.session.transcript().get(message);
        entry.map_or(0, |entry| u64::from(entry.size.tokens))
    }

    /// The estimated tokens of something; of messages, all in the row.
    fn tokens(&self, what: ContentRef) -> u64 {
        match what {
            ContentRef::Turn(_, row) | ContentRef::Messages(row) => {
                let numbers = row.first.get()..=row.last.get();
                numbers.map(|number| self.size(Ordinal::new(number))).sum()
            }
            ContentRef::Span(span, _) => {
                let placeholder = self.session.spans().placeholder(span);
                placeholder.map_or(0, |one| u64::from(one.span.freed) + u64::from(one.tokens))
            }
            ContentRef::Block(message, block) => {
                let found = self.session.transcript().block(message, block);
                let counter = self.session.counter_of(message);
                found.map_or(0, |block: &Block| counter.block(block).into())
            }
            ContentRef::Result(call) => {
                let call = self.session.calls().get(call);
                call.map_or(0, |call| call.result_tokens.into())
            }
        }
    }
}

/// The messages of a span.
fn of_span(span: &Span) -> ContentRef {
    let messages = Messages {
        first: span.first(),
        last: span.last(),
        count: crate::view::count(span.messages.len()),
    };
    ContentRef::Span(span.key, messages)
}

/// A message's number, as the model's tools count.
fn number(message: Ordinal) -> u64 {
    u64::from(message.get()) + 1
}

/// Messages as rows of neighbours.
fn rows(messages: impl Iterator<Item = Ordinal>) -> impl Iterator<Item = ContentRef> {
    let mut rows: Vec<Messages> = Vec::new();
    for message in messages {
        match rows.last_mut() {
            Some(row) if row.last.get() + 1 == message.get() => {
                row.last = message;
                row.count += 1;
            }
            _ => rows.push(Messages {
                first: message,
                last: message,
                count: 1,
            }),
        }
    }
    rows.into_iter().map(ContentRef::Messages)
}

/// Returns the call that an id in the view leads to, and the number of calls of a tool that this takes: one, or two for
/// an id that several calls share. The first is then rejected with its candidates, and the second names a key.
pub fn resolve(calls: &Calls, id: &str) -> Option<(CallKey, u32)> {
    if let Some(call) = calls.mapped(id) {
        return Some((call, 1));
    }
    match calls.with_id(id) {
        [] => None,
        [only] => Some((*only, 1)),
        candidates => {
            let goes_by_it = |call: &&CallKey| calls.get(**call).is_some_and(|call| !call.mapped);
            Some((*candidates.iter().find(goes_by_it)?, 2))
        }
    }
}
