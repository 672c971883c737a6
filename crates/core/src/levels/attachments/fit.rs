//! Attachments never make a compaction useless: the least important stay out until there is room.

use super::{AttachmentKind, Candidate};
use crate::session::Session;

/// How much may be attached, by the estimate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// The view must become smaller: what leaves, less what the summary adds.
    pub(crate) freed: u64,
    /// The view without attachments, as it counts.
    pub(crate) tokens: u64,
}

/// What is left out first when there is no room: what the model can read or ask for again.
const fn importance(kind: AttachmentKind) -> u8 {
    match kind {
        AttachmentKind::File => 0,
        AttachmentKind::Skill => 1,
        AttachmentKind::McpServers => 2,
        AttachmentKind::Agents => 3,
        AttachmentKind::Tools => 4,
        AttachmentKind::Instructions => 5,
        AttachmentKind::Notes => 6,
        AttachmentKind::Permissions => 7,
        AttachmentKind::Tasks => 8,
        AttachmentKind::Plan => 9,
        AttachmentKind::PlanMode => 10,
        AttachmentKind::Pin => 11,
    }
}

/// Leaves out as many as must be; of equals the later ones, which are older.
pub(crate) fn fit(session: &Session, candidates: &mut [Candidate], room: Room) {
    let threshold = session.thresholds().compact;
    let sum = |candidates: &[Candidate]| -> u64 {
        let attached = candidates.iter().filter(|one| !one.omitted);
        attached.map(|one| u64::from(one.size.tokens)).sum()
    };
    // A view that is over the threshold by itself is not made good by saying less.
    let can_be_under = room.tokens < threshold;
    let fits = |candidates: &[Candidate]| {
        let added = sum(candidates);
        let after = room.tokens + session.ledger().calibration.apply(added);
        added < room.freed && (!can_be_under || after < threshold)
    };
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|at| (importance(candidates[*at].kind), std::cmp::Reverse(*at)));
    for at in order {
        if fits(candidates) {
            return;
        }
        candidates[at].omitted = true;
    }
}
