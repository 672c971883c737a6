//! The server: gRPC services around the core, with the settings, logs and errors that go with them.
//!
//! Nothing here decides what a context looks like; that is the core. Nothing here knows how an
//! event is stored; that is the store. `palimpsest-cli` adds the command line, and is the binary.

pub mod access;
pub mod admin;
pub mod app;
pub mod convert;
pub mod errors;
pub mod grpc;
pub mod hooks;
pub mod metrics;
pub mod net;
pub mod serve;
pub mod services;
pub mod signals;
pub mod store;
pub mod summarizer;
pub mod telemetry;
pub mod upkeep;

/// The folder of the log within the data folder.
pub const LOG_FOLDER: &str = "log";
/// The folder of the blobs within the data folder, when they are kept there.
pub const BLOB_FOLDER: &str = "blobs";
