//! Finds removed content and the ways to recover it. A handle in the view leads to the content, and one of the
//! service's tools reads it. The tools themselves run in `replay` and in the server.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};

use serde_json::{Value, json};

use super::results::reference;
use crate::event::{CallState, ContentSnipped, Event, Span, Visibility};
use crate::ids::{CallKey, Ordinal, Revision, SpanKey, TurnNumber};
use crate::message::Block;
use crate::policy::ModelTool;
use crate::session::{Calls, Session};
use crate::view::{DropReason, MarkerReason, PieceForm, Target};

/// Content that left the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedContent {
    /// The removed content.
    pub content: ContentRef,
    /// The revision of the event that removed the content. `None` for a result that level 1 replaced earlier.
    pub cause: Option<Revision>,
    /// The size of the content in calibrated tokens.
    pub tokens: u64,
}

/// A reference to removed content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentRef {
    /// A user turn. The range ends with the last removed message of the turn.
    Turn(TurnNumber, MessageRange),
    /// Consecutive messages.
    Messages(MessageRange),
    /// A collapsed span with a placeholder in the view.
    Span(SpanKey, MessageRange),
    /// A block that is not a tool result.
    Block(Ordinal, u16),
    /// A tool result, named by its call.
    Result(CallKey),
}

/// A range of messages of the transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageRange {
    /// The first message of the range.
    pub first: Ordinal,
    /// The last message of the range.
    pub last: Ordinal,
    /// The number of messages in the range that left the view.
    pub count: u32,
}

/// The text in the view that leads to removed content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryHandle {
    /// Nothing in the view leads to the content.
    None,
    /// The reference in the replacement of a stored result.
    Reference(String),
    /// The id of the tool call, as the view shows it.
    CallId(String),
    /// The placeholder of a collapsed span.
    Placeholder(SpanKey),
}

/// A call of one of the service's tools for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelToolUse {
    /// The tool to call.
    pub tool: ModelTool,
    /// The name of the tool as the model sees it.
    pub name: String,
    /// The input as a JSON object.
    pub input: Value,
}

/// Finds ways to recover content of a session for the model of a target.
#[derive(Debug)]
pub struct RecoveryIndex<'s> {
    session: &'s Session,
    target: &'s Target,
    /// The form of each block in the view, sorted by block. Filled on first use.
    forms: OnceCell<Vec<((Ordinal, u16), PieceForm)>>,
    /// The calls that the view shows. Filled on first use.
    calls: OnceCell<BTreeSet<CallKey>>,
}

impl<'s> RecoveryIndex<'s> {
    /// Creates a recovery for the session's current view.
    pub fn new(session: &'s Session, target: &'s Target) -> Self {
        Self {
            session,
            target,
            forms: OnceCell::new(),
            calls: OnceCell::new(),
        }
    }

    /// Returns the form of a block in the view. `None` if the view has no piece for the block.
    fn form_at(&self, position: (Ordinal, u16)) -> Option<PieceForm> {
        let forms = self.forms.get_or_init(|| {
            let pieces = self.session.sealed().pieces().iter();
            let of_block = pieces.filter(|piece| piece.form.represents_block());
            let mut forms: Vec<_> = of_block
                .map(|piece| ((piece.message, piece.block), piece.form))
                .collect();
            // The pieces are almost sorted already, which makes the sort cheap.
            forms.sort_by_key(|(position, _)| *position);
            forms
        });
        let found = forms.binary_search_by_key(&position, |(position, _)| *position);
        found.ok().map(|at| forms[at].1)
    }

    /// Returns true if the view shows a call.
    fn shows_call(&self, call: CallKey) -> bool {
        let calls = self.calls.get_or_init(|| {
            let pieces = self.session.sealed().pieces().iter();
            pieces.filter_map(|piece| piece.form.call_key()).collect()
        });
        calls.contains(&call)
    }

    /// Returns the content that an event removed from the view, in the order of the transcript.
    pub fn removed_by(&self, event: &Event, revision: Revision) -> Vec<RemovedContent> {
        let found = match event {
            Event::ResultsPersisted(event) => {
                let calls = event.results.iter().map(|stored| stored.call);
                self.with_tokens(calls.map(|call| self.result_of(call)))
            }
            Event::ResultsCleared(event) => {
                let calls = event.calls.iter().copied();
                self.with_tokens(calls.map(|call| self.result_of(call)))
            }
            Event::ContentSnipped(event) => self.snipped(event),
            Event::CompactionFinished(event) => {
                self.with_tokens(consecutive_ranges(event.leaving.iter().copied()))
            }
            Event::SpansCollapsed(event) => {
                let spans = event.placeholders.iter();
                self.with_tokens(spans.map(|one| of_span(&one.span)))
            }
            Event::SessionRewound(event) => {
                self.with_tokens(consecutive_ranges(event.removed.iter().copied()))
            }
            // A restore also removes messages: those that were appended or shown after the restored revision.
            Event::ContextRestored(event) => {
                let left = event.visibilities.iter();
                // Messages that a compaction added leave with it. They are no part of the conversation.
                let left = left.filter(|(message, visibility)| {
                    !visibility.is_in_view() && !self.session.is_framing(*message)
                });
                self.with_tokens(consecutive_ranges(left.map(|(message, _)| *message)))
            }
            _ => Vec::new(),
        };
        self.removed_for(Some(revision), found)
    }

