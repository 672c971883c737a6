//! Selects the attachments that fit. The least important are omitted, so that attachments never undo a compaction.

use super::candidate::AttachmentCandidate;
use crate::event::AttachmentKind;
use crate::session::Session;

/// The limits for attachments, in tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttachmentBudget {
    /// The estimated tokens that leave, minus those of the summary. Attachments must stay below this number, so that
    /// the view becomes smaller.
    pub(crate) freed: u64,
    /// The calibrated tokens of the view without attachments.
    pub(crate) tokens: u64,
}

/// Returns the importance of a kind. Lower numbers are omitted first: the model can read or request them again.
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

/// Returns true for kinds that are large and that the model can obtain again.
const fn is_bulky(kind: AttachmentKind) -> bool {
    matches!(kind, AttachmentKind::File | AttachmentKind::Skill)
}

/// Marks as many candidates as necessary as omitted. Among equally important candidates the later, older ones go first.
pub(crate) fn omit_to_fit(
    session: &Session,
    candidates: &mut [AttachmentCandidate],
    budget: AttachmentBudget,
) {
    let threshold = session.thresholds().compact;
    // If the view alone exceeds the threshold, fewer attachments do not help, so the threshold does not apply. Bulky
    // attachments leave half of the threshold free, because a nearly full view would soon be compacted again.
    let most = |bulky: bool| match budget.tokens {
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
        // Sizes are estimated, and the threshold is compared with calibrated counts.
        let after = budget.tokens.saturating_add(calibration.apply(added));
        // Attachments that use all freed tokens would undo the compaction.
        if added < budget.freed && after <= most(is_bulky(candidate.kind)) {
            continue;
        }
        candidate.omitted = true;
        added -= size(candidate);
    }
}
