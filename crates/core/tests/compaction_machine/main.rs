//! The compaction machine, one test for each row of the transition table in decision 0010.

mod case;
mod choosing;
mod ending;
