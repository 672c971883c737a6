//! The blobs: on a folder, in memory, and in a bucket.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of a test function fail by panicking too"
)]

use std::collections::HashSet;
use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_store::blobs::{
    BlobError, BlobKind, Blobs, MIN_SWEEP_AGE_MILLIS, Replaced, SummaryFile, summary_path,
};
use palimpsest_test_servers::Bucket;

/// Later than any blob that a test writes.
const FUTURE: Timestamp = Timestamp::from_millis(i64::MAX);

fn session(name: &str) -> SessionKey {
    SessionKey::parse(&format!("projects/p/sessions/{name}")).unwrap()
}

async fn behaves(blobs: &Blobs) {
    let (s, text) = (session("s"), Bytes::from_static(b"hello, world"));
    let blob = blobs
        .put(&s, "call_1", BlobKind::Text, text.clone())
        .await
        .unwrap();
    assert_eq!(blob.path, "p/s/tool-results/call_1-09ca7e4eaa6e8ae9.txt");
    assert_eq!((blob.bytes, blob.sha256.len()), (12, 64));
    let again = blobs
        .put(&s, "call_1", BlobKind::Text, text.clone())
        .await
        .unwrap();
    assert_eq!(again, blob);
    let other = blobs
        .put(&s, "call_1", BlobKind::Json, Bytes::from_static(b"{}"))
        .await
        .unwrap();
    assert_eq!(other.path, "p/s/tool-results/call_1-44136fa355b3678a.json");
    assert_eq!(blobs.get(&blob.path).await.unwrap(), text);
    assert_eq!(blobs.get_checked(&blob).await.unwrap(), text);
    assert_eq!(
        &blobs.get_range(&blob.path, 7..12).await.unwrap()[..],
        b"world"
    );
    assert_eq!(blobs.get_range(&blob.path, 12..12).await.unwrap().len(), 0);
    let past = blobs.get_range(&blob.path, 7..13).await;
    assert!(matches!(past, Err(BlobError::Range { start: 7, end: 13 })));
    for missing in ["p/s/nothing", "q/s/tool-results/x"] {
        assert!(matches!(
            blobs.get(missing).await,
            Err(BlobError::NotFound(_))
        ));
        assert!(matches!(
            blobs.get_range(missing, 0..1).await,
            Err(BlobError::NotFound(_))
        ));
    }
    for bad in [
        "",
        ".",
        "../x",
        "a/b",
        "a\\b",
        ".hidden",
        "ü",
        &"x".repeat(129),
    ] {
        let refused = blobs.put(&s, bad, BlobKind::Text, Bytes::new()).await;
        assert!(matches!(refused, Err(BlobError::Name(_))), "{bad}");
    }
    for bad in ["p/../../x", "p//x"] {
        assert!(blobs.get(bad).await.is_err(), "{bad}");
    }
    summaries(blobs).await;
    for alike in ["s2", "s.", "s-"] {
        blobs
            .put(&session(alike), "c", BlobKind::Text, text.clone())
            .await
            .unwrap();
    }
    let listed = blobs.list(&s).await.unwrap();
    let paths: Vec<_> = listed.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(
        paths,
        ["p/s/session-memory/summary.md", &blob.path, &other.path]
    );
    assert_eq!(listed[1].bytes, 12);
    assert_eq!(blobs.remove_session(&s).await.unwrap().files, 3);
    assert_eq!(blobs.remove_session(&s).await.unwrap().files, 0);
    assert!(matches!(
        blobs.get(&blob.path).await,
        Err(BlobError::NotFound(_))
    ));
    for alike in ["s2", "s.", "s-"] {
        assert_eq!(
            blobs.list(&session(alike)).await.unwrap().len(),
            1,
            "{alike}"
        );
    }
    blobs.put(&s, "call_1", BlobKind::Text, text).await.unwrap();
}

/// A summary is replaced only where it is as it was found.
async fn summaries(blobs: &Blobs) {
    let s = session("s");
    assert_eq!(summary_path(&s), "p/s/session-memory/summary.md");
    assert!(blobs.summary(&s).await.unwrap().is_none());
    let replace = async |found: Option<&SummaryFile>, text: &'static str| {
        let replaced = blobs.replace_summary(&s, found, Bytes::from(text)).await;
        let now = blobs.summary(&s).await.unwrap().unwrap();
        (replaced.unwrap(), now)
    };
    let (replaced, first) = replace(None, "first").await;
    assert_eq!((replaced, &*first.text), (Replaced::Written, &b"first"[..]));
    let (replaced, now) = replace(None, "another").await;
    assert_eq!((replaced, &*now.text), (Replaced::Changed, &b"first"[..]));
    let (replaced, second) = replace(Some(&first), "second").await;
    assert_eq!(
        (replaced, &*second.text),
        (Replaced::Written, &b"second"[..])
    );
    let (replaced, now) = replace(Some(&first), "third").await;
    assert_eq!(
        (replaced, &*now.text),
        (Replaced::Changed, &b"second"[..]),
        "an edit stays"
    );
    assert_eq!(blobs.get(&summary_path(&s)).await.unwrap(), "second");
}

#[tokio::test]
async fn in_memory() {
    behaves(&Blobs::open("memory://").unwrap()).await;
}

/// Clients of S3 take how to reach it from their process's environment, so that each of these is a process of its own.
#[test]
fn in_a_bucket() {
    on(&[]);
}

/// Not every bucket knows conditions.
#[test]
fn in_a_bucket_without_conditions() {
    on(&[("AWS_CONDITIONAL_PUT", "disabled")]);
}

