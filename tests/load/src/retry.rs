//! Calls with retries, as a good client makes them: a call that load shedding rejects is retried at the time that the
//! server states.

use std::time::{Duration, Instant};

use palimpsest_tests::Context;
use tonic::Status;
use tonic_types::StatusExt as _;

/// Maximum number of retries of a call.
const RETRIES: u64 = 100;
/// Pause before a retry if the error states none.
const PAUSE: Duration = Duration::from_millis(50);

/// An answered call.
pub struct Answered<T> {
    /// The reply.
    pub reply: T,
    /// Duration of the successful attempt.
    pub took: Duration,
    /// Number of attempts that load shedding rejected.
    pub shed: u64,
}

/// Makes a call until it is answered, or until it fails for another reason.
pub async fn answered<R: Clone, T, F: Future<Output = Result<T, Status>>>(
    client: &Context,
    request: &R,
    make: impl Fn(Context, R) -> F,
) -> Result<Answered<T>, Status> {
    for shed in 0.. {
        let request = request.clone();
        let began = Instant::now();
        let status = match make(client.clone(), request).await {
            Ok(reply) => {
                let took = began.elapsed();
                return Ok(Answered { reply, took, shed });
            }
            Err(status) => status,
        };
        let reason = status.get_details_error_info().map(|info| info.reason);
        if reason.as_deref() != Some("OVERLOADED") || shed >= RETRIES {
            return Err(status);
        }
        let retry = status.get_details_retry_info();
        let pause = retry.and_then(|info| info.retry_delay).unwrap_or(PAUSE);
        tokio::time::sleep(pause).await;
    }
    unreachable!("the loop ends with an answer or a refusal")
}