    /// Returns the results that level 1 replaced and whose replacement is still in the view.
    pub fn replaced_results(&self) -> Vec<RemovedContent> {
        let stored = self.session.stored_results().iter();
        let replaced =
            stored.filter_map(
                |(message, block, _)| match self.form_at((message, block))? {
                    PieceForm::Stored(call) => Some(ContentRef::Result(call)),
                    _ => None,
                },
            );
        self.removed_by_level_1(replaced)
    }

    /// Returns the results of a message that level 1 replaced, also if the message has left the view since.
    pub fn replaced_results_of(&self, message: Ordinal) -> Vec<RemovedContent> {
        let stored = self.session.stored_results().iter();
        let of_message = stored.filter(|(of, _, _)| *of == message);
        self.removed_by_level_1(of_message.map(|(_, _, stored)| ContentRef::Result(stored.call)))
    }

    fn removed_by_level_1(
        &self,
        contents: impl Iterator<Item = ContentRef>,
    ) -> Vec<RemovedContent> {
        self.removed_for(None, self.with_tokens(contents))
    }

    /// Adds the cause to content with its size. Sizes are estimates by the service. The calibration scales them to the
    /// counts of the provider.
    fn removed_for(
        &self,
        cause: Option<Revision>,
        found: Vec<(ContentRef, u64)>,
    ) -> Vec<RemovedContent> {
        let calibration = self.session.ledger().calibration;
        let removed = |(content, estimated)| RemovedContent {
            content,
            cause,
            tokens: calibration.apply(estimated),
        };
        found.into_iter().map(removed).collect()
    }

    /// Returns the parts of some content that are in the view, or with `hidden` the parts that are not. An undo may
    /// restore the beginning of a range and not its end.
    pub fn parts(&self, removed: RemovedContent, hidden: bool) -> Vec<RemovedContent> {
        // Only ranges can be partly gone. Everything else is either in the view or not.
        let row = match removed.content {
            ContentRef::Turn(_, row) | ContentRef::Messages(row) => row,
            content if self.is_out_of_view(content) == hidden => return vec![removed],
            _ => return Vec::new(),
        };
        let transcript = self.session.transcript();
        // Content behind a placeholder is reported with the placeholder, so a collapsed message counts as present.
        let stays = |message: Ordinal| {
            let entry = transcript.get(message);
            entry.is_some_and(|entry| entry.visibility.is_in_view())
        };
        let asked = |message: &Ordinal| stays(*message) != hidden;
        // System messages belong to no turn, and some messages were never in the view.
        let of_turn = matches!(removed.content, ContentRef::Turn(..));
        let counts = |message: &Ordinal| {
            let entry = transcript.get(*message);
            entry.is_some_and(|entry| {
                let never = matches!(
                    entry.visibility,
                    Visibility::TranscriptOnly
                        | Visibility::Reemission(_)
                        | Visibility::Unconfirmed
                );
                !(never || of_turn && entry.role.is_system())
            })
        };
        let all = (row.first.get()..=row.last.get()).map(Ordinal::new);
        let all: Vec<Ordinal> = all.filter(counts).collect();
        if all.iter().all(asked) {
            return vec![removed];
        }
        let parts = self.with_tokens(consecutive_ranges(all.into_iter().filter(asked)));
        self.removed_for(removed.cause, parts)
    }

