//! The open connections of one port.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::share_group::ShareGroup;

/// The minimum idle time before a used connection may be closed for a new one.
const MIN_IDLE: Duration = Duration::from_secs(5);
/// The maximum number of closed connections that still have a file handle. At the limit, accepting pauses.
pub(super) const MAX_CLOSING: usize = 16;

/// The open connections of one port, with a maximum.
///
/// At the maximum, another connection is closed for a new one. Unused connections (without any accepted call) are
/// closed first, the oldest first. The used connection with the longest idle time is next. Peers that connect and do
/// nothing therefore only replace each other.
#[derive(Debug, Clone)]
pub struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max: usize,
    open: Mutex<OpenConnections>,
    /// The number of connections that were closed for new ones, and the number of rejected ones.
    evicted: AtomicU64,
    rejected: AtomicU64,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next_id: u64,
    connections: HashMap<u64, Arc<Connection>>,
}

/// The shared state of one connection.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    started: Instant,
    /// The end of the last call, in milliseconds since `started`.
    last_used: AtomicU64,
    calls_in_flight: AtomicUsize,
    has_been_used: AtomicBool,
    is_in_handshake: AtomicBool,
    shutdown: CancellationToken,
    share_group: Arc<ShareGroup>,
}

impl Connection {
    /// Returns a token that is cancelled when the connection must close immediately.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Returns the fair-share group of calls without an authenticated tenant.
    pub fn share_group(&self) -> &Arc<ShareGroup> {
        &self.share_group
    }

    /// Marks the connection as used: a call on it was accepted.
    pub fn mark_used(&self) {
        self.has_been_used.store(true, Relaxed);
    }

    /// Marks the TLS handshake as finished.
    pub fn handshake_done(&self) {
        self.is_in_handshake.store(false, Relaxed);
    }

    /// Counts a call in flight until the guard is dropped.
    pub fn call(self: &Arc<Self>) -> ActiveCall {
        self.calls_in_flight.fetch_add(1, Relaxed);
        ActiveCall(Arc::clone(self))
    }

    /// Returns the idle time of an unused connection without a call in flight, otherwise `None`.
    pub fn unused_for(&self, now: Instant) -> Option<Duration> {
        let waits = !self.has_been_used.load(Relaxed) && self.calls_in_flight.load(Relaxed) == 0;
        waits.then(|| self.idle_for(now))
    }

    fn idle_for(&self, now: Instant) -> Duration {
        let used = self.started + Duration::from_millis(self.last_used.load(Relaxed));
        now.saturating_duration_since(used)
    }

    /// Returns the eviction rank, lowest first. `None` protects the connection.
    fn eviction_rank(&self, now: Instant) -> Option<(bool, u64)> {
        if self.shutdown.is_cancelled() {
            return None;
        }
        // `false` sorts before `true`: unused connections are closed first, in the order of their ids.
        // A call in flight does not protect an unused connection, because that call may never be accepted.
        if !self.has_been_used.load(Relaxed) {
            return Some((false, self.id));
        }
        let idle = self.idle_for(now);
        let is_idle = self.calls_in_flight.load(Relaxed) == 0 && idle >= MIN_IDLE;
        // Subtracted below, because the longest idle connection must have the lowest rank.
        let rank = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        is_idle.then_some((true, u64::MAX - rank))
    }
}

/// The guard of a call in flight.
#[derive(Debug)]
pub struct ActiveCall(Arc<Connection>);

impl Drop for ActiveCall {
    fn drop(&mut self) {
        // The time is stored before the count falls. Otherwise an eviction in between would see the idle time since an
        // earlier call.
        let at = self.0.started.elapsed().as_millis();
        self.0
            .last_used
            .store(u64::try_from(at).unwrap_or(u64::MAX), Relaxed);
        self.0.calls_in_flight.fetch_sub(1, Relaxed);
    }
}

/// The slot of a connection. It is released on drop.
#[derive(Debug)]
pub struct ConnectionSlot {
    connections: Arc<Inner>,
    connection: Arc<Connection>,
}

impl ConnectionSlot {
    /// Returns the connection.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        // An evicted connection is removed already. Ids are never reused, so this removes no other connection.
        self.connections
            .lock()
            .connections
            .remove(&self.connection.id);
    }
}

