//! Tests of the provider over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod bills;
mod http;
mod messages;
mod resources;
mod responses;
mod streams;
