//! The options of upkeep. `palimpsest-server` runs it.

mod rules;

pub use self::rules::{Age, OwnKeep, RetentionConfig, RetentionLimits, SweepConfig, day_of};
