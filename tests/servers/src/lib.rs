//! Real servers for tests. Each one has its own folder and port.
//!
//! They end with the test's process, however it ends: a shell between both stops the server when its standard input
//! closes.
#![expect(
    clippy::unwrap_used,
    reason = "a test whose server does not start should fail"
)]

mod bucket;
mod postgres;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

pub use bucket::Bucket;
pub use postgres::{Cluster, Holder, OWNER, Options, binary};

/// Returns a command that runs `program` and stops it when the standard input of the command closes. Arguments that are
/// added later belong to the program.
fn leashed(program: &Path, log: &Path) -> Command {
    let script = r#"log=$1; shift; "$0" "$@" >>"$log" 2>&1 </dev/null &
        cat >/dev/null; kill -QUIT $! 2>/dev/null; kill -CONT $! 2>/dev/null; wait
        [ -z "${LEASH_FOLDER:-}" ] || rm -rf "$LEASH_FOLDER""#;
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .args([program, log])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Returns a port on which no process listens now.
fn free_port() -> u16 {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    port.local_addr().unwrap().port()
}
