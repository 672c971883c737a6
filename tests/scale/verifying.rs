//! Tests of `palimpsest verify-store` on a database in use. A concurrent deletion is not reported as a fault.

use std::process::Output;
use std::sync::Arc;

use palimpsest_test_servers::{Bucket, Cluster};
use palimpsest_tests::name;
use palimpsest_tests::say::prepare;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::deployment::{Deployment, at};
use crate::replicas::{database, delete, turn};

const SCHEMA: &str = "store.postgres.schema=verified";
/// Number of lines of a stored result.
const LINES: usize = 5_000;

/// True when the command has read a log and then waits for something other than the database.
const HAS_READ: &str = "SELECT count(*) = 1 FROM pg_stat_activity
    WHERE application_name = 'verify' AND state = 'idle' AND query LIKE '%.frames%'
        AND state_change < now() - interval '300 milliseconds'";

fn verify(deployment: &Arc<Deployment>, cluster: &Cluster) -> JoinHandle<Output> {
    let database = format!("{}?application_name=verify", at(&[cluster]));
    let deployment = Arc::clone(deployment);
    spawn_blocking(move || {
        let database = format!("store.postgres.url={database}");
        deployment.run("verify-store", &[&database])
    })
}

/// Deletes a session and returns once the tombstone is written. The removal of its data continues in the background.
fn deletes(deployment: &Arc<Deployment>, cluster: &Cluster, session: &str) -> JoinHandle<()> {
    let deleted = tokio::spawn({
        let (deployment, session) = (Arc::clone(deployment), name(session));
        async move { delete(&deployment, 0, &session).await }
    });
    cluster.until(&format!(
        "SELECT count(*) = 1 FROM verified.sessions
         WHERE key = 'p!{session}' AND deleted_at IS NOT NULL"
    ));
    deleted
}

#[track_caller]
fn found(verified: &Output, what: &str) {
    let said = String::from_utf8_lossy(&verified.stdout);
    let faults = String::from_utf8_lossy(&verified.stderr);
    assert!(said.contains(what), "{said}{faults}");
    assert!(verified.status.success(), "{said}{faults}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_deleted_during_verification_is_no_error() {
    let cluster = database();
    let bucket = Some(Bucket::start());
    let deployment = Arc::new(Deployment::start(
        &at(&[&cluster]),
        bucket,
        (1, 0),
        &[SCHEMA],
    ));
    for session in ["a", "b", "c"] {
        let request = prepare(&name(session), turn(0, LINES));
        deployment
            .context(0)
            .prepare_context(request)
            .await
            .unwrap();
    }
    assert!(deployment.has_results());
    found(
        &verify(&deployment, &cluster).await.unwrap(),
        "3 sessions with",
    );

    // The log was read. The results are deleted before they are checked.
    deployment.bucket().pause();
    let verified = verify(&deployment, &cluster);
    cluster.until(HAS_READ);
    let deleted = deletes(&deployment, &cluster, "a");
    let results = deployment.bucket().folder().join("blobs/p/a/tool-results");
    std::fs::remove_dir_all(results).unwrap();
    deployment.bucket().go_on();
    found(&verified.await.unwrap(), "2 sessions with");
    deleted.await.unwrap();

    // The session was listed. Its log is deleted before it is read.
    let holder = cluster.holding("LOCK TABLE verified.frames IN ACCESS EXCLUSIVE MODE");
    let verified = verify(&deployment, &cluster);
    cluster.until_it_waits_for("verify", "verified.frames");
    let deleted = deletes(&deployment, &cluster, "b");
    holder.commit();
    found(&verified.await.unwrap(), "1 sessions with");
    deleted.await.unwrap();

    // A result is stored after the intents and the row of its session were read, and committed after the log was read.
    let holder = cluster.holding("LOCK TABLE verified.frames IN ACCESS EXCLUSIVE MODE");
    let verified = verify(&deployment, &cluster);
    cluster.until_it_waits_for("verify", "verified.frames");
    let results = deployment.bucket().folder().join("blobs/p/c/tool-results");
    let files = || std::fs::read_dir(&results).unwrap().count();
    let before = files();
    let appended = tokio::spawn({
        let mut context = deployment.context(0);
        let request = prepare(&name("c"), turn(1, LINES));
        async move { context.prepare_context(request).await.unwrap() }
    });
    while files() == before {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    holder.commit();
    let verified = verified.await.unwrap();
    found(&verified, "0 files (0 B) have no event and no intent");
    appended.await.unwrap();

    // Missing results of an existing session are a fault.
    let results = deployment.bucket().folder().join("blobs/p/c/tool-results");
    std::fs::remove_dir_all(results).unwrap();
    let verified = verify(&deployment, &cluster).await.unwrap();
    assert!(!verified.status.success());
    let said = String::from_utf8_lossy(&verified.stdout);
    assert!(said.contains("2 results are missing"), "{said}");
    deployment.stop();
}
