//! The log and the blobs.
pub mod encoding;
