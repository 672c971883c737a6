//! Shared code of the load test and the benches: calls of agents with their requests and sessions, servers with their
//! resource usage, and the formatting of figures.
//!
//! The measurements are elsewhere: in `main.rs` with ghz, and in `tests/bench` with an empty service.

#![expect(
    clippy::disallowed_methods,
    reason = "calls are timed by the machine's clock"
)]

pub mod data;
pub mod figures;
pub mod machine;
pub mod requests;
pub mod retry;
pub mod sessions;
pub mod settle;
pub mod test_server;
pub mod workloads;
