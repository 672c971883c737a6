//! One integration binary: the real server, real gRPC, and nothing looked at from inside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(
    clippy::large_futures,
    clippy::too_many_lines,
    reason = "a test is read from top to bottom and runs once"
)]

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
mod forms;
mod hooks;
mod idempotency;
mod ledger;
mod levels;
mod life;
mod limits;
mod memory;
mod model;
mod overflow;
mod persist;
mod policy;
mod protocol;
mod quotas;
mod quotas_together;
mod recovery;
mod refusals;
mod repeats;
mod rewind;
mod searching;
mod secrets;
mod sessions;
mod shutdown;
mod shutdown_load;
mod skeleton;
mod stream;
mod telemetry;
mod tools;
mod transcripts;
mod waiting;
mod warned;
mod working;

use palimpsest_tests::Shared;

/// The server of all tests that need nothing of their own. It has no worker, whose events would come
/// between those that tests count; session memory has a server of its own.
/// It refuses nobody for being slow: tests are right on a busy machine too.
static SERVER: Shared = Shared::new(&[
    "--set",
    "worker.enabled=false",
    "--set",
    "grpc.max_slowdown_percent=10000",
]);
