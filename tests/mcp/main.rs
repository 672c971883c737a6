//! Tests of the Model Context Protocol with the real binary: the official client over `palimpsest mcp` and over HTTP, raw
//! requests, and the official conformance suite.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(clippy::large_futures, reason = "a test runs once")]

mod access;
mod client;
mod conformance;
mod hostile;
mod http;
mod reading;
mod snip;
mod world;
