//! Tells the other processes on a store which sessions have changed, so that who watches one need not wait for his
//! next look. Nothing relies on it: a hint that is lost costs that wait.
//!
//! Never in an append's own transaction: whoever notifies waits at its commit for everybody else who does. What
//! changed within a moment goes out together, over a connection of its own that need not be durable.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::ids::SessionKey;
use sha2::{Digest, Sha256};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use super::error::PgError;
use super::names;
use super::pool::Pool;

/// Changes within this time are told together.
const GATHERED: Duration = Duration::from_millis(30);
/// The most bytes of one notification; the database takes 8,000.
const MAX_BYTES: usize = 7_900;
/// Sessions that wait to be told of; one more is not told of.
const WAITING: usize = 4_096;
/// Hints that a receiver may be behind by before it loses some.
const BEHIND: usize = 4_096;
/// How long an answer may take before another connection is made.
const ANSWER: Duration = Duration::from_secs(10);
/// How long it is waited before the connection is made again.
const PAUSE: Duration = Duration::from_secs(1);

/// Both ways of telling.
#[derive(Debug)]
pub(super) struct Hints {
    changed: mpsc::Sender<SessionKey>,
    heard: broadcast::Sender<SessionKey>,
    task: JoinHandle<()>,
}

impl Hints {
    /// Tells and listens until it is dropped.
    pub(super) fn start(pool: Arc<Pool>, own: u64) -> Self {
        let (changed, waiting) = mpsc::channel(WAITING);
        let (heard, _) = broadcast::channel(BEHIND);
        let heard_by_task = heard.clone();
        let task = tokio::spawn(async move {
            let mut waiting = waiting;
            loop {
                match exchange(&pool, own, &mut waiting, &heard_by_task).await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(?error, "hints are not exchanged"),
                }
                sleep(PAUSE).await;
            }
        });
        Self {
            changed,
            heard,
            task,
        }
    }

    /// Has the others told of a session, if there is room.
    pub(super) fn changed(&self, key: &SessionKey) {
        drop(self.changed.try_send(key.clone()));
    }

    /// What others tell from now on.
    pub(super) fn heard(&self) -> broadcast::Receiver<SessionKey> {
        self.heard.subscribe()
    }

    pub(super) fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The name under which the processes on one store hear of each other.
fn channel(schema: &str) -> String {
    let digest = Sha256::digest(schema.as_bytes());
    let mut name = "palimpsest_".to_owned();
    name.push_str(&crate::blobs::hex(&digest[..8]));
    name
}

/// Tells and listens over one connection, until it breaks or nobody is left who tells.
async fn exchange(
    pool: &Pool,
    own: u64,
    waiting: &mut mpsc::Receiver<SessionKey>,
    heard: &broadcast::Sender<SessionKey>,
) -> Result<(), PgError> {
    let (client, mut connection) = pool.connect().await?;
    let channel = channel(pool.schema());
    let own = format!("{own:016x}");
    let listening = async {
        loop {
            match poll_fn(|cx| connection.poll_message(cx)).await {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    let mut lines = notification.payload().lines();
                    if lines.next() == Some(own.as_str()) {
                        continue;
                    }
                    for key in lines.filter_map(|line| names::parse(line).ok()) {
                        // Nobody may be listening.
                        drop(heard.send(key));
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Err(PgError::Lost("the connection was closed".into())),
            }
        }
    };
    let telling = async {
        answers(client.batch_execute(&format!("LISTEN \"{channel}\""))).await?;
        while let Some(first) = waiting.recv().await {
            sleep(GATHERED).await;
            let mut keys = BTreeSet::from([names::key(&first)]);
            while let Ok(key) = waiting.try_recv() {
                keys.insert(names::key(&key));
            }
            let mut text = own.clone();
            for key in keys {
                if text.len() + 1 + key.len() > MAX_BYTES {
                    tell(&client, &channel, &text).await?;
                    text.clone_from(&own);
                }
                text.push('\n');
                text.push_str(&key);
            }
            tell(&client, &channel, &text).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = listening => ended,
        ended = telling => ended,
    }
}

async fn tell(client: &tokio_postgres::Client, channel: &str, text: &str) -> Result<(), PgError> {
    let text = text.replace('\'', "''");
    // For this one transaction: behind a pooler the connection may be somebody else's afterwards, whose commits have
    // to be durable.
    let tells = format!(
        "BEGIN; SET LOCAL synchronous_commit = off; SELECT pg_notify('{channel}', '{text}'); COMMIT"
    );
    answers(client.batch_execute(&tells)).await
}

async fn answers(
    asked: impl Future<Output = Result<(), tokio_postgres::Error>>,
) -> Result<(), PgError> {
    match timeout(ANSWER, asked).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(PgError::silence()),
    }
}
