//! Tests that a sweep removes the files of a crash and never a referenced file.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_store::sled::{SledLog, SledOptions};
use palimpsest_store::{FileIntents as _, Store as _};
use palimpsest_tests::say::{append, assistant_call, prepare, result, user};
use palimpsest_tests::{Server, name, palimpsest};
use tokio::time::Instant;

use super::{SETTINGS, files, fill, succeeds};

/// Makes all intents in the store of a stopped server look old, and adds some.
async fn make_old(data: &Path, more: &[(&SessionKey, &str)]) {
    let log = SledLog::open(&SledOptions::new(data.join("log"))).unwrap();
    let page = log.list_intents(None, 1_000).await.unwrap();
    // A doomed intent is removed by the next sweep, regardless of its age.
    let waiting = page.intents.iter().filter(|intent| !intent.is_revoked);
    let found = waiting.map(|intent| (&intent.key, &*intent.file));
    for (key, file) in found.chain(more.iter().copied()) {
        // Intents expire after `sweep.min_age_ms` (48 h), for which a test cannot wait.
        let long_ago = Timestamp::from_millis(1);
        log.declare_intents(key, vec![file.into()], long_ago)
            .await
            .unwrap();
    }
    log.close().await.unwrap();
}

async fn intents(data: &Path) -> usize {
    let log = SledLog::open(&SledOptions::new(data.join("log"))).unwrap();
    let intents = log.list_intents(None, 1_000).await.unwrap().intents.len();
    log.close().await.unwrap();
    intents
}

/// Time limit for background work. It only ends a test that hangs.
const PATIENCE: Duration = Duration::from_mins(2);

fn sweeping() -> Vec<&'static str> {
    let sweep = [
        "--set",
        "sweep.every_ms=100",
        "--set",
        "retention.duty_cycle_percent=100",
    ];
    SETTINGS.iter().copied().chain(sweep).collect()
}

fn verify(data: &Path, extra: &[&str]) -> serde_json::Value {
    let args = [
        &[
            "verify-store",
            "--json",
            "--data-dir",
            data.to_str().unwrap(),
        ],
        extra,
    ];
    serde_json::from_str(&succeeds(&args.concat())).unwrap()
}

#[tokio::test]
async fn a_sweep_removes_only_files_with_an_intent_and_no_event() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path();
    let server = Server::start(data, SETTINGS);
    fill(&server, &name("s"), 2).await;
    server.stop();
    assert_eq!(intents(data).await, 0, "an intent remains after its event");
    let of = |file: &str| data.join("blobs/p/s/tool-results").join(file);
    let named = files(data, "s");
    // One file has an intent and a partial write of a killed process. The log does not know the other one.
    for file in [
        "x-0123456789abcdef.txt",
        "x-0123456789abcdef.txt#1",
        "z-0123456789abcdef.txt",
    ] {
        std::fs::write(of(file), "nobody's").unwrap();
    }
    let gone = data.join("blobs/p/never/session-memory");
    std::fs::create_dir_all(&gone).unwrap();
    std::fs::write(gone.join("summary.md"), "of nobody").unwrap();
    let key = SessionKey::parse(&name("s")).unwrap();
    // A referenced file has no intent in practice. A sweep would not remove the file even then.
    make_old(data, &[(&key, "x-0123456789abcdef.txt"), (&key, &named[0])]).await;
    let counts = |report: &serde_json::Value| {
        ["results", "orphans", "foreign", "missing"].map(|count| report[count].as_u64().unwrap())
    };
    let before = verify(data, &["--contents"]);
    // One orphan has an intent. Two files are foreign: `z-…` and the `summary.md` of an unknown session.
    assert_eq!(counts(&before), [2, 1, 2, 0], "{before}");
    let foreign = before["foreign_files"].as_array().unwrap();
    assert!(foreign.contains(&"p/s/tool-results/z-0123456789abcdef.txt".into()));
    let server = Server::start(data, &sweeping());
    let began = Instant::now();
    while of("x-0123456789abcdef.txt").exists() || of("x-0123456789abcdef.txt#1").exists() {
        assert!(began.elapsed() < PATIENCE, "{:?}", server.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop();
    assert!(gone.join("summary.md").exists() && of("z-0123456789abcdef.txt").exists());
    let after = verify(data, &["--contents"]);
    assert_eq!(counts(&after), [2, 0, 2, 0], "{after}");
    assert_eq!(intents(data).await, 0);
    std::fs::remove_file(of(&named[0])).unwrap();
    let output = palimpsest(&["verify-store", "--data-dir", data.to_str().unwrap()]);
    assert!(!output.status.success());
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        told.contains(&format!("the stored result {} is missing", named[0])),
        "{told}"
    );
}

