//! The array of a session that received its messages one by one.

use super::hints::KnownContent;
use super::links::{CallerArray, Incoming, Link, LinkKind};
use crate::event::Visibility;
use crate::message::{CANONICAL_VERSION, CanonicalDigests};
use crate::session::{ContentNotLoaded, Session};

/// Returns the array of the caller's messages in the transcript. For a session without an array, or with one of another
/// version of the digests. The transcript does not contain the operator messages before the conversation, so those of
/// the new array count as known.
///
/// # Errors
///
/// Returns an error if a message is not in memory.
pub fn recorded(
    session: &Session,
    incoming: &Incoming<'_>,
    known: &dyn KnownContent,
) -> Result<CallerArray, ContentNotLoaded> {
    let transcript = session.transcript();
    let mut links: Vec<Link> = Vec::new();
    for (ordinal, entry) in transcript.entries() {
        // A caller still has the messages that a level or a snip removed from the view.
        let is_given = entry.visibility.is_in_effect() || entry.visibility == Visibility::Snipped;
        let is_lead = links.is_empty() && entry.role.is_system();
        if !is_given || is_lead || session.is_framing(ordinal) {
            continue;
        }
        let digests = CanonicalDigests::of(&*known.message(ordinal)?);
        links.push(Link {
            digest: digests.key(),
            role: entry.role,
            message: ordinal,
            kind: LinkKind::of(&digests),
        });
    }
    Ok(CallerArray {
        version: CANONICAL_VERSION.into(),
        format: incoming.format(),
        // Without links the array must stay empty, so that the new one is planned as the first.
        lead: if links.is_empty() {
            Vec::new()
        } else {
            incoming.lead_digests()
        },
        links,
        ..CallerArray::default()
    })
}
