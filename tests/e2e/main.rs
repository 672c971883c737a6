//! The end-to-end tests: one binary with the real server and real gRPC, without access to internals.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(
    clippy::large_futures,
    clippy::too_many_lines,
    reason = "a test is read from top to bottom and runs once"
)]

mod adopted_arrays;
mod bad_input;
mod breakpoints;
mod by_hand;
mod calls;
mod collapse;
mod compaction;
mod concurrent;
mod connections;
mod delegated;
mod disk;
mod estimators;
mod events;
mod exports;
mod forks;
mod forms;
mod hooks;
mod http;
mod idempotency;
mod ledger;
mod levels;
mod life;
mod limits;
mod memory;
mod model;
mod models;
mod overflow;
mod persist;
mod policy;
mod process;
mod protocol;
mod quotas;
mod quotas_together;
mod raw_connection;
mod recovery;
mod refusals;
mod repeats;
mod responses;
mod rewind;
mod searching;
mod secrets;
mod sessions;
mod shutdown;
mod shutdown_load;
mod silent;
mod skeleton;
mod stream;
mod telemetry;
mod tools;
mod transcripts;
mod unread;
mod waiting;
mod warned;
mod whole_arrays;
mod working;

use palimpsest_tests::Shared;

/// The server of all tests without special needs. It has no worker, because the worker's events would affect counts of
/// events. Tests of session memory use their own server. Adaptive limiting is off, so that tests pass on a busy
/// machine.
static SERVER: Shared = Shared::new(&[
    "--set",
    "worker.enabled=false",
    "--set",
    "grpc.max_slowdown_percent=10000",
]);
