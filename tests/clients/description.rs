//! The description of the REST API (`GET /openapi.json`), checked by Redocly, and the API, called by Schemathesis.
//! `scripts/install-tools` installs both.

use std::process::{Command, Output};

use palimpsest_tests::Server;
use serde_json::Value;

use crate::{beside, tool};

fn run(command: &mut Command) -> (Output, String) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

#[tokio::test]
async fn the_description_has_no_problems() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let url = format!("http://{}/openapi.json", server.address());
    let document = reqwest::get(url).await.unwrap().bytes().await.unwrap();
    let file = folder.path().join("openapi.json");
    std::fs::write(&file, document).unwrap();
    let redocly = tool("redocly/node_modules/.bin/redocly");
    let lint = ["lint", "--extends=recommended", "--format=json"];
    let mut command = Command::new(redocly);
    let command = command
        .args(lint)
        .arg(&file)
        .env("REDOCLY_TELEMETRY", "off");
    let (output, text) = run(command);
    let report: Value = serde_json::from_str(&text).unwrap();
    let totals = &report["totals"];
    assert!(output.status.success() && totals["warnings"] == 0, "{text}");
}

/// Schemathesis generates thousands of valid and invalid requests from the description. Each response must have a
/// status, a content type and a body of the description, and no request may be an error of the server.
#[tokio::test]
async fn the_api_is_as_described() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let address = server.address();
    // The generated requests are for this session.
    let sync = format!("http://{address}/v1/projects/demo/sessions/a:sync");
    let body = r#"{"messages": [{"role": "user", "content": "hi"}]}"#;
    let synced = reqwest::Client::new().post(sync).body(body).send().await;
    assert_eq!(synced.unwrap().status(), 200);
    let mut command = Command::new(tool("schemathesis/bin/st"));
    command
        .arg("--config-file")
        .arg(beside("schemathesis.toml"))
        .arg("run")
        .arg(format!("http://{address}/openapi.json"))
        // The responses of a watch have no end.
        .args(["--exclude-path-regex", ":watch$"])
        .current_dir(folder.path());
    let (output, text) = run(&mut command);
    assert!(output.status.success(), "{text}");
    // A run that tested nothing would also succeed.
    assert_eq!(text.matches("Tested: 27").count(), 1, "{text}");
}
