//! The commands that people type. Those that talk to a server know its contract alone; those that open a store stand beside
//! the server; `serve` and `worker` run it.

mod allocator;
mod backup;
mod client;
mod commands;
mod compact_store;
mod completions;
mod config;
mod delete;
mod demo;
mod each_file;
mod export;
mod files;
mod health;
mod import;
mod inspect;
mod keys;
mod migrate;
mod output;
mod replay;
mod restore;
mod retention;
mod schema;
mod serve;
mod sessions;
mod settings;
mod terminal;
mod verify;
mod verify_store;
mod view;
mod worker;

pub use commands::{Cli, error_text};
