//! Runs the conformance suite of Connect against the HTTP API. `scripts/install-tools` builds the suite.

use std::path::Path;
use std::process::Command;

#[test]
fn the_conformance_suite_of_connect_passes() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let suite = here.join("../../target/tools/connect");
    let runner = suite.join("connectconformance");
    assert!(
        runner.is_file(),
        "the suite is missing: run scripts/install-tools"
    );
    let output = Command::new(runner)
        .args(["--mode", "server", "--conf", "tests/conformance.yaml"])
        .args(["--known-failing", "@tests/known-failing.txt", "--"])
        .arg(env!("CARGO_BIN_EXE_palimpsest-connect"))
        .arg(suite.join("proto"))
        .current_dir(here)
        .output()
        .expect("the suite starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("FAILED"))
        .collect();
    assert!(
        output.status.success(),
        "{failed:#?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // A suite without cases would also succeed.
    let passed = text
        .lines()
        .find_map(|line| line.split_once(" passed, ")?.0.parse::<u32>().ok());
    assert!(passed.is_some_and(|passed| passed > 600), "{text}");
}
