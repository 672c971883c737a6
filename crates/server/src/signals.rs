//! The signals that end the server.

use std::{io, process};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that the first SIGTERM or SIGINT cancels. The second ends the process at once: somebody
/// who asks twice does not want to wait for what the first is still finishing.
pub fn stop_on_signals() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        let name = next(&mut terminate, &mut interrupt).await.0;
        tracing::info!(signal = name, "going down; a second signal ends it at once");
        token.cancel();
        let (name, number) = next(&mut terminate, &mut interrupt).await;
        tracing::warn!(signal = name, "ended without waiting");
        // By convention a process that a signal ended exits with 128 and the signal's number.
        process::exit(128 + number);
    });
    Ok(stop)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> (&'static str, i32) {
    tokio::select! {
        _ = terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
        _ = interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
    }
}
