//! The cost of a long session, counted instead of timed.
//!
//! Counted are the bytes written, the part of a log that a load reads, and the reads and output of a turn.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod as_left;
mod counting;
mod delta;
mod held;
mod lists;
mod observed;
mod repeat;

use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::command::{Append, Command, CreateSession, ServeView};
use palimpsest_core::ids::{MessageId, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Block, Message, Role};
use palimpsest_engine::clock::{Clock, ManualClock};
use palimpsest_engine::sessions::{DefaultPolicies, MissingSession, Sessions};
use palimpsest_store::sled::{SledLog, SledOptions};
use palimpsest_store::{SessionLog as _, Store};
use uuid::Uuid;

const MESSAGES: u128 = 4_000;
const QUARTER: u128 = MESSAGES / 4;

fn sessions(log: &Arc<SledLog>) -> Sessions {
    let log: Arc<dyn Store> = log.clone();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_millis(1)));
    let limits = Arc::new(Limits::default());
    Sessions::new(log, clock, limits, DefaultPolicies::default(), 1 << 28)
}

fn message(n: u128) -> Arc<Message> {
    let role = if n.is_multiple_of(2) {
        Role::User
    } else {
        Role::Assistant
    };
    // Distinct numbers compress poorly, so the log grows by a similar size with each message.
    let words: Vec<String> = (0..60)
        .map(|k| (n * 7_919 + k * 104_729).to_string())
        .collect();
    let text = words.join(" ");
    let id = MessageId::new(Uuid::from_u128(n + 1));
    Arc::new(Message::new(id, role, vec![Block::text(text)]))
}

async fn turn(sessions: &Sessions, key: &SessionKey, n: u128) {
    let missing = MissingSession::Create(CreateSession::default());
    let message = message(n);
    sessions
        .write(
            key,
            &missing,
            |transaction| {
                transaction.run(Command::Append(Append {
                    messages: vec![Arc::clone(&message)],
                    ..Append::default()
                }))?;
                transaction.run(Command::ServeView(ServeView::default()))
            },
            |_, _| Ok(()),
        )
        .await
        .unwrap();
}

/// Includes snapshots. Each snapshot is taken when the log has grown by the size of the previous one, so snapshots
/// cost no more than they save.
#[tokio::test(flavor = "multi_thread")]
async fn p23_bytes_written_are_proportional_to_new_content() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(SledLog::open(&SledOptions::new(dir.path())).unwrap());
    let sessions = sessions(&log);
    let key = SessionKey::parse("projects/p/sessions/s").unwrap();
    let mut written = Vec::new();
    let mut before = log.stats().bytes;
    for n in 0..MESSAGES {
        turn(&sessions, &key, n).await;
        if (n + 1).is_multiple_of(QUARTER) {
            let now = log.stats().bytes;
            written.push(now - before);
            before = now;
        }
    }
    let (first, rest) = written.split_first().unwrap();
    for quarter in rest {
        // If a turn rewrote the session, the last quarter would write about seven times as much as the first.
        assert!(*quarter < first * 3 / 2, "quarters: {written:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_loaded_from_its_snapshot_equals_the_original() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(SledLog::open(&SledOptions::new(dir.path())).unwrap());
    let key = SessionKey::parse("projects/p/sessions/s").unwrap();
    let one = sessions(&log);
    for n in 0..QUARTER {
        turn(&one, &key, n).await;
    }
    let expected = one.read_full(&key, Clone::clone).await.unwrap();
    // The snapshot is taken in the background, and loads must work before it exists.
    let loaded = sessions(&log).read_full(&key, Clone::clone).await.unwrap();
    assert_eq!(loaded, expected);
    let snapshot = async {
        while log.head(&key).await.unwrap().unwrap().snapshot.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_mins(2), snapshot).await;
    waited.expect("no snapshot was taken");
    let fresh = sessions(&log);
    let bytes_at_first = fresh
        .read(&key, |session| session.transcript().content_bytes())
        .await
        .unwrap();
    let loaded = fresh.read_full(&key, Clone::clone).await.unwrap();
    assert_eq!(loaded, expected);
    // The load started with only the end of the session.
    assert!(bytes_at_first * 2 < loaded.transcript().content_bytes());
}
