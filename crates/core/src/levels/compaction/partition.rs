//! Decides which messages a compaction keeps. Related messages stay together: a call and its result, and the fragments
//! of one response.

use std::collections::{BTreeSet, HashMap};

use crate::event::{CallState, Strategy};
use crate::ids::Ordinal;
use crate::levels::attachments::is_attachment;
use crate::message::{Block, Role};
use crate::session::{ContentNotLoaded, Session};
use crate::view::PieceForm;

/// The messages to keep in addition to those that are always kept. Always kept are the start of the current user turn,
/// pending messages, messages with open calls, pinned messages and system messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepRule {
    /// Keeps recent messages until both minimums are reached, or until the maximum is reached. The limits are checked
    /// before each older message, so the last one may exceed the maximum. Messages after `after` are always kept.
    Recent {
        /// The last message that need not be kept. `None` keeps all messages.
        after: Option<Ordinal>,
        /// The minimum number of tokens to keep.
        min_tokens: u64,
        /// The minimum number of messages with text to keep.
        min_messages: u32,
        /// The number of tokens at which no older messages are added.
        max_tokens: u64,
    },
    /// Keeps a fixed number of last messages, whatever their size. Older messages follow until `min_tokens` is reached,
    /// as long as the total does not exceed `max_tokens`.
    Last {
        /// The number of messages to keep in any case.
        messages: u32,
        /// The number of tokens up to which older messages are added.
        min_tokens: u64,
        /// The maximum total for the added messages, in tokens.
        max_tokens: u64,
    },
    /// Keeps the messages after this one.
    After(Ordinal),
    /// Keeps the messages after `last`, and optionally earlier summaries and their attachments.
    Since {
        /// The last message that leaves.
        last: Ordinal,
        /// True if earlier summaries and their attachments stay.
        framing: bool,
    },
    /// Keeps the messages before this one.
    Before(Ordinal),
}

/// The messages of a view, divided into kept and leaving messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessagePartition {
    /// The messages that stay, in the order of the view.
    pub kept: Vec<Ordinal>,
    /// The messages that leave, in the order of the transcript. Messages of collapsed spans that leave are included.
    pub leaving: Vec<Ordinal>,
}

/// Divides the messages of a view by a rule.
///
/// # Errors
///
/// Fails if the content of any message is not loaded.
pub fn partition(session: &Session, what: KeepRule) -> Result<MessagePartition, ContentNotLoaded> {
    if !session.transcript().is_fully_loaded() {
        return Err(ContentNotLoaded);
    }
    // The order of the view is not that of the ordinals: summaries and attachments precede older messages.
    let order = messages_in_view_order(session);
    // Groups are applied last, so that a rule cannot separate related messages.
    let groups = MessageGroups::of(session, &order);
    let mut kept: BTreeSet<Ordinal> = order
        .iter()
        .copied()
        .filter(|message| is_always_kept(session, *message))
        .collect();
    match what {
        KeepRule::After(last) => {
            kept.extend(conversation_only(session, &order).filter(|at| *at > last));
        }
        KeepRule::Since { last, framing } => {
            // The note about earlier dropped content is replaced by the next note, so the old note leaves.
            let notes = session.compactions().boundaries.iter();
            let notes = notes.filter(|boundary| boundary.strategy == Strategy::DropOldest);
            let notes: BTreeSet<Ordinal> = notes.filter_map(|boundary| boundary.summary).collect();
            let is_framing = |at: &Ordinal| {
                let entry = session.transcript().get(*at);
                entry.is_some_and(|entry| entry.kind.is_framing()) && !notes.contains(at)
            };
            let stays = |at: &&Ordinal| (framing && is_framing(at)) || **at > last;
            kept.extend(order.iter().filter(stays));
        }
        KeepRule::Last {
            messages,
            min_tokens,
            max_tokens,
        } => {
            let (mut tokens, mut count) = (0, 0);
            let conversation: Vec<Ordinal> = conversation_only(session, &order).collect();
            for message in conversation.into_iter().rev() {
                let size = size(session, message);
                let is_wanted = tokens < min_tokens && tokens + size <= max_tokens;
                if count >= messages && !is_wanted {
                    break;
                }
                (tokens, count) = (tokens + size, count + 1);
                kept.insert(message);
            }
        }
        // The order of the view counts: an earlier summary precedes the message although it was added later.
        KeepRule::Before(first) => kept.extend(order.iter().take_while(|at| **at != first)),
        KeepRule::Recent {
            after,
            min_tokens,
            min_messages,
            max_tokens,
        } => {
            let (mut tokens, mut texts) = (0, 0);
            let conversation: Vec<Ordinal> = conversation_only(session, &order).collect();
            for message in conversation.into_iter().rev() {
                // The summary does not cover later messages, so they are kept whatever their size.
                let is_new = after.is_none_or(|after| message > after);
                let enough = tokens >= min_tokens && texts >= min_messages;
                if !is_new && (enough || tokens >= max_tokens) {
                    break;
                }
                tokens += size(session, message);
                texts += u32::from(has_text(session, message));
                kept.insert(message);
            }
        }
    }
    // Earlier attachments leave. The compaction attaches the current state again.
    if !matches!(what, KeepRule::Since { .. }) {
        kept.retain(|message| {
            !is_attachment(session, *message) || session.pins().pin_of_message(*message).is_some()
        });
    }
    Ok(build_partition(
        session,
        &order,
        &groups.with_group_members(&kept),
    ))
}

