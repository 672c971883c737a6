//! Where cache breakpoints go. They move with every request, so they are no part of a view: not of its
//! bytes, and not of what its etag names.
//!
//! What the providers say, and what follows from it:
//!
//! - A request may hold four breakpoints. Everything up to one of them is written to the cache under that
//!   place, and only there: what an earlier request has cached can be found at the places of its own
//!   breakpoints and at no others.
//! - From each breakpoint the provider looks back for such a place, block by block, over about twenty
//!   blocks. So the last breakpoint stands at the end of the last user message: the next request begins
//!   with all of that, and finds it as long as no more than twenty blocks came since. A response with a
//!   dozen parallel calls brings more. That is why another one stands exactly where the last request
//!   that was answered ended: there the provider finds it without looking back, whatever came since.
//! - Order counts: tools, system prompt, messages. The first two blocks of the system prompt are what a
//!   session has in common with others and with itself after a change of its first messages; what
//!   changes from session to session stands behind them, and is covered by those in the messages.
//! - Thinking cannot carry a breakpoint, and on Bedrock none can follow it. Neither can text that is
//!   blank. On Bedrock none may directly follow a document: the converted request would be refused. A
//!   block of a type that we do not know might refuse it as well, so it gets none. In all these cases
//!   the last block before it that can carry one does.
//! - On Bedrock a breakpoint must have content before it in its own message. It always has: it follows
//!   the block that it is placed on.
//! - `OpenAI` caches by itself and has no breakpoints.

use super::places::{Backwards, PositionedPiece, place_in_message};
use super::{Provider, Target, WireBlock, WireRole, count};
use crate::message::MediaKind;
use crate::session::{ContentNotLoaded, Session};

/// How many breakpoints a request may hold.
pub const MAX_BREAKPOINTS: usize = 4;
/// How many of them are placed in the system prompt, and how many in the messages.
const OF_EACH: usize = 2;
/// How far back the end of the last request is looked for. Where it stands further back than this, the
/// end of the user message before stands in for it, so that no view makes this slow.
const MAX_BLOCKS: usize = 2_048;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakpointRequest<'a> {
    /// How many messages the array for the target has.
    pub length: u32,
    /// How many breakpoints there may be.
    pub most: usize,
    /// For each block of the caller's own system prompt, which stands before the session's, whether it
    /// can carry one. None when it is not known, and then nobody knows which block is which.
    pub own_system: Option<&'a [bool]>,
}

/// A block of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The message's place in the array.
    pub message: u32,
    /// The block's place in the message.
    pub block: u32,
}

/// Where breakpoints go, in the order of the prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Breakpoints {
    /// Blocks of the system prompt: the caller's own, then the session's.
    pub system: Vec<u32>,
    /// Blocks of the array.
    pub messages: Vec<Spot>,
}

impl WireBlock<'_> {
    /// Whether a provider takes a breakpoint on this block.
    pub fn takes_breakpoint(&self, provider: Provider) -> bool {
        match self {
            Self::Text { text, .. } => !text.trim().is_empty(),
            Self::Media { media, .. } => {
                provider != Provider::Bedrock || media.kind != MediaKind::Document
            }
            Self::Call { .. } | Self::Result { .. } => true,
            Self::Thinking { .. } | Self::Opaque(_) => false,
        }
    }
}

/// Where breakpoints go in a view as it was served last.
///
/// When fewer than four are wanted, those that save most are kept: first the end of the messages, without
/// which nothing of the conversation is cached; then the end of the last request, without which a large
/// turn costs all that precedes it; then the second block of the system prompt, whose prefix holds the
/// first; then the first.
pub fn breakpoints(
    session: &Session,
    target: &Target,
    wanted: BreakpointRequest<'_>,
) -> Result<Breakpoints, ContentNotLoaded> {
    if !target.provider.is_anthropic() {
        return Ok(Breakpoints::default());
    }
    let mut left = wanted.most.min(MAX_BREAKPOINTS);
    let mut messages = in_messages(session, target, wanted.length)?;
    messages.truncate(left);
    left -= messages.len();
    messages.reverse();
    let mut system = match wanted.own_system {
        Some(own) if left > 0 => in_system(session, target, own)?,
        _ => Vec::new(),
    };
    system.drain(..system.len().saturating_sub(left));
    Ok(Breakpoints { system, messages })
}

/// The first blocks of the system prompt that can carry one.
fn in_system(
    session: &Session,
    target: &Target,
    own: &[bool],
) -> Result<Vec<u32>, ContentNotLoaded> {
    let given = session.system(target)?;
    let given = given.iter().flat_map(|message| &message.blocks);
    let given = given.map(|block| block.takes_breakpoint(target.provider));
    let all = own.iter().copied().chain(given).enumerate();
    let takers = all.filter(|(_, takes)| *takes).take(OF_EACH);
    Ok(takers.map(|(index, _)| count(index)).collect())
}

/// The places in the array, the last one first.
fn in_messages(
    session: &Session,
    target: &Target,
    length: u32,
) -> Result<Vec<Spot>, ContentNotLoaded> {
    let takes = |seen: &PositionedPiece<'_>| seen.block.takes_breakpoint(target.provider);
    let mut walk = Backwards::of(session, target, length);
    let mut in_user = false;
    let last = loop {
        let Some(seen) = walk.next()? else {
            return Ok(Vec::new());
        };
        in_user |= seen.role == WireRole::User;
        if in_user && takes(&seen) {
            break seen;
        }
    };
    // Where the last request ended, when that is before what is new.
    let sent = session.sent_pieces(target);
    let sent = sent.filter(|sent| *sent <= last.index);
    let mut earlier: Option<PositionedPiece<'_>> = None;
    let mut behind_response = false;
    for _ in 0..MAX_BLOCKS {
        let Some(seen) = walk.next()? else {
            break;
        };
        behind_response |= seen.role == WireRole::Assistant;
        let is_end_of_user = behind_response && seen.role == WireRole::User;
        let found = match sent {
            Some(sent) if seen.index < sent && takes(&seen) => Some(seen),
            Some(_) if earlier.is_none() && is_end_of_user && takes(&seen) => {
                earlier = Some(seen);
                None
            }
            None if is_end_of_user && takes(&seen) => Some(seen),
            _ => None,
        };
        if found.is_some() {
            earlier = found;
            break;
        }
    }
    let spot = |seen: PositionedPiece<'_>| {
        Ok(Spot {
            message: seen.message,
            block: place_in_message(session, seen.index, target)?,
        })
    };
    std::iter::once(last).chain(earlier).map(spot).collect()
}
