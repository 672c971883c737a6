//! The commands of the `palimpsest` binary, one module per command. `commands` defines the command line.
//!
//! This crate may import every other crate, and no crate imports it. Commands that call a server use the public
//! contract only. Commands that open a store share code with the server. `serve` and `worker` run the server, which
//! is in `palimpsest-server`.

mod agent_logs;
mod allocator;
mod backup;
mod change_report;
mod client;
mod commands;
mod compact;
mod compact_store;
mod completions;
mod config;
mod delete;
mod demo;
mod each_file;
mod escapes;
mod event_text;
mod export;
mod files;
mod fork;
mod health;
mod import;
mod inspect;
mod keys;
mod man;
mod mcp;
mod memory;
mod migrate;
mod output;
mod policies;
mod private_server;
mod recall;
mod replay;
mod reply_json;
mod restore;
mod retention;
mod run;
mod schema;
mod screen;
mod serve;
mod sessions;
mod settings;
mod shown_counts;
mod snip;
mod svg;
mod top;
mod tune;
mod undo;
mod verify;
mod verify_store;
mod view;
mod watch;
mod worker;

pub use commands::{Cli, error_text};