/// Reduces a partition so that at most `most` tokens leave, oldest messages first. Related messages leave together, so
/// a single round may exceed the limit.
pub fn limit_leaving_tokens(
    session: &Session,
    kept: MessagePartition,
    most: u64,
) -> Result<MessagePartition, ContentNotLoaded> {
    let sum = |kept: &MessagePartition| {
        kept.leaving
            .iter()
            .map(|at| size(session, *at))
            .sum::<u64>()
    };
    if sum(&kept) <= most {
        return Ok(kept);
    }
    let order = messages_in_view_order(session);
    let groups = MessageGroups::of(session, &order);
    let leaving: BTreeSet<Ordinal> = kept.leaving.iter().copied().collect();
    // The selection stops at the first group that does not fit. Earlier summaries and attachments always leave and
    // do not count, because the next summary repeats them.
    let mut sizes: HashMap<Ordinal, u64> = HashMap::new();
    for at in &leaving {
        let root = groups.root(*at).unwrap_or(*at);
        *sizes.entry(root).or_default() += size(session, *at);
    }
    let (mut tokens, mut chosen) = (0, BTreeSet::new());
    let mut is_over = false;
    for at in order.iter().filter(|at| leaving.contains(at)) {
        let root = groups.root(*at).unwrap_or(*at);
        let is_framing = session.is_framing(*at);
        if chosen.contains(&root) || (is_over && !is_framing) {
            continue;
        }
        let size = sizes.get(&root).copied().unwrap_or_default();
        if !is_framing && tokens > 0 && tokens + size > most {
            is_over = true;
            continue;
        }
        if !is_framing {
            tokens += size;
        }
        chosen.insert(root);
    }
    let stays = |at: &Ordinal| {
        let root = groups.root(*at).unwrap_or(*at);
        !(leaving.contains(at) && chosen.contains(&root))
    };
    let kept: BTreeSet<Ordinal> = order.iter().copied().filter(stays).collect();
    Ok(build_partition(
        session,
        &order,
        &groups.with_group_members(&kept),
    ))
}

