//! Background maintenance of a store's data: complete removal of deleted sessions, retention with exports, and sweeps
//! of orphaned blobs.
//!
//! Every step is idempotent and no state is kept between passes, so an interrupted pass needs no recovery. A pass rests
//! in proportion to its work, to keep the latency of calls low.

mod clock_check;
mod config;
mod duty_cycle;
mod export;
mod families;
mod leader_task;
mod orphans;
pub mod referenced_files;
mod removal;
mod retention;
mod selection;
mod stats;
mod tasks;

pub use self::clock_check::{ClockCheck, ClockJump};
pub use self::config::{
    MaxAge, RetentionConfig, RetentionLimits, RetentionOverride, SweepConfig, day_of,
};
pub use self::duty_cycle::DutyCycle;
pub use self::leader_task::LeaderTask;
pub use self::orphans::{SweepError, sweep};
pub use self::retention::{PlannedDeletion, RetentionError, RetentionPreview, preview};
pub use self::selection::RetentionReason;
pub use self::stats::MaintenanceStats;
pub use self::tasks::Maintenance;
