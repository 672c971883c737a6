//! The choice of a thread for work on JSON, which takes long for many bytes.

/// The size above which the work runs on a thread that may block, in bytes.
const MAX_INLINE_BYTES: usize = 256 * 1024;

/// Runs work on this thread, or on one that may block if it concerns many bytes. `None` if the work panicked.
pub async fn on_fitting_thread<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if bytes <= MAX_INLINE_BYTES {
        return Some(work());
    }
    tokio::task::spawn_blocking(work).await.ok()
}