/// A process ends between the steps of a sweep or of storing a result. The file is then removed or referenced, and
/// never both.
#[tokio::test]
async fn an_interrupted_sweep_is_completed_by_the_next() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    for point in ["sweep.doomed", "sweep.removed"] {
        let root = tempfile::tempdir().unwrap();
        let data = root.path();
        let server = Server::start_with(data, SETTINGS, &[("CRASH_AT", "session.stored")]);
        let mut client = server.context().await;
        let large = "line\n".repeat(5_000);
        let said = vec![assistant_call("c"), result("c", &large)];
        let cut_off = client.prepare_context(prepare(&name("s"), said)).await;
        assert!(cut_off.is_err());
        server.wait();
        let orphan = files(data, "s");
        assert_eq!(orphan.len(), 1);
        make_old(data, &[]).await;
        Server::run_until_crash(data, &sweeping(), point);
        assert_eq!(
            intents(data).await,
            1,
            "{point}: the intent must remain for the next sweep"
        );
        let server = Server::start(data, &sweeping());
        let began = Instant::now();
        while !files(data, "s").is_empty() {
            assert!(began.elapsed() < PATIENCE, "{point}: {:?}", server.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The same result is submitted again and stored under a new name.
        let mut client = server.context().await;
        let said = vec![assistant_call("c"), result("c", &large)];
        let said = client.prepare_context(prepare(&name("s"), said)).await;
        said.unwrap();
        server.stop();
        let stored = files(data, "s");
        assert!(
            stored.len() == 1 && stored != orphan,
            "the new result must have its own file name"
        );
        assert_eq!(verify(data, &["--contents"])["missing"], 0);
    }
}

/// Stores results in four sessions until the server ends or all are stored.
async fn store_results(server: &Server, round: usize) {
    let writers = (0..4_usize).map(|writer| {
        let address = format!("http://{}", server.address());
        tokio::spawn(async move {
            let Ok(mut client) =
                palimpsest_proto::context::v1::context_service_client::ContextServiceClient::connect(address).await
            else {
                return;
            };
            let session = name(&format!("w{writer}"));
            for turn in 0..6_usize {
                // Every second result repeats an earlier one, whose file exists and is old.
                let id = format!("call-{}", (round / 2) * 100 + turn);
                let large = format!("{writer} {}\n", turn / 2).repeat(2_000);
                let said = vec![assistant_call(&id), result(&id, &large)];
                let asked = append(&session, vec![user("go on")]);
                if client.append_messages(asked).await.is_err()
                    || client.prepare_context(prepare(&session, said)).await.is_err()
                {
                    return;
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// Runs writers that store results, continuous sweeps, and kills, repeatedly. All intents are made old each time. Every
/// referenced file must exist.
#[tokio::test(flavor = "multi_thread")]
async fn p23_a_sweep_never_removes_a_referenced_blob() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path();
    // The round without a crash point ends with a kill only.
    let points = [
        "blob.put:4", "session.stored:6", "log.applied:9", "", "blob.put:7", "session.stored:11",
    ];
    let mut orphans = BTreeSet::new();
    for (round, point) in points.iter().enumerate() {
        // Background work may reach the point before the server is ready.
        if let Some(server) = Server::start_to_crash(data, &sweeping(), point) {
            store_results(&server, round).await;
            tokio::time::sleep(Duration::from_millis(250)).await;
            server.kill();
        }
        let checked = verify(data, &["--contents"]);
        assert_eq!(checked["missing"], 0, "round {round}: {checked}");
        orphans.insert(checked["orphans"].as_u64().unwrap());
        make_old(data, &[]).await;
    }
    assert!(
        orphans.iter().any(|count| *count > 0),
        "no crash left an orphan: {orphans:?}"
    );
}
