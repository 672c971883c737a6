//! The engine: sessions in memory and their transactions, turns, compactions, quotas, backups, and migration between
//! stores.
//!
//! Transport, the names of settings, and the worker that updates session memory live in other crates.

pub mod background;
pub mod backup;
pub mod call;
pub mod change;
pub mod clock;
pub mod compaction;
pub mod creation;
pub mod deletion;
mod engine;
mod error;
pub mod export;
pub mod fair_turns;
pub mod filter;
pub mod fork;
pub mod history;
pub mod listing;
pub mod maintenance;
pub mod migrate;
pub mod models;
pub mod originals;
pub mod projects;
pub mod quotas;
pub mod results;
pub mod search_threads;
pub mod searching;
pub mod sessions;
mod span_summaries;
pub mod staging;
pub mod subagents;
pub mod tally;
#[cfg(test)]
mod test_engine;
pub mod tools;
pub mod turn;

pub use self::engine::Engine;
pub use self::error::{BoxError, EngineError};
