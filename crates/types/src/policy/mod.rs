//! What a session is allowed to do with its context. The resolved policy is a part of the session, so
//! that a server's settings seed new sessions and never alter an old one.
//!
//! A field here has the name of its field in the public contract and in configuration files; a
//! preset is a file of such fields ([`preset`]), and so is every set of overrides.

mod budget;
mod check;
mod compaction;
mod levels;
pub mod preset;
mod prices;
mod tokens;
mod unit;

use serde::{Deserialize, Serialize};

pub use budget::{BudgetState, Thresholds, WindowHint};
pub use compaction::{
    AttachmentPolicy, AutocompactPolicy, HookFailureMode, HookPolicy, HookRule,
    SessionMemoryPolicy, SummaryPolicy, SummaryStyle, ThresholdBasis,
};
pub use levels::{
    CachedPolicy, CollapsePolicy, MicrocompactPolicy, PreviewMode, PrunePolicy, Risk, SizePolicy,
    SnipPolicy, TimePolicy, ToolResultPolicy, ToolResultRule,
};
pub use preset::{Overlay, OverlayError, Preset};
pub use prices::{Price, Prices};
pub use tokens::{TokenEstimator, TokenPolicy};
pub use unit::{Millis, Percent};

use crate::tokens::Counter;

/// Every setting of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// What everything that nobody set comes from.
    pub preset: Preset,
    /// What may be appended, and how large replies may be.
    pub limits: LimitPolicy,
    /// How tokens are counted.
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
    /// The running summary that makes level 5 cheap.
    pub session_memory: SessionMemoryPolicy,
    /// Which model writes summaries, and how.
    pub summary: SummaryPolicy,
    /// What is attached again after a compaction.
    pub attachments: AttachmentPolicy,
    /// Calls to the user's own hooks.
    pub hooks: HookPolicy,
    /// The tools that the model itself is given.
    pub model_tools: ModelToolPolicy,
    /// Context management that the provider does on its side.
    pub provider_management: ProviderManagementPolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Preset::default().policy()
    }
}

impl Policy {
    /// How what is not reported yet is counted.
    pub const fn counter(&self) -> Counter {
        Counter::new(&self.tokens)
    }
}

/// What may be appended, and how large replies may be; the lower of these and the server's holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitPolicy {
    /// The size of one message.
    pub max_message_bytes: u64,
    /// Messages in one call.
    pub max_messages: u32,
    /// Blocks in one message.
    pub max_blocks: u32,
    /// Characters in a call's id as a caller sends it.
    pub max_tool_use_id_chars: u32,
    /// Characters in a pattern to search for.
    pub max_pattern_chars: u32,
    /// Targets of one snip.
    pub max_snip_targets: u32,
    /// All attributes of one message or session.
    pub max_attributes_bytes: u32,
    /// The largest reply that is not a stream.
    pub max_reply_bytes: u32,
    /// All working state of a session.
    pub max_working_state_bytes: u64,
}

/// A tool that the service has for the model.
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
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 4] = [
        Self::Snip,
        Self::ReadToolResult,
        Self::ReadTranscript,
        Self::SearchTranscript,
    ];

    /// Its name, without a policy's prefix.
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
    /// The name of a tool for the model, when the model is given it.
    pub fn name_of(&self, tool: ModelTool) -> Option<String> {
        let is_given = self.enabled_tools.contains(&tool);
        is_given.then(|| format!("{}{}", self.name_prefix, tool.base_name()))
    }
}

/// The tools that the model itself is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelToolPolicy {
    /// Which of them.
    pub enabled_tools: Vec<ModelTool>,
    /// Put before each tool's name.
    pub name_prefix: Box<str>,
    /// The most bytes of one tool's answer.
    pub max_answer_bytes: u32,
}

/// Context management that the provider does on its side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderManagementPolicy {
    /// Whether old thinking is left to the provider.
    pub clear_thinking: bool,
    /// Whether old tool uses are.
    pub clear_tool_uses: bool,
    /// The provider acts at so many input tokens.
    pub clear_trigger_tokens: u32,
    /// And clears at least so many.
    pub clear_min_tokens: u32,
}
