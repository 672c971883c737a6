//! The commands of the `palimpsest` binary, one module per command. `commands` defines the command line.
//!
//! This crate may import every other crate, and no crate imports it. Commands that call a server use the public
//! contract only. Commands that open a store share code with the server. `serve` and `worker` run the server, which
//! is in `palimpsest-server`.

mod agent_logs;
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
mod man;
mod mcp;
mod migrate;
mod output;
mod policies;
mod private_server;
mod recall;
mod replay;
mod restore;
mod retention;
mod run;
mod schema;
mod serve;
mod sessions;
mod settings;
mod shown_counts;
mod svg;
mod terminal;
mod tune;
mod verify;
mod verify_store;
mod view;
mod worker;

pub use commands::{Cli, error_text};
