//! Servers under load: where they are, how they are set, and what they take of the machine.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use palimpsest_tests::Server;
use tempfile::TempDir;

/// What a closed loop is run against. Its callers come again at once, also when they are refused: against a
/// server that sheds load it would measure refusals.
pub const PATIENT: &str = "grpc.max_slowdown_percent=10000";

/// A server on a folder of its own.
pub struct Site {
    /// `default`, `patient` or `without-worker`.
    pub name: &'static str,
    /// The process.
    pub server: Server,
    // Goes away after the server.
    folder: TempDir,
}

impl Site {
    /// A server as it comes.
    pub fn default_settings(folder: &Path) -> Result<Self> {
        Self::start("default", folder, &[])
    }

    /// A server that lets calls take long before it refuses any.
    pub fn patient(folder: &Path) -> Result<Self> {
        Self::start("patient", folder, &["--set", PATIENT])
    }

    /// The same without a worker, which writes to sessions that it was not asked to write to.
    pub fn without_worker(folder: &Path) -> Result<Self> {
        Self::start(
            "without-worker",
            folder,
            &["--set", PATIENT, "--set", "worker.enabled=false"],
        )
    }

    /// Ends the server in order; what is left is its data.
    pub fn stop(self) -> TempDir {
        self.server.stop();
        self.folder
    }

    fn start(name: &'static str, folder: &Path, arguments: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir_in(folder).context("no folder for a server's data")?;
        Ok(Self {
            name,
            server: Server::start(folder.path(), arguments),
            folder,
        })
    }
}

/// The processor time that a process has taken so far.
pub fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field is the name, which may hold anything; utime and stime are the 14th and 15th.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// The memory that a process has, and how much of it is no mapped file.
pub fn memory(server: &Server) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap_or_default();
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) * 1_024
    };
    (bytes("VmRSS:"), bytes("RssAnon:"))
}
