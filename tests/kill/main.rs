//! What is left after the process was killed: all that was acknowledged, and nothing by halves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(
    clippy::disallowed_methods,
    reason = "a process takes real time to end"
)]

mod load;
mod points;
mod rounds;
mod turns;
