//! Recall: the share of what an agent uses after a compaction that a text still shows.
//!
//! A need is a name that the agent uses in its next tool calls, and that the conversation before the compaction
//! contained. Names are paths, identifiers in searches, and files in commands. The same needs are searched in several
//! texts: the summary of the program that wrote the transcript, the service's summary, its whole view, and the end of
//! the conversation at the same length.
//!
//! A transcript without compactions is measured at the points where the policy compacts.

mod conversation;
mod counts;
mod edits;
mod needs;
mod points;
mod shown;
mod sums;
#[cfg(test)]
mod tests;
mod texts;
mod uses;

pub use conversation::{Mention, MentionPlace};
pub use counts::RecallCounts;
pub use needs::NeedKind;
pub use points::{RecallOptions, recall};
pub use sums::RecallSums;
pub(super) use uses::UseCounter;
pub use uses::UseCounts;

/// The horizons in tool calls after the compaction. The last one is the maximum.
pub const HORIZONS: [usize; 3] = [10, 30, 60];

/// The compactions of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionRecall {
    /// The compactions after which the agent needed something.
    pub compactions: Vec<MeasuredCompaction>,
    /// The number of the other compactions.
    pub without_needs: usize,
}

/// A compaction and what the agent needed after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredCompaction {
    /// The line of the last message before the compaction.
    pub line: usize,
    /// True if the program that wrote the transcript compacted here.
    pub is_recorded: bool,
    /// The number of tool calls after it, at most 60.
    pub calls: usize,
    /// The service's summary with its frame.
    pub summary: Box<str>,
    /// The working directory of the session.
    pub root: Option<Box<str>>,
    /// The needs in order of use.
    pub needs: Vec<Need>,
    /// The texts, each with the needs that it shows.
    pub texts: Vec<MeasuredText>,
}

/// A name that the agent used after a compaction and that the conversation before contained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The kind.
    pub kind: NeedKind,
    /// The name.
    pub text: Box<str>,
    /// The number of the call that used it first, counted from 1.
    pub call: usize,
    /// True if no result or message after the compaction contained the name before this call.
    pub is_from_memory: bool,
    /// The last mention before the compaction.
    pub last_mention: Mention,
}

/// The texts whose recall is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TextSource {
    /// The summary in the transcript, with the messages that the program kept or attached.
    Recorded,
    /// The end of the conversation, as long as the recorded summary.
    TailOfRecorded,
    /// The recorded summary with the names of the service's summary that it leaves out.
    RecordedWithNames,
    /// The service's summary.
    Summary,
    /// The end of the conversation, as long as the service's summary.
    TailOfSummary,
    /// The service's whole view after the compaction.
    View,
    /// The end of the conversation, as long as the service's view.
    TailOfView,
    /// A text of the caller, by its index.
    Given(usize),
}

/// A text and the needs that it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredText {
    /// The text.
    pub source: TextSource,
    /// The length in characters.
    pub chars: usize,
    /// For each need, true if the text contains it.
    pub shows: Vec<bool>,
}
