//! Tests of backups of a running server: a restored server has equal views, byte for byte, at the revisions of the
//! backup.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use palimpsest_proto::context::v1::{ListEventsRequest, ListSessionsRequest, SessionEvent};
use palimpsest_tests::say::{prepare, user};
use palimpsest_tests::{Server, binary, name, palimpsest};

use super::{SETTINGS, delete, fails, files, fill, succeeds};

async fn view(server: &Server, session: &str) -> (Vec<Bytes>, Bytes) {
    let mut client = server.context().await;
    let reply = client.prepare_context(prepare(session, vec![])).await;
    let reply = reply.unwrap().into_inner();
    (reply.messages_json, reply.etag)
}

async fn revisions(server: &Server) -> BTreeMap<String, u64> {
    let request = ListSessionsRequest {
        parent: "projects/p".into(),
        page_size: 1_000,
        ..ListSessionsRequest::default()
    };
    let list = server.sessions().await.list_sessions(request).await;
    let sessions = list.unwrap().into_inner().sessions.into_iter();
    sessions.map(|it| (it.name, it.revision)).collect()
}

async fn events(server: &Server, session: &str) -> Vec<SessionEvent> {
    let request = ListEventsRequest {
        session: session.to_owned(),
        page_size: 1_000,
        ..ListEventsRequest::default()
    };
    let events = server.sessions().await.list_events(request).await;
    let mut events = events.unwrap().into_inner().events;
    // The effect depends on the current state of the session, so it changes with later events.
    for event in &mut events {
        event.effect = None;
    }
    events
}

fn backup(server: &Server, place: &Path, extra: &[&str]) -> serde_json::Value {
    let address = format!("http://{}", server.address());
    let place = place.to_str().unwrap();
    let args = [
        &["backup", "--json", "--server", &address, "--to", place],
        extra,
    ];
    serde_json::from_str(&succeeds(&args.concat())).unwrap()
}

