//! Selects the oldest rounds to drop if no summary is possible.

use super::partition::{KeepRule, MessagePartition, partition, rounds, visible_conversation};
use crate::ids::Ordinal;
use crate::session::{ContentNotLoaded, Session};

/// Maximum tokens of the note that replaces the dropped rounds.
const NOTE_TOKENS: u64 = 120;

/// Returns the partition that drops the oldest rounds, and the number of dropped rounds.
///
/// At least `tokens` are dropped, in addition to the size of the note. Without `tokens`, the policy's
/// `retry_drop_percent` of the rounds are dropped, at least one. Earlier summaries and their attachments leave only if everything
/// else is not enough. The last round always stays.
pub fn oldest_rounds(
    session: &Session,
    tokens: Option<u64>,
) -> Result<(MessagePartition, u32), ContentNotLoaded> {
    let mut spoken = visible_conversation(session);
    // A cut is an ordinal, and the order of the view can differ from that of the ordinals.
    spoken.sort_unstable();
    let total = u64::from(rounds(session, &spoken));
    let share = session.policy().summary.retry_drop_percent.of(total);
    // One round stays, even with a share of 100 %.
    let share = share.min(total.saturating_sub(1)).max(1);
    // The last message is never dropped.
    spoken.pop();
    let enough = |kept: &MessagePartition| {
        let size = size(session, kept);
        if let Some(tokens) = tokens {
            return size >= tokens + NOTE_TOKENS;
        }
        // The note has a size of its own, so a small drop would free almost nothing.
        size >= 2 * NOTE_TOKENS && u64::from(rounds(session, &kept.leaving)) >= share
    };
    let cut = |at: usize, framing| {
        let last = at.checked_sub(1).and_then(|at| spoken.get(at)).copied();
        last.map_or_else(
            || Ok(MessagePartition::default()),
            |last: Ordinal| partition(session, KeepRule::Since { last, framing }),
        )
    };
    // A later cut never keeps a message that an earlier cut drops. The first sufficient cut can therefore be found
    // by binary search.
    let first = |framing| -> Result<MessagePartition, ContentNotLoaded> {
        let (mut low, mut high) = (0, spoken.len());
        while low < high {
            let middle = low.midpoint(high);
            if enough(&cut(middle, framing)?) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        cut(low, framing)
    };
    let mut kept = first(true)?;
    if !enough(&kept) {
        kept = first(false)?;
    }
    let rounds = rounds(session, &kept.leaving);
    Ok((kept, rounds))
}

fn size(session: &Session, kept: &MessagePartition) -> u64 {
    let entries = kept.leaving.iter();
    let entries = entries.filter_map(|at| session.transcript().get(*at));
    let tokens = entries.map(|entry| u64::from(entry.size.tokens)).sum();
    session.ledger().calibration.apply(tokens)
}
