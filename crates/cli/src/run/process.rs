//! The process of the agent: its start, its signals and its exit code.

use std::fs::File;
use std::io;
use std::process::Command;

use rustix::process::{Pid, Signal, WaitOptions, getpgrp, getpid, kill_process, waitpid};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, spawn_blocking};

/// The signals that are forwarded to the agent.
const FORWARDED: [Signal; 6] = [
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
];
/// A process that a signal ended has the exit code 128 plus the number of the signal, as in shells.
const SIGNAL_BASE: i32 = 128;

/// An error of the start of a program, or of the wait for its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProcessError {
    /// The program was not started.
    #[error(transparent)]
    Start(io::Error),
    /// The program was started and its end cannot be observed.
    #[error("cannot wait for the command: {0}")]
    Wait(io::Error),
}

/// Runs a program to its end with the standard streams of this process. Returns its exit code.
pub(super) async fn run(mut command: Command) -> Result<i32, ProcessError> {
    // The handlers precede the start, because a signal in between would end this process alone.
    let handlers: io::Result<Vec<_>> = FORWARDED
        .into_iter()
        .map(|of| Ok((of, signal(SignalKind::from_raw(of.as_raw()))?)))
        .collect();
    let handlers = handlers.map_err(ProcessError::Start)?;
    // `Child::wait` does not report a stopped process, so `waitpid` is called with the id instead.
    let pid = Pid::from_child(&command.spawn().map_err(ProcessError::Start)?);
    let forwarding: Vec<JoinHandle<()>> = handlers
        .into_iter()
        .map(|(of, mut received)| {
            tokio::spawn(async move {
                while received.recv().await.is_some() {
                    forward(of, pid);
                }
            })
        })
        .collect();
    // `waitpid` blocks its thread until the agent ends. Signals are forwarded meanwhile.
    let ended = spawn_blocking(move || wait(pid)).await;
    // Another process can get the same id from now on.
    forwarding.iter().for_each(JoinHandle::abort);
    let ended = ended.unwrap_or_else(|error| Err(error.into()));
    ended.map_err(ProcessError::Wait)
}

/// Forwards a signal to the agent.
fn forward(of: Signal, pid: Pid) {
    // Ctrl-C and Ctrl-\ reach all processes of the foreground, the agent too. Agents end at the second Ctrl-C, so that
    // they must not get the first one twice.
    let is_of_terminal = of == Signal::INT || of == Signal::QUIT;
    if is_of_terminal && is_in_foreground() {
        return;
    }
    // The agent may have ended in the meantime.
    let _ = kill_process(pid, of);
}

/// Waits for the end of a child process. Returns its exit code.
fn wait(pid: Pid) -> io::Result<i32> {
    loop {
        // Without `NOHANG`, the call returns a status. `UNTRACED` makes it return for a stopped process too.
        let Some((_, status)) = waitpid(Some(pid), WaitOptions::UNTRACED)? else {
            continue;
        };
        if let Some(code) = status.exit_status() {
            return Ok(code);
        }
        if let Some(number) = status.terminating_signal() {
            return Ok(SIGNAL_BASE + number);
        }
        // An agent in a terminal stops itself at Ctrl-Z. The shell gets the terminal back if this process stops too.
        // The shell continues both, because they are in one process group.
        if status.stopped() && is_in_foreground() {
            kill_process(getpid(), Signal::STOP)?;
        }
    }
}

/// Returns true if this process is in the foreground of a terminal.
fn is_in_foreground() -> bool {
    // The controlling terminal, even if all standard streams are redirected.
    let terminal = File::open("/dev/tty").ok();
    let foreground = terminal.and_then(|terminal| tcgetpgrp(terminal).ok());
    foreground == Some(getpgrp())
}
