//! The time limits of a connection, whatever its version of HTTP.
//!
//! Closing has two steps: calls in flight may finish, and a second limit ends the connection for peers that do not close
//! it.

use std::time::Duration;

use tokio::time::Instant;

use super::connection::ConnectionTimeouts;
use crate::net::Connection;

/// The grace period of a connection that is closed because it never made an accepted call.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The life of one connection.
#[derive(Debug)]
pub(super) struct ConnectionLife {
    began: Instant,
    /// The end of the connection, if it is closing.
    closing: Option<Instant>,
}

/// The next step of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LifeStep {
    /// Let calls in flight finish, and accept no others.
    Close,
    /// End the connection.
    End,
    /// Nothing is due before this time.
    Wait(Instant),
}

impl ConnectionLife {
    pub(super) fn begin() -> Self {
        Self {
            began: Instant::now(),
            closing: None,
        }
    }

    /// Returns true if the connection is closing.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Returns the step that is due.
    pub(super) fn step(&mut self, connection: &Connection, times: &ConnectionTimeouts) -> LifeStep {
        let now = Instant::now();
        if let Some(until) = self.closing {
            return if now >= until {
                LifeStep::End
            } else {
                LifeStep::Wait(until)
            };
        }
        let idle = connection.unused_for(now);
        let grace = if idle.is_some_and(|idle| idle >= times.first_call) {
            Some(CLOSE_TIMEOUT)
        } else if now >= self.began + times.age {
            Some(times.grace)
        } else {
            None
        };
        if let Some(grace) = grace {
            self.closing = Some(now + grace);
            return LifeStep::Close;
        }
        // A used connection has no idle time here, so this limit is only the time of the next check.
        let left = times.first_call.saturating_sub(idle.unwrap_or_default());
        LifeStep::Wait((self.began + times.age).min(now + left))
    }

    /// Begins to close the connection for a shutdown.
    pub(super) fn close(&mut self, times: &ConnectionTimeouts) {
        // The drain has a deadline of its own, so the age limit here is only a safeguard.
        self.closing = Some(Instant::now() + times.age);
    }
}
