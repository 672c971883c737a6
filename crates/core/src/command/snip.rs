//! Level 2: removes user turns, messages or blocks from the view on request. Either all targets are removed or none.

use std::collections::{BTreeMap, BTreeSet};

use super::decision::Decided;
use super::reject::{Rejection, SnipRejection, SnipTarget};
use crate::event::{ContentSnipped, Event, RequestStamp, Trigger, Visibility};
use crate::ids::{CallKey, MessageId, Ordinal, Revision, TurnNumber};
use crate::levels::repair::{PieceAction, repair_layout};
use crate::message::Block;
use crate::session::{ContentNotLoaded, Session};
use crate::tokens::Size;
use crate::view::{DropReason, MARKER_TOKENS, MarkerReason, Piece, PieceForm, shown_tokens};

const MAX_REASON_CHARS: usize = 1_000;

/// Removes turns, messages or blocks from the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snip {
    /// The names of user turns.
    pub turns: Vec<Box<str>>,
    /// The ids of messages.
    pub messages: Vec<MessageId>,
    /// Blocks, as message id and block index.
    pub blocks: Vec<(MessageId, u16)>,
    /// The reason, for the record. At most 1,000 characters.
    pub reason: Box<str>,
    /// The cause of the snip.
    pub trigger: Trigger,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

/// The resolved targets of a snip.
#[derive(Default)]
struct Leaving {
    turns: Vec<TurnNumber>,
    messages: BTreeSet<Ordinal>,
    /// Blocks that become markers.
    blocks: BTreeSet<(Ordinal, u16)>,
    /// Blocks that leave because the other half of their tool call leaves.
    with_it: BTreeSet<(Ordinal, u16)>,
    /// Calls that leave the view.
    gone: BTreeSet<CallKey>,
}

impl Snip {
    pub(super) fn decide(self, session: &Session) -> Result<Decided, Rejection> {
        self.check(session)?;
        let mut leaving = self.leaving(session)?;
        // A call without its result (or a result without its call) is invalid for providers, so both leave.
        leaving.take_along(session);
        let change = repair_layout(session, |_, piece| leaving.fate(session, piece))?;
        let sizes = leaving.sizes(session)?;
        let blocks = leaving.blocks.union(&leaving.with_it);
        Ok(Decided::events(vec![Event::ContentSnipped(
            ContentSnipped {
                trigger: self.trigger,
                blocks: blocks.copied().collect(),
                turns: leaving.turns,
                messages: leaving.messages.iter().copied().collect(),
                reason: self.reason,
                before_tokens: session.tokens().tokens,
                freed_tokens: freed(session, &leaving.messages, &sizes),
                sizes,
                gone: leaving.gone.into_iter().collect(),
                change,
                request: self.request,
            },
        )]))
    }

    fn check(&self, session: &Session) -> Result<(), Rejection> {
        let targets = self.turns.len() + self.messages.len() + self.blocks.len();
        let limit = session.policy().limits.max_snip_targets as usize;
        if targets == 0 {
            return Err(Rejection::invalid(
                "turn_ids",
                "names nothing to remove: give a turn, a message or a block",
            ));
        }
        // Checked before any target is resolved, so that the cost of a request is bounded.
        Rejection::at_most((targets, limit), "targets", "turn_ids")?;
        if self.reason.chars().count() > MAX_REASON_CHARS {
            return Err(Rejection::invalid(
                "reason",
                format!("must have at most {MAX_REASON_CHARS} characters"),
            ));
        }
        repeated("turn_ids", &self.turns)?;
        repeated("message_ids", &self.messages)?;
        repeated("blocks", &self.blocks)
    }

