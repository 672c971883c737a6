//! The tokens of a whole model request by kind of content.

use super::{Calibration, TokenBreakdown};

/// The size of the prompt prefix in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixTokens {
    /// The tokens of the system prompt.
    pub system: u64,
    /// The tokens of the tool definitions.
    pub tools: u64,
}

impl PrefixTokens {
    /// Returns the sum of both.
    pub const fn total(self) -> u64 {
        self.system.saturating_add(self.tools)
    }
}

/// The tokens of a model request by kind of content. The parts add up to the tokens of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestParts {
    /// The system prompt, messages of the operator, and the tokens that no other part explains.
    pub system: u32,
    /// The tool definitions.
    pub tools: u32,
    /// Summaries, and placeholders of collapsed spans.
    pub memory: u32,
    /// Messages of users and models, including tool calls.
    pub messages: u32,
    /// Tool results.
    pub results: u32,
    /// Attachments and hook output.
    pub attachments: u32,
}

/// The index of messages among the parts.
const MESSAGES: usize = 3;

impl RequestParts {
    /// Divides the tokens of a request into its parts. `content` is the estimate of the view.
    ///
    /// A provider's count includes the system prompt and the tools, so a surplus over the estimates counts as the system
    /// prompt.
    pub fn of(
        total: u64,
        prefix: PrefixTokens,
        content: &TokenBreakdown,
        calibration: Calibration,
    ) -> Self {
        let content = [
            calibration.apply(content.system),
            calibration.apply(content.memory),
            calibration.apply(content.messages),
            calibration.apply(content.results),
            calibration.apply(content.attachments),
        ];
        let known = prefix.total() + content.iter().sum::<u64>();
        let [operator, memory, messages, results, attachments] = content;
        let parts = [
            prefix.system + operator + total.saturating_sub(known),
            prefix.tools,
            memory,
            messages,
            results,
            attachments,
        ];
        // Estimates can exceed a reported total, so the parts are scaled down to it.
        let [system, tools, memory, messages, results, attachments] = scaled(parts, total);
        Self {
            system,
            tools,
            memory,
            messages,
            results,
            attachments,
        }
    }

    /// Returns true if no tokens were counted.
    pub const fn is_empty(&self) -> bool {
        self.system == 0
            && self.tools == 0
            && self.memory == 0
            && self.messages == 0
            && self.results == 0
            && self.attachments == 0
    }
}

/// Scales the parts to integers whose sum is `total`. The largest part gets the rounding error.
fn scaled(parts: [u64; 6], total: u64) -> [u32; 6] {
    let total = u32::try_from(total).unwrap_or(u32::MAX);
    let sum: u128 = parts.iter().copied().map(u128::from).sum();
    // Without known parts, the total counts as messages.
    if sum == 0 {
        let mut all = [0; 6];
        all[MESSAGES] = total;
        return all;
    }
    // The product of two counts can exceed 64 bits.
    let mut scaled = parts
        .map(|part| u32::try_from(u128::from(part) * u128::from(total) / sum).unwrap_or(u32::MAX));
    let largest = (0..6).max_by_key(|at| parts[*at]).unwrap_or(MESSAGES);
    let given: u32 = scaled.iter().sum();
    // Each part is rounded down, so `given` is at most `total`.
    scaled[largest] += total - given;
    scaled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_parts_add_up_to_the_total() {
        assert_eq!(scaled([0; 6], 7), [0, 0, 0, 7, 0, 0]);
        assert_eq!(scaled([1, 1, 1, 0, 0, 0], 10), [3, 3, 4, 0, 0, 0]);
        for total in [0, 1, 999, 1_000_000, u64::from(u32::MAX)] {
            let parts = scaled([u64::MAX / 8, 3, 5, 7, 11, 13], total);
            assert_eq!(
                parts.iter().map(|part| u64::from(*part)).sum::<u64>(),
                total
            );
        }
    }
}
