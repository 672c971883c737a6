//! Tests of a killed process: every acknowledged change exists, and no change exists in part.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(
    clippy::disallowed_methods,
    reason = "a process takes real time to end"
)]

mod load;
mod points;
mod rounds;
mod turns;
