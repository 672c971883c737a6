//! The log and the blobs.
