//! One compaction of a replay, as reports show it.

use palimpsest_core::session::Strategy;

use super::survival::Survival;

/// A compaction of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayCompaction {
    /// The line of the latest message.
    pub line: usize,
    /// The method by which the summary was written.
    pub strategy: Strategy,
    /// The size of the view before, in tokens.
    pub before_tokens: u64,
    /// The size of the view after, in tokens.
    pub after_tokens: u64,
    /// The summary including its frame.
    pub summary: Box<str>,
    /// The facts of the replaced messages that the new messages preserve.
    pub survival: Survival,
    /// True if the view contains the latest user input verbatim.
    pub keeps_latest: bool,
}

impl ReplayCompaction {
    /// The names of the methods by which a replay writes summaries.
    pub const MEANS: [&str; 2] = ["with session memory", "from structure"];

    /// Returns the name of the method by which the summary was written.
    pub const fn strategy_name(&self) -> &'static str {
        match self.strategy {
            Strategy::SessionMemory => Self::MEANS[0],
            _ => Self::MEANS[1],
        }
    }
}
