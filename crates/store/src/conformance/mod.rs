//! The suite that every engine passes: what the trait's words mean, as code.
//!
//! A failed check panics, as in a test. Not here: what only one engine promises, such as what survives
//! a power loss.

mod appends;
mod by_name;
mod harness;
mod intents;
mod leader_tasks;
mod model;
mod queue;
mod races;
mod sessions;
mod tombstones;

pub use self::by_name::ByName;
pub use self::harness::Harness;
pub use self::model::properties;

/// Runs everything but [`properties`], each check on a fresh store. Needs a runtime with several
/// threads, because races are among what is checked.
pub async fn run(harness: &dyn Harness) {
    appends::run(harness).await;
    sessions::run(harness).await;
    queue::run(harness).await;
    tombstones::run(harness).await;
    leader_tasks::run(harness).await;
    intents::run(harness).await;
    races::run(harness).await;
}
