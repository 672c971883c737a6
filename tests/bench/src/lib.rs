//! What the programs of the benches share: the handlers in a process of ours. Each program says what it is for.

#![expect(
    clippy::disallowed_methods,
    reason = "calls are timed by the machine's clock"
)]

pub mod house;
