//! Background tasks that outlive the call that started them. A drain waits for all of them.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// The background tasks in flight.
#[derive(Debug, Clone, Default)]
pub struct Background {
    tasks: TaskTracker,
}

impl Background {
    /// Spawns a task that continues after its caller has ended.
    pub fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(task)
    }

    /// Spawns a task without a result, within the current span.
    pub fn in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn(task.in_current_span());
    }

    /// The number of tasks in flight.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until no task is in flight.
    pub async fn finished(&self) {
        // `wait` only returns for a closed tracker.
        self.tasks.close();
        self.tasks.wait().await;
    }
}
