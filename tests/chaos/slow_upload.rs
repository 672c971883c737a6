//! Tests that one slow upload of a stored result delays neither a sweep nor other uploads.

#![expect(clippy::disallowed_methods, reason = "an intent has the real time")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_proto::context::v1::PrepareContextResponse;
use palimpsest_store::sled::{SledLog, SledOptions};
use palimpsest_store::{FileIntents as _, Store as _};
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

/// The number of lines of a result.
const LINES: usize = 1_000;

/// The name of a file that no event references.
const ORPHAN: &str = "x-0123456789abcdef.txt";

/// Sends a result that is so large that the server stores it.
async fn store_result(
    server: &Server,
    session: &str,
) -> Result<Response<PrepareContextResponse>, Status> {
    let mut client = server.context().await;
    let large = format!("a line of {session}\n").repeat(LINES);
    let messages = vec![
        user("Look."),
        assistant_call("call"),
        result("call", &large),
    ];
    client
        .prepare_context(prepare(&name(session), messages))
        .await
}

fn results(data: &Path, session: &str) -> PathBuf {
    data.join("blobs/p").join(session).join("tool-results")
}

/// Returns the number of stored results of a session.
fn stored(data: &Path, session: &str) -> usize {
    let entries = results(data, session).read_dir();
    entries.map_or(0, Iterator::count)
}

/// Leaves in a stopped server what a crash between an upload and its commit leaves: an intent and a file. Returns the
/// path of the file.
async fn orphan(data: &Path, session: &str) -> PathBuf {
    let log = SledLog::open(&SledOptions::new(data.join("log"))).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = i64::try_from(now.unwrap().as_millis()).unwrap();
    let key = SessionKey::parse(&name(session)).unwrap();
    let files = vec![ORPHAN.into()];
    let intended = log.declare_intents(&key, files, Timestamp::from_millis(now));
    intended.await.unwrap();
    log.close().await.unwrap();
    let file = results(data, session).join(ORPHAN);
    fs::write(&file, "nobody's").unwrap();
    file
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
    let server = Server::start(&data, SETTINGS);
    // The sweep reads intents in the order of the names of their sessions, so this session precedes the slow one.
    store_result(&server, "early").await.unwrap();
    server.stop();
    let orphan = orphan(&data, "early").await;

    let faults = Faults::new(root.path());
    faults.set(Fault::HeldResults);
    let server = Server::start_with(&data, SETTINGS, &faults.vars());
    let slow = Box::pin(async {
        let uploaded = store_result(&server, "slow").await;
        uploaded.unwrap().into_inner()
    });
    let others = Box::pin(async {
        until(&server, "the slow upload", || faults.injected() > 0).await;
        // Three days later, the intent of the orphan is old enough for a sweep.
        assert!(orphan.exists());
        faults.set(Fault::HeldResultsDaysLater);
        until(&server, "the sweep", || !orphan.exists()).await;
        let quick = timeout(TIMEOUT, store_result(&server, "quick")).await;
        quick
            .expect("another upload waits for the slow one")
            .unwrap();
        assert_eq!(stored(&data, "quick"), 1);
        assert_eq!(stored(&data, "slow"), 0, "the upload was not slow");
        faults.set(Fault::None);
    });
    let both = async { tokio::join!(slow, others) };
    let (answer, ()) = timeout(4 * TIMEOUT, both).await.unwrap();
    // The sweep may have met the file of the slow upload, because it was as old as the orphan. The server then stores
    // the result again or leaves it in the view.
    let in_view = format!("{answer:?}").matches("a line of slow").count();
    assert!(
        stored(&data, "slow") > 0 || in_view >= LINES,
        "the result is lost: {answer:?}"
    );
    assert_eq!(
        stored(&data, "early"),
        1,
        "a sweep removed a referenced result"
    );
}
