//! Cached reads of a worker on a shared log.
//!
//! The worker rarely reads the head of a session from the log, and still misses no write of another process.

use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::command::{Append, Command, Rejection};
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_engine::EngineError;
use palimpsest_engine::clock::{Clock, IdSource, ManualClock};
use palimpsest_engine::sessions::{
    DefaultPolicies, MissingSession, ReadMode, Sessions, Transaction,
};
use palimpsest_store::blobs::Blobs;
use palimpsest_store::{DueQuery, SessionLog as _, WorkQueue as _};
use palimpsest_worker::{WorkerConfig, sessions};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::delta::Log;
use crate::{message, turn};

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000)))
}

/// Returns the sessions of one of several processes.
fn process(log: &Arc<Log>, clock: &Arc<ManualClock>) -> Sessions {
    let (log, clock) = (Arc::clone(log), Arc::clone(clock));
    let limits = Arc::new(Limits::default());
    Sessions::new(log, clock, limits, DefaultPolicies::default(), 1 << 28)
}

fn append(number: u128) -> Command {
    Command::Append(Append {
        messages: vec![message(number)],
        ..Append::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_of_the_worker_compares_the_session_twice() {
    let log = Arc::new(Log::default().shared());
    let clock = clock();
    let key = SessionKey::parse("projects/p/sessions/s").unwrap();
    let sessions = Arc::new(process(&log, &clock));
    let mut number = 0;
    while log
        .itself()
        .due(DueQuery::ALL, clock.now(), 1)
        .await
        .unwrap()
        .is_empty()
    {
        turn(&sessions, &key, number).await;
        number += 1;
    }
    let clock: Arc<dyn Clock> = clock;
    let blobs = Arc::new(Blobs::in_memory());
    let ids = Arc::new(IdSource::random(Arc::clone(&clock)));
    let config = WorkerConfig::default();
    let worker = sessions::worker(&sessions, &blobs, &clock, &ids, &config, None);
    let stats = worker.stats();
    let before = log.reads();
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    let until = Instant::now() + Duration::from_mins(2);
    loop {
        let head = log.itself().head(&key).await.unwrap().unwrap();
        if stats.updates() == 1 && head.lease.is_none() {
            break;
        }
        assert!(Instant::now() < until, "no summary is written");
        sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    running.await.unwrap();
    // One read before the first step of the pass, and one after its last step.
    assert_eq!(log.reads().calls - before.calls, 2);
    let version = sessions.read(&key, |session| session.memory().version.clone());
    let text = version.await.unwrap().unwrap().text().to_string();
    let file = blobs.summary(&key).await.unwrap().unwrap();
    let file = std::str::from_utf8(&file.text).unwrap();
    // The file ends with a marker of its version, which is not part of the text in the log.
    let body = format!("{}\n", text.strip_suffix('\n').unwrap_or(&text));
    let mark = file.strip_prefix(&body).unwrap();
    assert!(mark.starts_with("<!-- palimpsest: version "), "{mark}");
    assert_eq!(mark.lines().count(), 1, "{mark}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_writing_step_sees_events_of_other_processes() {
    let log = Arc::new(Log::default().shared());
    let clock = clock();
    let key = SessionKey::parse("projects/p/sessions/s").unwrap();
    let (one, other) = (process(&log, &clock), process(&log, &clock));
    turn(&one, &key, 0).await;
    // The second process writes behind the back of the first one, whose cached session has one message.
    turn(&other, &key, 1).await;
    let theirs = log.itself().head(&key).await.unwrap().unwrap().revision;
    let messages = |begin| {
        one.read_with(begin, &key, |session| {
            session.transcript().next().get() as usize
        })
    };
    let as_left = messages(ReadMode::Cached).await.unwrap();
    assert_eq!(as_left, 1, "the cached session was not used");

    // The decision on the cached session conflicts, and is repeated on the current one.
    let decide = |transaction: &mut Transaction<'_>| {
        let before = transaction.revision_before();
        transaction.run(append(2))?;
        Ok(before)
    };
    let upon = one.write_with(
        ReadMode::Cached,
        &key,
        &MissingSession::Reject,
        decide,
        |_, upon| Ok(*upon),
    );
    let upon = upon.await.unwrap();
    // The messages 0, 1 and 2: the decision was repeated after the write of the other process.
    assert_eq!(messages(ReadMode::Cached).await.unwrap(), 3);
    assert_eq!(upon, theirs);
    let seen = other.read(&key, |session| session.transcript().next().get() as usize);
    assert_eq!(seen.await.unwrap(), 3);

    // A decision without events is also based on the current session.
    turn(&other, &key, 3).await;
    let nothing = one.write_with(
        ReadMode::Cached,
        &key,
        &MissingSession::Reject,
        |_| Ok(()),
        |session, ()| Ok(session.transcript().next().get() as usize),
    );
    assert_eq!(nothing.await.unwrap(), 4);
    turn(&other, &key, 4).await;
    // The cached session has four messages, so its refusal must not reach the caller: the current one has five.
    let refuses = |transaction: &mut Transaction<'_>| {
        let session = transaction.session().unwrap();
        if session.transcript().next().get() == 5 {
            return Ok(());
        }
        let here = session.revision();
        Err(Rejection::RevisionNotFound {
            revision: here,
            current: here,
        })
    };
    let decided = one.write_with(
        ReadMode::Cached,
        &key,
        &MissingSession::Reject,
        refuses,
        |_, ()| Ok(()),
    );
    decided.await.unwrap();

    // After a short time the cached head is compared with the log again.
    turn(&other, &key, 5).await;
    assert_eq!(messages(ReadMode::Cached).await.unwrap(), 5);
    // A cached head is trusted for 200 ms.
    clock.advance(Duration::from_millis(200));
    assert_eq!(messages(ReadMode::Cached).await.unwrap(), 6);
    other.delete(&key, None, |_| Ok(())).await.unwrap();
    let gone = one.write_with(
        ReadMode::Cached,
        &key,
        &MissingSession::Reject,
        decide,
        |_, _| Ok(()),
    );
    assert!(matches!(gone.await, Err(EngineError::SessionNotFound(_))));
}
