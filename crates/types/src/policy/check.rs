//! Checks for settings that contradict each other or that would make a level harmful.

use super::{OverlayError, Policy, ToolResultRule};

impl Policy {
    /// Returns all conflicts between settings.
    pub(super) fn validate(&self) -> Vec<OverlayError> {
        let collapse = &self.collapse;
        let auto = &self.autocompact;
        // Each entry has a condition that must hold, the path of the field and the error text.
        let rules = [
            (
                collapse.target_percent < collapse.commit_at_percent,
                "collapse.target_percent",
                "must be less than commit_at_percent",
            ),
            (
                collapse.commit_at_percent <= collapse.compact_at_percent,
                "collapse.commit_at_percent",
                "must not be more than compact_at_percent",
            ),
            (
                auto.compact_at_percent
                    .is_none_or(|share| share.get() >= 1.0),
                "autocompact.compact_at_percent",
                "must be between 1 and 100",
            ),
            (
                auto.keep_min_tokens <= auto.keep_max_tokens,
                "autocompact.keep_min_tokens",
                "must not be more than keep_max_tokens",
            ),
            (
                self.session_memory.keep_min_tokens <= self.session_memory.keep_max_tokens,
                "session_memory.keep_min_tokens",
                "must not be more than keep_max_tokens",
            ),
            (
                self.tool_results.reference_template.contains("{file}"),
                "tool_results.reference_template",
                "must hold {file}",
            ),
            (
                self.tool_results.reference_template.len() <= MAX_TEMPLATE_BYTES,
                "tool_results.reference_template",
                "must have at most 1,000 bytes",
            ),
            (
                (100..=MAX_PREVIEW_CHARS).contains(&self.tool_results.preview_chars),
                "tool_results.preview_chars",
                "must be between 100 and 100,000",
            ),
            (
                self.model_tools.max_answer_bytes >= 1_000,
                "model_tools.max_answer_bytes",
                "must be at least 1,000",
            ),
            (
                is_tool_prefix(&self.model_tools.name_prefix),
                "model_tools.name_prefix",
                "must have at most 64 letters, digits, _ and -",
            ),
            (
                self.tokens.default_window_tokens != Some(0),
                "tokens.default_window_tokens",
                "must be at least 1",
            ),
            (
                !self
                    .tool_results
                    .rules
                    .values()
                    .any(|rule| *rule == ToolResultRule::NeverPersist(false)),
                "tool_results.rules",
                "must not contain never_persist = false: leave the rule out instead",
            ),
        ];
        rules
            .into_iter()
            .filter(|(holds, ..)| !holds)
            .map(|(_, path, message)| OverlayError {
                path: format!("policy.{path}"),
                message: message.into(),
            })
            .collect()
    }
}

const MAX_TEMPLATE_BYTES: usize = 1_000;
const MAX_PREVIEW_CHARS: u32 = 100_000;

fn is_tool_prefix(prefix: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    prefix.len() <= 64 && prefix.bytes().all(legal)
}
