//! The connections of one port that are open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::party::ShareGroup;

/// A connection that has proved itself is closed for another one only when it was idle for this long.
const IDLE: Duration = Duration::from_secs(5);
/// Connections that were closed and still have their file handle, at most: the next is not accepted before one of
/// them is gone.
pub(super) const CLOSING: usize = 16;

/// The open connections of one port, at most so many.
///
/// When there is no place for one more, another is closed: first those that have not proved themselves by an accepted
/// call, the oldest first, then the one that was idle longest. So peers that connect and do nothing only take each
/// other's places.
#[derive(Debug, Clone)]
pub(crate) struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max: usize,
    open: Mutex<Open>,
    /// Connections that were closed for others, and that were refused.
    closed: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Arc<Connection>>,
}

/// One connection, as far as others need to know of it.
#[derive(Debug)]
pub(crate) struct Connection {
    id: u64,
    began: Instant,
    /// When a call of it was last over, in milliseconds since it began.
    used: AtomicU64,
    calls: AtomicUsize,
    is_proved: AtomicBool,
    is_shaking_hands: AtomicBool,
    cut: CancellationToken,
    party: Arc<ShareGroup>,
}

impl Connection {
    /// Cancelled when the connection has to be closed at once.
    pub(crate) fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// The party that its calls count for as long as nothing better is known.
    pub(crate) fn party(&self) -> &Arc<ShareGroup> {
        &self.party
    }

    /// Notes that a call on it was accepted: its caller is somebody.
    pub(crate) fn prove(&self) {
        self.is_proved.store(true, Relaxed);
    }

    /// Notes that the TLS handshake is done.
    pub(crate) fn shook_hands(&self) {
        self.is_shaking_hands.store(false, Relaxed);
    }

    /// Counts a call until the guard is dropped.
    pub(crate) fn call(self: &Arc<Self>) -> ActiveCall {
        self.calls.fetch_add(1, Relaxed);
        ActiveCall(Arc::clone(self))
    }

    /// The time since its last call, while it has none and never had one that was accepted.
    pub(crate) fn unproved_for(&self, now: Instant) -> Option<Duration> {
        let waits = !self.is_proved.load(Relaxed) && self.calls.load(Relaxed) == 0;
        waits.then(|| self.idle_for(now))
    }

    fn idle_for(&self, now: Instant) -> Duration {
        let used = self.began + Duration::from_millis(self.used.load(Relaxed));
        now.saturating_duration_since(used)
    }

    /// How soon it is closed for another one, lowest first; none for one that stays.
    fn rank(&self, now: Instant) -> Option<(bool, u64)> {
        if self.cut.is_cancelled() {
            return None;
        }
        if !self.is_proved.load(Relaxed) {
            return Some((false, self.id));
        }
        let idle = self.idle_for(now);
        let is_idle = self.calls.load(Relaxed) == 0 && idle >= IDLE;
        let rank = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        is_idle.then_some((true, u64::MAX - rank))
    }
}

/// A call of a connection.
#[derive(Debug)]
pub(crate) struct ActiveCall(Arc<Connection>);

impl Drop for ActiveCall {
    fn drop(&mut self) {
        let at = self.0.began.elapsed().as_millis();
        self.0
            .used
            .store(u64::try_from(at).unwrap_or(u64::MAX), Relaxed);
        self.0.calls.fetch_sub(1, Relaxed);
    }
}

/// A connection's place, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    of: Arc<Inner>,
    connection: Arc<Connection>,
}

impl ConnectionSlot {
    /// The connection.
    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.of.lock().connections.remove(&self.connection.id);
    }
}