/// Divides the messages of a view by a predicate for leaving messages. Messages related to a kept message stay, and so
/// do system messages and pinned messages.
pub fn partition_where(
    session: &Session,
    leaves: impl Fn(Ordinal) -> bool,
) -> Result<MessagePartition, ContentNotLoaded> {
    if !session.transcript().is_fully_loaded() {
        return Err(ContentNotLoaded);
    }
    let order = messages_in_view_order(session);
    let is_fixed = |message: &Ordinal| {
        let entry = session.transcript().get(*message);
        let is_operators = entry.is_some_and(|entry| entry.role.is_system());
        is_operators || session.pins().pin_of_message(*message).is_some()
    };
    let stays = |message: &Ordinal| is_fixed(message) || !leaves(*message);
    let kept: BTreeSet<Ordinal> = order.iter().copied().filter(stays).collect();
    let kept = MessageGroups::of(session, &order).with_group_members(&kept);
    Ok(build_partition(session, &order, &kept))
}

fn build_partition(
    session: &Session,
    order: &[Ordinal],
    kept: &BTreeSet<Ordinal>,
) -> MessagePartition {
    let stays: Vec<Ordinal> = order
        .iter()
        .copied()
        .filter(|message| kept.contains(message))
        .collect();
    let mut leaving: BTreeSet<Ordinal> = order
        .iter()
        .copied()
        .filter(|message| !kept.contains(message))
        .collect();
    // A placeholder that leaves takes all messages of its span with it.
    session.extend_with_collapsed(&mut leaving);
    let folded = |message: &Ordinal| {
        let entry = session.transcript().get(*message);
        entry.is_some_and(|entry| entry.visibility.is_in_view())
    };
    leaving.retain(folded);
    MessagePartition {
        kept: stays,
        leaving: leaving.into_iter().collect(),
    }
}

/// Returns the chosen messages without those that were pinned since, and without messages related to them.
pub fn without_pinned(
    session: &Session,
    leaving: &[Ordinal],
) -> Result<Vec<Ordinal>, ContentNotLoaded> {
    let is_pinned = |message: &&Ordinal| session.pins().pin_of_message(**message).is_some();
    let pinned: BTreeSet<Ordinal> = leaving.iter().filter(is_pinned).copied().collect();
    if pinned.is_empty() {
        return Ok(leaving.to_vec());
    }
    if !session.transcript().is_fully_loaded() {
        return Err(ContentNotLoaded);
    }
    let stay =
        MessageGroups::of(session, &messages_in_view_order(session)).with_group_members(&pinned);
    let leaves = |message: &&Ordinal| !stay.contains(message);
    Ok(leaving.iter().filter(leaves).copied().collect())
}

/// Returns the number of messages after the last response of the model. Returns 0 if they have more than `most` tokens.
pub fn count_unanswered(session: &Session, most: u64) -> u32 {
    let conversation = visible_conversation(session);
    let is_answered = |at: &Ordinal| {
        let entry = session.transcript().get(*at);
        entry.is_some_and(|entry| entry.role == Role::Assistant)
    };
    let unanswered = conversation.iter().rev().take_while(|at| !is_answered(at));
    let sizes: Vec<u64> = unanswered.map(|at| size(session, *at)).collect();
    if sizes.iter().sum::<u64>() > most {
        return 0;
    }
    crate::view::count(sizes.len())
}

/// Returns the conversation messages of the view in its order, without summaries and attachments.
pub(super) fn visible_conversation(session: &Session) -> Vec<Ordinal> {
    conversation_only(session, &messages_in_view_order(session)).collect()
}

/// Returns the number of rounds in some messages. Related messages count once.
pub(super) fn rounds(session: &Session, messages: &[Ordinal]) -> u32 {
    let groups = MessageGroups::of(session, messages);
    let roots: BTreeSet<Ordinal> = messages.iter().filter_map(|at| groups.root(*at)).collect();
    crate::view::count(roots.len())
}

/// Returns the messages of the view in its order, then the pending ones. A collapsed span is represented by the message
/// of its placeholder.
fn messages_in_view_order(session: &Session) -> Vec<Ordinal> {
    let mut seen = BTreeSet::new();
    let sealed = session.sealed().pieces().iter();
    let sealed = sealed.filter(|piece| {
        piece.form.represents_block() || matches!(piece.form, PieceForm::Placeholder(_))
    });
    let waiting = session.pending().iter().map(|item| item.message);
    let all = sealed.map(|piece| piece.message).chain(waiting);
    all.filter(|message| seen.insert(*message)).collect()
}

