//! The description of the REST API, checked by Redocly. `scripts/install-tools` installs it.

use std::path::Path;
use std::process::Command;

use super::Caller;
use crate::SERVER;

#[tokio::test]
async fn the_description_has_no_problems() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let document = caller.ok(caller.get("/openapi.json")).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let redocly = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../target/tools/redocly/node_modules/.bin/redocly");
    assert!(
        redocly.is_file(),
        "Redocly is missing: run scripts/install-tools"
    );
    let output = Command::new(redocly)
        .args(["lint", "--extends=recommended", "--format=json"])
        .arg(&file)
        .env("REDOCLY_TELEMETRY", "off")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let totals = &report["totals"];
    assert!(output.status.success() && totals["warnings"] == 0, "{text}");
}
