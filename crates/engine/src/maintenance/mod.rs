//! Options of the maintenance tasks. `palimpsest-server` runs the tasks.

mod rules;

pub use self::rules::{Age, OwnKeep, RetentionConfig, RetentionLimits, SweepConfig, day_of};
