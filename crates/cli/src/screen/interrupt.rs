//! The signals that end a screen. A handler replaces their default effect, which would leave the terminal in the state
//! of the screen.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit code of an interrupted command: 128 plus the number of SIGINT, as in shells.
pub(crate) const INTERRUPTED: i32 = 130;

/// The signals SIGINT, SIGTERM and SIGHUP.
pub(crate) struct Interrupt([Signal; 3]);

impl Interrupt {
    /// Installs the handlers.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Waits for a signal.
    pub(crate) async fn received(&mut self) {
        let [int, term, hup] = &mut self.0;
        tokio::select! {
            _ = int.recv() => {},
            _ = term.recv() => {},
            _ = hup.recv() => {},
        }
    }
}
