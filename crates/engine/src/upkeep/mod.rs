//! The options of upkeep. `palimpsest-server` runs it.

mod rules;

pub use self::rules::{Age, Keep, OwnKeep, RetentionConfig, SweepConfig, day_of};
