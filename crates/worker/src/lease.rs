//! Work that goes on as long as its lease is kept.

use std::future::Future;
use std::time::Duration;

use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_store::Lease;
use tokio::time::sleep;

use crate::worker::WorkerContext;

/// A lease is renewed so many times while it holds, so that one late renewal does not lose it.
const RENEWALS: u32 = 3;

pub(crate) fn later(now: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_add(by))
}

pub(crate) fn earlier(now: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(by))
}

/// The lease that this worker takes now.
pub(crate) fn from_now(shared: &WorkerContext) -> Lease {
    Lease {
        owner: shared.options.owner.clone(),
        until: later(shared.clock.now(), shared.options.lease),
    }
}

/// Does the work and renews the lease meanwhile; none when the lease is lost, because somebody else may
/// work on the session then.
pub(crate) async fn keep<T>(
    shared: &WorkerContext,
    key: &SessionKey,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = renew(shared, key) => None,
    }
}

/// Renews the lease until that cannot be done any more.
async fn renew(shared: &WorkerContext, key: &SessionKey) {
    let mut failures = 0;
    loop {
        sleep(shared.options.lease / RENEWALS).await;
        let renewed = shared.log.claim(key, from_now(shared), shared.clock.now());
        match renewed.await {
            Ok(true) => failures = 0,
            Ok(false) => return,
            Err(error) => {
                failures += 1;
                tracing::warn!(session = %key, %error, "failed to renew a lease");
                if failures >= RENEWALS {
                    return;
                }
            }
        }
    }
}
