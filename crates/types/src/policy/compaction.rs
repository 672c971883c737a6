//! The settings of level 5: triggers of a compaction, the writer of the summary, and the attachments
//! after it.

use serde::{Deserialize, Serialize};

use super::unit::{Millis, Percent};

/// The quantity from which the compaction threshold is calculated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThresholdBasis {
    /// The window minus a reserve for output and a buffer.
    Reserve,
    /// A percentage of the window.
    WindowPercent,
    /// The model's input limit. Without one, the window minus the output reserve.
    InputLimit,
}

/// Level 5: replaces all old messages by a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct AutocompactPolicy {
    /// True if compactions start automatically.
    pub enabled: bool,
    /// True if callers may request a compaction.
    pub manual_enabled: bool,
    /// The method by which the thresholds are calculated.
    pub basis: ThresholdBasis,
    /// The maximum number of tokens reserved for output.
    pub output_reserve_tokens: u32,
    /// The distance of the compaction threshold below the effective window, in tokens.
    pub compact_buffer_tokens: u32,
    /// The distance of the warning threshold below the compaction threshold, in tokens.
    pub warn_buffer_tokens: u32,
    /// The distance of the error threshold below the compaction threshold, in tokens. Default: that
    /// of the warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_buffer_tokens: Option<u32>,
    /// The distance of the blocking threshold below the effective window, in tokens.
    pub block_buffer_tokens: u32,
    /// True if the block buffer counts from the end of the window instead of the effective window.
    pub block_from_window: bool,
    /// The blocking threshold in tokens. Overrides the block buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_at_tokens: Option<u32>,
    /// The compaction threshold in percent. The basis determines the quantity that it is a
    /// percentage of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_at_percent: Option<Percent>,
    /// The critical threshold in percent of the window. Used with the basis `window_percent` only.
    pub critical_at_percent: Percent,
    /// The blocking threshold in percent of the window. Overrides the block buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_at_percent: Option<Percent>,
    /// True if a compaction tries session memory before a model.
    pub session_memory_first: bool,
    /// True if a compaction waits until the provider rejects a prompt.
    pub reactive_only: bool,
    /// The share of the window at which a reactive compaction starts without a rejection. Default:
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactive_percent: Option<Percent>,
    /// True if a model writes the summary ahead of time, starting at the warning threshold.
    pub prepare_ahead: bool,
    /// True if the oldest rounds are dropped without a summary when the view is critical and nothing
    /// else freed enough tokens.
    pub truncate_when_critical: bool,
    /// The number of consecutive failures after which automatic compaction stops.
    pub max_failures: u32,
    /// The minimum input of an automatic compaction, in tokens. With less input it does nothing.
    pub min_input_tokens: u32,
    /// The maximum input of one compaction, in tokens. A larger input takes several compactions. 0:
    /// no limit.
    pub max_input_tokens: u32,
    /// The number of recent messages that stay verbatim after a summary by a model.
    pub keep_messages: u32,
    /// The minimum number of tokens that stay verbatim. Keeps more than `keep_messages` messages if
    /// these are small.
    pub keep_min_tokens: u32,
    /// The maximum number of tokens to which `keep_min_tokens` may extend the kept messages.
    pub keep_max_tokens: u32,
    /// The time limit of a compaction.
    pub timeout: Millis,
}

/// Session memory: the running summary of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionMemoryPolicy {
    /// True if session memory is maintained.
    pub enabled: bool,
    /// True if session memory is maintained for subagent sessions too.
    pub include_subagents: bool,
    /// The context size at which the first update is due, in tokens.
    pub start_tokens: u32,
    /// The minimum growth between updates, in tokens.
    pub update_tokens: u32,
    /// The number of tool calls that make an update due once the growth is reached.
    pub update_tool_calls: u32,
    /// The maximum size of one section, in tokens.
    pub max_section_tokens: u32,
    /// The maximum size of all sections, in tokens.
    pub max_tokens: u32,
    /// The maximum time that a compaction waits for an update in flight.
    pub wait: Millis,
    /// The age at which an unfinished update counts as orphaned.
    pub stale_after: Millis,
    /// The minimum number of recent tokens that a compaction keeps verbatim.
    pub keep_min_tokens: u32,
    /// The minimum number of recent messages with text that a compaction keeps verbatim.
    pub keep_min_messages: u32,
    /// The maximum number of tokens to which both minimums may extend the kept messages.
    pub keep_max_tokens: u32,
}

