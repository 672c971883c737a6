//! Tests of the ownership of folders and files: an empty log never replaces an older one, and no log changes another's
//! files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use palimpsest_test_servers::Bucket;
use palimpsest_tests::server::binary;
use palimpsest_tests::{Server, name, palimpsest, palimpsest_with};

use super::{SETTINGS, fails, files, fill, succeeds};

/// Creates the data of a stopped server with one session and two stored results.
async fn filled(data: &Path) {
    let server = Server::start(data, SETTINGS);
    fill(&server, &name("s"), 2).await;
    server.stop();
}

/// Returns all files below a folder with their contents.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn serve(data: &Path, extra: &[&str]) -> String {
    let args = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data.to_str().unwrap(),
        "--admin-listen",
        "127.0.0.1:0",
    ];
    fails(&[&args[..], extra].concat())
}

#[tokio::test]
async fn an_empty_log_does_not_start_on_blobs_of_another_log() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let first = root.path().join("first");
    filled(&first).await;
    let before = content(&first.join("blobs"));
    assert_eq!(files(&first, "s").len(), 2);
    let place = format!("blobs.url=file://{}", first.join("blobs").display());
    // Another server with an empty data folder and the same blob store.
    let second = root.path().join("second");
    let refused = serve(&second, &["--set", &place]);
    assert!(refused.contains("belong to the store"), "{refused}");
    // Without the owner marker the server still refuses to start, because its log does not know the files.
    let marker = first.join("blobs/_palimpsest/store.json");
    let identity = fs::read(&marker).unwrap();
    fs::remove_file(&marker).unwrap();
    let refused = serve(&second, &["--set", &place]);
    assert!(
        refused.contains("the store") && refused.contains("has no session"),
        "{refused}"
    );
    assert!(!marker.exists(), "a marker was written");
    // The log that references the files writes a new marker, as for files of an earlier release.
    Server::start(&first, SETTINGS).stop();
    assert_eq!(fs::read(&marker).unwrap(), identity);
    assert_eq!(content(&first.join("blobs")), before);
}

/// The same for two server processes and one bucket. The second one starts while the first one runs.
#[tokio::test]
async fn an_empty_log_does_not_start_on_the_bucket_of_another_log() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let bucket = Bucket::start();
    let place = format!("blobs.url={}", bucket.url());
    let settings = [SETTINGS, &["--set", &place]].concat();
    let vars = bucket.variables();
    let vars: Vec<_> = vars.iter().map(|(name, value)| (*name, &**value)).collect();
    let first = Server::start_with(&root.path().join("first"), &settings, &vars);
    fill(&first, &name("s"), 2).await;
    let before = content(&bucket.folder());
    let second = root.path().join("second");
    let args = [
        "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--set", &place,
        "--data-dir",
    ];
    let args = [&args[..], &[second.to_str().unwrap()]].concat();
    let refused = palimpsest_with(&args, &vars);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("belong to the store"), "{said}");
    assert_eq!(content(&bucket.folder()), before);
    fill(&first, &name("t"), 1).await;
    first.stop();
}

#[tokio::test]
async fn a_missing_log_is_not_recreated() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path();
    filled(data).await;
    for older in ["before-compaction", "compacting", "restoring", "old"] {
        let aside = data.join(format!("log.{older}"));
        fs::rename(data.join("log"), &aside).unwrap();
        let refused = serve(data, &[]);
        assert!(refused.contains(&format!("log.{older}")), "{refused}");
        assert!(!data.join("log").exists(), "{older}");
        fs::rename(&aside, data.join("log")).unwrap();
    }
    assert_eq!(files(data, "s").len(), 2);
    let server = Server::start(data, SETTINGS);
    fill(&server, &name("t"), 1).await;
    server.stop();
}

#[tokio::test]
async fn an_interrupted_store_compaction_leaves_a_complete_store() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path();
    filled(data).await;
    let to = data.to_str().unwrap();
    for point in ["compact.copied", "place.exchanged", "compact.placed"] {
        let cut_off = Command::new(binary())
            .args(["compact-store", "--data-dir", to])
            .env("CRASH_AT", point)
            .output()
            .unwrap();
        assert!(!cut_off.status.success(), "{point}: {cut_off:?}");
        let told = succeeds(&["verify-store", "--json", "--contents", "--data-dir", to]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(
            (&told["sessions"], &told["results"]),
            (&1.into(), &2.into()),
            "{point}"
        );
        Server::start(data, SETTINGS).stop();
        let _ = fs::remove_dir_all(data.join("log.before-compaction"));
    }
    succeeds(&["compact-store", "--data-dir", to]);
    assert!(data.join("log.before-compaction").exists());
    Server::start(data, SETTINGS).stop();
}

#[tokio::test]
async fn verification_never_writes_to_a_store() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path();
    filled(data).await;
    let args = ["verify-store", "--data-dir", data.to_str().unwrap()];
    let whole = content(data);
    succeeds(&args);
    assert_eq!(content(data), whole);
    // The temporary copy is always removed.
    let scratch = tempfile::tempdir().unwrap();
    let elsewhere = ["--scratch", scratch.path().to_str().unwrap()];
    succeeds(&[&args[..], &elsewhere].concat());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    // Acknowledged data is missing.
    let db = data.join("log/db");
    let mut bytes = fs::read(&db).unwrap();
    let half = bytes.len() / 2;
    bytes[..half].fill(0x5a);
    fs::write(&db, bytes).unwrap();
    let damaged = content(data);
    let output = palimpsest(&args);
    assert!(!output.status.success());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("corrupt"), "{told}");
    assert!(content(data) == damaged, "verification changed the store");
    assert!(!data.join("log.quarantined-1").exists());
}
