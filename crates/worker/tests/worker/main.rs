//! The worker on paused time, with sessions in memory and the real work queue.

#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of a test function fail by panicking too"
)]

mod edits;
mod fake;
mod models;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fake::{Broken, Fake};
use palimpsest_core::command::{Command, StartMemoryUpdate};
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_core::message::Role;
use palimpsest_core::session::Author;
use palimpsest_engine::clock::Clock;
use palimpsest_store::blobs::{Blobs, summary_path};
use palimpsest_store::{DueQuery, Lease, SessionLog, WorkQueue as _};
use palimpsest_worker::{Worker, WorkerOptions, WorkerStats};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// A worker that runs until it is stopped.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
    stats: WorkerStats,
}

fn start(worker: Worker) -> Running {
    let (stop, stats) = (CancellationToken::new(), worker.stats());
    let task = tokio::spawn(worker.run(stop.clone()));
    Running { stop, task, stats }
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn options() -> WorkerOptions {
    WorkerOptions::new("w")
}

/// Waits until a condition is true. Panics after too many checks.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(25)).await;
    }
    panic!("timed out waiting for: {what}");
}

fn is_written(fake: &Fake, key: &SessionKey) -> bool {
    fake.author(key) == Some(Author::Extractive)
}

async fn file(fake: &Fake, key: &SessionKey) -> String {
    let found = fake.blobs.summary(key).await.unwrap();
    found.map_or_else(String::new, |file| {
        unmarked(std::str::from_utf8(&file.text).unwrap())
    })
}

/// Returns a file without its last line, the version mark.
fn unmarked(file: &str) -> String {
    // Tests compare texts of the log, which have no mark.
    let (text, mark) = file.trim_end().rsplit_once('\n').unwrap();
    assert!(mark.starts_with("<!-- palimpsest: version "), "{mark}");
    format!("{text}\n")
}

