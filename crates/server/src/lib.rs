//! The server: gRPC services around the engine, with their conversion and errors.
//!
//! Other crates contain the context rules (`palimpsest-core`), sessions in memory (`palimpsest-engine`), event
//! storage (`palimpsest-store`), settings (`palimpsest-settings`), access control, connections and telemetry
//! (`palimpsest-edge`), and the command line (`palimpsest-cli`).

pub mod admin;
pub mod app;
pub mod convert;
pub mod errors;
pub mod grpc;
pub mod hooks;
mod metrics;
pub mod serve;
pub mod services;
pub mod signals;
pub mod store;
pub mod summarizer;

// The modules of the edge keep their paths inside this crate.
use palimpsest_edge::{access, net, telemetry};

/// The name of the log folder in the data folder.
pub const LOG_FOLDER: &str = "log";
/// The name of the blob folder in the data folder, if the blobs are stored locally.
pub const BLOB_FOLDER: &str = "blobs";
