//! Positions of cache breakpoints. They move with every request, so they are not part of a view: neither of its bytes
//! nor of its etag.
//!
//! The rules of the providers, and the consequences:
//!
//! - A request may contain four breakpoints. The provider caches the prompt up to each breakpoint under that position
//!   only. A later request finds a cached prefix at the breakpoints of earlier requests and at no other position.
//! - From each breakpoint the provider looks back about twenty blocks for a cached position. The last breakpoint is
//!   therefore at the end of the last user message. The next request starts with this content, and finds it if at most
//!   twenty blocks were added.
//! - A response with a dozen parallel calls adds more blocks. Another breakpoint is therefore exactly at the end of the
//!   last answered request. The provider finds it without looking back.
//! - The prompt order is tools, system prompt, messages. A session shares the first two blocks of the system prompt
//!   with other sessions, and with itself after its first messages change. Later system blocks differ between
//!   sessions, and the breakpoints in the messages cover them.
//! - Thinking and blank text cannot carry a breakpoint. On Bedrock no breakpoint may follow thinking.
//! - On Bedrock a breakpoint directly after a document is rejected. A block of an unknown type might be rejected too,
//!   so it gets none. In all these cases the breakpoint moves to the last earlier block that can carry one.
//! - On Bedrock a breakpoint must have content before it in its own message. This is always the case, because the
//!   breakpoint follows its block.
//! - `OpenAI` caches automatically and has no breakpoints.

use super::positions::{PositionedPiece, ReversePieces, position_in_message};
use super::{Provider, Target, WireBlock, WireRole, count};
use crate::message::MediaKind;
use crate::session::{ContentNotLoaded, Session};

/// Maximum number of breakpoints in a request.
pub const MAX_BREAKPOINTS: usize = 4;
/// Maximum number of breakpoints in the system prompt. The messages have the same limit.
const BREAKPOINTS_PER_PART: usize = 2;
/// Maximum number of blocks that are searched backwards for the end of the last request. If that end is further back,
/// the end of the previous user message is used instead. The limit bounds the cost for long views.
const MAX_BLOCKS: usize = 2_048;

/// The parameters of a search for breakpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakpointRequest<'a> {
    /// The number of messages in the array for the target.
    pub length: u32,
    /// The maximum number of breakpoints to return. More than [`MAX_BREAKPOINTS`] are never returned.
    pub max_breakpoints: usize,
    /// For each block of the caller's own system prompt, true if it can carry a breakpoint. These blocks precede the
    /// session's system blocks. `None` if unknown: the block positions are then unknown, so no system block is
    /// returned.
    pub caller_system: Option<&'a [bool]>,
}

/// The position of a block in the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireBlockPosition {
    /// The index of the message in the array.
    pub message: u32,
    /// The index of the block in the message.
    pub block: u32,
}

/// The positions of breakpoints, in the order of the prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Breakpoints {
    /// Indexes of system blocks. The caller's own blocks are counted first, then the session's.
    pub system: Vec<u32>,
    /// Positions of blocks in the array.
    pub messages: Vec<WireBlockPosition>,
}

impl WireBlock<'_> {
    /// Returns true if the provider accepts a breakpoint on this block.
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

/// Returns the breakpoints of the view that was served last.
///
/// If fewer than four are requested, the breakpoints with the largest savings are kept, in this order:
///
/// 1. The end of the messages. Without it nothing of the conversation is cached.
/// 2. The end of the last request. Without it a large turn pays again for everything before it.
/// 3. The second system block, whose prefix contains the first.
/// 4. The first system block.
pub fn breakpoints(
    session: &Session,
    target: &Target,
    wanted: BreakpointRequest<'_>,
) -> Result<Breakpoints, ContentNotLoaded> {
    if !target.provider.is_anthropic() {
        return Ok(Breakpoints::default());
    }
    let mut left = wanted.max_breakpoints.min(MAX_BREAKPOINTS);
    let mut messages = in_messages(session, target, wanted.length)?;
    // The most important positions come first here. They are returned in the order of the prompt.
    messages.truncate(left);
    left -= messages.len();
    messages.reverse();
    let mut system = match wanted.caller_system {
        Some(own) if left > 0 => in_system(session, target, own)?,
        _ => Vec::new(),
    };
    // With one breakpoint left, the second system block gets it, because its prefix contains the first block.
    system.drain(..system.len().saturating_sub(left));
    Ok(Breakpoints { system, messages })
}

/// Returns the first system blocks that can carry a breakpoint.
fn in_system(
    session: &Session,
    target: &Target,
    own: &[bool],
) -> Result<Vec<u32>, ContentNotLoaded> {
    let given = session.system(target)?;
    let given = given.iter().flat_map(|message| &message.blocks);
    let given = given.map(|block| block.takes_breakpoint(target.provider));
    let all = own.iter().copied().chain(given).enumerate();
    let takers = all.filter(|(_, takes)| *takes).take(BREAKPOINTS_PER_PART);
    Ok(takers.map(|(index, _)| count(index)).collect())
}

/// Returns true if a message is part of a user turn, which operator messages can end.
const fn is_of_user_turn(role: WireRole) -> bool {
    matches!(role, WireRole::User | WireRole::Operator)
}

/// Returns true if a piece is part of a system message that the provider removes later. Such a message takes no
/// breakpoint.
fn is_transient(session: &Session, seen: &PositionedPiece<'_>) -> bool {
    let piece = session.sealed().pieces().get(seen.index);
    let message = piece.and_then(|piece| session.transcript().content(piece.message));
    seen.role == WireRole::Operator
        && message.is_some_and(|message| message.extra.get("clear_at").is_some())
}

/// Returns the positions in the array, last position first.
fn in_messages(
    session: &Session,
    target: &Target,
    length: u32,
) -> Result<Vec<WireBlockPosition>, ContentNotLoaded> {
    let takes = |seen: &PositionedPiece<'_>| {
        seen.block.takes_breakpoint(target.provider) && !is_transient(session, seen)
    };
    let mut walk = ReversePieces::of(session, target, length);
    // The last breakpoint is on the last suitable block at or before the end of the last user message.
    let mut in_user = false;
    let last = loop {
        let Some(seen) = walk.next()? else {
            return Ok(Vec::new());
        };
        in_user |= is_of_user_turn(seen.role);
        if in_user && takes(&seen) {
            break seen;
        }
    };
    // The end of the last answered request, if it precedes the new content.
    let sent = session.sent_piece_count(target);
    // If no user content followed the last request, its end is the last breakpoint, and `sent` is not searched.
    let sent = sent.filter(|sent| *sent <= last.index);
    let mut earlier: Option<PositionedPiece<'_>> = None;
    let mut behind_response = false;
    for _ in 0..MAX_BLOCKS {
        let Some(seen) = walk.next()? else {
            break;
        };
        behind_response |= seen.role == WireRole::Assistant;
        let is_end_of_user = behind_response && is_of_user_turn(seen.role);
        // `earlier` keeps the end of the previous user message as a fallback while the end of the request is searched.
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
        Ok(WireBlockPosition {
            message: seen.message,
            block: position_in_message(session, seen.index, target)?,
        })
    };
    std::iter::once(last).chain(earlier).map(spot).collect()
}