fn on(variables: &[(&str, &str)]) {
    let bucket = Bucket::start();
    let done = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "on_a_bucket", "--ignored"])
        .envs(bucket.variables())
        .envs(variables.iter().copied())
        .env("PALIMPSEST_TEST_BUCKET", bucket.url())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
    let leftovers: Vec<_> = fs::read_dir(bucket.folder().join(".sgwtmp/multipart"))
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|object| fs::read_dir(object.path()).into_iter().flatten())
        .collect();
    assert!(leftovers.is_empty(), "uploads were left: {leftovers:?}");
}

#[tokio::test]
#[ignore = "in_a_bucket runs it, with the variables that it needs"]
async fn on_a_bucket() {
    let blobs = Blobs::open(&std::env::var("PALIMPSEST_TEST_BUCKET").unwrap()).unwrap();
    behaves(&blobs).await;
    // Around the size at which one request becomes several, and what several can be.
    let s = session("large");
    for len in [
        64 << 10,
        (64 << 10) + 1,
        8 << 20,
        (8 << 20) + 1,
        (16 << 20) + 5,
    ] {
        let bytes: Bytes = (0..=250_u8).cycle().take(len).collect();
        for _ in 0..2 {
            let blob = blobs.put(&s, "large", BlobKind::Text, bytes.clone()).await;
            let blob = blob.unwrap();
            assert_eq!(blob.bytes, len as u64);
            assert!(blobs.get_checked(&blob).await.unwrap() == bytes);
            let end = (len as u64 - 3)..len as u64;
            let part = blobs.get_range(&blob.path, end).await.unwrap();
            assert_eq!(part, bytes.slice(len - 3..));
        }
    }
    // Two at once are one: whoever comes second finds what the first has written.
    let text = Bytes::from_static(b"the same");
    let both = futures::future::join_all((0..8).map(|_| {
        let (blobs, text) = (blobs.clone(), text.clone());
        async move { blobs.put(&session("race"), "c", BlobKind::Text, text).await }
    }));
    for put in both.await {
        put.unwrap();
    }
    assert_eq!(blobs.list(&session("race")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn in_a_folder() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("new/blobs");
    behaves(&Blobs::open(dir.to_str().unwrap()).unwrap()).await;
    let url = format!("file://{}", dir.display());
    let blobs = Blobs::open(&url).unwrap();
    let listed = blobs.list(&session("s")).await.unwrap();
    assert_eq!(listed.len(), 1, "a URL and a path are the same place");
}

#[test]
fn locations_that_are_none() {
    for bad in ["ftp://host/x", "s3://", "file://host/x", "gs://bucket"] {
        let refused = Blobs::open(bad);
        assert!(matches!(refused, Err(BlobError::Location { .. })), "{bad}");
    }
    Blobs::open("s3://bucket/some/prefix").unwrap();
}

#[tokio::test]
async fn a_blob_that_was_changed_is_not_trusted() {
    let root = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(root.path().to_str().unwrap()).unwrap();
    let (s, text) = (session("s"), Bytes::from_static(b"hello"));
    let blob = blobs
        .put(&s, "c", BlobKind::Text, text.clone())
        .await
        .unwrap();
    fs::write(root.path().join(&blob.path), b"hellx").unwrap();
    let read = blobs.get_checked(&blob).await;
    assert!(matches!(read, Err(BlobError::Damaged(_))));
    let put = blobs.put(&s, "c", BlobKind::Text, text).await;
    assert!(matches!(put, Err(BlobError::Damaged(_))));
    assert_eq!(
        fs::read(root.path().join(&blob.path)).unwrap(),
        b"hellx",
        "kept for whoever looks"
    );
}

/// Makes a blob look as if it had been written long ago.
fn age(root: &std::path::Path, path: &str, by: Duration) {
    let file = File::options().write(true).open(root.join(path)).unwrap();
    let written = file.metadata().unwrap().modified().unwrap();
    file.set_modified(written - by).unwrap();
}

fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[tokio::test]
async fn a_sweep_takes_only_old_and_unnamed_tool_results() {
    let root = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(root.path().to_str().unwrap()).unwrap();
    let s = session("s");
    let put = async |call: &str| {
        let text = Bytes::from(call.to_owned());
        blobs
            .put(&s, call, BlobKind::Text, text)
            .await
            .unwrap()
            .path
    };
    let (old, named, young, renewed) = (
        put("old").await,
        put("named").await,
        put("young").await,
        put("renewed").await,
    );
    let text = Bytes::from_static(b"#");
    blobs.replace_summary(&s, None, text).await.unwrap();
    let summary = summary_path(&s);
    let now = millis(
        fs::metadata(root.path().join(&young))
            .unwrap()
            .modified()
            .unwrap(),
    );
    let day = Duration::from_millis(u64::try_from(MIN_SWEEP_AGE_MILLIS).unwrap());
    for path in [&old, &named, &summary, &renewed] {
        age(root.path(), path, day + Duration::from_mins(1));
    }
    age(root.path(), &young, day / 2);
    // It is put again: an event that names it may follow at any time.
    assert_eq!(put("renewed").await, renewed);
    let referenced = HashSet::from([named.clone()]);
    let now = Timestamp::from_millis(now);
    let before = Timestamp::from_millis(0);
    let swept = blobs.sweep(&s, &referenced, before, now).await.unwrap();
    assert_eq!(swept.files, 0);
    let swept = blobs.sweep(&s, &referenced, FUTURE, now).await.unwrap();
    assert_eq!(swept.files, 1);
    assert!(matches!(blobs.get(&old).await, Err(BlobError::NotFound(_))));
    for kept in [&named, &young, &renewed, &summary] {
        blobs.get(kept).await.unwrap();
    }
}
