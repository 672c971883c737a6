//! The conformance suite, which every store engine must pass. It is the executable definition of the
//! [`Store`](palimpsest_store::Store) contract.
//!
//! [`MemoryLog`] is the reference implementation, for tests of the crates that use a store.
//!
//! A failed check panics, as in a test. Properties of single engines, such as durability after a power
//! loss, are tested elsewhere.

mod appends;
mod harness;
mod intents;
mod latest_incarnation;
mod leader_tasks;
mod memory;
mod model;
mod queue;
mod races;
mod sessions;
mod subagents;
mod tips;
mod tombstones;

pub use self::harness::{Harness, bytes};
pub use self::latest_incarnation::LatestIncarnation;
pub use self::memory::MemoryLog;
pub use self::model::properties;

/// Runs all checks except [`properties`], each on a new store. Needs a multi-threaded runtime, because
/// some checks test races.
pub async fn run(harness: &dyn Harness) {
    appends::run(harness).await;
    sessions::run(harness).await;
    queue::run(harness).await;
    tombstones::run(harness).await;
    leader_tasks::run(harness).await;
    intents::run(harness).await;
    tips::run(harness).await;
    subagents::run(harness).await;
    races::run(harness).await;
}
