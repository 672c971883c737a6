//! How background work leaves room for calls: after each piece of work it rests for a multiple of the
//! time that the piece took.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The longest rest: a piece of work that waited for somebody else must not stop everything.
const MAX_REST: Duration = Duration::from_secs(5);

/// The share of the time in which something is done.
#[derive(Debug, Clone, Copy)]
pub struct DutyCycle {
    percent: u32,
}

impl DutyCycle {
    /// Work for so many percent of the time, from 1 to 100.
    pub fn new(percent: u32) -> Self {
        Self {
            percent: percent.clamp(1, 100),
        }
    }

    /// Does a piece of work, and rests.
    pub async fn work<T>(&self, piece: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let done = piece.await;
        let rest = began.elapsed() * (100 - self.percent) / self.percent;
        sleep(rest.min(MAX_REST)).await;
        done
    }
}