#[tokio::test(start_paused = true)]
async fn due_sessions_are_updated_and_leave_the_queue() {
    let fake = Fake::new();
    let key = fake.due("p/a").await;
    let running = start(fake.worker(options()));
    until("written", || is_written(&fake, &key)).await;
    until("done", || running.stats.running() == 0).await;
    assert_eq!(file(&fake, &key).await, fake.text(&key));
    assert!(fake.text(&key).contains("Mend a."), "{}", fake.text(&key));
    let later = Timestamp::from_millis(i64::MAX);
    assert_eq!(fake.log.due(DueQuery::ALL, later, 9).await.unwrap(), []);
    assert_eq!(fake.log.head(&key).await.unwrap().unwrap().lease, None);
    assert_eq!((running.stats.updates(), running.stats.failures()), (1, 0));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn projects_take_turns_and_concurrency_is_limited() {
    let fake = Fake::new();
    *fake.slow.lock().unwrap() = Duration::from_millis(40);
    for number in 0..40 {
        fake.due(&format!("flood/s{number:02}")).await;
    }
    let quiet = fake.due("quiet/s").await;
    let running = start(fake.worker(WorkerOptions {
        concurrency: 2,
        ..options()
    }));
    until("all are written", || running.stats.updates() == 41).await;
    assert_eq!(fake.most_at_once.load(Ordering::SeqCst), 2);
    let read = fake.read.lock().unwrap().clone();
    let mut order = read.clone();
    order.dedup();
    // The quiet project was added last. Without turns its session would come after the 40 others.
    let place = read.iter().position(|key| *key == quiet).unwrap();
    assert!(
        place <= 4,
        "the quiet project's turn came as the {place}th: {order:?}"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_due_session_is_claimed_at_the_next_poll_or_wake_up() {
    let fake = Fake::new();
    let worker = fake.worker(WorkerOptions {
        poll: Duration::from_secs(100),
        ..options()
    });
    let waker = worker.waker();
    let running = start(worker);
    sleep(Duration::from_secs(1)).await;
    let key = fake.due("p/a").await;
    sleep(Duration::from_secs(50)).await;
    assert!(
        !is_written(&fake, &key),
        "the session was updated before the next poll"
    );
    waker.notify_one();
    sleep(Duration::from_secs(5)).await;
    assert!(is_written(&fake, &key));
    let other = fake.due("p/b").await;
    sleep(Duration::from_mins(2)).await;
    assert!(is_written(&fake, &other), "the queue was not polled");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_of_a_dead_worker_is_claimed_after_its_lease_expires() {
    let fake = Fake::new();
    let key = fake.due("p/a").await;
    let now = fake.clock().now();
    let until_ms = now.as_millis() + 20_000;
    // A worker that died holds the lease. Only its expiry releases the session.
    let lease = Lease {
        owner: "dead".into(),
        until: Timestamp::from_millis(until_ms),
    };
    assert!(fake.log.claim(&key, lease, now).await.unwrap());
    let running = start(fake.worker(options()));
    sleep(Duration::from_secs(18)).await;
    assert!(
        !is_written(&fake, &key),
        "a session leased by another worker was updated"
    );
    sleep(Duration::from_secs(5)).await;
    assert!(is_written(&fake, &key));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_a_long_update_runs() {
    let fake = Fake::new();
    let key = fake.due("p/a").await;
    // Two pages of one minute each, under leases of ten seconds.
    *fake.slow.lock().unwrap() = Duration::from_mins(1);
    let running = start(fake.worker(WorkerOptions {
        lease: Duration::from_secs(10),
        ..options()
    }));
    let other = start(fake.worker(WorkerOptions::new("other")));
    until("written", || is_written(&fake, &key)).await;
    assert_eq!(
        fake.read.lock().unwrap().len(),
        2,
        "one worker must read the two pages"
    );
    assert_eq!(running.stats.updates() + other.stats.updates(), 1);
    running.stop().await;
    other.stop().await;
}

/// The lease expired unnoticed, or the store lost recent commits.
#[tokio::test(start_paused = true)]
async fn an_update_unknown_to_the_session_is_ignored() {
    let fake = Fake::new();
    let key = fake.due("p/a").await;
    *fake.slow.lock().unwrap() = Duration::from_secs(5);
    let running = start(fake.worker(options()));
    until("the first read", || !fake.read.lock().unwrap().is_empty()).await;
    // A second start replaces the first one, as another worker would after the lease expired.
    let begins = vec![Command::StartMemoryUpdate(StartMemoryUpdate)];
    fake.run(&key, begins).await.unwrap();
    until("one failed update", || running.stats.failures() == 1).await;
    let notes = fake.look(&key, |session| session.memory().clone());
    assert_eq!(notes.version.map(|it| it.author), Some(Author::Template));
    assert_eq!(notes.failure, None);
    // No other worker has the session, so the update is repeated at once.
    until("written", || is_written(&fake, &key)).await;
    assert_eq!(running.stats.failures(), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failures_are_recorded_and_back_off() {
    let fake = Fake::new();
    *fake.broken.lock().unwrap() = Some(Broken::Fails);
    let key = fake.due("p/a").await;
    let running = start(fake.worker(options()));
    let mut waits = Vec::new();
    for attempt in 1..=10 {
        until("failed again", || {
            fake.look(&key, |session| {
                let failure = session.memory().failure.as_ref();
                failure.is_some_and(|failure| failure.attempts == attempt)
            })
        })
        .await;
        let failure = fake
            .look(&key, |session| session.memory().failure.clone())
            .unwrap();
        assert!(failure.detail.contains("no messages today"), "{failure:?}");
        assert!(fake.look(&key, |session| session.memory().running.is_none()));
        waits.push(failure.retry_at.millis_since(failure.failed_at));
    }
    // Jitter selects any delay up to the maximum, and the maximum doubles up to five minutes.
    let most = |attempt: u32| (2_000_u64 << (attempt - 1)).min(300_000);
    for (attempt, wait) in (1_u32..).zip(&waits) {
        assert!((100..=most(attempt)).contains(wait), "{attempt}: {waits:?}");
    }
    *fake.broken.lock().unwrap() = None;
    until("written", || is_written(&fake, &key)).await;
    assert!(fake.look(&key, |session| session.memory().failure.is_none()));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_recorded_as_a_failure_and_retried() {
    let fake = Fake::new();
    *fake.broken.lock().unwrap() = Some(Broken::Panics);
    let key = fake.due("p/a").await;
    let running = start(fake.worker(options()));
    until("a recorded failure", || {
        fake.look(&key, |session| session.memory().failure.is_some())
    })
    .await;
    assert!(!is_written(&fake, &key));
    *fake.broken.lock().unwrap() = None;
    until("written", || is_written(&fake, &key)).await;
    assert!(fake.look(&key, |session| session.memory().failure.is_none()));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_finishes_or_releases_running_sessions() {
    let fake = Fake::new();
    let key = fake.due("p/a").await;
    *fake.slow.lock().unwrap() = Duration::from_secs(1);
    let running = start(fake.worker(options()));
    sleep(Duration::from_millis(500)).await;
    running.stop().await;
    assert!(
        is_written(&fake, &key),
        "the update must finish within the grace period"
    );
    let other = fake.due("p/b").await;
    // Longer than the grace period, so the pass is aborted and its lease released.
    *fake.slow.lock().unwrap() = Duration::from_hours(1);
    let running = start(fake.worker(options()));
    sleep(Duration::from_millis(500)).await;
    running.stop().await;
    assert!(!is_written(&fake, &other));
    assert_eq!(fake.log.head(&other).await.unwrap().unwrap().lease, None);
    *fake.slow.lock().unwrap() = Duration::ZERO;
    let next = start(fake.worker(WorkerOptions::new("next")));
    sleep(Duration::from_secs(3)).await;
    assert!(is_written(&fake, &other), "the lease was not released");
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_file_write_keeps_the_text_and_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::with_blobs(Blobs::open(folder.path().to_str().unwrap()).unwrap());
    let key = fake.due("p/a").await;
    // A file at the path of the project's folder makes every write fail.
    std::fs::write(folder.path().join("p"), "in the way").unwrap();
    let running = start(fake.worker(options()));
    let unfiled = |fake: &Fake| fake.look(&key, |it| it.memory().file_failure.clone());
    until("a recorded failure", || {
        unfiled(&fake).is_some_and(|it| it.attempts >= 2)
    })
    .await;
    assert!(is_written(&fake, &key));
    assert_eq!(
        running.stats.updates(),
        1,
        "a file retry must not write a new version"
    );
    std::fs::remove_file(folder.path().join("p")).unwrap();
    until("the end of the file failure", || unfiled(&fake).is_none()).await;
    let written = std::fs::read_to_string(folder.path().join(summary_path(&key))).unwrap();
    assert_eq!(unmarked(&written), fake.text(&key));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_text_is_never_a_version() {
    let fake = Fake::new();
    let key = fake.due("p/a").await;
    let worker = fake.worker(options()).with_redact(|_| "TBD".to_owned());
    let running = start(worker);
    until("a recorded failure", || {
        fake.look(&key, |session| session.memory().failure.is_some())
    })
    .await;
    let failure = fake
        .look(&key, |session| session.memory().failure.clone())
        .unwrap();
    assert!(failure.detail.contains("is empty"), "{failure:?}");
    assert_eq!(fake.author(&key), Some(Author::Template));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn secrets_are_redacted_before_anything_is_recorded() {
    let fake = Fake::new();
    let key = fake.due("p/a").await;
    fake.say(&key, Role::User, "My password is hunter2.").await;
    let worker = fake.worker(options());
    let running = start(worker.with_redact(|text| text.replace("hunter2", "[redacted]")));
    until("written", || is_written(&fake, &key)).await;
    let text = fake.text(&key);
    assert!(
        text.contains("My password is [redacted]") && !text.contains("hunter2"),
        "{text}"
    );
    running.stop().await;
    drop(Arc::clone(&fake));
}
