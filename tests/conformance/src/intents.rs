//! Checks of the store id and of file intents.

use palimpsest_core::ids::SessionKey;

use crate::harness::{Harness, Log, batch, bytes, key, time};
use crate::latest_incarnation::LatestIncarnation as _;
use palimpsest_store::{Batch, FileIntent, StoreError};

pub(super) async fn run(harness: &dyn Harness) {
    every_log_has_its_own_store_id(harness).await;
    an_append_settles_its_intents(harness).await;
    a_doomed_intent_rejects_appends_of_its_file(harness).await;
    intents_survive_the_deletion_of_their_session(harness).await;
    lists(harness).await;
}

fn naming(expected: u64, files: &[&str]) -> Batch {
    Batch {
        completed_intents: files.iter().map(|file| (*file).into()).collect(),
        ..batch(expected, 1, bytes(expected, 50))
    }
}

async fn intend(log: &Log, key: &SessionKey, files: &[&str], at: i64) -> Result<(), StoreError> {
    let files = files.iter().map(|file| (*file).into()).collect();
    log.declare_intents(key, files, time(at)).await
}

async fn found(log: &Log) -> Vec<(String, i64, bool)> {
    let found = log.list_intents(None, 100).await.expect("lists");
    let short = |it: FileIntent| (it.file.into(), it.at.as_millis(), it.is_revoked);
    assert_eq!(found.unreadable, 0);
    found.intents.into_iter().map(short).collect()
}

async fn doom(log: &Log, key: &SessionKey, file: &str, before: i64) -> bool {
    let doomed = log.revoke_intent(key, file, time(before)).await;
    doomed.expect("answers")
}

fn is_lost<T: std::fmt::Debug>(result: Result<T, StoreError>, file: &str) {
    match result {
        Err(StoreError::IntentRevoked(lost)) => assert_eq!(&*lost, file),
        other => panic!("expected a lost intent, got {other:?}"),
    }
}

async fn every_log_has_its_own_store_id(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let id = log.store_id().await.expect("the store must have an id");
    let log = harness.reopen(log).await;
    assert_eq!(log.store_id().await.expect("the store must have an id"), id);
    let other = harness.fresh().await;
    assert_ne!(
        other.store_id().await.expect("the store must have an id"),
        id
    );
}

async fn an_append_settles_its_intents(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let a = key("p/a");
    is_lost(log.append_to(&a, naming(0, &["f"])).await, "f");
    assert!(log.head(&a).await.expect("reads").is_none());
    intend(&log, &a, &["f", "g", "h"], 5)
        .await
        .expect("intends");
    let log = harness.reopen(log).await;
    // A rejected append ends no intents.
    is_lost(log.append_to(&a, naming(0, &["f", "x"])).await, "x");
    assert!(log.head(&a).await.expect("reads").is_none());
    assert_eq!(found(&log).await.len(), 3);
    let created = log.append_to(&a, naming(0, &["f"])).await;
    created.expect("appends");
    is_lost(log.append_to(&a, naming(1, &["f"])).await, "f");
    // An append that is rejected for another reason ends no intents.
    crate::harness::conflict_at(log.append_to(&a, naming(7, &["g"])).await);
    let appended = log.append_to(&a, naming(1, &["g"])).await;
    appended.expect("appends");
    let log = harness.reopen(log).await;
    assert_eq!(found(&log).await, [("h".into(), 5, false)]);
    assert_eq!(crate::harness::head(&log, &a).await.revision.get(), 2);
    log.complete_intent(&a, "h").await.expect("ends");
    log.complete_intent(&a, "h")
        .await
        .expect("an ended intent can be ended again");
    assert_eq!(found(&log).await, []);
}

async fn a_doomed_intent_rejects_appends_of_its_file(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let (a, b) = (key("p/a"), key("p/b"));
    let created = log.append_to(&a, batch(0, 1, bytes(1, 50))).await;
    created.expect("appends");
    intend(&log, &a, &["f"], 5).await.expect("intends");
    intend(&log, &b, &["f"], 5).await.expect("intends");
    assert!(
        !doom(&log, &a, "f", 5).await,
        "the intent is not older than the limit"
    );
    assert!(!doom(&log, &a, "none", 9).await);
    // Announcing a file again updates the time of its intent.
    intend(&log, &a, &["f"], 8).await.expect("intends");
    assert!(!doom(&log, &a, "f", 6).await);
    assert!(doom(&log, &a, "f", 9).await);
    assert!(doom(&log, &a, "f", 0).await, "a doomed intent stays doomed");
    let log = harness.reopen(log).await;
    is_lost(log.append_to(&a, naming(1, &["f"])).await, "f");
    is_lost(intend(&log, &a, &["e", "f"], 10).await, "f");
    let other = log.append_to(&b, naming(0, &["f"])).await;
    other.expect("an intent must not block another session");
    log.complete_intent(&a, "f").await.expect("ends");
    intend(&log, &a, &["f"], 11).await.expect("intends");
    let appended = log.append_to(&a, naming(1, &["f"])).await;
    appended.expect("appends");
}

async fn intents_survive_the_deletion_of_their_session(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let a = key("p/a");
    let created = log.append_to(&a, batch(0, 1, bytes(1, 50))).await;
    created.expect("appends");
    intend(&log, &a, &["late"], 5).await.expect("intends");
    assert!(crate::harness::erase(&log, &a).await);
    assert_eq!(found(&log).await, [("late".into(), 5, false)]);
}

async fn lists(harness: &dyn Harness) {
    let log = harness.fresh().await;
    let mut names = Vec::new();
    for session in ["a/x", "a/x.y", "a-b/x", "b/0", "A/x"].map(key) {
        for file in ["c1-0.txt", "c10-0.txt", "c1-0.json"] {
            intend(&log, &session, &[file], 1).await.expect("intends");
            names.push((session.clone(), file.to_owned()));
        }
    }
    names.sort();
    for limit in [1, 4, 99] {
        let mut listed: Vec<(SessionKey, String)> = Vec::new();
        loop {
            let after = listed.last().map(|(key, file)| (key, file.as_str()));
            let page = log.list_intents(after, limit).await.expect("lists").intents;
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            let short = |it: FileIntent| (it.key, it.file.into_string());
            listed.extend(page.into_iter().map(short));
        }
        assert_eq!(listed, names);
    }
    // An empty name is rejected like one that is too long.
    let oversized = "x".repeat(palimpsest_store::MAX_FILE_BYTES + 1);
    let session = key("a/x");
    for bad in [oversized.as_str(), ""] {
        let refused = intend(&log, &session, &[bad], 1).await;
        assert!(matches!(refused, Err(StoreError::TooLarge { .. })));
    }
}