/// Filters out summaries and attachments.
fn conversation_only<'o>(
    session: &Session,
    order: &'o [Ordinal],
) -> impl Iterator<Item = Ordinal> + 'o {
    let is_spoken = |message: &Ordinal| {
        let entry = session.transcript().get(*message);
        entry.is_some_and(|entry| !entry.kind.is_framing())
    };
    let spoken: Vec<Ordinal> = order.iter().copied().filter(is_spoken).collect();
    spoken.into_iter()
}

fn is_always_kept(session: &Session, message: Ordinal) -> bool {
    let Some(entry) = session.transcript().get(message) else {
        return false;
    };
    let turn = session.current_turn();
    // The current user input is the task at hand, so it is never summarized.
    let begins = turn.and_then(|turn| session.turns().start(turn)) == Some(message);
    let mut calls = session.calls().of(message);
    let is_pinned = session.pins().pin_of_message(message).is_some();
    let mut waits = || calls.any(|(_, call)| call.state == CallState::Open);
    let is_pending = session.pending().iter().any(|item| item.message == message);
    entry.role.is_system() || is_pinned || begins || is_pending || waits()
}

fn size(session: &Session, message: Ordinal) -> u64 {
    let entry = session.transcript().get(message);
    let tokens = entry.map_or(0, |entry| entry.size.tokens.into());
    session.ledger().calibration.apply(tokens)
}

fn has_text(session: &Session, message: Ordinal) -> bool {
    let content = session.transcript().content(message);
    content.is_some_and(|content| {
        let mut blocks = content.blocks.iter();
        blocks.any(|block| matches!(block, Block::Text { .. }) && !block.is_blank())
    })
}

/// A union-find forest of related messages. The root of each group is its first message.
struct MessageGroups(HashMap<Ordinal, Ordinal>);

impl MessageGroups {
    fn of(session: &Session, order: &[Ordinal]) -> Self {
        let mut groups = Self(order.iter().map(|message| (*message, *message)).collect());
        for (_, call) in session.calls().iter() {
            if let Some((result, _)) = call.result() {
                groups.join(call.message, result);
            }
        }
        // Consecutive model messages with the same provider id are fragments of one response.
        let mut before: Option<(Ordinal, &str)> = None;
        for message in order {
            let Some(content) = session.transcript().content(*message) else {
                continue;
            };
            if content.role != Role::Assistant {
                continue;
            }
            let id = content.provider_message_id.as_deref();
            if let (Some((last, same)), Some(id)) = (before, id)
                && same == id
            {
                groups.join(last, *message);
            }
            before = id.map(|id| (*message, id));
        }
        groups
    }

    fn root(&self, message: Ordinal) -> Option<Ordinal> {
        let mut at = message;
        // Each step leads to a smaller ordinal, so the loop ends.
        loop {
            let up = *self.0.get(&at)?;
            if up == at {
                return Some(at);
            }
            at = up;
        }
    }

    fn join(&mut self, one: Ordinal, other: Ordinal) {
        if let (Some(one), Some(other)) = (self.root(one), self.root(other)) {
            // The smaller ordinal becomes the root. The root of a group is therefore independent of the order of joins.
            let (low, high) = (one.min(other), one.max(other));
            self.0.insert(high, low);
        }
    }

    /// Returns some messages and all messages related to them.
    fn with_group_members(&self, some: &BTreeSet<Ordinal>) -> BTreeSet<Ordinal> {
        let wanted: BTreeSet<Ordinal> = some.iter().filter_map(|at| self.root(*at)).collect();
        let all = self.0.keys().copied();
        all.filter(|at| self.root(*at).is_some_and(|root| wanted.contains(&root)))
            .collect()
    }
}
