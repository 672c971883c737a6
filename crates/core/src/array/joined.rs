//! Elements that a caller joined later.
//!
//! Some programs send a result and the next input first as two messages, and later as one. Both forms mean the same to a
//! model, so the links take the form of the caller: the first message is the element, and the others are parts of it.

use std::borrow::Cow;

use super::align::first_difference;
use super::hints::KnownContent;
use super::links::{CallerArray, Element, Incoming, Link, LinkKind, parts};
use super::shrunk::extended;
use crate::message::{Digest, Message, Role};
use crate::session::ContentNotLoaded;

/// Returns the known array with the elements that the caller has joined.
///
/// # Errors
///
/// Returns an error if a joined element depends on a message that is not in memory.
pub fn with_joined<'a>(
    array: &'a CallerArray,
    incoming: &Incoming<'_>,
    known: &dyn KnownContent,
) -> Result<Cow<'a, CallerArray>, ContentNotLoaded> {
    let mut array = Cow::Borrowed(array);
    let (mut link, mut at) = (0, 0);
    loop {
        let same = first_difference(&array.links[link..], &incoming.rest[at..]);
        (link, at) = (link + same.0, at + same.1);
        let Some(element) = incoming.rest.get(at) else {
            return Ok(array);
        };
        let Some(joined) = joined(&array.links[link..], element, known)? else {
            return Ok(array);
        };
        let links = &mut array.to_mut().links[link..link + joined];
        // The next comparison matches the element, so each step is longer.
        links[0].digest = element.key();
        for part in &mut links[1..] {
            part.kind = LinkKind::Part;
            part.digest = Digest::default();
        }
    }
}

/// Returns the number of links that the element joins. `None` if it does not join at least two elements.
fn joined(
    links: &[Link],
    element: &Element,
    known: &dyn KnownContent,
) -> Result<Option<usize>, ContentNotLoaded> {
    if element.message.role != Role::User {
        return Ok(None);
    }
    let (mut link, mut rest) = (0, Cow::Borrowed(element));
    while let Some(next) = links.get(link) {
        if next.role != Role::User || next.is_skipped() {
            return Ok(None);
        }
        let end = link + 1 + parts(&links[link + 1..]);
        if next.digest == rest.key() {
            return Ok((link > 0).then_some(end));
        }
        let Some(from_block) = extended(&links[link..], &rest, known)? else {
            return Ok(None);
        };
        let mut message = Message::clone(&rest.message);
        message.blocks.drain(..from_block);
        (link, rest) = (end, Cow::Owned(Element::new(message.into())));
    }
    Ok(None)
}
