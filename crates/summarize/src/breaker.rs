//! A circuit breaker that stops requests to a failing endpoint, so that the next model is used
//! without delay.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The settings of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitBreakerSettings {
    /// The number of consecutive failures that opens the breaker. Each counts after its retries.
    /// Default: 3.
    pub failures: u32,
    /// The time that the breaker stays open, unless the provider requests a longer wait. Default: 30
    /// s.
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

    /// Returns the remaining time for which the breaker rejects requests. After that time, one
    /// caller is admitted as a probe. All others wait for another period unless the probe succeeds.
    pub(crate) fn rests(&self) -> Option<Duration> {
        let mut state = self.state();
        let now = Instant::now();
        let until = state.rests_until?;
        if until > now {
            return Some(until - now);
        }
        // The period is restarted before the probe, so that concurrent callers do not become probes
        // too.
        state.rests_until = now.checked_add(self.settings.rest);
        None
    }

    /// Returns true if the breaker is open. It closes after a successful answer.
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
        // Each change is a single assignment, so a poisoned lock still protects a consistent state.
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
