//! The point of a rewind: decides which messages stay in the view.
//!
//! A message without a summary before it has the order of the transcript. A summary and its attachments were added after the
//! messages that follow them, so for them the order of the view decides. A hidden message goes with the summary or the
//! placeholder that represents it.

use std::collections::BTreeSet;

use super::Session;
use crate::event::Visibility;
use crate::ids::Ordinal;

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
        let end = match own {
            Some(own) => own + 1,
            // The message is hidden, so the point is before the first later message.
            None => {
                let mut all = pieces.iter().map(|piece| piece.message);
                let later = all.position(|at| at > to && !session.is_framing(at));
                later.unwrap_or(pieces.len())
            }
        };
        let before: BTreeSet<Ordinal> = pieces[..end].iter().map(|piece| piece.message).collect();
        let following = pieces[end..].iter().map(|piece| piece.message);
        Self {
            session,
            to,
            is_framing: own.is_some() && session.is_framing(to),
            following: following.filter(|at| !before.contains(at)).collect(),
        }
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
        let candidates =
            entries.take_while(|(at, _)| self.is_framing || *at > self.to || *at >= first);
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
