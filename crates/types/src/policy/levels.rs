//! The settings of levels 1 to 4.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::unit::{Millis, Percent};

/// Level 1: stores large tool results and replaces them by a preview.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolResultPolicy {
    /// True if the level is enabled.
    pub enabled: bool,
    /// The maximum size of one result in characters.
    pub max_result_chars: u64,
    /// True if `max_result_chars` also limits the size that a tool declares.
    pub clamp_declared: bool,
    /// The maximum size of all results in one user message as sent, in characters. 0: no limit.
    pub max_message_chars: u64,
    /// The rules by tool name.
    pub rules: BTreeMap<Box<str>, ToolResultRule>,
    /// The length of a preview in characters.
    pub preview_chars: u32,
    /// The part of the result that a preview shows.
    pub preview_mode: PreviewMode,
    /// The template of the text that refers the model to the original.
    pub reference_template: Box<str>,
}

/// The limit for one tool's results that stay inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolResultRule {
    /// The limit that the tool declares, in characters. The lower of this and the session's limit applies.
    DeclaredChars(u64),
    /// A fixed limit in characters. The session's limit does not apply.
    FixedChars(u64),
    /// The result is never replaced. The value has no meaning.
    NeverPersist(bool),
}

/// The part of a replaced result that its preview shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreviewMode {
    /// The beginning of the result.
    Head,
    /// The beginning and the end, one half each.
    HeadAndTail,
}

/// Level 2: removes user turns on request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnipPolicy {
    /// True if the view shows the id of each user input.
    pub tag_turns: bool,
    /// True if the view reminds the model to snip.
    pub nudge: bool,
    /// The number of messages without a snip after which the reminder is due.
    pub nudge_after_messages: u32,
    /// The number of new tokens without a snip after which the reminder is due.
    pub nudge_after_tokens: u32,
    /// True if the view marks user text that arrived while the model was working.
    pub wrap_interjections: bool,
}

/// Level 3: clears old tool results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MicrocompactPolicy {
    /// True if the level is enabled.
    pub enabled: bool,
    /// The tools whose results may be cleared.
    pub clearable_tools: Vec<Box<str>>,
    /// The tools whose results may not be cleared; all others may. Overrides `clearable_tools`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected_tools: Option<Vec<Box<str>>>,
    /// The settings for clearing when the prompt cache has expired.
    pub time: TimePolicy,
    /// The settings for clearing through the provider's cache edits.
    pub cached: CachedPolicy,
    /// The settings for clearing when the view is large.
    pub size: SizePolicy,
    /// The settings for clearing backwards from the end.
    pub prune: PrunePolicy,
    /// The minimum size, in tokens, at which a result with an image is cleared too. Documents have no minimum.
    pub min_media_tokens: u32,
}

/// Clears results after an idle time that is long enough for the prompt cache to expire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimePolicy {
    /// True if the mode is enabled.
    pub enabled: bool,
    /// The minimum age of the model's last message.
    pub idle: Millis,
    /// The number of most recent clearable results that stay.
    pub keep_results: u32,
}

/// Keeps the view unchanged and returns cache edits for the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedPolicy {
    /// True if the mode is enabled.
    pub enabled: bool,
    /// The number of live clearable results above which the mode acts.
    pub over_results: u32,
    /// The number of most recent results that stay.
    pub keep_results: u32,
}

/// Clears the oldest results when the view exceeds the warning threshold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizePolicy {
    /// True if the mode is enabled.
    pub enabled: bool,
    /// The target size of all clearable results, in tokens.
    pub target_tokens: u32,
    /// The number of most recent results that stay.
    pub keep_results: u32,
    /// The minimum number of freed tokens. Below it nothing is cleared.
    pub min_freed_tokens: u32,
}

/// Clears results backwards from the end of the view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrunePolicy {
    /// True if the mode is enabled.
    pub enabled: bool,
    /// The number of most recent user turns that stay.
    pub keep_turns: u32,
    /// The number of tokens of the most recent results that stay.
    pub keep_tokens: u32,
    /// The minimum number of freed tokens. Below it nothing is cleared.
    pub min_freed_tokens: u32,
}

/// Level 4: replaces spans of old complete rounds by placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollapsePolicy {
    /// True if the level is enabled.
    pub enabled: bool,
    /// The share of the effective window at which staged spans are committed.
    pub commit_at_percent: Percent,
    /// The share at which all staged spans are committed and level 5 follows.
    pub compact_at_percent: Percent,
    /// The share below which no further spans are committed.
    pub target_percent: Percent,
    /// The maximum risk of a span that may be staged.
    pub max_risk: Risk,
    /// The number of new tokens between two passes that stage spans.
    pub pass_every_tokens: u32,
    /// The minimum number of tokens that a span must free.
    pub min_freed_tokens: u32,
    /// True if the server's model writes the summaries of staged spans.
    pub summarize_with_model: bool,
}

/// The estimated loss of information by a collapse, between 0 and 1, stored in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Risk(u16);

impl Risk {
    /// Creates a risk from thousandths. Values above 1,000 become 1,000.
    pub const fn from_milli(milli: u16) -> Self {
        Self(if milli > 1_000 { 1_000 } else { milli })
    }

    /// Returns the risk in thousandths.
    pub const fn milli(self) -> u16 {
        self.0
    }
}

impl Serialize for Risk {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 1_000.0)
    }
}

impl<'de> Deserialize<'de> for Risk {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let risk = f64::deserialize(deserializer)?;
        if !(0.0..=1.0).contains(&risk) {
            return Err(serde::de::Error::custom("must be between 0 and 1"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it lies between 0 and 1,000"
        )]
        Ok(Self((risk * 1_000.0).round() as u16))
    }
}