    /// Resolves all targets. Returns an error that lists every target that cannot be removed.
    fn leaving(&self, session: &Session) -> Result<Leaving, Rejection> {
        let mut leaving = Leaving::default();
        // All failures are collected, so that a caller can correct the request in one step.
        let mut refused = Vec::new();
        for (index, name) in self.turns.iter().enumerate() {
            let found = turn(session, name).and_then(|turn| {
                pinned_among(session, &messages_of(session, turn).into_iter().collect())?;
                Ok(turn)
            });
            match found {
                Ok(turn) => leaving.turns.push(turn),
                Err(why) => refused.push(target("turn_ids", index, name.to_string(), why)),
            }
        }
        for (index, id) in self.messages.iter().enumerate() {
            let found = visible(session, *id).and_then(|message| {
                pinned_among(session, &BTreeSet::from([message]))?;
                Ok(message)
            });
            match found {
                Ok(message) => {
                    leaving.messages.insert(message);
                }
                Err(why) => refused.push(target("message_ids", index, id.to_string(), why)),
            }
        }
        for (index, (id, block)) in self.blocks.iter().enumerate() {
            let found = shown_block(session, *id, *block).and_then(|place| {
                match session.pins().at(place.0, place.1) {
                    Some(pin) => Err(Why::pinned(pin)),
                    None => Ok(place),
                }
            });
            match found {
                Ok(place) => {
                    leaving.blocks.insert(place);
                }
                Err(why) => {
                    refused.push(target("blocks", index, format!("{id}#{block}"), why));
                }
            }
        }
        if !refused.is_empty() {
            return Err(Rejection::NotSnippable(refused));
        }
        for turn in &leaving.turns {
            leaving.messages.extend(messages_of(session, *turn));
        }
        Ok(leaving)
    }
}

impl Leaving {
    /// Adds the other halves of tool calls, and all messages that share a placeholder with a removed one.
    fn take_along(&mut self, session: &Session) {
        session.add_folded(&mut self.messages);
        let calls = session.calls();
        for (key, call) in calls.iter() {
            let call_leaves = self.messages.contains(&call.message);
            let result = call.result();
            let result_leaves = result.is_some_and(|(message, _)| self.messages.contains(&message));
            if call_leaves || result_leaves {
                self.gone.insert(key);
            }
            match result {
                Some(result) if call_leaves && !result_leaves => {
                    self.with_it.insert(result);
                }
                Some(_) if result_leaves && !call_leaves => {
                    self.with_it.insert((call.message, call.block));
                }
                _ => {}
            }
        }
    }

    fn fate(&self, session: &Session, piece: &Piece) -> PieceAction {
        // The order of the checks matters: a whole message leaves first, then synthetic pieces, then single blocks.
        let place = (piece.message, piece.block);
        if self.messages.contains(&piece.message) && piece.form.is_of_a_block() {
            return PieceAction::Leave;
        }
        match piece.form {
            PieceForm::Interrupted(call) if self.gone.contains(&call) => {
                return PieceAction::Leave;
            }
            // A synthetic piece leaves together with its message. The interruption of a call that stays must stay.
            PieceForm::Interrupted(_) => return PieceAction::Stay,
            form if !form.is_of_a_block() => {
                return if self.messages.contains(&piece.message) {
                    PieceAction::Leave
                } else {
                    PieceAction::Stay
                };
            }
            _ => {}
        }
        if self.with_it.contains(&place) {
            return PieceAction::Become(PieceForm::Dropped(DropReason::Snipped));
        }
        if !self.blocks.contains(&place) {
            return PieceAction::Stay;
        }
        match (piece.form.answers(), piece.form.calls()) {
            (Some(call), _) => PieceAction::Become(PieceForm::SnippedResult(call)),
            (_, Some(call)) => PieceAction::Become(PieceForm::SnippedCall(call)),
            // No marker can replace a mid-conversation operator message or thinking, so these blocks are dropped.
            _ if piece.form == PieceForm::Operator || is_thinking(session, piece) => {
                PieceAction::Become(PieceForm::Dropped(DropReason::Snipped))
            }
            _ => PieceAction::Become(PieceForm::Marker(MarkerReason::Snipped)),
        }
    }

