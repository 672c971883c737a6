//! Makes ready what sessions count with, where nobody waits for it.

use palimpsest_core::tokens::Counter;
use tokio::task::spawn_blocking;

/// Makes a way to count ready before anything is counted: a vocabulary takes a tenth of a second the first
/// time, which no thread that answers calls shall spend.
pub async fn prepare(counter: Counter) {
    if counter.is_ready() {
        return;
    }
    // When it fails, the first count does it again and tells why.
    let _ = spawn_blocking(move || counter.prepare()).await;
}
