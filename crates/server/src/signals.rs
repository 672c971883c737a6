//! Handling of the termination signals.

use std::{io, process};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token that the first SIGTERM or SIGINT cancels.
///
/// The second signal exits the process immediately, without waiting for the drain.
pub fn stop_on_signals() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        let name = next(&mut terminate, &mut interrupt).await.0;
        tracing::info!(
            signal = name,
            "shutting down; a second signal exits immediately"
        );
        token.cancel();
        let (name, number) = next(&mut terminate, &mut interrupt).await;
        tracing::warn!(signal = name, "exited without draining");
        // By convention, a process that is ended by a signal exits with 128 plus the signal number.
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
