//! Leases: work that is aborted when its lease is lost.

use std::future::Future;

use palimpsest_core::ids::SessionKey;
use palimpsest_store::Lease;
use tokio::time::sleep;

use crate::worker::WorkerContext;

/// Renewals within the duration of a lease, so that one late renewal does not lose the lease.
const RENEWALS: u32 = 3;

/// Returns a lease of this worker that starts now.
pub(crate) fn from_now(shared: &WorkerContext) -> Lease {
    Lease {
        owner: shared.options.owner.clone(),
        until: shared.clock.now().plus(shared.options.lease),
    }
}

/// Runs the work and renews the lease meanwhile. Returns `None` if the lease is lost, because another worker may work
/// on the session then.
pub(crate) async fn with_lease<T>(
    shared: &WorkerContext,
    key: &SessionKey,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        // The work is polled first. A pass that is complete when its lease ends still counts as done.
        biased;
        done = work => Some(done),
        () = renew(shared, key) => None,
    }
}

/// Renews the lease, and returns when the lease is lost.
async fn renew(shared: &WorkerContext, key: &SessionKey) {
    let mut failures = 0;
    loop {
        sleep(shared.options.lease / RENEWALS).await;
        let renewed = shared.log.claim(key, from_now(shared), shared.clock.now());
        match renewed.await {
            Ok(true) => failures = 0,
            Ok(false) => return,
            // Errors of the store are tolerated until the lease would have expired anyway.
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
