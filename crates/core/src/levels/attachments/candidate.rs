//! Candidates for attachment after a compaction, and the selection of those that fit. The least important are omitted,
//! so that attachments never undo a compaction.

use crate::event::{AttachmentKind, AttachmentRecord};
use crate::ids::{MessageId, Ordinal};
use crate::message::{Block, Message, MessageKind, Role};
use crate::session::Session;
use crate::tokens::{TokenCounter, TokenSize, head_within};

/// Content that a compaction may attach.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is told apart")]
pub(crate) struct AttachmentCandidate {
    pub(crate) kind: AttachmentKind,
    pub(crate) name: Box<str>,
    /// The texts of the message's blocks.
    pub(crate) texts: Vec<Box<str>>,
    pub(crate) truncated: bool,
    pub(crate) stale: bool,
    /// True if an omission loses edits.
    pub(super) edited: bool,
    /// True if the candidate is not attached.
    pub(crate) omitted: bool,
    pub(crate) size: TokenSize,
}

impl AttachmentCandidate {
    pub(super) fn new(kind: AttachmentKind, name: &str, texts: Vec<Box<str>>) -> Self {
        Self {
            kind,
            name: name.into(),
            texts,
            truncated: false,
            stale: false,
            edited: false,
            omitted: false,
            size: TokenSize::default(),
        }
    }

    /// Computes the size and returns the candidate with it.
    pub(super) fn with_size(mut self, counter: TokenCounter) -> Self {
        // The id does not influence the size, so a nil id is sufficient.
        self.size = counter.message(&self.message(MessageId::new(uuid::Uuid::nil())));
        self
    }

    pub(crate) fn message(&self, id: MessageId) -> Message {
        let blocks = self.texts.iter().map(|text| Block::text(text.clone()));
        let mut message = Message::new(id, Role::User, blocks.collect());
        message.kind = MessageKind::Attachment;
        message.machine_generated = true;
        message
    }

    /// Returns the record of this candidate. `message` is its message, or `None` if the candidate was omitted.
    pub(crate) fn to_record(&self, message: Option<Ordinal>) -> AttachmentRecord {
        AttachmentRecord {
            kind: self.kind,
            name: self.name.clone(),
            message,
            tokens: self.size.tokens,
            truncated: self.truncated,
            stale: self.stale || (message.is_none() && self.edited),
        }
    }
}

/// Returns the beginning of a text with at most `max_tokens` tokens, and true if the text was cut. The cut is at a line
/// end if one exists in the second half.
pub(super) fn truncate_to_tokens(text: &str, max_tokens: u32) -> (&str, bool) {
    // A line end in the first half is ignored, because the cut would waste more than half of the limit.
    let cut = head_within(text, max_tokens);
    if cut.len() == text.len() {
        return (text, false);
    }
    match cut.rfind('\n') {
        Some(line) if line > cut.len() / 2 => (&cut[..line], true),
        _ => (cut, true),
    }
}

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
        // `added` began as the sum of all these candidates, so it cannot fall below 0.
        added -= size(candidate);
    }
}