fn restore(place: &Path, data_dir: &Path, extra: &[&str]) -> String {
    let (place, data_dir) = (place.to_str().unwrap(), data_dir.to_str().unwrap());
    let args = [&["restore", "--from", place, "--data-dir", data_dir], extra];
    succeeds(&args.concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_restores_to_the_same_views() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (data, place) = (root.path().join("data"), root.path().join("backups"));
    let server = Arc::new(Server::start(&data, SETTINGS));
    for session in ["a", "b", "later-gone"] {
        fill(&server, &name(session), 3).await;
    }
    let first = backup(&server, &place, &[]);
    assert_eq!(
        (&first["sessions"], &first["results"]),
        (&3.into(), &9.into())
    );
    assert_eq!(first["base"], serde_json::Value::Null);

    // Sessions are created, grow and are deleted during the second backup.
    let done = Arc::new(AtomicBool::new(false));
    let writers = (0..3).map(|writer| {
        let (server, done) = (Arc::clone(&server), Arc::clone(&done));
        tokio::spawn(async move {
            let mut turns = 0;
            while !done.load(Ordering::Relaxed) {
                fill(&server, &name(&format!("busy-{writer}-{}", turns % 3)), 1).await;
                turns += 1;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    fill(&server, &name("b"), 2).await;
    let reply = server
        .sessions()
        .await
        .delete_session(delete(&name("later-gone")))
        .await;
    assert!(reply.unwrap().into_inner().complete);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let second = {
        let (server, place) = (Arc::clone(&server), place.clone());
        tokio::task::spawn_blocking(move || backup(&server, &place, &[]))
            .await
            .unwrap()
    };
    assert_eq!(second["base"], first["id"]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    done.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }

    let whole = ["restore", "--check", "--from", place.to_str().unwrap()];
    assert!(succeeds(&whole).contains("is complete"));
    let copy = root.path().join("copy");
    restore(&place, &copy, &[]);
    let again = fails(&[
        "restore",
        "--from",
        place.to_str().unwrap(),
        "--data-dir",
        copy.to_str().unwrap(),
    ]);
    assert!(again.contains("contains a store"), "{again}");
    let restored = Server::start(&copy, SETTINGS);
    let (now, then) = (revisions(&server).await, revisions(&restored).await);
    assert_eq!(second["sessions"], then.len());
    assert!(!then.contains_key(&name("later-gone")));
    assert!(then.len() >= 5, "{then:?}");
    for (session, revision) in &then {
        // The server has continued since the backup, so each restored log is a beginning of the current one.
        assert!(*revision <= now[session]);
        let (all, had) = (
            events(&server, session).await,
            events(&restored, session).await,
        );
        assert_eq!(all[..had.len()], had, "{session}");
        assert_eq!(had.len() as u64, *revision);
        if *revision == now[session] {
            assert_eq!(view(&server, session).await, view(&restored, session).await);
        }
    }
    for session in ["a", "b"] {
        assert_eq!(
            then[&name(session)],
            now[&name(session)],
            "a session without writes changed"
        );
        assert_eq!(
            files(&data, session).len(),
            files(&copy, session).len(),
            "{session}"
        );
        for file in files(&data, session) {
            let of = |data: &Path| {
                data.join("blobs/p")
                    .join(session)
                    .join("tool-results")
                    .join(&file)
            };
            let [was, is] = [&data, &copy].map(|data| std::fs::read(of(data)).unwrap());
            assert!(was == is, "{file}");
        }
    }
    // The restored server continues. Its backups build on the old ones, and start anew for sessions that differ.
    let mut client = restored.context().await;
    let said = prepare(&name("a"), vec![user("go on")]);
    client.prepare_context(said).await.unwrap();
    let third = backup(&restored, &place, &[]);
    assert_eq!(third["base"], second["id"]);
    let other = root.path().join("other");
    restore(&place, &other, &["--session", &name("a")]);
    let last = Server::start(&other, SETTINGS);
    assert_eq!(revisions(&last).await.len(), 1);
    assert_eq!(
        view(&last, &name("a")).await,
        view(&restored, &name("a")).await
    );
    // Pruning removed the first two backups with the files that only they used. The third one is complete.
    backup(&restored, &place, &["--keep", "1"]);
    let kept = succeeds(&["backup", "--list", "--to", place.to_str().unwrap()]);
    assert_eq!(kept.lines().count(), 1, "{kept}");
    let as_json = succeeds(&[
        "backup",
        "--list",
        "--json",
        "--to",
        place.to_str().unwrap(),
    ]);
    let as_json: serde_json::Value = serde_json::from_str(&as_json).unwrap();
    assert_eq!(as_json["backups"], serde_json::json!([kept.trim_end()]));
    assert!(!place.join("logs/p/later-gone").exists());
    assert!(succeeds(&whole).contains("is complete"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_backup_cannot_be_restored() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (data, place) = (root.path().join("data"), root.path().join("backups"));
    let server = Server::start(&data, SETTINGS);
    fill(&server, &name("a"), 2).await;
    fill(&server, &name("b"), 2).await;
    let address = format!("http://{}", server.address());
    let to = place.to_str().unwrap();
    for point in ["backup.session", "backup.session:2", "backup.read"] {
        let status = Command::new(binary())
            .args(["backup", "--server", &address, "--to", to])
            .env_clear()
            .env("CRASH_AT", point)
            .stderr(Stdio::null())
            .status();
        assert!(!status.unwrap().success(), "{point}");
        let none = fails(&["restore", "--check", "--from", to]);
        assert!(none.contains("no backup exists in"), "{point}: {none}");
    }
    let taken = backup(&server, &place, &[]);
    // An interrupted restoration leaves no store, and the next one starts again.
    let copy = root.path().join("copy");
    for point in ["restore.session", "restore.closed"] {
        let status = Command::new(binary())
            .args(["restore", "--from", to, "--data-dir"])
            .arg(&copy)
            .env_clear()
            .env("CRASH_AT", point)
            .stderr(Stdio::null())
            .status();
        assert!(!status.unwrap().success(), "{point}");
        assert!(!copy.join("log").exists(), "{point}");
    }
    // The restoration continues after an interruption, and distinguishes its own results from others.
    restore(&place, &copy, &[]);
    assert!(!copy.join("log.restoring.json").exists());
    std::fs::remove_dir_all(copy.join("log")).unwrap();
    let others = fails(&[
        "restore",
        "--from",
        to,
        "--data-dir",
        copy.to_str().unwrap(),
    ]);
    assert!(others.contains("already contains results"), "{others}");
    restore(&place, &copy, &["--keep-blobs"]);
    let restored = Server::start(&copy, SETTINGS);
    assert_eq!(
        view(&server, &name("a")).await,
        view(&restored, &name("a")).await
    );

    // A modified backup is not restored.
    let id = taken["id"].as_str().unwrap();
    let log = place.join(format!("logs/p/a/{id}.log"));
    let good = std::fs::read(&log).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    for (bytes, what) in [(&bad[..], "a byte"), (&good[..good.len() - 1], "its end")] {
        std::fs::write(&log, bytes).unwrap();
        let found = fails(&["restore", "--check", "--from", to]);
        assert!(found.contains("is damaged"), "{what}: {found}");
        let other = root.path().join("other");
        let args = [
            "restore",
            "--from",
            to,
            "--keep-blobs",
            "--data-dir",
            other.to_str().unwrap(),
        ];
        assert!(!palimpsest(&args).status.success());
        assert!(!other.join("log").exists());
    }
    std::fs::write(&log, &good).unwrap();
    let manifest = place.join(format!("manifests/{id}.jsonl"));
    let text = std::fs::read_to_string(&manifest).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let cut = lines[..lines.len() - 1].join("\n");
    for text in [cut, text.replacen("\"revision\":", "\"revision\":1", 1)] {
        std::fs::write(&manifest, text).unwrap();
        let found = fails(&["restore", "--check", "--from", to]);
        assert!(found.contains("is damaged"), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_killed_after_the_log_rename_is_complete() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (data, place) = (root.path().join("data"), root.path().join("backups"));
    let server = Server::start(&data, SETTINGS);
    fill(&server, &name("a"), 2).await;
    backup(&server, &place, &[]);
    let copy = root.path().join("copy");
    let to_copy = [
        "restore",
        "--from",
        place.to_str().unwrap(),
        "--data-dir",
        copy.to_str().unwrap(),
    ];
    let status = Command::new(binary())
        .args(to_copy)
        .env_clear()
        .env("CRASH_AT", "restore.placed")
        .stderr(Stdio::null())
        .status();
    assert!(!status.unwrap().success());
    // The log is in its place, and the note of the restoration still exists.
    assert!(copy.join("log.restoring.json").exists());
    assert!(!copy.join("log.restoring").exists());

    // A second run must not replace a store that a server may have written to.
    let refused = fails(&to_copy);
    assert!(refused.contains("contains a store"), "{refused}");
    succeeds(&[
        "verify-store",
        "--contents",
        "--data-dir",
        copy.to_str().unwrap(),
    ]);
    let restored = Server::start(&copy, SETTINGS);
    assert_eq!(files(&data, "a"), files(&copy, "a"));
    assert_eq!(
        view(&server, &name("a")).await,
        view(&restored, &name("a")).await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_result_is_reported_and_the_rest_is_backed_up() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let [early, late] = ["early", "late"].map(|place| root.path().join(place));
    let server = Server::start(&data, SETTINGS);
    fill(&server, &name("a"), 3).await;
    backup(&server, &early, &[]);
    let file = files(&data, "a").pop().unwrap();
    std::fs::write(data.join("blobs/p/a/tool-results").join(&file), "another").unwrap();
    // An earlier backup in the same place contains an intact copy.
    let taken = backup(&server, &early, &["--full"]);
    assert_eq!(
        (&taken["damaged_results"], &taken["results"]),
        (&0.into(), &2.into())
    );
    let check = |place: &Path| succeeds(&["restore", "--check", "--from", place.to_str().unwrap()]);
    assert!(check(&early).contains("3 stored results"));
    let taken = backup(&server, &late, &[]);
    assert_eq!(
        (&taken["damaged_results"], &taken["results"]),
        (&1.into(), &2.into())
    );
    assert!(check(&late).contains("1 more results are missing"));
    let address = format!("http://{}", server.address());
    let again = [
        "backup",
        "--server",
        &address,
        "--to",
        late.to_str().unwrap(),
        "--full",
    ];
    let again = palimpsest(&again);
    assert!(again.status.success());
    let says = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(says.contains(&file) && says.contains("damaged"), "{says}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_result_is_reported_like_a_damaged_one() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let [early, late, last] = ["early", "late", "last"].map(|place| root.path().join(place));
    let server = Server::start(&data, SETTINGS);
    fill(&server, &name("a"), 2).await;
    backup(&server, &early, &[]);
    let stored = files(&data, "a");
    let folder = data.join("blobs/p/a/tool-results");
    std::fs::remove_file(folder.join(&stored[0])).unwrap();
    // The first backup in the same place contains a copy, also for an incremental backup.
    for args in [&[][..], &["--full"]] {
        let taken = backup(&server, &early, args);
        assert_eq!(taken["damaged_results"], 0, "{args:?}");
    }
    let taken = backup(&server, &late, &[]);
    assert_eq!(
        (&taken["damaged_results"], &taken["results"]),
        (&1.into(), &1.into())
    );
    let check = succeeds(&["restore", "--check", "--from", late.to_str().unwrap()]);
    assert!(check.contains("1 more results are missing"), "{check}");
    // The session has no file at all any more.
    std::fs::remove_file(folder.join(&stored[1])).unwrap();
    assert_eq!(backup(&server, &last, &[])["damaged_results"], 2);
    // A store that was restored without any result reports them too.
    let (copy, again) = (root.path().join("copy"), root.path().join("again"));
    restore(&last, &copy, &[]);
    let restored = Server::start(&copy, SETTINGS);
    assert_eq!(backup(&restored, &again, &[])["damaged_results"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_and_results_of_another_store_are_rejected() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("backups");
    let (ours, theirs) = (root.path().join("ours"), root.path().join("theirs"));
    let (first, second) = (
        Server::start(&ours, SETTINGS),
        Server::start(&theirs, SETTINGS),
    );
    fill(&first, &name("a"), 2).await;
    fill(&second, &name("a"), 2).await;
    let of_first = backup(&first, &place, &[]);
    let address = format!("http://{}", second.address());
    let to = place.to_str().unwrap();
    let refused = fails(&["backup", "--server", &address, "--to", to]);
    assert!(refused.contains("is of the store"), "{refused}");
    // A store that replaces the other one begins with a backup of its own.
    let of_second = backup(&second, &place, &["--full"]);
    assert_eq!(of_second["base"], serde_json::Value::Null);
    let next = backup(&second, &place, &[]);
    assert_eq!(next["base"], of_second["id"]);

    // The results of one store are not handed to a log that is restored from the other's backup.
    let results = files(&theirs, "a");
    drop(second);
    std::fs::remove_dir_all(theirs.join("log")).unwrap();
    let over = |id: &serde_json::Value| {
        let id = id.as_str().unwrap().to_owned();
        let theirs = theirs.to_str().unwrap().to_owned();
        let from = to.to_owned();
        move |run: fn(&[&str]) -> String| {
            run(&[
                "restore", "--from", &from, "--data-dir", &theirs, "--keep-blobs", "--backup", &id,
            ])
        }
    };
    let refused = over(&of_first["id"])(fails);
    assert!(refused.contains("belong to the store"), "{refused}");
    assert_eq!(files(&theirs, "a"), results);
    over(&next["id"])(succeeds);
    let restored = Server::start(&theirs, SETTINGS);
    view(&restored, &name("a")).await;
}
