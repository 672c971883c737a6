//! The thread for work on a body, by the size of the body.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::task::spawn_blocking;

use super::context::Unmanaged;

/// The maximum input of work on an async thread, in bytes. Parsing takes a few milliseconds per MiB.
pub(crate) const MAX_INLINE_BYTES: usize = 256 * 1024;

/// The work panicked. The runtime or the panic hook has reported it.
#[derive(Debug)]
pub(crate) struct WorkPanicked;

impl From<WorkPanicked> for Unmanaged {
    fn from(_: WorkPanicked) -> Self {
        Self::Defect
    }
}

/// Runs work that a large input would make too long for an async thread. A panic ends only the work.
pub(crate) async fn on_fitting_thread<T: Send + 'static>(
    is_large: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WorkPanicked> {
    if is_large {
        return spawn_blocking(work).await.map_err(|_| WorkPanicked);
    }
    // On an async thread, a panic would end the task of the agent's connection.
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| WorkPanicked)
}
