//! Random schedules of faults, each ended by `kill -9`: what was acknowledged is there, once, in order and
//! whole; views are valid; and a server whose trouble is over goes on by itself.
//!
//! A few run with every test; `make chaos` runs `CHAOS_SCHEDULES` of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod agent;
mod endings;
mod faults;
mod intruder;
mod schedule;
