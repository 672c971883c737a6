//! Real servers that tests start: each with a folder and a port of its own.
//!
//! They end with the test's process, however that ends: a shell stands between the two and takes the end of its own
//! input for that.
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

/// A program that ends when the standard input of what is started here does. What is added to the arguments are
/// the program's own.
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

/// A port that nobody listens on now.
fn free_port() -> u16 {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    port.local_addr().unwrap().port()
}