    /// Returns the new sizes of the messages that stay and lose blocks.
    fn sizes(&self, session: &Session) -> Result<Vec<(Ordinal, Size)>, ContentNotLoaded> {
        let mut sizes: BTreeMap<Ordinal, Size> = BTreeMap::new();
        for piece in session.sealed().pieces() {
            let place = (piece.message, piece.block);
            let stays = !self.messages.contains(&piece.message) && piece.form.is_of_a_block();
            let after = match (self.with_it.contains(&place), self.blocks.contains(&place)) {
                (true, _) => 0,
                (false, true) => MARKER_TOKENS,
                _ => continue,
            };
            let Some(entry) = session.transcript().get(piece.message).filter(|_| stays) else {
                continue;
            };
            let size = sizes.entry(piece.message).or_insert(entry.size);
            *size = match piece.form.answers() {
                Some(call) => size.with_result(tokens_of(session, piece, call), after),
                // A result that is shown as text is still counted as a result.
                None if is_result(session, piece) => {
                    size.with_result(block_tokens(session, piece)?, after)
                }
                None => size.with_block(block_tokens(session, piece)?, after),
            };
        }
        Ok(sizes.into_iter().collect())
    }
}

/// Returns the tokens that a removal frees: the removed messages and the difference of the resized ones.
pub(super) fn freed(
    session: &Session,
    messages: &BTreeSet<Ordinal>,
    sizes: &[(Ordinal, Size)],
) -> u64 {
    let shown = |message: Ordinal| {
        let entry = session.transcript().get(message);
        entry.map_or(0, |entry| u64::from(entry.size.tokens))
    };
    let whole: u64 = messages.iter().map(|message| shown(*message)).sum();
    let parts: u64 = sizes
        .iter()
        .map(|(message, size)| shown(*message).saturating_sub(size.tokens.into()))
        .sum();
    session.ledger().calibration.apply(whole + parts)
}

fn tokens_of(session: &Session, piece: &Piece, call: CallKey) -> u32 {
    let stored = session.stored().at(piece.message, piece.block);
    match (piece.form, stored) {
        (PieceForm::Stored(_), Some(stored)) => stored.text_tokens,
        (form, _) => shown_tokens(session.calls(), form, call),
    }
}

fn block_tokens(session: &Session, piece: &Piece) -> Result<u32, ContentNotLoaded> {
    match piece.form {
        PieceForm::SnippedCall(_) | PieceForm::Marker(MarkerReason::Snipped) => {
            return Ok(MARKER_TOKENS);
        }
        PieceForm::Dropped(DropReason::Snipped) => return Ok(0),
        _ => {}
    }
    let message = session.transcript().held(piece.message)?;
    let block = message.blocks.get(usize::from(piece.block));
    let counter = session.counter_of(piece.message);
    Ok(block.map_or(0, |block| counter.block(block)))
}

fn is_result(session: &Session, piece: &Piece) -> bool {
    let block = session.transcript().block(piece.message, piece.block);
    matches!(block, Some(Block::ToolResult(_)))
}

fn is_thinking(session: &Session, piece: &Piece) -> bool {
    let block = session.transcript().block(piece.message, piece.block);
    block.is_some_and(Block::is_thinking)
}

fn target(field: &str, index: usize, name: String, why: Why) -> SnipTarget {
    SnipTarget {
        field: format!("{field}[{index}]"),
        name,
        refused: why.refused,
        pin: why.pin,
    }
}

/// The reason why a target cannot be removed, with the pin that protects it.
struct Why {
    refused: SnipRejection,
    pin: Option<Box<str>>,
}

impl Why {
    fn pinned(pin: &str) -> Self {
        Self {
            refused: SnipRejection::Pinned,
            pin: Some(pin.into()),
        }
    }
}

impl From<SnipRejection> for Why {
    fn from(refused: SnipRejection) -> Self {
        Self { refused, pin: None }
    }
}

