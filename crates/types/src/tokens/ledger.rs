//! The running token count of a session: the anchor, the estimate since then, and the calibration of
//! estimates.

use super::{TokenBreakdown, TokenSize};
use crate::ids::{Epoch, Ordinal};
use crate::message::{Message, MessageKind, Role, Usage};

/// The minimum estimate, in tokens, for calibration. The error of a smaller estimate is mostly
/// noise.
const MIN_CALIBRATION_TOKENS: u64 = 500;

/// The latest usage that a provider reported and that still applies to the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// The reported usage. Each number is the maximum over the fragments of the response.
    pub usage: Usage,
    /// The provider's id of the response.
    pub provider_message_id: Option<Box<str>>,
    /// The last fragment of the response.
    pub message: Ordinal,
    /// The epoch of the view that the usage measured.
    pub epoch: Epoch,
}

impl Anchor {
    /// Returns true if a message is another fragment of the same response.
    pub fn is_continued_by(&self, message: &Message) -> bool {
        message.role == Role::Assistant
            && self.provider_message_id.is_some()
            && self.provider_message_id == message.provider_message_id
    }
}

/// The learned ratio of reported to estimated tokens, in thousandths. Default: 1,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calibration(u32);

impl Default for Calibration {
    fn default() -> Self {
        Self(1_000)
    }
}

impl Calibration {
    const MIN: u64 = 500;
    const MAX: u64 = 2_500;
    /// The divisor for one observation: each observation moves the factor by one eighth of the
    /// difference.
    const SLOWNESS: u64 = 8;

    /// Creates a calibration from thousandths.
    pub const fn from_milli(milli: u32) -> Self {
        Self(milli)
    }

    /// Returns the factor in thousandths.
    pub const fn milli(self) -> u32 {
        self.0
    }

    fn learn(self, estimated: u64, actual: u64) -> Self {
        if estimated < MIN_CALIBRATION_TOKENS || actual == 0 {
            return self;
        }
        let observed = (actual.saturating_mul(1_000) / estimated).clamp(Self::MIN, Self::MAX);
        let moved = (u64::from(self.0) * (Self::SLOWNESS - 1) + observed) / Self::SLOWNESS;
        Self(u32::try_from(moved).unwrap_or(self.0))
    }

    /// Returns the corrected estimate.
    pub const fn apply(self, estimated: u64) -> u64 {
        estimated.saturating_mul(self.0 as u64) / 1_000
    }
}

impl EstimateBasis {
    /// Derives the basis from a request of `tokens` tokens and the estimate of its messages.
    fn of(tokens: u64, estimated: u64, calibration: Calibration, overhead: u64) -> Self {
        let messages = calibration.apply(estimated);
        // An overhead that leaves no tokens for the messages cannot have been part of the reported
        // usage.
        let overhead = if overhead < tokens { overhead } else { 0 };
        // The prefix is the part of the request that the messages do not explain. It is at most `tokens`, so the
        // subtraction below cannot underflow.
        let prefix = tokens.saturating_sub(messages).max(overhead);
        let left = tokens - prefix;
        let scale = (left < messages).then(|| {
            let milli = left.saturating_mul(1_000) / estimated.max(1);
            Calibration(u32::try_from(milli).unwrap_or(u32::MAX))
        });
        Self { prefix, scale }
    }
}

/// The method by which a count was obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CountMethod {
    /// The whole count is estimated.
    Estimated,
    /// The provider reported a part. Everything after the anchor is estimated.
    Anchored,
}

/// A token count and its method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCount {
    /// The total, in tokens.
    pub tokens: u64,
    /// The part that the provider reported.
    pub reported: u64,
    /// The method of the count.
    pub method: CountMethod,
}

/// The relation between estimates and requests, taken from the last anchor before the view changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EstimateBasis {
    /// The tokens of the system prompt and the tools, as far as they are known.
    pub prefix: u64,
    /// A factor that replaces the calibration if the provider counted fewer tokens than the
    /// calibrated estimate.
    pub scale: Option<Calibration>,
}

/// The running token count of a view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenLedger {
    /// The latest reported usage, if any.
    pub anchor: Option<Anchor>,
    /// The estimate of the content that the anchor does not cover.
    pub tail: u64,
    /// The estimate of the content that the anchor covers and that has left the view since.
    pub removed: u64,
    /// The estimate of all visible content, by kind.
    pub all: TokenBreakdown,
    /// The factor that reported usage has taught so far.
    pub calibration: Calibration,
    /// The basis from an earlier anchor. It applies until the next anchor.
    pub basis: Option<EstimateBasis>,
}

