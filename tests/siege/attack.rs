//! The frame of an attack: its name, its scale, and the record of its calls.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::target::Target;
use crate::wire::{Open, Wire};

/// Pause before a rejected or closed connection is opened again.
const REDIAL: Duration = Duration::from_millis(250);

/// One attack. It never ends by itself: the frame drops its future, and with it the connections and calls.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// The sessions that must exist before the attack starts.
    pub(crate) needs: &'static [Seed],
    pub(crate) run: fn(Assault) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Sessions of the attackers' projects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seed {
    /// One short message.
    Small,
    /// One message of 1 MB.
    Text,
    /// One stored result of 15 MB.
    Large,
    /// More than a thousand sessions of 1.4 MB.
    Heavy,
    /// Thousands of short sessions in one project.
    Crowd,
}

/// The size of an attack, in percent of its size in `make siege`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale(pub(crate) usize);

impl Scale {
    /// Returns this share of a number, at least one.
    pub(crate) fn of(self, full: usize) -> usize {
        (full * self.0 / 100).max(1)
    }
}

/// The server, the record and the scale of one attack.
#[derive(Debug, Clone)]
pub(crate) struct Assault {
    pub(crate) target: Arc<Target>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) scale: Scale,
}

impl Assault {
    /// Opens a connection. Retries until the server accepts one.
    pub(crate) async fn dial(&self, window: u32) -> Wire {
        loop {
            if let Ok(wire) = Wire::connect(&self.target.address, window).await {
                self.tally.connected();
                return wire;
            }
            self.redial("no connection").await;
        }
    }

    /// Records the end of a connection, and waits before the next.
    pub(crate) async fn redial(&self, outcome: &str) {
        self.tally.note(outcome);
        tokio::time::sleep(REDIAL).await;
    }

    /// Records a call from its start to its end. Returns false if the call did not reach the server.
    pub(crate) async fn count<F: Future<Output = String>>(
        &self,
        sent: Result<Open, h2::Error>,
        end: impl FnOnce(Open) -> F,
    ) -> bool {
        self.tally.tried();
        let outcome = match sent {
            Ok(open) => Some(end(open).await),
            Err(_) => None,
        };
        self.tally
            .ended(outcome.as_deref().unwrap_or("connection lost"));
        outcome.is_some()
    }
}

/// The record of one attack.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    tried: AtomicU64,
    ended: AtomicU64,
    connections: AtomicU64,
    outcomes: Mutex<BTreeMap<String, u64>>,
}

impl Tally {
    /// Counts an opened connection.
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    /// Counts an attempted call.
    pub(crate) fn tried(&self) {
        self.tried.fetch_add(1, Relaxed);
    }

    /// Counts the end of a call.
    pub(crate) fn ended(&self, outcome: &str) {
        self.ended.fetch_add(1, Relaxed);
        self.note(outcome);
    }

    /// Records an outcome that is not the end of a call.
    pub(crate) fn note(&self, outcome: &str) {
        let mut outcomes = self.outcomes.lock().unwrap();
        *outcomes.entry(outcome.to_owned()).or_default() += 1;
    }

    /// Returns the number of opened connections.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// Returns the number of attempted calls.
    pub(crate) fn calls(&self) -> u64 {
        self.tried.load(Relaxed)
    }

    /// Returns the number of calls that had not ended when the attack was stopped.
    pub(crate) fn open(&self) -> u64 {
        // The counters are read one after the other, so more ends than calls can be seen.
        self.calls().saturating_sub(self.ended.load(Relaxed))
    }

    /// Returns the outcomes with their counts, the most frequent first.
    pub(crate) fn outcomes(&self) -> String {
        let outcomes = self.outcomes.lock().unwrap();
        let mut sorted: Vec<_> = outcomes.iter().collect();
        sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shown: Vec<String> = sorted
            .iter()
            .map(|(name, n)| format!("{n} {name}"))
            .collect();
        shown.join(", ")
    }
}

/// A running attack.
pub(crate) struct Running {
    pub(crate) name: &'static str,
    pub(crate) tally: Arc<Tally>,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts an attack, which ends when `stop` is cancelled.
    pub(crate) fn start(
        attack: &'static Attack,
        target: &Arc<Target>,
        scale: Scale,
        stop: &CancellationToken,
        on: &Handle,
    ) -> Self {
        let tally = Arc::<Tally>::default();
        let assault = Assault {
            target: Arc::clone(target),
            tally: Arc::clone(&tally),
            scale,
        };
        let stop = stop.clone();
        let task = on.spawn(async move {
            stop.run_until_cancelled((attack.run)(assault)).await;
        });
        Self {
            name: attack.name,
            tally,
            task,
        }
    }

    /// Waits for the end of the attack after `stop` was cancelled. Panics if the attack panicked.
    pub(crate) async fn ended(self) -> (&'static str, Arc<Tally>) {
        self.task.await.unwrap();
        (self.name, self.tally)
    }
}
