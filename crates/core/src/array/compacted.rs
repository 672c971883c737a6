//! A compaction of the session that the caller has taken over: the array contains the summary of the view in place of the
//! messages that left.
//!
//! The session has made this compaction already, so no message leaves the view because of the array. A caller can leave
//! out some of the messages that the view shows after the summary. Its program can add messages beside the summary, such as
//! instructions, which are no input of the user.

use std::collections::{HashMap, HashSet};

use super::hints::KnownContent;
use super::links::{CallerArray, Element, Incoming, Link, LinkKind};
use crate::ids::Ordinal;
use crate::message::{Block, CanonicalDigests, Digest, Message, Role};
use crate::session::{ContentNotLoaded, Session};
use crate::view::PieceForm;

/// A compaction of the session whose summary is in an array for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCompaction {
    /// The digest of the summary as an element.
    pub digest: Digest,
    /// The message of the summary.
    pub summary: Ordinal,
    /// The messages of the view after the summary, in order.
    pub after: Vec<ShownMessage>,
}

/// A message of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownMessage {
    /// The digest of the message as an element.
    pub digest: Digest,
    /// The message.
    pub message: Ordinal,
    /// True if a caller can leave out the message and still has those after it. Only inputs of the user are always sent.
    pub is_optional: bool,
}

impl OwnCompaction {
    /// Finds the first element that is a summary of the view and that the known array does not have.
    ///
    /// # Errors
    ///
    /// Returns an error if the content of a message of the view is not in memory.
    pub fn find(
        session: &Session,
        array: &CallerArray,
        incoming: &Incoming<'_>,
        known: &dyn KnownContent,
    ) -> Result<Option<Self>, ContentNotLoaded> {
        // Almost no array has such an element, and the digests of the links decide about most of the others.
        let is_new = |digest: &Digest| array.links.iter().all(|link| link.digest != *digest);
        let summaries = incoming.rest.iter().filter(|one| one.is_summary());
        let candidates: Vec<Digest> = summaries.map(Element::key).filter(is_new).collect();
        if candidates.is_empty() {
            return Ok(None);
        }
        let pieces = session.sealed().pieces();
        for candidate in candidates {
            for (at, piece) in pieces.iter().enumerate() {
                if piece.form != PieceForm::Summary
                    || CanonicalDigests::of(&*known.message(piece.message)?).key() != candidate
                {
                    continue;
                }
                let mut seen = HashSet::from([piece.message]);
                let after = pieces[at + 1..].iter();
                let after = after.filter(|piece| piece.form.represents_block());
                // A message has one piece for each block, and is one element.
                let after = after.filter(|piece| seen.insert(piece.message));
                let after = after.map(|piece| piece.message);
                return Ok(Some(Self {
                    digest: candidate,
                    summary: piece.message,
                    after: shown(array, after, known)?,
                }));
            }
        }
        Ok(None)
    }

    /// Returns the index of the message that an element repeats, among those from `from` on.
    pub(super) fn repeated(&self, from: usize, element: &Element) -> Option<usize> {
        for (at, shown) in self.after.iter().enumerate().skip(from) {
            if shown.digest == element.key() {
                return Some(at);
            }
            if !shown.is_optional {
                return None;
            }
        }
        None
    }
}

/// Returns the messages of the view as elements. The further messages of an element are left out.
fn shown(
    array: &CallerArray,
    messages: impl Iterator<Item = Ordinal>,
    known: &dyn KnownContent,
) -> Result<Vec<ShownMessage>, ContentNotLoaded> {
    let links = array.links.iter().map(|link| (link.message, link));
    let links: HashMap<Ordinal, &Link> = links.collect();
    let mut all = Vec::new();
    for ordinal in messages {
        let link = links.get(&ordinal);
        if link.is_some_and(|link| link.kind == LinkKind::Part) {
            continue;
        }
        let message = known.message(ordinal)?;
        let digests = || CanonicalDigests::of(&message);
        all.push(ShownMessage {
            // The content can be a stored form of the element, so the link has the digest.
            digest: link.map_or_else(|| digests().key(), |link| link.digest),
            message: ordinal,
            is_optional: link.is_none_or(|link| link.is_skipped()) || !is_input(&message),
        });
    }
    Ok(all)
}

/// Returns true if a message is an input of the user.
fn is_input(message: &Message) -> bool {
    let is_content = |block: &Block| matches!(block, Block::Text { .. } | Block::Media(_));
    message.role == Role::User
        && !message.machine_generated
        && message.blocks.iter().all(is_content)
}
