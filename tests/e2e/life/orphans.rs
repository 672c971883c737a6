//! What a crash leaves is swept; what an event names never is.

use std::collections::BTreeSet;
use std::fs::{File, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};

use palimpsest_tests::say::{append, assistant_call, prepare, result, user};
use palimpsest_tests::{Server, name, palimpsest};
use tokio::time::Instant;

use super::{SETTINGS, files, fill, succeeds};

#[expect(clippy::disallowed_methods, reason = "the age of a real file")]
fn make_old(path: &Path) {
    let then = SystemTime::now() - Duration::from_hours(72);
    let file = File::options().write(true).open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(then)).unwrap();
}

fn sweeping() -> Vec<&'static str> {
    let sweep = [
        "--set",
        "sweep.every_ms=100",
        "--set",
        "retention.load_percent=100",
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
async fn only_what_no_event_names_is_swept() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path();
    let server = Server::start(data, SETTINGS);
    fill(&server, &name("s"), 2).await;
    server.stop();
    let of = |file: &str| data.join("blobs/p/s/tool-results").join(file);
    let named = files(data, "s");
    for file in &named {
        make_old(&of(file));
    }
    // Nobody's, or one that a session never had; and two that are too young to be told.
    for file in [
        "x-0123456789abcdef.txt",
        "y-0123456789abcdef.txt#1",
        "z-0123456789abcdef.txt",
    ] {
        std::fs::write(of(file), "nobody's").unwrap();
    }
    make_old(&of("x-0123456789abcdef.txt"));
    make_old(&of("y-0123456789abcdef.txt#1"));
    let gone = data.join("blobs/p/never/session-memory");
    std::fs::create_dir_all(&gone).unwrap();
    std::fs::write(gone.join("summary.md"), "of nobody").unwrap();
    make_old(&gone.join("summary.md"));
    let before = verify(data, &["--contents"]);
    assert_eq!(
        (&before["results"], &before["orphans"], &before["missing"]),
        (&2.into(), &3.into(), &0.into())
    );
    let server = Server::start(data, &sweeping());
    let began = Instant::now();
    while gone.exists() || of("x-0123456789abcdef.txt").exists() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            server.log()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop();
    assert!(!of("y-0123456789abcdef.txt#1").exists());
    assert!(of("z-0123456789abcdef.txt").exists(), "it is young");
    let after = verify(data, &["--contents"]);
    assert_eq!(
        (&after["results"], &after["orphans"], &after["missing"]),
        (&2.into(), &1.into(), &0.into())
    );
    std::fs::remove_file(of(&named[0])).unwrap();
    let output = palimpsest(&["verify-store", "--data-dir", data.to_str().unwrap()]);
    assert!(!output.status.success());
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        told.contains(&format!("the stored result {} is missing", named[0])),
        "{told}"
    );
}

/// Writers that store results, a sweep that never rests and a process that is killed in between, over
/// and over, with all files made old each time: whatever an event names is there.
#[tokio::test(flavor = "multi_thread")]
async fn p23_sweeping_never_removes_what_an_event_names() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path();
    let points = [
        "blob.put:4",
        "session.stored:6",
        "log.applied:9",
        "",
        "blob.put:7",
        "session.stored:11",
    ];
    let mut orphans = BTreeSet::new();
    for (round, point) in points.iter().enumerate() {
        let server = Server::start_with(data, &sweeping(), &[("CRASH_AT", point)]);
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
                    // Every second result was said before: its file is there, and old.
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
        tokio::time::sleep(Duration::from_millis(250)).await;
        server.kill();
        let checked = verify(data, &["--contents"]);
        assert_eq!(checked["missing"], 0, "round {round}: {checked}");
        orphans.insert(checked["orphans"].as_u64().unwrap());
        for writer in 0..4 {
            let session = format!("w{writer}");
            for file in files(data, &session) {
                make_old(
                    &data
                        .join("blobs/p")
                        .join(&session)
                        .join("tool-results")
                        .join(file),
                );
            }
        }
    }
    assert!(
        orphans.iter().any(|count| *count > 0),
        "no crash left an orphan: {orphans:?}"
    );
}