/// The limits of the recent tokens that a compaction from session memory keeps verbatim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptTokens {
    /// The minimum.
    pub min: u64,
    /// The maximum to which both minimums may extend the kept messages.
    pub max: u64,
}

impl SessionMemoryPolicy {
    /// Returns the limits for a compaction threshold. They are at most an eighth and a third of it. Kept messages that
    /// nearly fill a small window would make the next compaction due after a few messages, and each compaction writes
    /// the prompt cache again.
    pub fn kept_tokens(&self, threshold: u64) -> KeptTokens {
        KeptTokens {
            min: u64::from(self.keep_min_tokens).min(threshold / 8),
            max: u64::from(self.keep_max_tokens).min(threshold / 3),
        }
    }
}

/// The form of a model's summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryStyle {
    /// Nine sections, from the request to the next step.
    NineSections,
    /// Six sections: done, doing, files, next, constraints, decisions.
    Brief,
}

/// The model that writes summaries, and its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryPolicy {
    /// The name of the model. Default: the server's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// The model that is used if `model` fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_model: Option<Box<str>>,
    /// The form of the summary.
    pub style: SummaryStyle,
    /// Additional instructions for every summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Box<str>>,
    /// The maximum output of the model, in tokens.
    pub max_output_tokens: u32,
    /// The maximum number of retries with a shorter input after the provider rejected the prompt as
    /// too long.
    pub max_retries: u32,
    /// True if secrets are redacted before text is sent to a model or stored in a summary.
    pub redact_secrets: bool,
    /// True if this model updates session memory too.
    pub use_for_session_memory: bool,
    /// The share of the input that a retry drops if the error does not state the excess.
    pub retry_drop_percent: Percent,
}

/// The content that is attached again after a compaction. A maximum of 0 disables a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct AttachmentPolicy {
    /// The maximum number of recently read files.
    pub max_files: u32,
    /// The maximum size of one file, in tokens.
    pub max_file_tokens: u32,
    /// The maximum size of all files, in tokens.
    pub max_files_tokens: u32,
    /// The maximum size of one invoked skill, in tokens.
    pub max_skill_tokens: u32,
    /// The maximum size of all skills, in tokens.
    pub max_skills_tokens: u32,
    /// The names of instruction files.
    pub instruction_files: Vec<Box<str>>,
    /// True if tasks are attached.
    pub tasks: bool,
    /// True if tool, agent and MCP capabilities are attached.
    pub capabilities: bool,
    /// True if permission rules are attached.
    pub permissions: bool,
    /// True if decisions, constraints and known issues are attached.
    pub notes: bool,
}

/// The reaction to a hook that fails or times out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookFailureMode {
    /// Continue as if the hook had returned nothing.
    Continue,
    /// Stop the compaction.
    Stop,
}

/// The settings of one hook call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookRule {
    /// True if the hook is called.
    pub enabled: bool,
    /// The time limit of the call.
    pub timeout: Millis,
    /// The reaction to a failure.
    pub on_failure: HookFailureMode,
}

/// The settings of calls to the user's own hooks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookPolicy {
    /// The name of an endpoint in the server's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Box<str>>,
    /// The hook before a compaction.
    pub pre_compact: HookRule,
    /// The hook after a compaction was computed and before it takes effect.
    pub post_compact: HookRule,
    /// The hook at the start of a new view.
    pub session_start: HookRule,
}

#[cfg(test)]
mod tests {
    use super::KeptTokens;
    use crate::policy::{Policy, WindowHint};

    #[test]
    fn a_small_window_keeps_fewer_tokens_than_the_policy() {
        let policy = Policy::default();
        let kept = |window_tokens| {
            let hint = WindowHint {
                window_tokens: Some(window_tokens),
                ..WindowHint::default()
            };
            let threshold = policy.thresholds(hint).compact;
            policy.session_memory.kept_tokens(threshold)
        };
        let of_policy = KeptTokens {
            min: 10_000,
            max: 40_000,
        };
        assert_eq!(kept(200_000), of_policy);
        // The threshold is 17,000 tokens.
        let reduced = KeptTokens {
            min: 2_125,
            max: 5_666,
        };
        assert_eq!(kept(50_000), reduced);
    }
}
