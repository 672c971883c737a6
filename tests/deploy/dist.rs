//! Tests of the release parts that need no release build, and of the workflows that build the rest.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::helm::{chart, root, yaml};

/// Runs a script of the repository with `folder` as the results folder.
fn script(name: &str, args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(root().join("scripts").join(name));
    command.args(args).env("DIST_DIR", folder);
    // A commit time of 2026-01-01, so that the test also runs outside a git checkout.
    command.env("SOURCE_DATE_EPOCH", "1767225600");
    command.env_remove("STRICT").output().unwrap()
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    stdout
}

#[test]
fn two_builds_are_identical_and_a_changed_file_is_detected() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let sums = folders.each_ref().map(|folder| {
        succeeds(&script("dist", &["chart", "api"], folder.path()));
        fs::read_to_string(folder.path().join("SHA256SUMS")).unwrap()
    });
    assert_eq!(sums[0], sums[1]);
    assert_eq!(sums[0].lines().count(), 3, "{}", sums[0]);

    let folder = folders[0].path();
    let check = || script("dist-check", &[folder.to_str().unwrap()], folder);
    let printed = succeeds(&check());
    for line in [
        "3 checksums",
        "chart: lints",
        "with comments",
        "compile to the descriptors",
    ] {
        assert!(printed.contains(line), "{printed}");
    }

    let file = folder.join(sums[0].lines().next().unwrap().split_once("  ").unwrap().1);
    let mut bytes = fs::read(&file).unwrap();
    bytes[100] ^= 1;
    fs::write(&file, bytes).unwrap();
    let refused = check();
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "a changed file is accepted");
    assert!(stderr.contains("checksum"), "{stderr}");
}

#[test]
fn the_chart_runs_the_image_of_its_own_version() {
    let folder = tempfile::tempdir().unwrap();
    let version = succeeds(&script("dist", &["version"], folder.path()));
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    let app_version = &yaml(&chart().join("Chart.yaml"))["appVersion"];
    assert_eq!(app_version, version.trim(), "Chart.yaml: appVersion");
}

/// Returns the steps of all jobs of a workflow.
fn steps(workflow: &Value) -> Vec<&Value> {
    let jobs = workflow["jobs"].as_object().unwrap().values();
    jobs.flat_map(|job| job["steps"].as_array().unwrap())
        .collect()
}

#[test]
fn workflows_pin_actions_by_commit_and_run_targets_of_the_makefile() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    for name in ["ci.yml", "release.yml"] {
        let workflow = yaml(&root().join(".github/workflows").join(name));
        assert_eq!(workflow["permissions"]["contents"], "read", "{name}");
        let mut targets = 0;
        for step in steps(&workflow) {
            if let Some(action) = step["uses"].as_str() {
                let (_, commit) = action.split_once('@').unwrap();
                let is_commit = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
                assert!(is_commit, "{name}: {action} is not pinned by commit");
            }
            let run = step["run"].as_str().unwrap_or_default();
            for target in run.lines().filter_map(|line| line.split("make ").nth(1)) {
                let target = target.split_whitespace().next().unwrap();
                let is_target = makefile.contains(&format!("\n{target}:"));
                assert!(is_target, "{name}: make {target} does not exist");
                targets += 1;
            }
        }
        assert!(targets >= 3, "{name} runs {targets} targets");
    }
}