impl TokenLedger {
    /// Returns an empty count for a view that no provider has measured yet. `tokens` is the count of
    /// the request before the change. `overhead` is the caller's estimate of its system prompt and
    /// tools.
    ///
    /// A reported usage includes the system prompt and the tools; an estimate of messages does not.
    /// The basis makes the counts before and after a compaction comparable.
    #[must_use]
    pub fn reset_for_view(&self, tokens: u64, overhead: u64) -> Self {
        // No provider has measured the view since the last change, so the basis of that change still applies.
        let is_known = self.anchor.is_none() && self.count(overhead).tokens == tokens;
        let basis = if is_known {
            self.basis
        } else {
            let estimated = self.all.total();
            Some(EstimateBasis::of(
                tokens, estimated, self.calibration, overhead,
            ))
        };
        Self {
            calibration: self.calibration,
            basis,
            ..Self::default()
        }
    }

    /// Converts an estimate of visible content into tokens. Used for content that no usage covers.
    pub fn apply(&self, estimated: u64) -> u64 {
        let basis = self.basis.filter(|_| self.anchor.is_none());
        let scale = basis.and_then(|basis| basis.scale);
        scale.unwrap_or(self.calibration).apply(estimated)
    }

    /// Returns the token count of the view. `overhead` is the caller's estimate of its system prompt
    /// and tools.
    pub fn count(&self, overhead: u64) -> TokenCount {
        match &self.anchor {
            Some(anchor) => {
                let reported = anchor.usage.total_tokens();
                // The provider has measured the removed content together with the rest, so only its estimate can be
                // subtracted.
                let kept = reported.saturating_sub(self.calibration.apply(self.removed));
                TokenCount {
                    tokens: kept.saturating_add(self.calibration.apply(self.tail)),
                    reported,
                    method: CountMethod::Anchored,
                }
            }
            None => TokenCount {
                tokens: self
                    .apply(self.all.total())
                    // The basis has measured the prefix, so the caller's estimate is ignored, as it
                    // is with an anchor.
                    .saturating_add(self.basis.map_or(overhead, |basis| basis.prefix)),
                reported: 0,
                method: CountMethod::Estimated,
            },
        }
    }

    /// Adds a visible message and returns the newly reported tokens. Ignores a usage that exceeds
    /// `window`.
    pub fn add(
        &mut self,
        message: &Message,
        ordinal: Ordinal,
        size: TokenSize,
        epoch: Epoch,
        window: u64,
    ) -> u64 {
        self.all.add(message.kind, message.role, size);
        let continues = self
            .anchor
            .as_mut()
            .filter(|anchor| anchor.is_continued_by(message));
        let usage = message.usage.filter(|usage| is_credible(usage, window));
        if let Some(anchor) = continues {
            // The reported usage includes the output of the whole response, so a fragment adds only
            // the difference.
            let before = anchor.usage.total_tokens();
            anchor.usage = anchor.usage.max(usage.unwrap_or_default());
            anchor.message = ordinal;
            // `max` lowers no number, so the difference is not negative.
            return anchor.usage.total_tokens() - before;
        }
        let Some(usage) = usage.filter(|_| message.role == Role::Assistant) else {
            self.tail += u64::from(size.tokens);
            return 0;
        };
        if let Some(before) = &self.anchor
            && before.epoch == epoch
        {
            // This prompt contains the earlier prompt and its response. The output of this response is no part of
            // it.
            let prompt = usage.total_tokens() - usage.output_tokens;
            let grown = prompt.saturating_sub(before.usage.total_tokens());
            // Content that left the view distorts the growth, so such a step teaches nothing.
            if self.removed == 0 {
                self.calibration = self.calibration.learn(self.tail, grown);
            }
        }
        self.anchor = Some(Anchor {
            usage,
            provider_message_id: message.provider_message_id.clone(),
            message: ordinal,
            epoch,
        });
        (self.tail, self.removed) = (0, 0);
        self.basis = None;
        usage.total_tokens()
    }

    /// Adds a visible message whose usage is ignored, because the usage measured another view.
    pub fn add_estimated(&mut self, (kind, role): (MessageKind, Role), size: TokenSize) {
        self.all.add(kind, role, size);
        self.tail += u64::from(size.tokens);
    }

    /// Updates the size of a message whose visible form changed.
    pub fn resize(
        &mut self,
        ordinal: Ordinal,
        what: (MessageKind, Role),
        before: TokenSize,
        after: TokenSize,
    ) {
        self.replace_message(ordinal, (what, before), (what, after));
    }

