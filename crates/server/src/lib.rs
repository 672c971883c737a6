//! The server: gRPC services around the engine, with access, errors, metrics and telemetry.
//!
//! Not here: the content of a context (`palimpsest-core`), sessions in memory (`palimpsest-engine`), the storage of
//! events (`palimpsest-store`), settings (`palimpsest-settings`), and the command line (`palimpsest-cli`).

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