/// Rejects messages that are pinned, or whose tool calls or results are pinned.
fn pinned_among(session: &Session, messages: &BTreeSet<Ordinal>) -> Result<(), Why> {
    let pins = session.pins();
    if pins.is_empty() {
        return Ok(());
    }
    let within = messages.iter().find_map(|message| pins.within(*message));
    let pin = within.or_else(|| {
        let mut calls = session.calls().iter();
        calls.find_map(|(_, call)| {
            let (message, block) = call.result()?;
            if messages.contains(&call.message) {
                pins.at(message, block)
            } else if messages.contains(&message) {
                pins.at(call.message, call.block)
            } else {
                None
            }
        })
    });
    pin.map_or(Ok(()), |pin| Err(Why::pinned(pin)))
}

fn repeated<T: Ord>(field: &str, names: &[T]) -> Result<(), Rejection> {
    let mut seen = BTreeSet::new();
    match names.iter().position(|name| !seen.insert(name)) {
        None => Ok(()),
        Some(index) => Err(Rejection::invalid(
            format!("{field}[{index}]"),
            "is named twice: name each once",
        )),
    }
}

/// Returns the turn with a name, if it can be removed.
fn turn(session: &Session, name: &str) -> Result<TurnNumber, Why> {
    let turns = session.turns();
    let turn = turns.find(name).ok_or(SnipRejection::NotFound)?;
    let start = turns.start(turn).ok_or(SnipRejection::NotFound)?;
    standing(session, start)?;
    if session.current_turn() == Some(turn) {
        return Err(SnipRejection::IsCurrent.into());
    }
    Ok(turn)
}

/// Returns the messages of a turn in the view, up to the next visible turn. Collapsed messages are included.
/// Operator messages and messages of compactions belong to no turn.
pub(crate) fn messages_of(session: &Session, turn: TurnNumber) -> Vec<Ordinal> {
    let turns = session.turns();
    let starts = turns.starts();
    let later = starts[turn.index() + 1..].iter();
    let end = later
        .copied()
        .find(|start| session.transcript().is_visible(*start));
    let end = end.unwrap_or(session.transcript().next());
    let entries = session.transcript().entries();
    let from = starts[turn.index()].index();
    let inside = entries.skip(from).take(end.index() - from);
    inside
        .filter(|(_, entry)| entry.standing.takes_part() && !entry.role.is_system())
        .filter(|(ordinal, _)| !session.is_framing(*ordinal))
        .map(|(ordinal, _)| ordinal)
        .collect()
}

fn standing(session: &Session, message: Ordinal) -> Result<(), SnipRejection> {
    match session
        .transcript()
        .get(message)
        .map(|entry| entry.standing)
    {
        Some(Visibility::Visible) => Ok(()),
        Some(Visibility::Snipped) => Err(SnipRejection::AlreadySnipped),
        Some(standing) => Err(SnipRejection::NotVisible(standing)),
        None => Err(SnipRejection::NotFound),
    }
}

fn visible(session: &Session, id: MessageId) -> Result<Ordinal, Why> {
    let found = session
        .transcript()
        .find(id)
        .ok_or(SnipRejection::NotFound)?;
    standing(session, found)?;
    Ok(found)
}

fn shown_block(session: &Session, id: MessageId, block: u16) -> Result<(Ordinal, u16), Why> {
    // Only sealed pieces can be snipped, so a pending message has no block to remove.
    let message = visible(session, id)?;
    let of_block = |piece: &&Piece| {
        piece.message == message && piece.block == block && piece.form.is_of_a_block()
    };
    let piece = session.sealed().pieces().iter().find(of_block);
    match piece.map(|piece| piece.form) {
        None => Err(SnipRejection::NotFound.into()),
        Some(
            PieceForm::SnippedResult(_)
            | PieceForm::SnippedCall(_)
            | PieceForm::Marker(MarkerReason::Snipped)
            | PieceForm::Dropped(DropReason::Snipped),
        ) => Err(SnipRejection::AlreadySnipped.into()),
        Some(PieceForm::Dropped(_)) => Err(SnipRejection::NotVisible(Visibility::Visible).into()),
        Some(_) => Ok((message, block)),
    }
}
