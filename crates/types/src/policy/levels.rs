//! The settings of levels 1 to 4.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::unit::{Millis, Percent};

/// Level 1: large tool results are stored and replaced by a preview.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolResultPolicy {
    /// Whether the level runs.
    pub enabled: bool,
    /// The most characters of one result.
    pub max_result_chars: u64,
    /// Whether a size that a tool declares is bounded by that.
    pub clamp_declared: bool,
    /// The most characters of all results in one user message as it is sent; 0 for no limit.
    pub max_message_chars: u64,
    /// Rules by tool name.
    pub rules: BTreeMap<Box<str>, ToolResultRule>,
    /// The length of a preview, in characters.
    pub preview_chars: u32,
    /// Where it comes from.
    pub preview_mode: PreviewMode,
    /// How the model is told where the original is.
    pub reference_template: Box<str>,
}

/// How much of one tool's result may stay inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolResultRule {
    /// What the tool declares for itself; the lower of this and the session's limit holds.
    DeclaredChars(u64),
    /// A limit that holds as it is.
    FixedChars(u64),
    /// Never replaced. The value says nothing.
    NeverPersist(bool),
}

/// Where previews of a replaced result come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreviewMode {
    /// The beginning.
    Head,
    /// The beginning and the end, half each.
    HeadAndTail,
}

/// Level 2: user turns are removed on request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnipPolicy {
    /// Whether user inputs carry their id in the view.
    pub tag_turns: bool,
    /// Whether the model is reminded to snip.
    pub nudge: bool,
    /// Messages without a snip until the reminder.
    pub nudge_after_messages: u32,
    /// New tokens without a snip until the reminder.
    pub nudge_after_tokens: u32,
    /// Whether user text that arrives while the model is at work is marked as such in the view.
    pub wrap_interjections: bool,
}

/// Level 3: old tool results are cleared, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MicrocompactPolicy {
    /// Whether the level runs.
    pub enabled: bool,
    /// The tools whose results may be cleared.
    pub clearable_tools: Vec<Box<str>>,
    /// The tools whose results may not be cleared; all others may. Takes the place of the list above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected_tools: Option<Vec<Box<str>>>,
    /// When the prompt cache is cold.
    pub time: TimePolicy,
    /// Through the provider's cache edits.
    pub cached: CachedPolicy,
    /// When the view is large.
    pub size: SizePolicy,
    /// Backwards from the end.
    pub prune: PrunePolicy,
    /// Pictures and documents are cleared too when they count so many tokens or more.
    pub min_media_tokens: u32,
}

/// Clears when so much time has passed that the prompt cache is cold anyway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimePolicy {
    /// Whether the mode runs.
    pub enabled: bool,
    /// The age of the last message of the model.
    pub idle: Millis,
    /// How many of the most recent clearable results stay.
    pub keep_results: u32,
}

/// Leaves the view as it is and returns the provider's cache edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedPolicy {
    /// Whether the mode runs.
    pub enabled: bool,
    /// It acts when more clearable results than this are live.
    pub over_results: u32,
    /// How many of the most recent stay.
    pub keep_results: u32,
}

/// Clears the oldest results when the view is over the warning threshold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizePolicy {
    /// Whether the mode runs.
    pub enabled: bool,
    /// Clears until the clearable results have at most so many tokens.
    pub target_tokens: u32,
    /// How many of the most recent results stay.
    pub keep_results: u32,
    /// It changes nothing when it would free less.
    pub min_freed_tokens: u32,
}

/// Clears backwards from the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrunePolicy {
    /// Whether the mode runs.
    pub enabled: bool,
    /// How many of the most recent user turns stay.
    pub keep_turns: u32,
    /// How many tokens of the most recent results stay.
    pub keep_tokens: u32,
    /// It changes nothing when it would free less.
    pub min_freed_tokens: u32,
}

/// Level 4: spans of old complete rounds are replaced by placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollapsePolicy {
    /// Whether the level runs.
    pub enabled: bool,
    /// Staged spans are committed when the view reaches this share of the effective window.
    pub commit_at_percent: Percent,
    /// At this share all staged spans are committed and level 5 follows.
    pub compact_at_percent: Percent,
    /// Spans are committed until the view is under this share.
    pub target_percent: Percent,
    /// The highest risk of a span that may be staged.
    pub max_risk: Risk,
    /// New tokens between two passes that stage spans.
    pub pass_every_tokens: u32,
    /// A span that would free less is left alone.
    pub min_freed_tokens: u32,
}

/// How much might be lost, between 0 and 1, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Risk(u16);

impl Risk {
    /// From thousandths; no more than all.
    pub const fn from_milli(milli: u16) -> Self {
        Self(if milli > 1_000 { 1_000 } else { milli })
    }

    /// In thousandths.
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
