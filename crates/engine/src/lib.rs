//! The engine: sessions in memory and their transactions, quotas, backups, and migration between stores.
//!
//! Transport, the names of settings, and the worker that updates session memory live in other crates.

pub mod background;
pub mod backup;
pub mod call;
pub mod clock;
mod error;
pub mod maintenance;
pub mod migrate;
pub mod models;
pub mod quotas;
pub mod sessions;
pub mod tally;

pub use self::error::EngineError;
