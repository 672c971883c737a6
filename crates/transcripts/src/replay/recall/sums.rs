//! Sums of recall over compactions.

use std::collections::BTreeMap;

use super::counts::RecallCounts;
use super::{HORIZONS, MeasuredCompaction, NeedKind, TextSource};

/// The recall of one kind of text, summed over compactions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecallSums {
    /// The number of compactions.
    pub compactions: usize,
    /// The length of all texts in characters.
    pub chars: usize,
    /// All needs.
    pub all: RecallCounts,
    /// The needs that nothing after the compaction had shown before their use.
    pub from_memory: RecallCounts,
    /// The needs by kind.
    pub by_kind: BTreeMap<NeedKind, RecallCounts>,
    /// The needs of the first calls, in the order of [`HORIZONS`].
    pub by_horizon: [RecallCounts; HORIZONS.len()],
}

impl RecallSums {
    /// Sums up compactions, by the source of the text.
    pub fn of<'a>(
        compactions: impl IntoIterator<Item = &'a MeasuredCompaction>,
    ) -> BTreeMap<TextSource, Self> {
        let mut sums: BTreeMap<TextSource, Self> = BTreeMap::new();
        for compaction in compactions {
            for text in &compaction.texts {
                let sum = sums.entry(text.source).or_default();
                sum.compactions += 1;
                sum.chars += text.chars;
                for (need, is_shown) in compaction.needs.iter().zip(&text.shows) {
                    sum.all.count(*is_shown);
                    sum.by_kind.entry(need.kind).or_default().count(*is_shown);
                    if need.is_from_memory {
                        sum.from_memory.count(*is_shown);
                    }
                    for (horizon, counts) in HORIZONS.iter().zip(&mut sum.by_horizon) {
                        if need.call <= *horizon {
                            counts.count(*is_shown);
                        }
                    }
                }
            }
        }
        sums
    }

    /// Returns the average length of a text in characters.
    pub fn mean_chars(&self) -> usize {
        self.chars.checked_div(self.compactions).unwrap_or(0)
    }
}
