//! Retries of statements.
//!
//! Every statement is one transaction and can be retried if its outcome is unknown. A change compares
//! the session's position or sets an idempotent value. A successful append is recognized by its token.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::PgError;
use crate::StoreError;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The state of a statement's earlier attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Never,
    /// An earlier attempt was sent, and its outcome is unknown.
    Before,
}

/// The time limit for the retries of one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryBudget {
    until: Instant,
}

impl RetryBudget {
    pub(super) fn new(time: Duration) -> Self {
        Self {
            until: Instant::now() + time,
        }
    }

    pub(super) fn start(self) -> RetryState {
        RetryState {
            until: self.until,
            tried: Attempt::Never,
            pause: FIRST_PAUSE,
        }
    }
}

/// The attempts of one statement.
#[derive(Debug)]
pub(super) struct RetryState {
    until: Instant,
    tried: Attempt,
    pause: Duration,
}

impl RetryState {
    pub(super) fn attempt(&self) -> Attempt {
        self.tried
    }

    /// Waits before the next attempt, with exponential backoff. Fails if a retry cannot succeed or if the
    /// time is over.
    pub(super) async fn back_off(&mut self, trouble: PgError) -> Result<(), StoreError> {
        let next = Instant::now() + self.pause;
        // Do not sleep beyond the budget: the caller would wait without another attempt.
        if !trouble.is_transient() || next >= self.until {
            return Err(trouble.into());
        }
        // The failed attempt may have been committed, so the next one must recognize its own effect.
        self.tried = Attempt::Before;
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Retries an attempt until it succeeds, cannot succeed, or the time is over. This is a macro because
/// the future of an async closure is not known to be `Send`.
macro_rules! retry {
    ($budget:expr, $tried:pat, $attempt:expr) => {{
        let mut tries = $budget.start();
        loop {
            let $tried = tries.attempt();
            let attempt: Result<_, crate::postgres::error::PgError> = async { $attempt }.await;
            match attempt {
                Ok(done) => break Ok::<_, crate::StoreError>(done),
                Err(trouble) => {
                    if let Err(error) = tries.back_off(trouble).await {
                        break Err(error);
                    }
                }
            }
        }
    }};
}

pub(super) use retry;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    async fn tries(budget: RetryBudget, trouble: impl Fn(u32) -> Option<PgError>) -> (u32, bool) {
        let number_of = AtomicU32::new(0);
        let done = retry!(budget, tried, {
            let number = number_of.fetch_add(1, Ordering::Relaxed);
            assert_eq!(tried == Attempt::Before, number > 0);
            trouble(number).map_or(Ok(()), Err)
        });
        (number_of.load(Ordering::Relaxed), done.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn transient_errors_are_retried_within_the_time_budget() {
        let passing = || Some(PgError::Lost("gone".into()));
        let five = RetryBudget::new(Duration::from_secs(5));
        assert_eq!(
            tries(five, |n| passing().filter(|_| n < 3)).await,
            (4, true)
        );
        let five = RetryBudget::new(Duration::from_secs(5));
        let begun = Instant::now();
        let (tried, done) = tries(five, |_| passing()).await;
        assert!(!done && (8..20).contains(&tried), "{tried} tries");
        assert!(begun.elapsed() <= Duration::from_secs(5));
        assert_eq!(
            tries(RetryBudget::new(Duration::ZERO), |_| passing()).await,
            (1, false)
        );
        let five = RetryBudget::new(Duration::from_secs(5));
        let last = |_| Some(PgError::Final(StoreError::Closed));
        assert_eq!(tries(five, last).await, (1, false));
    }
}
