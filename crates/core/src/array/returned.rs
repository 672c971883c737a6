//! Arrays that contain a summary of the service. A caller that got a summary with a response sends it back, and may leave
//! out the elements that the summary replaces.
//!
//! The session has these elements. An array without them is completed from the known links, so that it is compared like
//! any other array.

use std::borrow::Cow;
use std::sync::Arc;

use super::align::{overlap, prefix};
use super::hints::KnownContent;
use super::links::{CallerArray, Element, Incoming, Link, LinkKind};
use super::response::text;
use super::tips::{MAX_BEGINNINGS, summary_tip};
use crate::ids::Ordinal;
use crate::message::{CanonicalDigests, Digest, Message, Role};
use crate::session::{ContentNotLoaded, Session};
use crate::summary::summary_in;

/// Maximum number of summaries of a session that are compared. A caller sends back one of the latest.
const MAX_SUMMARIES: usize = 4;

/// The last summary of the service in an array. The elements of the array do not contain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnedSummary {
    /// The text without its frame.
    pub text: Box<str>,
    /// Number of elements before the summary.
    pub at: usize,
    /// The summary as a message of the user, for a session that did not write it.
    pub message: Element,
}

impl ReturnedSummary {
    /// Returns the message of the session that contains the summary. `None` if the session did not write it.
    ///
    /// # Errors
    ///
    /// Returns an error if a summary is not in memory.
    pub fn written_at(
        &self,
        session: &Session,
        known: &dyn KnownContent,
    ) -> Result<Option<Ordinal>, ContentNotLoaded> {
        let compactions = session.compactions().boundaries.iter().rev();
        let summaries = compactions.filter_map(|compaction| compaction.summary);
        for summary in summaries.take(MAX_SUMMARIES) {
            let message = known.message(summary)?;
            if summary_in(&text(&[&message])) == Some(&*self.text) {
                return Ok(Some(summary));
            }
        }
        Ok(None)
    }

    /// Returns the array with all elements that its summary replaces. `written_at` is the message of the session that
    /// contains the summary.
    ///
    /// A session that did not write the summary gets it as the first message, because it may lack the elements.
    pub fn complete<'a>(
        &self,
        elements: &'a [Element],
        array: &CallerArray,
        written_at: Option<Ordinal>,
    ) -> Cow<'a, [Element]> {
        // `lead` and `rest` do not depend on `has_tools`, so any value serves.
        let Incoming { lead, rest, .. } = Incoming::new(elements, true);
        let (before, after) = rest.split_at(self.begin(lead, rest));
        // A session with the elements before the summary needs no text in their place.
        let Some(written_at) = written_at else {
            return if prefix(&array.links, before).links > 0 {
                Cow::Borrowed(elements)
            } else {
                let summary = std::slice::from_ref(&self.message);
                [lead, summary, after].concat().into()
            };
        };
        let is_later = |link: &Link| link.message > written_at;
        let links = array.links.iter().position(is_later);
        let replaced = &array.links[..links.unwrap_or(array.links.len())];
        let is_given = prefix(replaced, before).is_whole;
        // With another system prompt, only a response shows that both arrays are one conversation.
        let is_certain = array.lead == Incoming::new(elements, true).lead_digests()
            || replaced.iter().any(|link| link.role == Role::Assistant);
        if is_given || !is_certain {
            return Cow::Borrowed(elements);
        }
        // A caller may repeat the last messages after the summary.
        let repeated = overlap(replaced, after).map_or(0, |tail| tail.elements);
        let known = replaced.iter().filter(|link| link.kind != LinkKind::Part);
        let known: Vec<Element> = known.map(|link| self.known(link)).collect();
        [lead, &known, &after[repeated..]].concat().into()
    }

    /// Returns the tip of an array that was completed.
    pub fn tip(&self, elements: &[Element]) -> Digest {
        self.after(elements).tip_after(&self.text)
    }

    /// Returns the beginnings of the array, as [`Incoming::beginnings`] does: with the elements before the summary, and
    /// without them. The last one is the summary itself.
    pub fn beginnings(&self, elements: &[Element]) -> Vec<Digest> {
        let incoming = Incoming::new(elements, true);
        let mut all = Vec::new();
        if self.begin(incoming.lead, incoming.rest) > 0 {
            all = incoming.beginnings();
            all.truncate(MAX_BEGINNINGS / 2);
        }
        let mut after = self.after(elements).beginnings_after(&self.text);
        // One lookup is left for the summary alone.
        after.truncate(MAX_BEGINNINGS / 2 - 1);
        all.append(&mut after);
        all.push(summary_tip(&incoming.lead_digests(), &self.text));
        all
    }

    /// Returns the array without the elements before the summary.
    fn after<'a>(&self, elements: &'a [Element]) -> Incoming<'a> {
        let incoming = Incoming::new(elements, true);
        let begin = self.begin(incoming.lead, incoming.rest);
        Incoming {
            rest: &incoming.rest[begin..],
            ..incoming
        }
    }

    /// Returns the number of elements of the conversation before the summary.
    fn begin(&self, lead: &[Element], rest: &[Element]) -> usize {
        self.at.saturating_sub(lead.len()).min(rest.len())
    }

    /// Returns an element in place of one that the session has. It has no content, because an equal element is never
    /// appended.
    fn known(&self, link: &Link) -> Element {
        let id = self.message.message.id;
        let loose = match link.kind {
            // All elements without content share one loose digest, so the link of such an element has the strict one.
            LinkKind::Empty => CanonicalDigests::EMPTY,
            LinkKind::Content | LinkKind::Part => link.digest,
        };
        Element {
            message: Arc::new(Message::new(id, link.role, Vec::new())),
            digests: CanonicalDigests {
                strict: link.digest,
                loose,
            },
        }
    }
}
