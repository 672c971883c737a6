//! Tests that one slow upload of a stored result delays neither a sweep nor other uploads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use palimpsest_proto::context::v1::PrepareContextResponse;
use palimpsest_tests::say::{assistant_call, prepare, result, user};
use palimpsest_tests::{Server, is_on_a_database, name};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Response, Status};

use crate::faults::{Fault, Faults};

/// Generous, because this limit must only detect hangs.
const TIMEOUT: Duration = Duration::from_mins(2);

const SETTINGS: &[&str] = &[
    "--set",
    "worker.enabled=false",
    "--set",
    "sweep.every_ms=100",
    "--set",
    "retention.duty_cycle_percent=100",
    "--set",
    "policy.tool_results.max_result_chars=4000",
    // The slow call must not end before the test releases it.
    "--set",
    "grpc.request_timeout_ms=600000",
];

/// Sends a result that is so large that the server stores it.
async fn store_result(
    server: &Server,
    session: &str,
) -> Result<Response<PrepareContextResponse>, Status> {
    let mut client = server.context().await;
    let large = format!("a line of {session}\n").repeat(1_000);
    let messages = vec![
        user("Look."),
        assistant_call("call"),
        result("call", &large),
    ];
    client
        .prepare_context(prepare(&name(session), messages))
        .await
}

/// Returns the stored results of a session.
fn stored(data: &Path, session: &str) -> Vec<PathBuf> {
    let folder = data.join("blobs/p").join(session).join("tool-results");
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}

async fn until(server: &Server, what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        let log = || server.log().join("\n");
        assert!(
            began.elapsed() < TIMEOUT,
            "timed out waiting for {what}: {}",
            log()
        );
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_slow_upload_delays_neither_a_sweep_nor_other_uploads() {
    if is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    // A crash behind the upload leaves a file that only its intent names.
    let server = Server::start_with(&data, SETTINGS, &[("CRASH_AT", "session.stored")]);
    store_result(&server, "orphan").await.unwrap_err();
    server.wait();
    assert_eq!(stored(&data, "orphan").len(), 1);

    let faults = Faults::new(root.path());
    faults.set(Fault::HeldResults);
    let server = Server::start_with(&data, SETTINGS, &faults.vars());
    let slow = async {
        let uploaded = store_result(&server, "slow").await;
        uploaded.unwrap();
    };
    let others = async {
        until(&server, "the slow upload", || faults.injected() > 0).await;
        // Three days later, the intent of the orphan is old enough for a sweep.
        faults.set(Fault::HeldResultsDaysLater);
        until(&server, "the sweep", || stored(&data, "orphan").is_empty()).await;
        let quick = timeout(TIMEOUT, store_result(&server, "quick")).await;
        quick
            .expect("another upload waits for the slow one")
            .unwrap();
        assert_eq!(stored(&data, "quick").len(), 1);
        assert_eq!(stored(&data, "slow").len(), 0, "the upload was not slow");
        faults.set(Fault::None);
    };
    let both = async { tokio::join!(slow, others) };
    timeout(4 * TIMEOUT, both).await.unwrap();
    assert!(!stored(&data, "slow").is_empty());
}
