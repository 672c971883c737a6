//! The state machine of every compaction, whatever its trigger, the source of its summary and its hooks.
//!
//! A driver gets the next step from the machine, performs the step and reports the result. The machine performs no I/O,
//! reads no clock and changes no session:
//!
//! ```text
//!  New ─▶ Comparing ─▶ Choosing ──Compacted──────────────────────────────▶ Ended
//!                         │ CompactionStarted                               ▲ ▲
//!                         ▼                                                 │ │
//!                      Started ──veto / failed──────────────────────────────┘ │
//!                         │ summary        └─ delegated: Running              │
//!                         ▼                      CommitSummary ─ deliver ─┐   │
//!                      Finishing ◀────────────────────────────────────────┘   │
//!                         └── Compacted / SummaryPrepared / Failed ───────────┘
//! ```
//!
//! The durable state of a compaction is in the log. The machine holds only the state of one attempt, so a crash loses
//! nothing that the recovery needs.

mod choosing;
mod finishing;
mod machine;
mod request;
mod started;
mod step;

pub use self::machine::CompactionMachine;
pub use self::request::{CompactionRequest, Purpose};
pub use self::step::{
    CompactionContext, CompactionOutcome, HookAnswer, HookRequest, Preview, StartedCompaction,
    Step, StepResult, SummaryFailure, SummaryTask, Wait,
};
