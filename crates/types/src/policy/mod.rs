//! The policy of a session: all settings that determine its view.
//!
//! The resolved policy is stored with the session. A server's settings apply to new sessions and
//! never change an existing one. Field names equal those of the public contract and of configuration
//! files. Presets ([`preset`]) and overrides are sets of such fields.

mod budget;
mod check;
mod compaction;
mod economy;
mod levels;
pub mod preset;
mod prices;
mod tokens;
mod unit;

use serde::{Deserialize, Serialize};

pub use budget::{ASSUMED_WINDOW_TOKENS, BudgetState, Thresholds, WindowHint};
pub use compaction::{
    AttachmentPolicy, AutocompactPolicy, HookFailureMode, HookPolicy, HookRule, KeptTokens,
    SessionMemoryPolicy, SummaryPolicy, SummaryStyle, ThresholdBasis,
};
pub use economy::EconomyPolicy;
pub use levels::{
    CachedPolicy, CollapsePolicy, MicrocompactPolicy, PreviewMode, PrunePolicy, Risk, SizePolicy,
    SnipPolicy, TimePolicy, ToolResultPolicy, ToolResultRule,
};
pub use preset::{Overlay, OverlayError, Preset};
pub use prices::{Price, Prices};
pub use tokens::{TokenEstimator, TokenPolicy};
pub use unit::{Millis, Percent};

use crate::tokens::TokenCounter;

/// All settings of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The preset that supplies the fields without an override.
    pub preset: Preset,
    /// Limits for appended content and replies.
    pub limits: LimitPolicy,
    /// The method of counting tokens.
    pub tokens: TokenPolicy,
    /// Level 1.
    pub tool_results: ToolResultPolicy,
    /// Level 2.
    pub snip: SnipPolicy,
    /// Level 3.
    pub microcompact: MicrocompactPolicy,
    /// Level 4.
    pub collapse: CollapsePolicy,
    /// Level 5.
    pub autocompact: AutocompactPolicy,
    /// Compactions below the threshold, where they reduce the cost of the session.
    pub economy: EconomyPolicy,
    /// Session memory, with which level 5 needs no further model call.
    pub session_memory: SessionMemoryPolicy,
    /// The model that writes summaries, and its limits.
    pub summary: SummaryPolicy,
    /// The content that is attached again after a compaction.
    pub attachments: AttachmentPolicy,
    /// Calls to the user's own hooks.
    pub hooks: HookPolicy,
    /// The tools that the service provides to the model.
    pub model_tools: ModelToolPolicy,
    /// Context management by the provider.
    pub provider_management: ProviderManagementPolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Preset::default().policy()
    }
}

impl Policy {
    /// Returns the estimator for content without reported usage.
    pub const fn counter(&self) -> TokenCounter {
        TokenCounter::new(&self.tokens)
    }
}

/// Limits for appended content and replies. The lower of these and the server's limits applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitPolicy {
    /// The maximum size of one message in bytes.
    pub max_message_bytes: u64,
    /// The maximum number of messages in one call.
    pub max_messages: u32,
    /// The maximum number of blocks in one message.
    pub max_blocks: u32,
    /// The maximum length of a tool call id in characters.
    pub max_tool_use_id_chars: u32,
    /// The maximum length of a search pattern in characters.
    pub max_pattern_chars: u32,
    /// The maximum number of targets of one snip.
    pub max_snip_targets: u32,
    /// The maximum size of all attributes of one message or session, in bytes.
    pub max_attributes_bytes: u32,
    /// The maximum size of a reply that is not a stream, in bytes.
    pub max_reply_bytes: u32,
    /// The maximum size of a session's working state, in bytes.
    pub max_working_state_bytes: u64,
}

/// A tool that the service provides to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelTool {
    /// Removes user turns from the view.
    Snip,
    /// Reads the original of a tool result.
    ReadToolResult,
    /// Reads messages of the transcript.
    ReadTranscript,
    /// Searches the transcript and the stored results.
    SearchTranscript,
}

impl ModelTool {
    /// All tools in the order in which they are listed.
    pub const ALL: [Self; 4] = [
        Self::Snip,
        Self::ReadToolResult,
        Self::ReadTranscript,
        Self::SearchTranscript,
    ];

    /// Returns the name without the policy's prefix.
    pub const fn base_name(self) -> &'static str {
        match self {
            Self::Snip => "Snip",
            Self::ReadToolResult => "ReadToolResult",
            Self::ReadTranscript => "ReadTranscript",
            Self::SearchTranscript => "SearchTranscript",
        }
    }
}

impl ModelToolPolicy {
    /// Returns the name that the model sees, or `None` if the tool is not enabled.
    pub fn name_of(&self, tool: ModelTool) -> Option<String> {
        let is_given = self.enabled_tools.contains(&tool);
        is_given.then(|| format!("{}{}", self.name_prefix, tool.base_name()))
    }
}

/// The tools that the service provides to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelToolPolicy {
    /// The enabled tools.
    pub enabled_tools: Vec<ModelTool>,
    /// The prefix of all tool names.
    pub name_prefix: Box<str>,
    /// The maximum size of one tool's reply in bytes.
    pub max_answer_bytes: u32,
}

/// Context management by the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderManagementPolicy {
    /// True if the provider clears old thinking.
    pub clear_thinking: bool,
    /// True if the provider clears old tool uses.
    pub clear_tool_uses: bool,
    /// The number of input tokens at which the provider starts to clear.
    pub clear_trigger_tokens: u32,
    /// The minimum number of tokens that the provider clears.
    pub clear_min_tokens: u32,
}