impl Connections {
    /// Creates an empty set for at most `max` connections.
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Inner {
            max,
            open: Mutex::default(),
            evicted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        }))
    }

    /// Returns the maximum number of connections.
    pub fn max(&self) -> usize {
        self.0.max
    }

    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.0.lock().connections.len()
    }

    /// Returns the number of connections that were closed for new ones, and the number of rejected ones.
    pub fn evicted_and_rejected(&self) -> (u64, u64) {
        (self.0.evicted.load(Relaxed), self.0.rejected.load(Relaxed))
    }

    /// Returns a slot for a new connection, for which another connection may be closed.
    ///
    /// At most `max_handshakes` connections may be in the TLS handshake. Returns `None` if all connections are in use.
    pub fn enter(&self, max_handshakes: Option<usize>) -> Option<ConnectionSlot> {
        let now = Instant::now();
        let mut open = self.0.lock();
        // Handshakes have a separate limit. The oldest one is closed, so that silent peers cannot delay others.
        if let Some(max) = max_handshakes {
            let shaking = |it: &&Arc<Connection>| {
                it.is_in_handshake.load(Relaxed) && !it.shutdown.is_cancelled()
            };
            if open.connections.values().filter(shaking).count() >= max {
                let oldest = open
                    .connections
                    .values()
                    .filter(shaking)
                    .min_by_key(|it| it.id);
                self.close(oldest.cloned(), &mut open);
            }
        }
        // At the limit, the connection with the lowest rank is closed for the new one.
        if open.connections.len() >= self.0.max {
            let ranked = open
                .connections
                .values()
                .filter_map(|it| Some((it.eviction_rank(now)?, it)));
            let first = ranked
                .min_by_key(|(rank, _)| *rank)
                .map(|(_, it)| Arc::clone(it));
            if first.is_none() {
                self.0.rejected.fetch_add(1, Relaxed);
                return None;
            }
            self.close(first, &mut open);
        }
        let id = open.next_id;
        open.next_id += 1;
        let connection = Arc::new(Connection {
            id,
            started: now,
            last_used: AtomicU64::new(0),
            calls_in_flight: AtomicUsize::new(0),
            has_been_used: AtomicBool::new(false),
            // A listener without TLS has no handshake limit, and its connections have no handshake.
            is_in_handshake: AtomicBool::new(max_handshakes.is_some()),
            shutdown: CancellationToken::new(),
            share_group: Arc::default(),
        });
        open.connections.insert(id, Arc::clone(&connection));
        Some(ConnectionSlot {
            connections: Arc::clone(&self.0),
            connection,
        })
    }

    /// Closes a connection. Its slot is free immediately, and its file handle shortly afterwards.
    fn close(&self, connection: Option<Arc<Connection>>, open: &mut OpenConnections) {
        if let Some(connection) = connection {
            open.connections.remove(&connection.id);
            connection.shutdown.cancel();
            self.0.evicted.fetch_add(1, Relaxed);
            tracing::warn!(
                max = self.0.max,
                open_ms = connection.started.elapsed().as_millis(),
                "evicted a connection for a new one: the connection limit is reached"
            );
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unused_connections_are_evicted_first() {
        let connections = Connections::new(3);
        let enter = || connections.enter(None);
        let (used, busy, silent) = (enter().unwrap(), enter().unwrap(), enter().unwrap());
        used.connection().mark_used();
        busy.connection().mark_used();
        let call = busy.connection().call();
        tokio::time::advance(MIN_IDLE * 2).await;
        let next = enter().unwrap();
        assert!(
            silent.connection().shutdown().is_cancelled(),
            "the silent connection was not evicted"
        );
        next.connection().mark_used();
        let other = enter().unwrap();
        assert!(
            used.connection().shutdown().is_cancelled(),
            "the idle connection was not evicted"
        );
        other.connection().mark_used();
        // One connection has a call in flight, and two were idle for less than the minimum.
        assert!(enter().is_none());
        assert_eq!(connections.evicted_and_rejected(), (2, 1));
        drop((call, other));
        assert_eq!(connections.count(), 2);
        assert!(enter().is_some());
    }

    #[tokio::test]
    async fn the_oldest_silent_handshake_is_evicted_at_the_limit() {
        let connections = Connections::new(100);
        let silent: Vec<_> = (0..4)
            .map(|_| connections.enter(Some(4)).unwrap())
            .collect();
        let done = connections.enter(Some(4)).unwrap();
        assert!(
            silent[0].connection().shutdown().is_cancelled(),
            "the oldest handshake was not evicted"
        );
        assert!(!silent[1].connection().shutdown().is_cancelled());
        done.connection().handshake_done();
        let _next = connections.enter(Some(4)).unwrap();
        assert!(
            !silent[1].connection().shutdown().is_cancelled(),
            "three handshakes are below the limit"
        );
    }
}
