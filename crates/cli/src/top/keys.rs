//! The key that ends the screen.

use std::io::{self, Read as _};
use std::thread;

use tokio::sync::oneshot;

/// Completes when the person presses `q`.
pub(super) struct QuitKey(Option<oneshot::Receiver<()>>);

impl QuitKey {
    /// Reads standard input on a thread. A read cannot be cancelled, so the thread ends with the process.
    pub(super) fn listen() -> Self {
        let (sender, receiver) = oneshot::channel();
        // A thread of its own, because the runtime waits for its blocking tasks at the end, and this read can last
        // forever.
        thread::spawn(move || {
            let mut keys = io::stdin().lock().bytes().map_while(Result::ok);
            if keys.any(|key| matches!(key, b'q' | b'Q')) {
                // The screen has ended already if nobody receives.
                let _ = sender.send(());
            }
        });
        Self(Some(receiver))
    }

    /// Waits for the key. Never completes if standard input ends before.
    pub(super) async fn pressed(&mut self) {
        if let Some(receiver) = self.0.take()
            && receiver.await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}
