//! The chain of parents that Claude Code follows when it resumes a session. It begins at the last line and ends at a
//! line without a parent, so messages outside the chain are not sent to the model.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use palimpsest_core::event::Trigger;
use palimpsest_core::ids::{MessageId, Ordinal, SpanKey};
use palimpsest_core::message::{MessageKind, Role};
use palimpsest_core::session::{Session, Visibility};
use palimpsest_core::view::PieceForm;
use uuid::Uuid;

use crate::export::view_items::{ViewItem, view_items};

/// The ids of lines that no message of the session has. Each differs from the id of a message in its random bits only.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
pub(super) enum LineId {
    /// A message with replaced results.
    Copy = 0x0051_6b1d_3f20_c0de,
    /// The record of replaced results.
    Replaced = 0x0051_6b1d_3f20_c1ea,
    /// The placeholder of the span that begins with the message.
    Placeholder = 0x0051_6b1d_3f20_f01d,
    /// The record of removed messages, of which the message is the first.
    Removal = 0x0051_6b1d_3f20_0ff0,
}

impl LineId {
    pub(super) fn of(self, message: MessageId) -> MessageId {
        // The id depends on the message alone, so each export of a session has the same lines.
        MessageId::new(Uuid::from_u128(
            message.get().as_u128() ^ u128::from(self as u64),
        ))
    }
}

/// The line of a message in the chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) parent: Option<MessageId>,
    /// The id of the line. A message with replaced results is in the chain as a copy.
    pub(super) id: MessageId,
}

/// A compaction that is in effect.
#[derive(Debug)]
pub(super) struct Compaction {
    pub(super) manual: bool,
    pub(super) before_tokens: u64,
    /// The messages that stayed verbatim.
    pub(super) kept: Vec<MessageId>,
    /// The part of the chain before the boundary. Only the last compaction has one.
    pub(super) segment: Option<Segment>,
}

/// Consecutive lines of the chain that Claude Code keeps although they precede the boundary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) head: MessageId,
    pub(super) tail: MessageId,
    /// The line before the head.
    pub(super) anchor: MessageId,
}

/// A collapsed span of the view.
#[derive(Debug)]
pub(super) struct CollapsedSpan {
    pub(super) parent: Option<MessageId>,
    pub(super) id: MessageId,
    pub(super) messages: Vec<MessageId>,
    pub(super) text: Box<str>,
}

/// The chain of a session.
#[derive(Debug, Default)]
pub(super) struct Chain {
    links: BTreeMap<Ordinal, Link>,
    /// The results that the view replaces by a text, by message and block.
    pub(super) replaced: BTreeMap<Ordinal, BTreeMap<u16, Box<str>>>,
    /// The compactions by their boundary messages.
    pub(super) compactions: BTreeMap<Ordinal, Compaction>,
    pub(super) spans: Vec<CollapsedSpan>,
    /// The messages that an import must leave in the view.
    pub(super) in_view: HashSet<MessageId>,
    /// The last line of the chain.
    pub(super) leaf: Option<MessageId>,
}

impl Chain {
    pub(super) fn of(session: &Session) -> Self {
        let mut chain = Self::default();
        chain.add_replaced(session);
        chain.add_compactions(session);
        chain.add_links(session);
        for (_, entry) in session.transcript().entries() {
            // The server finds repeated messages of an import again.
            if matches!(
                entry.visibility,
                Visibility::Visible | Visibility::Unconfirmed | Visibility::Reemission(_)
            ) {
                chain.in_view.insert(entry.id);
            }
        }
        chain
    }

    /// Returns the link of a message. `None` if the chain does not contain it.
    pub(super) fn link(&self, message: Ordinal) -> Option<Link> {
        self.links.get(&message).copied()
    }

    /// Returns the parent of the first message of the chain after a message in the order of the transcript.
    pub(super) fn parent_after(&self, message: Ordinal) -> Option<MessageId> {
        let later = (Bound::Excluded(message), Bound::Unbounded);
        self.links.range(later).next()?.1.parent
    }

    /// Returns the spans that a record of the format can describe, and the others. A record names the first and the last
    /// message, so all shown messages between them must belong to the span. `imported` are the messages that an import
    /// shows, in order.
    pub(super) fn recordable_spans(
        &self,
        imported: &[MessageId],
    ) -> (Vec<&CollapsedSpan>, Vec<&CollapsedSpan>) {
        let collapsed = self.spans.iter().flat_map(|span| &span.messages);
        let collapsed: HashSet<&MessageId> = collapsed.collect();
        let shown = imported.iter();
        let shown = shown.filter(|id| self.in_view.contains(id) || collapsed.contains(id));
        let places: HashMap<&MessageId, usize> = shown.zip(0..).collect();
        self.spans.iter().partition(|span| {
            let mut places_of_span = span.messages.iter().map(|id| places.get(id));
            let first = places_of_span.next().flatten().copied();
            let mut next = first.map_or(0, |first| first + 1);
            first.is_some()
                && places_of_span.all(|place| {
                    let is_next = place == Some(&next);
                    next += 1;
                    is_next
                })
        })
    }

