//! The conformance suite of the protocol, against the API. `scripts/install-tools` installs the suite.

use std::path::Path;
use std::process::Command;

use palimpsest_tests::say::user;

use crate::world::{SERVER, add};

/// The revisions of the protocol, and the least number of checks of each that succeed.
const REVISIONS: [(&str, usize); 2] = [("2025-11-25", 30), ("2026-07-28", 80)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_passes() {
    let shared = SERVER.get();
    let mut context = shared.0.context().await;
    add(&mut context, "conforming", vec![user("A word.")]).await;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tools = here.join("../target/tools");
    let suite = tools.join("mcp/node_modules/@modelcontextprotocol/conformance/dist/index.js");
    assert!(
        suite.is_file(),
        "the suite is missing: run scripts/install-tools"
    );
    let architecture = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "x64"
    };
    // The suite needs a later version of Node than that of Debian.
    let node = format!("agents/node_modules/node-linux-{architecture}/bin/node");
    let url = format!("http://{}/mcp/projects/p", shared.0.address());
    for (revision, least) in REVISIONS {
        let output = Command::new(tools.join(&node))
            .arg(&suite)
            .args(["server", "--suite", "all", "--url", &url])
            .args(["--spec-version", revision, "--expected-failures"])
            .arg(here.join(format!("mcp/expected-failures-{revision}.yaml")))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let end = text.ceil_char_boundary(text.len().saturating_sub(8_000));
        assert!(
            output.status.success(),
            "{revision}\n{}\n{errors}",
            &text[end..]
        );
        // A suite without checks would also succeed.
        let total = text.lines().find_map(|line| line.strip_prefix("Total: "));
        let succeeded = total.and_then(|total| total.split(' ').next()?.parse::<usize>().ok());
        let succeeded = succeeded.unwrap_or_default();
        assert!(
            succeeded >= least,
            "{revision}: {succeeded}\n{}",
            &text[end..]
        );
    }
}
