//! The summaries of a replay's compactions, to be read by people.

use std::fmt::Write as _;

use super::run::ReplayResults;
use crate::output::number;

/// All of them, as one document.
pub(super) fn write(replayed: &ReplayResults) -> String {
    let mut out = String::new();
    for file in &replayed.files {
        for (policy, measured) in replayed.policies.iter().zip(&file.measured) {
            for (at, compaction) in (1..).zip(&measured.compactions) {
                // Writing to a string cannot fail.
                let _ = write!(
                    out,
                    "<!-- {}, {policy}, compaction {at} ({}) before line {}: {} tokens became {} -->\n\n{}\n\n",
                    file.file,
                    compaction.strategy_name(),
                    compaction.line,
                    number(compaction.before_tokens),
                    number(compaction.after_tokens),
                    compaction.summary,
                );
            }
        }
    }
    out
}
