//! The items of a compacted conversation, as its client gets them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use palimpsest_core::array::{Element, Link, LinkKind, is_unchanged};
use palimpsest_core::codec::{self, compaction_item};
use palimpsest_core::ids::Ordinal;
use palimpsest_core::message::{Block, Digest, Message, Role};
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::summary::is_framed;
use palimpsest_core::view::{PieceForm, Provider, WireBlock, WireMessage, WireRole};

use crate::compaction::InputItems;

/// The request whose conversation was compacted.
pub(super) struct CompactedItems<'a> {
    /// The items as the client sent them. `None` if an item is not exactly one message.
    given: Option<InputItems<'a>>,
    /// The messages of the body.
    elements: &'a [Element],
    /// The unique part of the id of the compaction item.
    id: &'a str,
}

impl<'a> CompactedItems<'a> {
    /// Creates the items of a request with this body, which the session has read as these elements.
    pub(super) fn new(body: &'a [u8], elements: &'a [Element], id: &'a str) -> Self {
        let given = InputItems::of(body);
        Self {
            // `unchanged` uses one index for both lists, so they must correspond one to one.
            given: given.filter(|items| items.all().len() == elements.len()),
            elements,
            id,
        }
    }

    /// Returns the items of the view as JSON, and among them the one with the last summary.
    pub(super) fn of(
        &self,
        session: &Session,
    ) -> Result<(Vec<Bytes>, Option<Bytes>), ContentNotLoaded> {
        let items = if is_unchanged(session) {
            // No level has acted, so the client has the view already.
            let items = self.elements.iter().enumerate();
            items.map(|(index, _)| self.unchanged(index)).collect()
        } else {
            self.of_view(session)?
        };
        let summary = own_summary(session)?.map(|at| content(session, at));
        let summary = summary.transpose()?;
        let summary = summary.and_then(|message| summary_text(message));
        Ok((items, summary.map(|text| self.summary_item(text))))
    }

    fn of_view(&self, session: &Session) -> Result<Vec<Bytes>, ContentNotLoaded> {
        let is_lead = |element: &&Element| element.message.role.is_system();
        // The operator messages before the conversation are not in the view, and the client needs them.
        let lead = self.elements.iter().take_while(is_lead).count();
        let mut items: Vec<Bytes> = (0..lead).map(|index| self.unchanged(index)).collect();
        let links = session.array().links.iter();
        let links: HashMap<Ordinal, &Link> = links.map(|link| (link.message, link)).collect();
        let elements = self.elements.iter();
        let elements: HashMap<Digest, &Element> = elements
            .map(|element| (element.digests.key(), element))
            .collect();
        let mut seen = HashSet::new();
        for piece in session.sealed().pieces() {
            // Each block of a message has a piece. The first one adds the item of the whole message.
            if !piece.form.represents_block() || !seen.insert(piece.message) {
                continue;
            }
            let link = links.get(&piece.message);
            if link.is_some_and(|link| link.kind == LinkKind::Part) {
                // The element of the message before it contains it.
                continue;
            }
            // The session can have a stored form of the content, and the element has all of it.
            let element = link.and_then(|link| elements.get(&link.digest));
            let message = match element {
                Some(element) => &element.message,
                None => content(session, piece.message)?,
            };
            let text = summary_text(message).filter(|_| piece.form == PieceForm::Summary);
            items.push(match text {
                Some(text) => self.summary_item(text),
                None => written(message),
            });
        }
        Ok(items)
    }

    /// Returns an item as the client sent it, and a summary as a compaction item.
    fn unchanged(&self, index: usize) -> Bytes {
        let message = &self.elements[index].message;
        if let Some(text) = summary_text(message) {
            return self.summary_item(text);
        }
        let given = self.given.as_ref().and_then(|items| items.all().get(index));
        given.map_or_else(
            || written(message),
            |item| Bytes::copy_from_slice(item.get().as_bytes()),
        )
    }

    fn summary_item(&self, text: &str) -> Bytes {
        let mut item = Vec::new();
        compaction_item::write_item(&format!("cmp_{}", self.id), text, &mut item);
        item.into()
    }
}

/// Returns the last summary of the service in the view.
pub(super) fn own_summary(session: &Session) -> Result<Option<Ordinal>, ContentNotLoaded> {
    let pieces = session.sealed().pieces().iter().rev();
    for piece in pieces.filter(|piece| piece.form == PieceForm::Summary) {
        let message = content(session, piece.message)?;
        if summary_text(message).is_some() {
            return Ok(Some(piece.message));
        }
    }
    Ok(None)
}

/// Returns the content of a message.
pub(super) fn content(
    session: &Session,
    message: Ordinal,
) -> Result<&Arc<Message>, ContentNotLoaded> {
    session
        .transcript()
        .content(message)
        .ok_or(ContentNotLoaded)
}

/// Returns the text of a message that has the form of a summary of the service.
fn summary_text(message: &Message) -> Option<&str> {
    match &*message.blocks {
        [Block::Text { text, .. }] if message.role == Role::User && is_framed(text) => Some(text),
        _ => None,
    }
}

/// Returns the original of a message as an item. It has no id, because a provider rejects the id of an item whose reasoning
/// has left.
fn written(message: &Message) -> Bytes {
    let wire = WireMessage {
        role: match message.role {
            Role::User => WireRole::User,
            Role::Assistant => WireRole::Assistant,
            Role::System => WireRole::System,
            Role::Developer => WireRole::Developer,
        },
        blocks: message.blocks.iter().map(WireBlock::from_block).collect(),
        extra: Some(&message.extra),
        first: Ordinal::new(0),
    };
    let mut item = Vec::new();
    codec::write(Provider::OpenAiResponses, &wire, &mut item);
    item.into()
}
