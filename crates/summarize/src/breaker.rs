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
    pub open_duration: Duration,
}

impl Default for CircuitBreakerSettings {
    fn default() -> Self {
        Self {
            failures: 3,
            open_duration: Duration::from_secs(30),
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
    open_until: Option<Instant>,
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
    pub(crate) fn open_for(&self) -> Option<Duration> {
        let mut state = self.state();
        let now = Instant::now();
        let until = state.open_until?;
        if until > now {
            return Some(until - now);
        }
        // The period is restarted before the probe, so that concurrent callers do not become probes
        // too.
        state.open_until = now.checked_add(self.settings.open_duration);
        None
    }

    /// Returns true if the breaker is open. It closes after a successful answer.
    pub(crate) fn is_open(&self) -> bool {
        self.state().open_until.is_some()
    }

    pub(crate) fn record_success(&self) {
        *self.state() = State::default();
    }

    pub(crate) fn record_failure(&self, retry_after: Option<Duration>) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        // The count stays at the limit until a success, so one failed probe opens the breaker again.
        if state.failures >= self.settings.failures {
            let rest = self
                .settings
                .open_duration
                .max(retry_after.unwrap_or_default());
            state.open_until = Instant::now().checked_add(rest);
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
    async fn the_breaker_opens_after_consecutive_failures_and_lets_one_call_through() {
        let breaker = CircuitBreaker::new(CircuitBreakerSettings::default());
        // The success resets the count: the four failures around it are never three in a row.
        breaker.record_failure(None);
        breaker.record_failure(None);
        breaker.record_success();
        breaker.record_failure(None);
        breaker.record_failure(None);
        assert_eq!(breaker.open_for(), None);
        breaker.record_failure(None);
        assert_eq!(breaker.open_for(), Some(Duration::from_secs(30)));
        advance(Duration::from_secs(30)).await;
        assert_eq!(breaker.open_for(), None, "one tries");
        assert!(breaker.open_for().is_some(), "the others wait");
        breaker.record_success();
        assert_eq!(breaker.open_for(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_retry_delay_of_the_provider_is_used() {
        let breaker = CircuitBreaker::new(CircuitBreakerSettings {
            failures: 1,
            open_duration: Duration::from_secs(1),
        });
        breaker.record_failure(Some(Duration::from_secs(90)));
        assert_eq!(breaker.open_for(), Some(Duration::from_secs(90)));
    }
}
