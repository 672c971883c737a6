//! What load and benches share: the calls that agents make and their requests, sessions that these need, servers
//! and what they take of the machine, and figures as people read them.
//!
//! Not here: who measures. That is `main.rs` with ghz, and `tests/bench` beside an empty service.

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
pub mod site;
pub mod works;
