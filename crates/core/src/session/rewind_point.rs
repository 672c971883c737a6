//! The point of a rewind: decides which messages stay in the view.
//!
//! A message without a summary before it has the order of the transcript. A summary and its attachments were added after the
//! messages that follow them, so for them the order of the view decides. A hidden message goes with the summary or the
//! placeholder that represents it.

use std::collections::BTreeSet;

use super::{CompactionBoundary, Session};
use crate::event::Visibility;
use crate::ids::{MessageId, Ordinal, Revision};

/// The last message that stays, and what follows it in the view.
#[derive(Debug)]
pub(crate) struct RewindPoint<'a> {
    session: &'a Session,
    to: Ordinal,
    /// True if the last message that stays belongs to a compaction, and the view shows it.
    is_framing: bool,
    /// The messages of the view after the point.
    following: BTreeSet<Ordinal>,
}

impl<'a> RewindPoint<'a> {
    pub(crate) fn new(session: &'a Session, to: Ordinal) -> Self {
        let pieces = session.sealed().pieces();
        let own = pieces.iter().rposition(|piece| piece.message == to);
        // If the message is hidden, the point is before the first later message.
        let before_later = || {
            let mut all = pieces.iter().map(|piece| piece.message);
            let later = all.position(|at| at > to && !session.is_framing(at));
            later.unwrap_or(pieces.len())
        };
        let end = own.map_or_else(before_later, |own| own + 1);
        let before: BTreeSet<Ordinal> = pieces[..end].iter().map(|piece| piece.message).collect();
        let following = pieces[end..].iter().map(|piece| piece.message);
        Self {
            session,
            to,
            is_framing: own.is_some() && session.is_framing(to),
            following: following.filter(|at| !before.contains(at)).collect(),
        }
    }

    /// Returns the last message that stays.
    pub(crate) fn to(&self) -> Ordinal {
        self.to
    }

    /// Returns true if a message stays as it is.
    pub(crate) fn stays(&self, message: Ordinal) -> bool {
        let Some(entry) = self.session.transcript().get(message) else {
            return true;
        };
        let is_framing = self.session.is_framing(message);
        match entry.visibility {
            Visibility::Visible if is_framing || self.is_framing => {
                // A message that waits for the next view follows everything.
                let is_new = !is_framing && message > self.to;
                !is_new && !self.following.contains(&message)
            }
            Visibility::Compacted if is_framing || self.is_framing => {
                let summary = self.session.visible_summary_of(message);
                summary.map_or(is_framing || message <= self.to, |summary| {
                    !self.following.contains(&summary)
                })
            }
            Visibility::Collapsed if self.is_framing => {
                let placeholder = self.session.placeholder_of(message);
                placeholder.is_none_or(|one| {
                    let mut shown = self.session.collapsed_messages(one);
                    !shown.any(|at| self.following.contains(&at))
                })
            }
            _ => message <= self.to,
        }
    }

    /// Returns the messages in effect that leave, in ascending order.
    pub(crate) fn leaving(&self) -> Vec<Ordinal> {
        // Only a message of a compaction can leave although it is earlier in the transcript.
        let first = match self.following.first() {
            Some(first) => (*first).min(self.to),
            None => self.to,
        };
        let entries = self.session.transcript().entries().rev();
        let candidates = entries.take_while(|(at, _)| self.is_framing || *at >= first);
        let leaving = candidates
            .filter(|(at, entry)| entry.visibility.is_in_effect() && !self.stays(*at))
            .map(|(at, _)| at);
        let mut leaving: Vec<Ordinal> = leaving.collect();
        leaving.reverse();
        leaving
    }

    /// Returns the messages after the point whose summary stays. The summary would describe messages that leave.
    pub(crate) fn summarized(&self) -> impl Iterator<Item = Ordinal> {
        let entries = self.session.transcript().entries().rev();
        let later = entries.take_while(|(at, _)| !self.is_framing && *at > self.to);
        let summarized = later.filter(|(at, entry)| {
            let summary = || self.session.visible_summary_of(*at);
            entry.visibility == Visibility::Compacted
                && !self.session.is_framing(*at)
                && summary().is_none_or(|summary| !self.following.contains(&summary))
        });
        summarized.map(|(at, _)| at)
    }
}

impl Session {
    /// Returns the summary in the view that represents a compacted message. `None` if no summary does.
    pub(crate) fn visible_summary_of(&self, message: Ordinal) -> Option<Ordinal> {
        let mut message = message;
        // A summary can be compacted too. Each step leads to a later message, so the loop ends.
        loop {
            let summary = self.boundary_that_hides(message)?.summary?;
            let visibility = self.transcript.get(summary)?.visibility;
            match visibility {
                Visibility::Compacted if summary > message => message = summary,
                Visibility::Visible => return Some(summary),
                _ => return None,
            }
        }
    }

    /// Returns the first later compaction that did not keep a message and that no undo withdrew.
    fn boundary_that_hides(&self, message: Ordinal) -> Option<&CompactionBoundary> {
        let boundaries = self.compactions.boundaries.iter();
        let mut after = boundaries.filter(|one| one.message > message);
        after.find(|one| !one.kept.contains(&message) && !self.is_withdrawn(one))
    }

    /// Returns the latest revision whose view shows a message and all compacted messages after it. Returns `None`
    /// if nothing hides these messages.
    pub fn last_revision_showing(&self, message: MessageId) -> Option<Revision> {
        let message = self.transcript.find(message)?;
        let point = RewindPoint::new(self, message);
        let hidden = point.summarized().chain([message]);
        // The messages may have left with different events. Before the earliest of them, the view showed all.
        hidden.filter_map(|at| self.last_visible_revision(at)).min()
    }

    /// Returns the last revision before a placeholder or a summary replaced a message.
    fn last_visible_revision(&self, ordinal: Ordinal) -> Option<Revision> {
        let event = match self.transcript.get(ordinal)?.visibility {
            Visibility::Collapsed => {
                let placeholder = self.placeholder_of(ordinal)?;
                self.spans.collapsed_at(placeholder.span.key)?
            }
            Visibility::Compacted => self.boundary_that_hides(ordinal)?.revision,
            _ => return None,
        };
        // A revision is a number of events, so the state before an event has the revision before it.
        event.get().checked_sub(1).map(Revision::new)
    }

    /// Returns true if an undo removed a compaction.
    fn is_withdrawn(&self, boundary: &CompactionBoundary) -> bool {
        let summary = boundary.summary.and_then(|at| self.transcript.get(at));
        summary.is_some_and(|entry| entry.visibility == Visibility::Withdrawn)
    }
}