    /// Replaces the content that is shown at the position of a message.
    pub fn replace_message(
        &mut self,
        ordinal: Ordinal,
        (before_is, before): ((MessageKind, Role), TokenSize),
        (after_is, after): ((MessageKind, Role), TokenSize),
    ) {
        self.all.subtract(before_is.0, before_is.1, before);
        self.all.add(after_is.0, after_is.1, after);
        let (before, after) = (u64::from(before.tokens), u64::from(after.tokens));
        let covered = self.anchor.as_ref();
        if covered.is_some_and(|anchor| ordinal <= anchor.message) {
            self.removed = (self.removed + before).saturating_sub(after);
        } else {
            self.tail = (self.tail + after).saturating_sub(before);
        }
    }
}

/// Returns true if a usage is plausible: at least 1 token and at most `window` tokens.
pub fn is_credible(usage: &Usage, window: u64) -> bool {
    (1..=window).contains(&usage.total_tokens())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MessageId;
    use crate::message::Block;

    fn response(id: &str, input: u64, output: u64) -> Message {
        let mut message = Message::new(
            MessageId::new(uuid::Uuid::nil()),
            Role::Assistant,
            vec![Block::text("x")],
        );
        message.provider_message_id = Some(id.into());
        message.usage = Some(Usage {
            input_tokens: input,
            output_tokens: output,
            ..Usage::default()
        });
        message
    }

    fn add(ledger: &mut TokenLedger, message: &Message, tokens: u32) {
        let size = TokenSize {
            tokens,
            result_tokens: 0,
        };
        ledger.add(message, Ordinal::new(0), size, Epoch::default(), 200_000);
    }

    #[test]
    fn fragments_share_one_usage_and_results_between_them_are_counted() {
        let mut ledger = TokenLedger::default();
        let user = Message::new(MessageId::new(uuid::Uuid::nil()), Role::User, vec![]);
        add(&mut ledger, &user, 900);
        assert_eq!(ledger.count(50).tokens, 950);
        add(&mut ledger, &response("a", 1_000, 5), 10);
        add(&mut ledger, &user, 100);
        add(&mut ledger, &response("a", 1_000, 80), 10);
        // The usage has 1,080 tokens, and the message between the fragments is estimated at 100.
        assert_eq!(ledger.count(50).tokens, 1_180);
        assert_eq!(ledger.count(50).method, CountMethod::Anchored);
    }

    #[test]
    fn a_count_without_an_anchor_covers_the_same_content() {
        // The caller did not report its 10,000 tokens of system prompt and tools. They remain after
        // the change.
        let mut ledger = TokenLedger::default();
        add(&mut ledger, &response("a", 30_000, 0), 20_000);
        let rebased = ledger.reset_for_view(30_000, 0);
        let basis = EstimateBasis {
            prefix: 10_000,
            scale: None,
        };
        assert_eq!(rebased.basis, Some(basis));
        assert_eq!(rebased.count(0).tokens, 10_000);
        assert_eq!(rebased.count(12_000).tokens, 10_000);
        // The provider counted half of the estimate, so half of the remaining estimate is counted.
        let mut ledger = TokenLedger::default();
        add(&mut ledger, &response("a", 10_000, 0), 20_000);
        let mut rebased = ledger.reset_for_view(10_000, 0);
        let size = TokenSize {
            tokens: 8_000,
            result_tokens: 0,
        };
        rebased.add_estimated((MessageKind::Summary, Role::User), size);
        assert_eq!(rebased.count(0).tokens, 4_000);
        // The basis is kept until a provider measures the view again.
        assert_eq!(rebased.reset_for_view(4_000, 0).basis, rebased.basis);
        add(&mut rebased, &response("b", 5_000, 0), 10);
        assert_eq!(rebased.basis, None);
    }

    #[test]
    fn usage_above_the_window_is_ignored() {
        let mut ledger = TokenLedger::default();
        add(&mut ledger, &response("a", 200_001, 0), 10);
        assert_eq!(ledger.count(0).tokens, 10);
        add(&mut ledger, &response("b", 0, 0), 10);
        assert_eq!(ledger.count(0).tokens, 20);
    }

    #[test]
    fn calibration_is_slow_and_bounded() {
        let mut calibration = Calibration::default();
        // The ratio is 2,000 thousandths: 7/8 of 1,000 plus 1/8 of 2,000.
        assert_eq!(calibration.learn(1_000, 2_000).milli(), 1_125);
        assert_eq!(calibration.learn(400, 2_000).milli(), 1_000);
        for _ in 0..200 {
            calibration = calibration.learn(1_000, 1_000_000);
        }
        assert!(
            (2_400..=2_500).contains(&calibration.milli()),
            "{calibration:?}"
        );
    }
}
