//! Counts of needs.

/// The number of needs and of those that a text shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecallCounts {
    /// The number of needs that the text shows.
    pub shown: usize,
    /// The number of needs.
    pub needs: usize,
}

impl RecallCounts {
    pub(super) fn count(&mut self, is_shown: bool) {
        self.needs += 1;
        self.shown += usize::from(is_shown);
    }

    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.shown += other.shown;
        self.needs += other.needs;
    }
}
