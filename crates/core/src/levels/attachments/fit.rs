//! Attachments never make a compaction useless: the least important stay out until there is room.

use super::candidate::AttachmentCandidate;
use crate::event::AttachmentKind;
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

/// Whether it is large, and the model can get it again by itself.
const fn is_bulky(kind: AttachmentKind) -> bool {
    matches!(kind, AttachmentKind::File | AttachmentKind::Skill)
}

/// Leaves out as many as must be; of equals the later ones, which are older.
pub(crate) fn fit(session: &Session, candidates: &mut [AttachmentCandidate], room: Room) {
    let threshold = session.thresholds().compact;
    // A view that is over the threshold by itself is not made good by saying less. And what is bulky
    // leaves half of it free: a view that is nearly full again would soon be compacted again.
    let most = |bulky: bool| match room.tokens {
        tokens if tokens >= threshold => u64::MAX,
        _ if bulky => threshold / 2,
        _ => threshold.saturating_sub(1),
    };
    let calibration = session.ledger().calibration;
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.retain(|at| !candidates[*at].omitted);
    order.sort_by_key(|at| (importance(candidates[*at].kind), std::cmp::Reverse(*at)));
    let size = |candidate: &AttachmentCandidate| u64::from(candidate.size.tokens);
    let mut added: u64 = order.iter().map(|at| size(&candidates[*at])).sum();
    for at in order {
        let candidate = &mut candidates[at];
        let after = room.tokens.saturating_add(calibration.apply(added));
        if added < room.freed && after <= most(is_bulky(candidate.kind)) {
            continue;
        }
        candidate.omitted = true;
        added -= size(candidate);
    }
}
