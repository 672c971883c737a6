//! Tests of a migration between two stores in memory.

use palimpsest_conformance::MemoryLog;
use palimpsest_core::array::CallerArray;
use palimpsest_core::command::{Command, CreateSession, SyncArray};
use palimpsest_core::message::{CANONICAL_VERSION, Digest};

use super::*;
use crate::clock::ManualClock;
use crate::sessions::{MissingSession, Transaction};

fn side() -> StoreSide {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000)));
    let blobs = Arc::new(Blobs::in_memory());
    StoreSide::new(Arc::new(MemoryLog::new()), blobs, clock).unwrap()
}

fn parent() -> SessionKey {
    SessionKey::parse("projects/p/sessions/parent").unwrap()
}

/// Adds a tip to a subagent session, and creates the session if it does not exist.
async fn add_tip(side: &StoreSide, key: &SessionKey, scope: Digest, tip: Digest) {
    let missing = MissingSession::Create(CreateSession {
        scope: Some(scope),
        parent: Some(parent()),
        ..CreateSession::default()
    });
    let decide = |transaction: &mut Transaction<'_>| {
        let array = CallerArray {
            version: CANONICAL_VERSION.into(),
            ..CallerArray::default()
        };
        let tip = Some(tip);
        transaction.run(Command::SyncArray(SyncArray { array, tip }))
    };
    let sessions = &side.sessions;
    let written = sessions.write(key, &missing, decide, |_, _| Ok(())).await;
    written.unwrap();
}

#[tokio::test]
async fn a_migrated_session_is_found_by_content_and_by_its_parent() {
    let digest = |byte: u8| Digest::from_bytes([byte; 16]);
    let (from, to) = (side(), side());
    let key = SessionKey::parse("projects/p/sessions/s").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let journal = MigrationJournal::open(folder.path(), true).await.unwrap();
    // The second run continues the session.
    for (run, tip) in [1, 2].into_iter().enumerate() {
        add_tip(&from, &key, digest(0), digest(tip)).await;
        let now = Timestamp::from_millis(2_000);
        let kept = DeletionPolicy::Refuse;
        let moved = migrate((&from, &to), None, now, &journal, kept).await;
        assert_eq!(moved.unwrap().moved, 1, "run {run}");
        for known in 1..=tip {
            let tips = [digest(known)];
            let found = to.log.find_by_tip(&key.project, digest(0), &tips);
            assert_eq!(found.await.unwrap(), Some(key.clone()));
            let other = to.log.find_by_tip(&key.project, digest(5), &tips);
            assert_eq!(other.await.unwrap(), None);
        }
        let found = to.log.subagents(&[parent()], None, 9).await;
        assert_eq!(found.unwrap(), std::slice::from_ref(&key));
    }
}
