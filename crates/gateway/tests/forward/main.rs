//! The gateway between raw sockets: the bytes that it forwards, faults, streams and limits.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod bytes;
mod callers;
mod commits;
mod faults;
mod http2;
mod limits;
mod raw;
mod readings;
mod scripted_context;
mod streams;
