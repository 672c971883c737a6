//! One run of ghz: its command line and the outcomes of its calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use palimpsest_load::figures::Latencies;

/// The root of the repository. The configurations of ghz use paths relative to it.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The server's error message for load shedding. Any other rejection is an error.
const SHED: &str = "the server is overloaded";

/// The pacing of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loop {
    /// Each connection sends its next call after the previous reply.
    Closed,
    /// Calls are sent at this rate per second, regardless of earlier replies.
    Open(u32),
}

/// The length of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extent {
    Time(Duration),
    Calls(usize),
}

/// A run.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) config: &'a str,
    pub(crate) address: &'a str,
    pub(crate) data: &'a Path,
    pub(crate) connections: usize,
    pub(crate) pace: Loop,
    pub(crate) extent: Extent,
}

/// The outcomes of the calls.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The command line, for repetition by hand.
    pub(crate) command: String,
    pub(crate) took: Duration,
    /// Latencies of the calls with status OK.
    pub(crate) latencies: Latencies,
    pub(crate) ok: u64,
    /// Calls that were rejected by load shedding.
    pub(crate) shed: u64,
    /// All other failed calls, by message.
    pub(crate) errors: BTreeMap<String, u64>,
}

/// The part of ghz's report that is read.
#[derive(Deserialize)]
struct Report {
    total: u64,
    #[serde(rename = "statusCodeDistribution", default)]
    codes: BTreeMap<String, u64>,
    #[serde(rename = "errorDistribution", default)]
    errors: BTreeMap<String, u64>,
    #[serde(default)]
    details: Option<Vec<Detail>>,
}

#[derive(Deserialize)]
struct Detail {
    latency: u64,
    status: String,
}

impl Run<'_> {
    fn arguments(&self) -> Vec<String> {
        let mut said: Vec<String> = vec![
            "--config".into(),
            format!("tests/load/ghz/{}.toml", self.config),
        ];
        let mut say = |flag: &str, value: String| said.extend([flag.to_owned(), value]);
        say("--binary-file", self.data.display().to_string());
        say("--connections", self.connections.to_string());
        say("--concurrency", self.connections.to_string());
        match self.extent {
            Extent::Time(time) => say("--duration", format!("{}ms", time.as_millis())),
            Extent::Calls(calls) => say("--total", calls.to_string()),
        }
        if let Loop::Open(rate) = self.pace {
            say("--rps", rate.to_string());
            // Without `--async`, ghz waits for replies, and the loop is closed again.
            said.push("--async".into());
        }
        said.push(self.address.to_owned());
        said
    }

    /// Runs ghz until the run is complete.
    pub(crate) fn run(&self, ghz: &Path) -> Result<Outcome> {
        let arguments = self.arguments();
        let output = self.data.with_extension("json");
        let done = Command::new(ghz)
            .args(["--output".into(), output.display().to_string()])
            .args(&arguments)
            .current_dir(ROOT)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{} does not start", ghz.display()))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            bail!("ghz {} failed: {said}", arguments.join(" "));
        }
        let report = fs::read(&output).context("ghz wrote no report")?;
        // The report has a line per call and is not needed again.
        fs::remove_file(&output).ok();
        let report = serde_json::from_slice(&report).context("ghz wrote an unknown report")?;
        let mut outcome = outcome(report, self.connections);
        outcome.command = format!("ghz {}", arguments.join(" "));
        Ok(outcome)
    }
}

fn outcome(report: Report, connections: usize) -> Outcome {
    let details = report.details.unwrap_or_default();
    let mut latencies: Vec<_> = details
        .iter()
        .filter(|call| call.status == "OK")
        .map(|call| Duration::from_nanos(call.latency))
        .collect();
    // Excludes the first call of each connection, which waits for the connection. Its latency is not that of the
    // service.
    if latencies.len() > 4 * connections {
        latencies.drain(..connections);
    }
    let ok = report.codes.get("OK").copied().unwrap_or(0);
    let (shed, errors) = report
        .errors
        .into_iter()
        .partition::<BTreeMap<_, _>, _>(|(said, _)| said.contains(SHED));
    Outcome {
        command: String::new(),
        took: Duration::from_nanos(report.total),
        latencies: Latencies::new(latencies),
        ok,
        shed: shed.values().sum(),
        errors,
    }
}

/// Returns the path of ghz: `PALIMPSEST_GHZ`, or the path where `scripts/install-tools` installs it.
pub(crate) fn place() -> PathBuf {
    let named = std::env::var_os("PALIMPSEST_GHZ").map(PathBuf::from);
    named.unwrap_or_else(|| Path::new(ROOT).join("target/tools/bin/ghz"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shed_calls_are_distinguished_from_errors() {
        let report = r#"{"total":2000000000,"statusCodeDistribution":{"OK":2,"ResourceExhausted":4},
            "errorDistribution":{"rpc error: code = ResourceExhausted desc = the server is overloaded: try again":3,
            "rpc error: code = ResourceExhausted desc = the quota":1},
            "details":[{"latency":9,"status":"OK"},{"latency":1,"status":"ResourceExhausted"},{"latency":5,"status":"OK"}]}"#;
        let outcome = outcome(serde_json::from_str(report).unwrap(), 1);
        assert_eq!((outcome.ok, outcome.shed), (2, 3));
        assert_eq!(outcome.errors.values().sum::<u64>(), 1);
        assert_eq!(
            outcome.latencies.quantile(1.0),
            Some(Duration::from_nanos(9))
        );
    }

    #[test]
    fn an_open_loop_passes_its_rate_to_ghz() {
        let run = Run {
            config: "snip",
            address: "h:1",
            data: Path::new("d.bin"),
            connections: 200,
            pace: Loop::Open(50),
            extent: Extent::Calls(300),
        };
        let said = run.arguments().join(" ");
        assert!(said.ends_with("--total 300 --rps 50 --async h:1"), "{said}");
    }
}
