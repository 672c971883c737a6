//! Servers under load: their settings, their data and their resource usage.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use palimpsest_tests::Server;
use tempfile::TempDir;

/// The setting that disables adaptive limiting for closed loops. Rejected callers retry at once, so a closed loop would
/// otherwise measure rejections.
pub const PATIENT: &str = "grpc.max_slowdown_percent=10000";

/// A server with its own data folder.
pub struct TestServer {
    /// The name: `default`, `patient` or `without-worker`.
    pub name: &'static str,
    /// The process.
    pub server: Server,
    // Declared after the server, so that the folder is deleted after the process ends.
    folder: TempDir,
}

impl TestServer {
    /// Starts a server with default settings.
    pub fn default_settings(folder: &Path) -> Result<Self> {
        Self::start("default", folder, &[])
    }

    /// Starts a server without adaptive limiting.
    pub fn patient(folder: &Path) -> Result<Self> {
        Self::start("patient", folder, &["--set", PATIENT])
    }

    /// Starts a server without adaptive limiting and without a worker, which would commit to sessions by itself.
    pub fn without_worker(folder: &Path) -> Result<Self> {
        Self::start(
            "without-worker",
            folder,
            &["--set", PATIENT, "--set", "worker.enabled=false"],
        )
    }

    /// Stops the server in an orderly way and returns its data folder.
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

/// Returns the processor time of a process so far.
pub fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field is the process name, which may contain any character. Fields 14 and 15 are utime and stime.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// Returns the resident memory of a process, and the part that is not mapped files, in bytes.
pub fn memory(server: &Server) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap_or_default();
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) * 1_024
    };
    (bytes("VmRSS:"), bytes("RssAnon:"))
}
