//! Stops asking an endpoint that keeps failing, so that the next one answers at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// When an endpoint is given a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreakerSettings {
    /// After how many failures in a row, each after its retries.
    pub failures: u32,
    /// For how long; longer when the provider names a longer wait.
    pub rest: Duration,
}

impl Default for CircuitBreakerSettings {
    fn default() -> Self {
        Self {
            failures: 3,
            rest: Duration::from_secs(30),
        }
    }
}

#[derive(Debug)]
pub(crate) struct CircuitBreaker {
    settings: CircuitBreakerSettings,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    rests_until: Option<Instant>,
}

impl CircuitBreaker {
    pub(crate) fn new(settings: CircuitBreakerSettings) -> Self {
        Self {
            settings,
            state: Mutex::default(),
        }
    }

    /// How long the endpoint still rests. When the rest is over one caller gets through to try it, and
    /// the others wait for another rest, unless it succeeds before.
    pub(crate) fn rests(&self) -> Option<Duration> {
        let mut state = self.state();
        let now = Instant::now();
        let until = state.rests_until?;
        if until > now {
            return Some(until - now);
        }
        state.rests_until = now.checked_add(self.settings.rest);
        None
    }

    /// Whether the endpoint is given a rest: until it has answered again.
    pub(crate) fn is_open(&self) -> bool {
        self.state().rests_until.is_some()
    }

    pub(crate) fn succeeded(&self) {
        *self.state() = State::default();
    }

    pub(crate) fn failed(&self, retry_after: Option<Duration>) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        if state.failures >= self.settings.failures {
            let rest = self.settings.rest.max(retry_after.unwrap_or_default());
            state.rests_until = Instant::now().checked_add(rest);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Each change is one assignment, so a panic elsewhere left nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::{CircuitBreaker, CircuitBreakerSettings};

    #[tokio::test(start_paused = true)]
    async fn rests_after_failures_in_a_row_and_lets_one_through() {
        let breaker = CircuitBreaker::new(CircuitBreakerSettings::default());
        breaker.failed(None);
        breaker.failed(None);
        breaker.succeeded();
        breaker.failed(None);
        breaker.failed(None);
        assert_eq!(breaker.rests(), None);
        breaker.failed(None);
        assert_eq!(breaker.rests(), Some(Duration::from_secs(30)));
        advance(Duration::from_secs(30)).await;
        assert_eq!(breaker.rests(), None, "one tries");
        assert!(breaker.rests().is_some(), "the others wait");
        breaker.succeeded();
        assert_eq!(breaker.rests(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_wait_of_the_providers_counts() {
        let breaker = CircuitBreaker::new(CircuitBreakerSettings {
            failures: 1,
            rest: Duration::from_secs(1),
        });
        breaker.failed(Some(Duration::from_secs(90)));
        assert_eq!(breaker.rests(), Some(Duration::from_secs(90)));
    }
}
