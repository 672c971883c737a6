//! Runs the same load for a long time. Memory, file handles and latency must not grow, and the disk must free deleted
//! data.
//!
//! `make soak` runs a release build for `SOAK_MINUTES`. The normal test run lasts seconds and only proves that the test
//! works.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(
    clippy::print_stderr,
    reason = "the figures are what a long run is for"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "latency is measured by the machine's clock"
)]

mod load;
mod sample;

use std::sync::Arc;
use std::time::{Duration, Instant};

use palimpsest_tests::Server;

use crate::load::Load;
use crate::sample::{Sample, report};

/// Default duration. `SOAK_MINUTES` overrides it.
const SHORT: Duration = Duration::from_secs(12);
/// Number of samples per run.
const SAMPLES: u32 = 24;

fn duration() -> Duration {
    let said = std::env::var("SOAK_MINUTES").ok();
    let minutes = said.and_then(|text| text.parse().ok());
    minutes.map_or(SHORT, |minutes: u64| Duration::from_secs(minutes * 60))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_handles_and_latency_do_not_grow_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "sessions.cache_bytes=16777216",
        "store.cache_bytes=16777216",
        "policy.autocompact.min_input_tokens=1000",
        "policy.session_memory.start_tokens=4000",
        "policy.session_memory.update_tokens=4000",
    ];
    let arguments: Vec<&str> = settings.iter().flat_map(|one| ["--set", one]).collect();
    let server = Arc::new(Server::start(folder.path(), &arguments));
    let load = Load::start(&server).await;
    let pause = duration() / SAMPLES;
    let began = Instant::now();
    let mut samples = Vec::new();
    for number in 1..=SAMPLES {
        tokio::time::sleep((began + pause * number).saturating_duration_since(Instant::now()))
            .await;
        samples.push(Sample::take(
            &server,
            folder.path(),
            began.elapsed(),
            &load.take(),
        ));
        eprintln!("{}", samples.last().unwrap());
    }
    let turns = load.stop().await;
    let log = server.log().join("\n");
    assert!(!log.contains("panicked"), "{log}");
    let wrong = report(&samples, turns);
    // A run of seconds is too short to judge growth, so its figures are only printed.
    assert!(duration() == SHORT || wrong.is_empty(), "{wrong:#?}");
    assert!(turns > 20, "too few turns: {turns}");
}
