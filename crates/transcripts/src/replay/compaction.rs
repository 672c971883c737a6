//! One compaction of a replay, as reports show it.

use palimpsest_core::session::Strategy;

use super::survival::Survival;

/// A compaction of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// The line that came last.
    pub line: usize,
    /// How its summary was made.
    pub strategy: Strategy,
    /// The view before, in tokens.
    pub before_tokens: u64,
    /// The view after.
    pub after_tokens: u64,
    /// The summary, with the frame around it.
    pub summary: Box<str>,
    /// Of the facts in what left, those that its messages show.
    pub survived: Survival,
    /// Whether what the user said last is in the view, word for word.
    pub keeps_latest: bool,
}

impl Compaction {
    /// The ways in which summaries are made in a replay.
    pub const MEANS: [&str; 2] = ["with session memory", "from structure"];

    /// How its summary was made.
    pub const fn means(&self) -> &'static str {
        match self.strategy {
            Strategy::SessionMemory => Self::MEANS[0],
            _ => Self::MEANS[1],
        }
    }
}
