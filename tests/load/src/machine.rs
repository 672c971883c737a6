//! Descriptions of the machine and of the measured binary.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

/// Describes the processors and the memory of the machine, on which all figures depend.
pub fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let read = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()));
        value.unwrap_or_else(|| "unknown".to_owned())
    };
    let model = read("/proc/cpuinfo", "model name");
    let kib: u64 = read("/proc/meminfo", "MemTotal")
        .trim_end_matches(" kB")
        .parse()
        .unwrap_or(0);
    format!(
        "{cpus} processors ({model}), {} GB of memory",
        kib / 1_000_000
    )
}

/// Returns the version that the binary prints.
pub fn version() -> Result<String> {
    let binary = palimpsest_tests::binary();
    let said = Command::new(binary).arg("--version").output();
    let said = said.with_context(|| format!("{} does not start", binary.display()))?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}
