//! The clock of the provider: real time plus the time that a test has added.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// A clock that a test can advance. Clones share the added time.
#[derive(Clone)]
pub(crate) struct Clock {
    started: Instant,
    added: watch::Sender<Duration>,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            added: watch::Sender::new(Duration::ZERO),
        }
    }
}

impl Clock {
    /// Returns the time since the start of the provider.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed() + *self.added.borrow()
    }

    /// Adds time. Ends each pause that it covers.
    pub(crate) fn advance(&self, by: Duration) {
        self.added.send_modify(|added| *added += by);
    }

    /// Waits until the clock has advanced by this time, in real or added time.
    pub(crate) async fn sleep(&self, time: Duration) {
        let mut added = self.added.subscribe();
        let end = self.now() + time;
        loop {
            let now = self.now();
            if now >= end {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(end.saturating_sub(now)) => {}
                // The sender lives as long as this clock, so the channel cannot close.
                _ = added.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Clock;

    #[tokio::test]
    async fn added_time_ends_a_pause() {
        let clock = Clock::default();
        let hour = Duration::from_hours(1);
        let paused = clock.clone();
        let pause = tokio::spawn(async move { paused.sleep(hour).await });
        let added = clock.clone();
        added.advance(hour);
        assert!(clock.now() >= hour);
        // The pause may begin after the first advance.
        while !pause.is_finished() {
            added.advance(hour);
            tokio::task::yield_now().await;
        }
        pause.await.unwrap();
    }
}
