//! Hints: notifications between the processes of a store that sessions changed. They spare watchers the
//! wait for their next poll. Nothing depends on their delivery.
//!
//! Hints are never sent in an append's transaction, because PostgreSQL serializes the commits of
//! notifying transactions. Changes within a short time are sent together, over a separate connection
//! without durable commits.

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

/// The time during which changes are collected into one notification.
const GATHERED: Duration = Duration::from_millis(30);
/// The maximum size of a notification, in bytes. PostgreSQL accepts less than 8,000.
const MAX_BYTES: usize = 7_900;
/// The maximum number of unsent hints. Further ones are dropped.
const WAITING: usize = 4_096;
/// The maximum number of unread hints per receiver. Older ones are dropped.
const BEHIND: usize = 4_096;
/// The timeout of a statement. Afterwards the connection is replaced.
const ANSWER: Duration = Duration::from_secs(10);
/// The pause before a reconnect.
const PAUSE: Duration = Duration::from_secs(1);

/// The sending and receiving of hints.
#[derive(Debug)]
pub(super) struct Hints {
    changed: mpsc::Sender<SessionKey>,
    received: broadcast::Sender<SessionKey>,
    task: JoinHandle<()>,
}

impl Hints {
    /// Starts the task that sends and receives hints until it is stopped or dropped. `own` identifies this
    /// process, which ignores its own hints.
    pub(super) fn start(pool: Arc<Pool>, own: u64) -> Self {
        let (changed, waiting) = mpsc::channel(WAITING);
        let (received, _) = broadcast::channel(BEHIND);
        let heard_by_task = received.clone();
        let task = tokio::spawn(async move {
            let mut waiting = waiting;
            loop {
                match notify_and_listen(&pool, own, &mut waiting, &heard_by_task).await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(?error, "hints are not exchanged"),
                }
                sleep(PAUSE).await;
            }
        });
        Self {
            changed,
            received,
            task,
        }
    }

    /// Enqueues a hint. It is dropped if the queue is full.
    pub(super) fn notify(&self, key: &SessionKey) {
        // Appends never wait for hints.
        drop(self.changed.try_send(key.clone()));
    }

    /// Subscribes to the hints of other processes.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<SessionKey> {
        self.received.subscribe()
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

/// Returns the notification channel of a schema. A digest keeps the name short and valid.
fn channel(schema: &str) -> String {
    let digest = Sha256::digest(schema.as_bytes());
    let mut name = "palimpsest_".to_owned();
    name.push_str(&palimpsest_core::hex(&digest[..8]));
    name
}

/// Sends and receives hints over one connection, until it breaks or all senders are dropped.
async fn notify_and_listen(
    pool: &Pool,
    own: u64,
    waiting: &mut mpsc::Receiver<SessionKey>,
    heard: &broadcast::Sender<SessionKey>,
) -> Result<(), PgError> {
    let (client, mut connection) = pool.connect().await?;
    let channel = channel(pool.schema());
    let own = format!("{own:016x}");
    // The client makes progress only while this future polls the connection, also for the statements of `telling`.
    let listening = async {
        loop {
            match poll_fn(|cx| connection.poll_message(cx)).await {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    let mut lines = notification.payload().lines();
                    // PostgreSQL also delivers a notification to its sender.
                    if lines.next() == Some(own.as_str()) {
                        continue;
                    }
                    for key in lines.filter_map(|line| names::parse(line).ok()) {
                        // The send fails if no receiver exists.
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
        await_answer(client.batch_execute(&format!("LISTEN \"{channel}\""))).await?;
        while let Some(first) = waiting.recv().await {
            // Wait for more changes, so that many appends cost one notification.
            sleep(GATHERED).await;
            let mut keys = BTreeSet::from([names::key(&first)]);
            while let Ok(key) = waiting.try_recv() {
                keys.insert(names::key(&key));
            }
            let mut text = own.clone();
            for key in keys {
                // A notification must fit the server's limit, so send it and start the next one.
                if text.len() + 1 + key.len() > MAX_BYTES {
                    notify(&client, &channel, &text).await?;
                    text.clone_from(&own);
                }
                text.push('\n');
                text.push_str(&key);
            }
            notify(&client, &channel, &text).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = listening => ended,
        ended = telling => ended,
    }
}

async fn notify(client: &tokio_postgres::Client, channel: &str, text: &str) -> Result<(), PgError> {
    // A batch of statements cannot have parameters, so the text is quoted here.
    let text = text.replace('\'', "''");
    // The setting is local to this transaction. Behind a connection pooler, the next user of the
    // connection needs durable commits.
    let statements = format!(
        "BEGIN; SET LOCAL synchronous_commit = off; SELECT pg_notify('{channel}', '{text}'); COMMIT"
    );
    await_answer(client.batch_execute(&statements)).await
}

async fn await_answer(
    asked: impl Future<Output = Result<(), tokio_postgres::Error>>,
) -> Result<(), PgError> {
    match timeout(ANSWER, asked).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(PgError::timeout()),
    }
}
