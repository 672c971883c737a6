//! Elements that a caller extended at their end, or made shorter.

use std::sync::Arc;

use super::hints::KnownContent;
use super::links::{Element, Link, parts};
use crate::message::{Block, CanonicalDigests, Message, MessageOrigin};
use crate::session::ContentNotLoaded;

/// Returns the index of the first further block if the element is the first one of `links` with blocks after it.
pub(super) fn extended(
    links: &[Link],
    element: &Element,
    known: &dyn KnownContent,
) -> Result<Option<usize>, ContentNotLoaded> {
    let before = messages(links, known)?;
    let count = before.iter().flat_map(|message| &message.blocks);
    let count = count.filter(|block| !block.is_blank()).count();
    let blocks = element.message.blocks.iter().enumerate();
    let mut further = blocks.filter(|(_, block)| !block.is_blank()).skip(count);
    let Some((from_block, _)) = further.next() else {
        return Ok(None);
    };
    let mut start = Message::new(
        element.message.id,
        element.message.role,
        element.message.blocks[..from_block].to_vec(),
    );
    // The origin and the unknown fields are part of the digest of a message.
    start.origin = element.message.origin;
    start.extra = element.message.extra.clone();
    let start = CanonicalDigests::of(&start).loose;
    let is_start = links.first().is_some_and(|link| link.digest == start);
    Ok(is_start.then_some(from_block))
}

/// Returns true if the element is the first one of `links` without some of its blocks, or with shorter results.
pub(super) fn is_shrunk(
    links: &[Link],
    element: &Element,
    known: &dyn KnownContent,
) -> Result<bool, ContentNotLoaded> {
    if links
        .first()
        .is_none_or(|link| link.role != element.message.role)
    {
        return Ok(false);
    }
    let before = messages(links, known)?;
    let mut before = before.iter().flat_map(|message| &message.blocks);
    let mut given = element
        .message
        .blocks
        .iter()
        .filter(|block| !block.is_blank());
    // Each given block is searched after the one that the block before it was found in.
    let origin = element.message.origin;
    Ok(given.all(|block| before.any(|known| is_shorter_or_equal(known, block, origin))))
}

fn is_shorter_or_equal(known: &Block, given: &Block, origin: MessageOrigin) -> bool {
    if let (Block::ToolResult(known), Block::ToolResult(given)) = (known, given)
        && known.tool_use_id == given.tool_use_id
        && Block::result_bytes(given) < Block::result_bytes(known)
    {
        return true;
    }
    CanonicalDigests::of_block(known, origin) == CanonicalDigests::of_block(given, origin)
}

/// Returns the messages of the first element of `links`.
fn messages(
    links: &[Link],
    known: &dyn KnownContent,
) -> Result<Vec<Arc<Message>>, ContentNotLoaded> {
    let Some((first, further)) = links.split_first() else {
        return Ok(Vec::new());
    };
    let further = &further[..parts(further)];
    let all = [first].into_iter().chain(further);
    all.map(|link| known.message(link.message)).collect()
}
