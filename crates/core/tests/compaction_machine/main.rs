//! The compaction machine, one test for each row of the transition table in decision 0010.

#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::format_push_string,
    reason = "a case that is written wrongly should stop where it stands"
)]

mod case;
mod choosing;
mod ending;
