//! The settings of level 5: when it acts, what writes the summary, and what comes back after it.

use serde::{Deserialize, Serialize};

use super::unit::{Millis, Percent};

/// Where the threshold of level 5 lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThresholdBasis {
    /// The window less a reserve for output and a buffer.
    Reserve,
    /// A share of the window.
    WindowPercent,
    /// The model's input limit if it has one, else the window less the output reserve.
    InputLimit,
}

/// Level 5: everything old is replaced by a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct AutocompactPolicy {
    /// Whether it starts by itself.
    pub enabled: bool,
    /// Whether it may be asked for.
    pub manual_enabled: bool,
    /// How the thresholds are found.
    pub basis: ThresholdBasis,
    /// The most that is reserved for output.
    pub output_reserve_tokens: u32,
    /// Compact so far below the effective window.
    pub compact_buffer_tokens: u32,
    /// Warn so far below the compaction threshold.
    pub warn_buffer_tokens: u32,
    /// A caller shows an error so far below the compaction threshold; as the warning when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_buffer_tokens: Option<u32>,
    /// Block so far below the effective window.
    pub block_buffer_tokens: u32,
    /// True if the block buffer counts from the end of the window instead of the effective window.
    pub block_from_window: bool,
    /// Block at so many tokens instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_at_tokens: Option<u32>,
    /// Compact at this share; what it is a share of depends on the basis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_at_percent: Option<Percent>,
    /// With a share of the window: the state is critical at this share.
    pub critical_at_percent: Percent,
    /// Block at this share of the window instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_at_percent: Option<Percent>,
    /// Whether session memory is tried first.
    pub session_memory_first: bool,
    /// Whether it waits for the provider to refuse a prompt.
    pub reactive_only: bool,
    /// The same, but at this share of the window it does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactive_percent: Option<Percent>,
    /// Whether a model's summary is written ahead, from the warning threshold on.
    pub prepare_ahead: bool,
    /// True if the oldest rounds leave without a summary where a view is critical and nothing else made
    /// room.
    pub truncate_when_critical: bool,
    /// Failed attempts in a row after which it stops.
    pub max_failures: u32,
    /// With less than this to summarise an automatic compaction does nothing.
    pub min_input_tokens: u32,
    /// The most that one compaction summarises; more takes several. 0 for no limit.
    pub max_input_tokens: u32,
    /// How many messages stay verbatim after a summary by a model.
    pub keep_messages: u32,
    /// The least tokens that stay verbatim: more messages than `keep_messages`, where these are small.
    pub keep_min_tokens: u32,
    /// No message stays for `keep_min_tokens` beyond this many tokens.
    pub keep_max_tokens: u32,
    /// How long a compaction may take.
    pub timeout: Millis,
}

/// The running summary of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionMemoryPolicy {
    /// Whether it is kept.
    pub enabled: bool,
    /// Whether it is kept for sessions that have a parent.
    pub include_subagents: bool,
    /// The first update is due at so many tokens of context.
    pub start_tokens: u32,
    /// The least growth between updates.
    pub update_tokens: u32,
    /// Tool calls that make an update due once the growth is reached.
    pub update_tool_calls: u32,
    /// The most tokens of a section.
    pub max_section_tokens: u32,
    /// The most tokens of all sections.
    pub max_tokens: u32,
    /// How long a compaction waits for an update in flight.
    pub wait: Millis,
    /// An update that is older counts as dead.
    pub stale_after: Millis,
    /// A compaction keeps at least so many tokens of recent messages verbatim.
    pub keep_min_tokens: u32,
    /// And at least so many messages with text.
    pub keep_min_messages: u32,
    /// The widening to reach these stops here.
    pub keep_max_tokens: u32,
}

/// The form of a model's summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryStyle {
    /// Nine sections, from the request to the next step.
    NineSections,
    /// Done, doing, files, next, constraints, decisions.
    Brief,
}

/// Which model writes summaries, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryPolicy {
    /// The model; the server's when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// The model that is tried when that one fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_model: Option<Box<str>>,
    /// The form of the summary.
    pub style: SummaryStyle,
    /// Standing instructions for every summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Box<str>>,
    /// The most tokens that the model may write.
    pub max_output_tokens: u32,
    /// Retries with a shorter input when the prompt is too long.
    pub max_retries: u32,
    /// Whether secrets are removed before anything is sent or stored in a summary.
    pub redact_secrets: bool,
    /// Whether session memory is kept by this model too.
    pub use_for_session_memory: bool,
    /// What a retry drops when the error does not say how much is too much.
    pub retry_drop_percent: Percent,
}

/// What is attached again after a compaction. A maximum of 0 turns a kind off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct AttachmentPolicy {
    /// Recently read files, at most.
    pub max_files: u32,
    /// Tokens of one file.
    pub max_file_tokens: u32,
    /// Tokens of all files.
    pub max_files_tokens: u32,
    /// Tokens of one invoked skill.
    pub max_skill_tokens: u32,
    /// Tokens of all skills.
    pub max_skills_tokens: u32,
    /// Names of instruction files.
    pub instruction_files: Vec<Box<str>>,
    /// Whether tasks are attached.
    pub tasks: bool,
    /// Whether tool, agent and MCP capabilities are attached.
    pub capabilities: bool,
    /// Whether permission rules are attached.
    pub permissions: bool,
    /// Whether decisions, constraints and known issues are attached.
    pub notes: bool,
}

/// What happens when a hook fails or does not answer in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookFailureMode {
    /// Go on as if it had answered with nothing.
    Continue,
    /// Stop the compaction.
    Stop,
}

/// How one hook is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookRule {
    /// Whether it is called.
    pub enabled: bool,
    /// The deadline of the call.
    pub timeout: Millis,
    /// What a failure does.
    pub on_failure: HookFailureMode,
}

/// Calls to the user's own hooks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookPolicy {
    /// The name of an endpoint in the server's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Box<str>>,
    /// Before a compaction.
    pub pre_compact: HookRule,
    /// After a compaction was computed and before it takes effect.
    pub post_compact: HookRule,
    /// When a view begins anew.
    pub session_start: HookRule,
}
