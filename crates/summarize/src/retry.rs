//! Retries of transient failures with full jitter. A wait that the provider requests takes
//! precedence, and no retry starts after the deadline.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::error::Error;

/// The number of attempts and the waits between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// The maximum number of attempts, including the first. Default: 4.
    pub attempts: u32,
    /// The upper limit of the first wait. It doubles with each retry. Default: 500 ms.
    pub first_wait: Duration,
    /// The upper limit of all waits, unless the provider requests a longer one. Default: 20 s.
    pub longest_wait: Duration,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            attempts: 4,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(20),
        }
    }
}

/// The source of randomness for waits. The function receives the longest wait and returns one that
/// is at most as long.
#[derive(Clone)]
pub struct Jitter(Arc<dyn Fn(Duration) -> Duration + Send + Sync>);

impl Jitter {
    /// Picks a uniformly distributed wait up to the longest, so that clients that failed together do
    /// not retry together.
    pub fn full() -> Self {
        Self::with(|longest| longest.mul_f64(fastrand::f64()))
    }

    /// Creates a custom source, for tests.
    pub fn with(pick: impl Fn(Duration) -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(pick))
    }

    fn pick(&self, longest: Duration) -> Duration {
        (self.0)(longest).min(longest)
    }
}

impl Default for Jitter {
    fn default() -> Self {
        Self::full()
    }
}

impl fmt::Debug for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jitter")
    }
}

/// The failure of one attempt.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// A retry cannot succeed.
    Final(Error),
    /// A retry may succeed, but not before `after` if the provider requests a wait.
    Retryable {
        error: Error,
        after: Option<Duration>,
    },
}

impl AttemptError {
    /// Returns the name of the error for telemetry.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Final(error) | Self::Retryable { error, .. } => error.name(),
        }
    }
}

/// Runs attempts until one succeeds, one fails finally, the maximum number is reached, or the next
/// would start after the deadline. In the last case the caller receives the last error with the
/// requested wait.
pub(crate) async fn with_retries<T, F>(
    settings: &RetrySettings,
    jitter: &Jitter,
    deadline: Instant,
    mut attempt: impl FnMut(u32) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, AttemptError>>,
{
    let mut longest = settings.first_wait;
    let mut number = 1;
    loop {
        let (error, after) = match attempt(number).await {
            Ok(value) => return Ok(value),
            Err(AttemptError::Final(error)) => return Err(error),
            Err(AttemptError::Retryable { error, after }) => (error, after),
        };
        // Jitter is added to the requested wait, because all clients receive the same one.
        let wait = match after {
            Some(after) => after.saturating_add(jitter.pick(settings.first_wait)),
            None => jitter.pick(longest.min(settings.longest_wait)),
        };
        // A provider may request a wait that overflows `Instant`; such a wait ends the attempts.
        let next = Instant::now().checked_add(wait);
        let Some(next) = next.filter(|next| number < settings.attempts && *next < deadline) else {
            return Err(error);
        };
        tracing::debug!(
            attempt = number,
            wait_ms = wait.as_millis(),
            error = error.name(),
            "retrying a model request"
        );
        sleep_until(next).await;
        longest = longest.saturating_mul(2);
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{AttemptError, Jitter, RetrySettings, with_retries};
    use crate::error::Error;
    use crate::provider_error::ProviderError;

    const SETTINGS: RetrySettings = RetrySettings {
        attempts: 4,
        first_wait: Duration::from_millis(500),
        longest_wait: Duration::from_secs(1),
    };

    fn busy(after: Option<u64>) -> AttemptError {
        let after = after.map(Duration::from_millis);
        AttemptError::Retryable {
            error: Error::Unavailable {
                retry_after: after,
                fault: ProviderError::default(),
            },
            after,
        }
    }

    /// Fails with each of these in turn, then succeeds; when the attempts were made, in milliseconds.
    async fn run(failures: Vec<AttemptError>, deadline_ms: u64) -> (Result<(), Error>, Vec<u128>) {
        let start = Instant::now();
        let at = RefCell::new(Vec::new());
        let failures = RefCell::new(failures.into_iter());
        let longest = Jitter::with(|longest| longest);
        let deadline = start + Duration::from_millis(deadline_ms);
        let result = with_retries(&SETTINGS, &longest, deadline, |_| {
            at.borrow_mut().push(start.elapsed().as_millis());
            let failure = failures.borrow_mut().next();
            async move { failure.map_or(Ok(()), Err) }
        })
        .await;
        (result, at.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_up_to_the_maximum_and_attempts_are_bounded() {
        let (result, at) = run((0..9).map(|_| busy(None)).collect(), 60_000).await;
        assert_eq!(result.unwrap_err().name(), "unavailable");
        // The waits double from 500 ms up to the maximum of 1 s. The fourth attempt is the last one.
        assert_eq!(at, [0, 500, 1_500, 2_500]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_retry_delay_of_the_provider_takes_precedence() {
        let (result, at) = run(vec![busy(Some(7_000)), busy(Some(0))], 60_000).await;
        assert_eq!(result, Ok(()));
        // The jitter of 500 ms is added to each requested wait, even to a wait of zero.
        assert_eq!(at, [0, 7_500, 8_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_starts_or_waits_past_the_deadline() {
        let start = Instant::now();
        let (result, at) = run(vec![busy(Some(60_000))], 30_000).await;
        let Err(Error::Unavailable { retry_after, .. }) = result else {
            panic!("unavailable");
        };
        assert_eq!(retry_after, Some(Duration::from_mins(1)));
        assert_eq!((at, start.elapsed()), (vec![0], Duration::ZERO));
        // A wait beyond what an instant can hold is one too.
        let (result, _) = run(vec![busy(Some(u64::MAX))], 30_000).await;
        assert!(result.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn final_errors_are_not_retried() {
        let (result, at) = run(vec![AttemptError::Final(Error::Empty)], 60_000).await;
        assert_eq!((result, at), (Err(Error::Empty), vec![0]));
    }

    #[test]
    fn jitter_stays_within_its_bounds() {
        let longest = Duration::from_secs(3);
        for _ in 0..1_000 {
            assert!(Jitter::full().pick(longest) <= longest);
        }
        assert_eq!(Jitter::with(|_| Duration::MAX).pick(longest), longest);
    }
}
