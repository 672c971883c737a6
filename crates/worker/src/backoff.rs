//! Delays after failures: exponential up to a limit, with full jitter, so that sessions which failed together are not
//! retried together.

use std::time::Duration;

use crate::options::WorkerOptions;

/// Minimum delay, for any jitter.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// Returns the delay after a number of failures in a row.
pub(crate) fn delay(options: &WorkerOptions, attempts: u32, jitter: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    let most = options.backoff.saturating_mul(doubled);
    let most = most.min(options.max_backoff).max(MIN_WAIT);
    let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(u64::from(jitter) % most.saturating_add(1)).max(MIN_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_limit_and_are_jittered() {
        let options = WorkerOptions::new("w");
        let millis = |attempts, jitter| delay(&options, attempts, jitter).as_millis();
        assert_eq!(millis(1, 2_000), 2_000);
        assert_eq!(millis(3, 8_000), 8_000);
        assert_eq!(
            millis(60, 300_000),
            300_000,
            "the delay must stay at the limit"
        );
        assert_eq!(
            millis(60, 300_001 + 7_000),
            7_000,
            "the jitter must use the whole range"
        );
        assert_eq!(millis(1, 0), 100, "the delay must have a minimum");
    }
}