    /// Keeps the first report of each content. The input must be ordered from the newest event to the oldest. Parts of
    /// a range that left on their own later are not reported separately from the range.
    pub fn deduplicate(
        &self,
        removed: impl IntoIterator<Item = RemovedContent>,
    ) -> Vec<RemovedContent> {
        let mut seen: HashSet<ContentRef> = HashSet::new();
        let mut messages: HashSet<Ordinal> = HashSet::new();
        // `count` visits every message, so that all messages of the range are recorded. `any` would stop early.
        let mut any_new = |all: &mut dyn Iterator<Item = Ordinal>| {
            all.filter(|message| messages.insert(*message)).count() > 0
        };
        let mut kept = Vec::new();
        for removed in removed {
            let is_new = match removed.content {
                ContentRef::Turn(_, row) | ContentRef::Messages(row) => {
                    any_new(&mut (row.first.get()..=row.last.get()).map(Ordinal::new))
                }
                // A placeholder leads only to the messages of its span, not to messages between them that left earlier.
                ContentRef::Span(span, _) => {
                    let placeholder = self.session.spans().placeholder(span);
                    let held = placeholder.map(|one| one.span.messages.iter().copied());
                    held.is_some_and(|mut held| any_new(&mut held))
                }
                what => seen.insert(what),
            };
            if is_new {
                kept.push(removed);
            }
        }
        kept
    }

    /// Returns true if some content is, contains or belongs to a message.
    pub fn is_of_message(&self, what: ContentRef, message: Ordinal) -> bool {
        match what {
            ContentRef::Turn(_, row) | ContentRef::Messages(row) => {
                (row.first..=row.last).contains(&message)
            }
            // Messages between those of a span may have left in another way.
            ContentRef::Span(span, _) => {
                let placeholder = self.session.spans().placeholder(span);
                placeholder.is_some_and(|one| one.span.messages.contains(&message))
            }
            ContentRef::Block(of, _) => of == message,
            ContentRef::Result(call) => {
                let position = self.result_position(call);
                position.is_some_and(|(of, _)| of == message)
            }
        }
    }

