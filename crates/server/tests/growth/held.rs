//! Memory use and repeated reads: a rejected call causes neither.

use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::command::{Append, Command, CreateSession};
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_engine::EngineError;
use palimpsest_engine::clock::{Clock, ManualClock};
use palimpsest_engine::quotas::{QuotaLimits, QuotaTracker, QuotasConfig};
use palimpsest_engine::sessions::{DefaultPolicies, MissingSession, Sessions};
use palimpsest_store::StoreError;

use crate::delta::Log;
use crate::{message, turn};

/// The number of sessions and of messages per session. Each session uses a large part of the cache.
const SESSIONS: usize = 40;
const MESSAGES: u128 = 30;
const CACHE_BYTES: usize = 100_000;

fn sessions(log: &Arc<Log>, cache_bytes: usize) -> Sessions {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_millis(1)));
    let limits = Arc::new(Limits::default());
    let log = Arc::clone(log);
    Sessions::new(log, clock, limits, DefaultPolicies::default(), cache_bytes)
}

fn within(log: &Arc<Log>, project: QuotaLimits) -> Sessions {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_millis(1)));
    let config = QuotasConfig {
        project,
        ..QuotasConfig::default()
    };
    sessions(log, 1 << 28).with_quotas(Arc::new(QuotaTracker::new(config, clock)))
}

fn key(number: usize) -> SessionKey {
    SessionKey::parse(&format!("projects/p/sessions/s{number}")).unwrap()
}

async fn filled() -> Arc<Log> {
    let log = Arc::new(Log::default());
    let writer = sessions(&log, 1 << 28);
    for number in 0..SESSIONS {
        for n in 0..MESSAGES {
            turn(&writer, &key(number), n).await;
        }
    }
    log
}

async fn append(
    sessions: &Sessions,
    key: &SessionKey,
    expected_revision: Option<Revision>,
) -> Result<(), EngineError> {
    let append = Append {
        messages: vec![message(MESSAGES + 7)],
        expected_revision,
        ..Append::default()
    };
    let decide = |transaction: &mut palimpsest_engine::sessions::Transaction<'_>| {
        transaction.run(Command::Append(append.clone()))
    };
    let done = sessions.write(key, &MissingSession::Reject, decide, |_, _| Ok(()));
    done.await
}

#[tokio::test]
async fn sessions_of_rejected_changes_stay_within_the_cache_limit() {
    let log = filled().await;
    let sessions = sessions(&log, CACHE_BYTES);
    for number in 0..SESSIONS {
        // The revision is outdated, but this is known only after the session was loaded into the cache.
        let rejected = append(&sessions, &key(number), Some(Revision::new(1))).await;
        assert!(matches!(rejected, Err(EngineError::Rejected(_))));
    }
    let cached = sessions.cache_stats();
    assert!(cached.evictions > 0, "{cached:?}");
    // The last session is evicted only when the next one is loaded.
    assert!(cached.bytes < 2 * CACHE_BYTES, "{cached:?}");
}

#[tokio::test]
async fn watched_sessions_are_evicted_and_watchers_still_receive_changes() {
    let log = filled().await;
    let sessions = sessions(&log, CACHE_BYTES);
    let mut watchers = Vec::new();
    for number in 0..SESSIONS {
        watchers.push(sessions.watch(&key(number)));
        sessions.read_full(&key(number), |_| ()).await.unwrap();
    }
    let cached = sessions.cache_stats();
    assert_eq!(
        cached.sessions, SESSIONS,
        "the handles of watched sessions were dropped"
    );
    assert!(cached.bytes < 2 * CACHE_BYTES, "{cached:?}");
    append(&sessions, &key(0), None).await.unwrap();
    let heard = tokio::time::timeout(Duration::from_mins(1), watchers[0].changed()).await;
    assert!(heard.unwrap().revision > Revision::ZERO);
}

#[tokio::test]
async fn a_write_rejected_by_a_quota_keeps_the_session_in_memory() {
    let log = filled().await;
    let sessions = within(
        &log,
        QuotaLimits {
            // The session is larger than this quota already, so each append is rejected.
            stored_bytes: 1,
            ..QuotaLimits::default()
        },
    );
    sessions.read_full(&key(0), |_| ()).await.unwrap();
    let before = log.reads();
    for _ in 0..10 {
        let refused = append(&sessions, &key(0), None).await;
        assert!(matches!(refused, Err(EngineError::QuotaExceeded(_))));
    }
    assert_eq!(log.reads(), before, "the session was read again");
    let key = key(0);
    let read = sessions.read(&key, |session| session.transcript().len());
    assert_eq!(read.await.unwrap(), usize::try_from(MESSAGES).unwrap());
}

#[tokio::test]
async fn a_write_rejected_by_a_full_disk_keeps_the_session_in_memory() {
    let log = filled().await;
    let sessions = sessions(&log, 1 << 28);
    sessions.read_full(&key(0), |_| ()).await.unwrap();
    log.fill();
    let before = log.reads();
    for _ in 0..10 {
        let refused = append(&sessions, &key(0), None).await;
        assert!(
            matches!(refused, Err(EngineError::Store(StoreError::OutOfSpace(_)))),
            "{refused:?}"
        );
    }
    assert_eq!(log.reads(), before, "the session was read again");
    let key = key(0);
    let read = sessions.read(&key, |session| session.transcript().len());
    assert_eq!(read.await.unwrap(), usize::try_from(MESSAGES).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creates_do_not_exceed_the_session_quota() {
    const QUOTA: u64 = 10;
    let log = Arc::new(Log::default());
    let quotas = QuotaLimits {
        sessions: QUOTA,
        ..QuotaLimits::default()
    };
    let sessions = Arc::new(within(&log, quotas));
    // All creates run at once, so a check before the write without a reservation would let too many pass.
    let creates = (0..60).map(|number| {
        let sessions = Arc::clone(&sessions);
        tokio::spawn(async move {
            let missing = MissingSession::Create(CreateSession::default());
            let key = key(number);
            sessions
                .write(&key, &missing, |_| Ok(()), |_, ()| Ok(()))
                .await
        })
    });
    let mut successes = 0;
    for create in creates.collect::<Vec<_>>() {
        match create.await.unwrap() {
            Ok(()) => successes += 1,
            Err(EngineError::QuotaExceeded(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(successes, QUOTA);
}
