//! Servers under load: where they are, how they are set, and what they take of the machine.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use palimpsest_tests::Server;
use tempfile::TempDir;

/// What a closed loop is run against. Its callers come again at once, also when they are refused: against a
/// server that sheds load it would measure refusals.
pub(crate) const PATIENT: &str = "grpc.max_slowdown_percent=10000";

/// A server on a folder of its own.
pub(crate) struct Site {
    /// `default` or `patient`.
    pub(crate) name: &'static str,
    pub(crate) server: Server,
    // Goes away after the server.
    _folder: TempDir,
}

impl Site {
    /// A server as it comes.
    pub(crate) fn default_settings(folder: &Path) -> Result<Self> {
        Self::start("default", folder, &[])
    }

    /// A server that lets calls take long before it refuses any.
    pub(crate) fn patient(folder: &Path) -> Result<Self> {
        Self::start("patient", folder, &["--set", PATIENT])
    }

    fn start(name: &'static str, folder: &Path, arguments: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir_in(folder).context("no folder for a server's data")?;
        Ok(Self {
            name,
            server: Server::start(folder.path(), arguments),
            _folder: folder,
        })
    }
}

/// The processor time that a process has taken so far.
pub(crate) fn cpu(server: &Server) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap_or_default();
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
pub(crate) fn memory(server: &Server) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap_or_default();
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) * 1_024
    };
    (bytes("VmRSS:"), bytes("RssAnon:"))
}