    /// Returns the boundary message of the last compaction.
    fn last_boundary(&self) -> Option<Ordinal> {
        self.compactions.keys().next_back().copied()
    }

    fn add_replaced(&mut self, session: &Session) {
        for piece in session.sealed().pieces() {
            let text = match piece.form {
                PieceForm::Stored(call) => {
                    let stored = session.stored_result(call);
                    stored.map(|stored| stored.replacement.clone())
                }
                form => form.result_marker().map(Into::into),
            };
            if let Some(text) = text {
                let blocks = self.replaced.entry(piece.message).or_default();
                blocks.insert(piece.block, text);
            }
        }
    }

    fn add_compactions(&mut self, session: &Session) {
        let transcript = session.transcript();
        let entries = transcript.entries();
        let in_view = entries.filter(|(_, entry)| {
            entry.visibility.is_in_view() || entry.visibility == Visibility::Unconfirmed
        });
        let in_view: Vec<Ordinal> = in_view.map(|(at, _)| at).collect();
        for boundary in &session.compactions().boundaries {
            let summary = boundary.summary.and_then(|at| transcript.get(at));
            // An undo or a rewind removes the summary together with the effect of the compaction.
            let is_in_effect = summary.is_some_and(|entry| {
                !matches!(
                    entry.visibility,
                    Visibility::Withdrawn | Visibility::Rewound
                )
            });
            if is_in_effect {
                // The compaction did not decide about messages that no view contained at that time.
                let undecided = in_view.iter().filter(|at| **at < boundary.message);
                let kept: BTreeSet<Ordinal> =
                    boundary.kept.iter().chain(undecided).copied().collect();
                let kept = kept.into_iter().filter_map(|at| transcript.get(at));
                let compaction = Compaction {
                    manual: boundary.trigger == Trigger::Manual,
                    before_tokens: boundary.before_tokens,
                    kept: kept.map(|entry| entry.id).collect(),
                    segment: None,
                };
                self.compactions.insert(boundary.message, compaction);
            }
        }
    }

    fn add_links(&mut self, session: &Session) {
        let transcript = session.transcript();
        let last_boundary = self.last_boundary();
        let boundary_id = last_boundary.and_then(|at| transcript.get(at));
        // The first line of the chain after a compaction has the boundary as its parent.
        let mut last = boundary_id.map(|entry| entry.id);
        let mut segment: Option<Segment> = None;
        for item in view_items(session) {
            let (at, id) = match item {
                ViewItem::Message(at) => {
                    let Some(entry) = transcript.get(at) else {
                        continue;
                    };
                    // Claude Code sends a system prompt of its own, and no lines of this type.
                    if matches!(entry.role, Role::System | Role::Developer) {
                        continue;
                    }
                    let id = if self.replaced.contains_key(&at) {
                        LineId::Copy.of(entry.id)
                    } else {
                        entry.id
                    };
                    self.links.insert(at, Link { parent: last, id });
                    (at, id)
                }
                ViewItem::Placeholder(key) => {
                    let Some(span) = self.add_span(session, key, last) else {
                        continue;
                    };
                    span
                }
            };
            if last_boundary.is_some_and(|boundary| at < boundary) {
                // The head stays, and the tail is the latest line before the boundary.
                let head = segment.map_or(Some((id, last)), |it| Some((it.head, Some(it.anchor))));
                segment = head.and_then(|(head, anchor)| {
                    Some(Segment {
                        head,
                        tail: id,
                        anchor: anchor?,
                    })
                });
            }
            last = Some(id);
        }
        let last_compaction = last_boundary.and_then(|at| self.compactions.get_mut(&at));
        if let Some(compaction) = last_compaction {
            compaction.segment = segment;
        }
        self.leaf = last;
    }

    /// Adds a collapsed span. Returns its first message and the id of its placeholder.
    fn add_span(
        &mut self,
        session: &Session,
        key: SpanKey,
        parent: Option<MessageId>,
    ) -> Option<(Ordinal, MessageId)> {
        let transcript = session.transcript();
        let placeholder = session.spans().placeholder(key)?;
        let messages = session.collapsed_messages(placeholder);
        let messages: Vec<MessageId> = messages
            .filter_map(|at| transcript.get(at).map(|entry| entry.id))
            .collect();
        let id = LineId::Placeholder.of(*messages.first()?);
        let first = placeholder.span.first();
        self.spans.push(CollapsedSpan {
            parent,
            id,
            messages,
            text: placeholder.text.clone(),
        });
        Some((first, id))
    }
}

/// Returns true if a message of the service belongs to a compaction that was undone. Such messages are left out.
pub(super) fn is_withdrawn(kind: MessageKind, visibility: Visibility) -> bool {
    kind.is_framing() && matches!(visibility, Visibility::Withdrawn | Visibility::Rewound)
}
