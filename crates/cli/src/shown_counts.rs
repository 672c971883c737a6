//! The JSON form of the counts of `recall` and `tune`.

use palimpsest_transcripts::replay::recall::RecallCounts;
use serde::Serialize;

/// The number of needs, and of those that a text shows.
#[derive(Serialize)]
pub(super) struct ShownCounts {
    shown: usize,
    all: usize,
}

impl From<RecallCounts> for ShownCounts {
    fn from(counts: RecallCounts) -> Self {
        Self {
            shown: counts.shown,
            all: counts.needs,
        }
    }
}