    /// Returns true if the content is not in the view.
    fn is_out_of_view(&self, what: ContentRef) -> bool {
        match what {
            ContentRef::Turn(_, row) | ContentRef::Messages(row) => {
                !self.session.transcript().is_in_view(row.first)
            }
            ContentRef::Span(span, _) => {
                self.session.placeholders().any(|one| one.span.key == span)
            }
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

    /// Returns the handle in the view that leads to the content.
    pub fn handle(&self, what: ContentRef) -> RecoveryHandle {
        let call = match what {
            ContentRef::Result(call) => call,
            ContentRef::Span(span, _) if self.is_out_of_view(what) => {
                return RecoveryHandle::Placeholder(span);
            }
            _ => return RecoveryHandle::None,
        };
        // A stored result has its own reference. Every other form is reached through the id of its call.
        match self.form_of(call) {
            Some(PieceForm::Stored(_)) => self
                .reference(call)
                .map_or(RecoveryHandle::None, RecoveryHandle::Reference),
            Some(_) if self.shows_call(call) => RecoveryHandle::CallId(self.wire_id(call)),
            _ => RecoveryHandle::None,
        }
    }

    /// Returns the tool call with which the model reads the content. `None` if the policy does not enable the tool.
    pub fn tool_call(&self, what: ContentRef) -> Option<ModelToolUse> {
        let (tool, input) = match what {
            ContentRef::Turn(_, row) | ContentRef::Messages(row) if row.first < row.last => {
                let input = json!({"first": number(row.first), "last": number(row.last)});
                (ModelTool::ReadTranscript, input)
            }
            ContentRef::Turn(_, MessageRange { first, .. })
            | ContentRef::Messages(MessageRange { first, .. })
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

    /// Returns the last revision whose view contains the content. `None` if no view-changing event is recorded as the
    /// cause.
    pub fn restore_revision(&self, removed: &RemovedContent) -> Option<Revision> {
        let cause = self.session.view_change(removed.cause?)?;
        // The first event creates the session and changes no view, so the difference is at least 1.
        Some(Revision::new(cause.revision.get() - 1))
    }

    /// Returns the message and block of a call's original result.
    pub fn result_position(&self, call: CallKey) -> Option<(Ordinal, u16)> {
        self.session.calls().get(call)?.result_position
    }

    /// Returns the result in the block of a call's result. After an undo that block may answer another call.
    fn result_of(&self, call: CallKey) -> ContentRef {
        let answers = self.form_of(call).and_then(PieceForm::answered_call_key);
        ContentRef::Result(answers.unwrap_or(call))
    }

    fn form_of(&self, call: CallKey) -> Option<PieceForm> {
        self.form_at(self.result_position(call)?)
    }

    fn reference(&self, call: CallKey) -> Option<String> {
        let stored = self.session.stored_result(call)?;
        let template = &self.session.policy().tool_results.reference_template;
        Some(reference(template, self.session.key(), &stored.file))
    }

    /// Returns the id of a call in the view.
    fn wire_id(&self, call: CallKey) -> String {
        let max_len = self.target.provider.max_call_id_len();
        self.session.calls().wire_id(call, max_len).into_owned()
    }

    /// Returns an id that identifies one call. This is the wire id, unless the caller used the same id for several
    /// calls.
    fn unique_id(&self, call: CallKey) -> String {
        let calls = self.session.calls();
        let shown = self.wire_id(call);
        match calls.with_id(&shown) {
            [] | [_] => shown,
            _ => calls.service_id(call),
        }
    }

    fn snipped(&self, event: &ContentSnipped) -> Vec<(ContentRef, u64)> {
        let starts = self.session.turns().starts();
        // Messages of a snipped turn are reported with the turn. Only the others are reported on their own.
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
                let row = MessageRange {
                    first: *first,
                    last: *last,
                    count: crate::view::count(inside.len()),
                };
                let tokens = inside.iter().map(|message| self.size(*message)).sum();
                found.push((ContentRef::Turn(*turn, row), tokens));
                left.retain(|message| !inside.contains(message));
            }
        }
        found.extend(self.with_tokens(consecutive_ranges(left.into_iter())));
        found.extend(self.with_tokens(event.blocks.iter().map(|position| self.block(*position))));
        found
    }

    /// Returns the reference to a block: a result if the block is or was one.
    fn block(&self, (message, block): (Ordinal, u16)) -> ContentRef {
        // The view is asked first: after an undo, the block may answer another call than its original one.
        let call = self
            .form_at((message, block))
            .and_then(PieceForm::answered_call_key);
        let calls = self.session.calls();
        let call = call.or_else(|| {
            let mut all = calls
                .iter()
                .filter(|(_, call)| call.result_position == Some((message, block)));
            all.next().map(|(key, _)| key)
        });
        call.map_or(ContentRef::Block(message, block), ContentRef::Result)
    }

    fn with_tokens(&self, found: impl IntoIterator<Item = ContentRef>) -> Vec<(ContentRef, u64)> {
        let sized = |what| (what, self.tokens(what));
        found.into_iter().map(sized).collect()
    }

    fn size(&self, message: Ordinal) -> u64 {
        let entry = self.session.transcript().get(message);
        entry.map_or(0, |entry| u64::from(entry.size.tokens))
    }

    /// Returns the estimated tokens of some content. For a range, all messages between its ends count.
    fn tokens(&self, what: ContentRef) -> u64 {
        match what {
            ContentRef::Turn(_, row) | ContentRef::Messages(row) => {
                let numbers = row.first.get()..=row.last.get();
                numbers.map(|number| self.size(Ordinal::new(number))).sum()
            }
            ContentRef::Span(span, _) => {
                let placeholder = self.session.spans().placeholder(span);
                placeholder.map_or(0, |one| {
                    u64::from(one.span.freed_tokens) + u64::from(one.tokens)
                })
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

fn of_span(span: &Span) -> ContentRef {
    let messages = MessageRange {
        first: span.first(),
        last: span.last(),
        count: crate::view::count(span.messages.len()),
    };
    ContentRef::Span(span.key, messages)
}

/// Returns the number of a message as the model's tools count, starting at 1.
fn number(message: Ordinal) -> u64 {
    u64::from(message.get()) + 1
}

/// Groups messages into ranges of neighbours.
fn consecutive_ranges(messages: impl Iterator<Item = Ordinal>) -> impl Iterator<Item = ContentRef> {
    let mut ranges: Vec<MessageRange> = Vec::new();
    for message in messages {
        match ranges.last_mut() {
            Some(range) if range.last.get() + 1 == message.get() => {
                range.last = message;
                range.count += 1;
            }
            _ => ranges.push(MessageRange {
                first: message,
                last: message,
                count: 1,
            }),
        }
    }
    ranges.into_iter().map(ContentRef::Messages)
}

/// Returns the call to which an id in the view leads, and the number of tool calls that this takes.
///
/// The number is 1, or 2 if several calls share the id. In that case the first tool call is rejected with the
/// candidates, and the second one names a call key.
pub fn resolve_call_id(calls: &Calls, id: &str) -> Option<(CallKey, u32)> {
    if let Some(call) = calls.find_by_service_id(id) {
        return Some((call, 1));
    }
    match calls.with_id(id) {
        [] => None,
        [only] => Some((*only, 1)),
        candidates => {
            let goes_by_it =
                |call: &&CallKey| calls.get(**call).is_some_and(|call| !call.uses_service_id);
            // Calls that left the view can have the same id as the one in the view.
            let mut unmapped = candidates.iter().rev().filter(goes_by_it);
            let is_shown = |call: &&CallKey| calls.state(**call) != CallState::Gone;
            let latest = unmapped.clone().next();
            Some((*unmapped.find(is_shown).or(latest)?, 2))
        }
    }
}
