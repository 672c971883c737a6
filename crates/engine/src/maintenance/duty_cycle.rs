//! Limits the share of time that background work uses. After each piece of work it rests for a multiple of the time
//! that the piece took.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The maximum rest. A piece that waited for another system must not stop the work for long.
const MAX_REST: Duration = Duration::from_secs(5);

/// The share of time that is used for work.
#[derive(Debug, Clone, Copy)]
pub struct DutyCycle {
    percent: u32,
}

impl DutyCycle {
    /// Creates a duty cycle. `percent` is clamped to the range 1 to 100.
    pub fn new(percent: u32) -> Self {
        Self {
            percent: percent.clamp(1, 100),
        }
    }

    /// Runs a piece of work, then rests.
    pub async fn work<T>(&self, piece: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let done = piece.await;
        let rest = began.elapsed() * (100 - self.percent) / self.percent;
        sleep(rest.min(MAX_REST)).await;
        done
    }
}
