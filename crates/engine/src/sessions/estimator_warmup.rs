//! Prepares the token counters of sessions outside the threads that answer calls.

use palimpsest_core::tokens::TokenCounter;
use tokio::task::spawn_blocking;

/// Prepares a token counter on a blocking thread. The first load of a vocabulary takes about 0.1 s, which is too long
/// for a thread that answers calls.
pub async fn warm_up(counter: TokenCounter) {
    if counter.is_ready() {
        return;
    }
    // A failed preparation is repeated by the first count, which reports the error.
    let _ = spawn_blocking(move || counter.prepare()).await;
}
