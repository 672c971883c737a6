//! Tests with random schedules of faults. Each schedule ends with `kill -9`. Acknowledged data must exist once, in
//! order and complete, views must be valid, and a server must recover after a passing fault.
//!
//! Every test run executes a few schedules; `make chaos` runs `CHAOS_SCHEDULES` of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod agent;
mod endings;
mod faults;
mod intruder;
mod schedule;
mod slow_upload;