impl Connections {
    /// None yet, and at most `max` at one time.
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Inner {
            max,
            open: Mutex::default(),
            closed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// The most at one time.
    pub(crate) fn max(&self) -> usize {
        self.0.max
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().connections.len()
    }

    /// How many were closed to make a place for others, and how many found none.
    pub(crate) fn turned_away(&self) -> (u64, u64) {
        (self.0.closed.load(Relaxed), self.0.refused.load(Relaxed))
    }

    /// A place for one more, for which another connection may be closed. Of those whose TLS handshake is not done there
    /// are at most `max_handshakes`. None when every connection is in use.
    pub(crate) fn enter(&self, max_handshakes: Option<usize>) -> Option<ConnectionSlot> {
        let now = Instant::now();
        let mut open = self.0.lock();
        if let Some(max) = max_handshakes {
            let shaking =
                |it: &&Arc<Connection>| it.is_shaking_hands.load(Relaxed) && !it.cut.is_cancelled();
            if open.connections.values().filter(shaking).count() >= max {
                let oldest = open
                    .connections
                    .values()
                    .filter(shaking)
                    .min_by_key(|it| it.id);
                self.close(oldest.cloned(), &mut open);
            }
        }
        if open.connections.len() >= self.0.max {
            let ranked = open
                .connections
                .values()
                .filter_map(|it| Some((it.rank(now)?, it)));
            let first = ranked
                .min_by_key(|(rank, _)| *rank)
                .map(|(_, it)| Arc::clone(it));
            if first.is_none() {
                self.0.refused.fetch_add(1, Relaxed);
                return None;
            }
            self.close(first, &mut open);
        }
        let id = open.next;
        open.next += 1;
        let connection = Arc::new(Connection {
            id,
            began: now,
            used: AtomicU64::new(0),
            calls: AtomicUsize::new(0),
            is_proved: AtomicBool::new(false),
            is_shaking_hands: AtomicBool::new(max_handshakes.is_some()),
            cut: CancellationToken::new(),
            party: Arc::default(),
        });
        open.connections.insert(id, Arc::clone(&connection));
        Some(ConnectionSlot {
            of: Arc::clone(&self.0),
            connection,
        })
    }

    /// Closes a connection. Its place is free at once, its handle in a moment.
    fn close(&self, connection: Option<Arc<Connection>>, open: &mut Open) {
        if let Some(connection) = connection {
            open.connections.remove(&connection.id);
            connection.cut.cancel();
            self.0.closed.fetch_add(1, Relaxed);
            tracing::warn!(
                max = self.0.max,
                open_ms = connection.began.elapsed().as_millis(),
                "connections are at their limit: an unused one was closed for a new one"
            );
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_that_did_nothing_make_place_for_others() {
        let connections = Connections::new(3);
        let enter = || connections.enter(None);
        let (proved, busy, silent) = (enter().unwrap(), enter().unwrap(), enter().unwrap());
        proved.connection().prove();
        busy.connection().prove();
        let call = busy.connection().call();
        tokio::time::advance(IDLE * 2).await;
        let next = enter().unwrap();
        assert!(silent.connection().cut().is_cancelled(), "it did nothing");
        next.connection().prove();
        let other = enter().unwrap();
        assert!(proved.connection().cut().is_cancelled(), "it was idle");
        other.connection().prove();
        // One is in a call, and two were idle for a moment only.
        assert!(enter().is_none());
        assert_eq!(connections.turned_away(), (2, 1));
        drop((call, other));
        assert_eq!(connections.count(), 2);
        assert!(enter().is_some());
    }

    #[tokio::test]
    async fn silent_handshakes_keep_nobody_waiting() {
        let connections = Connections::new(100);
        let silent: Vec<_> = (0..4)
            .map(|_| connections.enter(Some(4)).unwrap())
            .collect();
        let done = connections.enter(Some(4)).unwrap();
        assert!(silent[0].connection().cut().is_cancelled(), "the oldest");
        assert!(!silent[1].connection().cut().is_cancelled());
        done.connection().shook_hands();
        let _next = connections.enter(Some(4)).unwrap();
        assert!(
            !silent[1].connection().cut().is_cancelled(),
            "three are at it"
        );
    }
}
