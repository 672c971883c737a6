//! Level 2: removes user turns, messages or blocks from the view on request. Either all targets are removed or none.

use std::collections::{BTreeMap, BTreeSet};

use super::decision::Decided;
use super::reject::{Rejection, SnipRejection, SnipTarget};
use crate::event::{ContentSnipped, Event, RequestStamp, Trigger, Visibility};
use crate::ids::{CallKey, MessageId, Ordinal, Revision, TurnNumber};
use crate::levels::clearing::hidden_paths;
use crate::levels::repair::{PieceAction, repair_layout};
use crate::message::Block;
use crate::session::{Call, ContentNotLoaded, Session};
use crate::tokens::TokenSize;
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
struct SnipSelection {
    turns: Vec<TurnNumber>,
    messages: BTreeSet<Ordinal>,
    /// Blocks that become markers.
    blocks: BTreeSet<(Ordinal, u16)>,
    /// Blocks that leave because the other half of their tool call leaves.
    dependent_blocks: BTreeSet<(Ordinal, u16)>,
    /// Calls that leave the view.
    removed_calls: BTreeSet<CallKey>,
}

impl Snip {
    pub(super) fn decide(self, session: &Session) -> Result<Decided, Rejection> {
        self.check(session)?;
        let mut leaving = self.select(session)?;
        // A call without its result (or a result without its call) is invalid for providers, so both leave.
        leaving.add_dependents(session);
        let change = repair_layout(session, |_, piece| leaving.action_for(session, piece))?;
        let sizes = leaving.sizes(session)?;
        let blocks = leaving.blocks.union(&leaving.dependent_blocks);
        let hidden_paths = hidden_paths(session, |call| leaving.removes_result(session, call))?;
        Ok(Decided::events(vec![Event::ContentSnipped(
            ContentSnipped {
                trigger: self.trigger,
                blocks: blocks.copied().collect(),
                turns: leaving.turns,
                messages: leaving.messages.iter().copied().collect(),
                reason: self.reason,
                before_tokens: session.tokens().tokens,
                freed_tokens: freed_tokens(session, &leaving.messages, &sizes),
                sizes,
                removed_calls: leaving.removed_calls.into_iter().collect(),
                hidden_paths,
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
        check_unique("turn_ids", &self.turns)?;
        check_unique("message_ids", &self.messages)?;
        check_unique("blocks", &self.blocks)
    }

    /// Resolves all targets. Returns an error that lists every target that cannot be removed.
    fn select(&self, session: &Session) -> Result<SnipSelection, Rejection> {
        let mut leaving = SnipSelection::default();
        // All failures are collected, so that a caller can correct the request in one step.
        let mut refused = Vec::new();
        for (index, name) in self.turns.iter().enumerate() {
            let found = resolve_turn(session, name).and_then(|turn| {
                pinned_among(session, &messages_of(session, turn).into_iter().collect())?;
                Ok(turn)
            });
            match found {
                Ok(turn) => leaving.turns.push(turn),
                Err(why) => refused.push(rejected_target("turn_ids", index, name.to_string(), why)),
            }
        }
        for (index, id) in self.messages.iter().enumerate() {
            let found = resolve_message(session, *id).and_then(|message| {
                pinned_among(session, &BTreeSet::from([message]))?;
                Ok(message)
            });
            match found {
                Ok(message) => {
                    leaving.messages.insert(message);
                }
                Err(why) => {
                    refused.push(rejected_target("message_ids", index, id.to_string(), why));
                }
            }
        }
        for (index, (id, block)) in self.blocks.iter().enumerate() {
            let found = resolve_block(session, *id, *block).and_then(|position| {
                match session.pins().pin_of_block(position.0, position.1) {
                    Some(pin) => Err(RejectionCause::pinned(pin)),
                    None => Ok(position),
                }
            });
            match found {
                Ok(position) => {
                    leaving.blocks.insert(position);
                }
                Err(why) => {
                    refused.push(rejected_target(
                        "blocks",
                        index,
                        format!("{id}#{block}"),
                        why,
                    ));
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

impl SnipSelection {
    /// Adds the other halves of tool calls, and all messages that share a placeholder with a removed one.
    fn add_dependents(&mut self, session: &Session) {
        // A placeholder describes all messages of its span, so it cannot stay for a part of them.
        session.extend_with_collapsed(&mut self.messages);
        let calls = session.calls();
        for (key, call) in calls.iter() {
            let call_leaves = self.messages.contains(&call.message);
            let result = call.result();
            let result_leaves = result.is_some_and(|(message, _)| self.messages.contains(&message));
            if call_leaves || result_leaves {
                self.removed_calls.insert(key);
            }
            match result {
                Some(result) if call_leaves && !result_leaves => {
                    self.dependent_blocks.insert(result);
                }
                Some(_) if result_leaves && !call_leaves => {
                    self.dependent_blocks.insert((call.message, call.block));
                }
                _ => {}
            }
        }
    }

    /// Returns true if the result of a call leaves the view.
    fn removes_result(&self, session: &Session, call: CallKey) -> bool {
        let position = session.calls().get(call).and_then(Call::result);
        self.removed_calls.contains(&call)
            || position.is_some_and(|position| self.blocks.contains(&position))
    }

    fn action_for(&self, session: &Session, piece: &Piece) -> PieceAction {
        // The order of the checks matters: a whole message leaves first, then synthetic pieces, then single blocks.
        let position = (piece.message, piece.block);
        if self.messages.contains(&piece.message) && piece.form.represents_block() {
            return PieceAction::Remove;
        }
        match piece.form {
            PieceForm::Interrupted(call) if self.removed_calls.contains(&call) => {
                return PieceAction::Remove;
            }
            // A synthetic piece leaves together with its message. The interruption of a call that stays must stay.
            PieceForm::Interrupted(_) => return PieceAction::Keep,
            form if !form.represents_block() => {
                return if self.messages.contains(&piece.message) {
                    PieceAction::Remove
                } else {
                    PieceAction::Keep
                };
            }
            _ => {}
        }
        if self.dependent_blocks.contains(&position) {
            return PieceAction::ChangeForm(PieceForm::Dropped(DropReason::Snipped));
        }
        if !self.blocks.contains(&position) {
            return PieceAction::Keep;
        }
        match (piece.form.answered_call_key(), piece.form.call_key()) {
            (Some(call), _) => PieceAction::ChangeForm(PieceForm::SnippedResult(call)),
            (_, Some(call)) => PieceAction::ChangeForm(PieceForm::SnippedCall(call)),
            // No marker can replace a mid-conversation operator message or thinking, so these blocks are dropped.
            _ if piece.form == PieceForm::Operator || is_thinking(session, piece) => {
                PieceAction::ChangeForm(PieceForm::Dropped(DropReason::Snipped))
            }
            _ => PieceAction::ChangeForm(PieceForm::Marker(MarkerReason::Snipped)),
        }
    }

    /// Returns the new sizes of the messages that stay and lose blocks.
    fn sizes(&self, session: &Session) -> Result<Vec<(Ordinal, TokenSize)>, ContentNotLoaded> {
        let mut sizes: BTreeMap<Ordinal, TokenSize> = BTreeMap::new();
        for piece in session.sealed().pieces() {
            let position = (piece.message, piece.block);
            let stays = !self.messages.contains(&piece.message) && piece.form.represents_block();
            let after = match (
                self.dependent_blocks.contains(&position),
                self.blocks.contains(&position),
            ) {
                // A dependent block is dropped without a marker.
                (true, _) => 0,
                (false, true) => MARKER_TOKENS,
                _ => continue,
            };
            let Some(entry) = session.transcript().get(piece.message).filter(|_| stays) else {
                continue;
            };
            let size = sizes.entry(piece.message).or_insert(entry.size);
            *size = match piece.form.answered_call_key() {
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
pub(super) fn freed_tokens(
    session: &Session,
    messages: &BTreeSet<Ordinal>,
    sizes: &[(Ordinal, TokenSize)],
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
    let stored = session.stored_results().at(piece.message, piece.block);
    match (piece.form, stored) {
        (PieceForm::Stored(_), Some(stored)) => stored.replacement_tokens,
        (form, _) => shown_tokens(session.calls(), form, call),
    }
}

fn block_tokens(session: &Session, piece: &Piece) -> Result<u32, ContentNotLoaded> {
    match piece.form {
        // A dependent block can be snipped already. Only its marker is left to free.
        PieceForm::SnippedCall(_) | PieceForm::Marker(MarkerReason::Snipped) => {
            return Ok(MARKER_TOKENS);
        }
        PieceForm::Dropped(DropReason::Snipped) => return Ok(0),
        _ => {}
    }
    let message = session.transcript().require_content(piece.message)?;
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

fn rejected_target(field: &str, index: usize, name: String, why: RejectionCause) -> SnipTarget {
    SnipTarget {
        field: format!("{field}[{index}]"),
        name,
        rejection: why.rejection,
        pin: why.pin,
    }
}

/// The reason why a target cannot be removed, with the pin that protects it.
struct RejectionCause {
    rejection: SnipRejection,
    pin: Option<Box<str>>,
}

impl RejectionCause {
    fn pinned(pin: &str) -> Self {
        Self {
            rejection: SnipRejection::Pinned,
            pin: Some(pin.into()),
        }
    }
}

impl From<SnipRejection> for RejectionCause {
    fn from(rejection: SnipRejection) -> Self {
        Self {
            rejection,
            pin: None,
        }
    }
}

/// Rejects messages that are pinned, or whose tool calls or results are pinned.
fn pinned_among(session: &Session, messages: &BTreeSet<Ordinal>) -> Result<(), RejectionCause> {
    let pins = session.pins();
    if pins.is_empty() {
        return Ok(());
    }
    let within = messages
        .iter()
        .find_map(|message| pins.pin_of_message(*message));
    let pin = within.or_else(|| {
        let mut calls = session.calls().iter();
        calls.find_map(|(_, call)| {
            let (message, block) = call.result()?;
            if messages.contains(&call.message) {
                pins.pin_of_block(message, block)
            } else if messages.contains(&message) {
                pins.pin_of_block(call.message, call.block)
            } else {
                None
            }
        })
    });
    pin.map_or(Ok(()), |pin| Err(RejectionCause::pinned(pin)))
}

fn check_unique<T: Ord>(field: &str, names: &[T]) -> Result<(), Rejection> {
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
fn resolve_turn(session: &Session, name: &str) -> Result<TurnNumber, RejectionCause> {
    let turns = session.turns();
    let turn = turns.find(name).ok_or(SnipRejection::NotFound)?;
    let start = turns.start(turn).ok_or(SnipRejection::NotFound)?;
    check_snippable(session, start)?;
    // The model works on the current turn, and its input is the task.
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
    // The turn exists, so the index is at most the number of turns.
    let later = starts[turn.index() + 1..].iter();
    let end = later
        .copied()
        .find(|start| session.transcript().is_in_view(*start));
    let end = end.unwrap_or(session.transcript().next());
    let entries = session.transcript().entries();
    let from = starts[turn.index()].index();
    let inside = entries.skip(from).take(end.index() - from);
    inside
        .filter(|(_, entry)| entry.visibility.is_in_view() && !entry.role.is_system())
        .filter(|(ordinal, _)| !session.is_framing(*ordinal))
        .map(|(ordinal, _)| ordinal)
        .collect()
}

fn check_snippable(session: &Session, message: Ordinal) -> Result<(), SnipRejection> {
    match session
        .transcript()
        .get(message)
        .map(|entry| entry.visibility)
    {
        Some(Visibility::Visible) => Ok(()),
        Some(Visibility::Snipped) => Err(SnipRejection::AlreadySnipped),
        Some(visibility) => Err(SnipRejection::NotVisible(visibility)),
        None => Err(SnipRejection::NotFound),
    }
}

fn resolve_message(session: &Session, id: MessageId) -> Result<Ordinal, RejectionCause> {
    let found = session
        .transcript()
        .find(id)
        .ok_or(SnipRejection::NotFound)?;
    check_snippable(session, found)?;
    Ok(found)
}

fn resolve_block(
    session: &Session,
    id: MessageId,
    block: u16,
) -> Result<(Ordinal, u16), RejectionCause> {
    // Only sealed pieces can be snipped, so a pending message has no block to remove.
    let message = resolve_message(session, id)?;
    let of_block = |piece: &&Piece| {
        piece.message == message && piece.block == block && piece.form.represents_block()
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
