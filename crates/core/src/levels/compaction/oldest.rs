//! Which rounds leave first where none can be summarised.

use super::keep::{KeepRule, MessagePartition, keep, rounds, spoken_now};
use crate::ids::Ordinal;
use crate::session::{ContentNotLoaded, Session};

/// What the note that stands for them takes, at most.
const NOTE_TOKENS: u64 = 120;

/// The oldest rounds, as many as have so many tokens, or a share of them; and how many rounds they are.
/// What frames the conversation (an earlier summary, what was attached to it) goes only when all else
/// that may go is too little. The last round stays, whatever it has.
pub fn oldest(
    session: &Session,
    tokens: Option<u64>,
) -> Result<(MessagePartition, u32), ContentNotLoaded> {
    let mut spoken = spoken_now(session);
    spoken.sort_unstable();
    // The last one is never cut off.
    spoken.pop();
    let share = session.policy().summary.retry_drop_percent;
    let count = u64::try_from(spoken.len()).unwrap_or(u64::MAX);
    let enough = |kept: &MessagePartition| {
        let size = size(session, kept);
        if let Some(tokens) = tokens {
            return size >= tokens + NOTE_TOKENS;
        }
        let many = kept.leaving.len() as u64 >= share.of(count).max(1);
        many && size >= 2 * NOTE_TOKENS
    };
    let cut = |at: usize, framing| {
        let last = at.checked_sub(1).and_then(|at| spoken.get(at)).copied();
        last.map_or_else(
            || Ok(MessagePartition::default()),
            |last: Ordinal| keep(session, KeepRule::Since { last, framing }),
        )
    };
    // With earlier messages gone, no later one comes back: so the first cut that is enough can be
    // searched for by halves.
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
