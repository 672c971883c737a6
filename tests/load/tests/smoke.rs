//! Tests that every part of `make load` runs. The runs are too short to measure anything.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The path of ghz after `scripts/install-tools`.
const GHZ: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/bin/ghz");

fn load(out: &Path, arguments: &[&str]) -> (bool, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_palimpsest-load"))
        .args(["--quick", "--out"])
        .arg(out)
        .args(arguments)
        .env("PALIMPSEST_TEST_BINARY", palimpsest_tests::binary())
        .output()
        .unwrap();
    let said = [done.stdout, done.stderr].concat();
    (
        done.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn every_run_succeeds_and_is_in_the_report() {
    assert!(
        Path::new(GHZ).exists(),
        "ghz is missing: run scripts/install-tools"
    );
    let out = tempfile::tempdir().unwrap();
    let (went_well, said) = load(out.path(), &["--seconds", "0.2"]);
    assert!(went_well, "{said}");
    let results = fs::read_to_string(out.path().join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    check_calls(&results);
    check_mix(&results);
    let column = |table: &str, of: &str| -> Vec<u64> {
        let rows = results[table].as_array().unwrap().iter();
        rows.map(|row| row[of].as_u64().unwrap()).collect()
    };
    assert_eq!(column("growth", "messages"), [10, 1_000]);
    assert_eq!(column("sessions", "sessions"), [1, 100, 1_000]);
    for row in results["growth"].as_array().unwrap() {
        for what in ["append_ms", "delta_ms", "snip_ms", "full_ms"] {
            assert!(row[what][0].as_f64().unwrap() > 0.0, "{what}: {row}");
        }
        assert!(row["open_ms"].as_f64().unwrap() > 0.0, "{row}");
    }
    check_files(out.path());
}

/// Asserts that each method and size has runs in a closed and in an open loop.
fn check_calls(results: &Value) {
    let mut runs = BTreeMap::<_, Vec<_>>::new();
    for row in results["rows"].as_array().unwrap() {
        assert_eq!(row["errors"].as_object().unwrap().len(), 0, "{row}");
        let answered = row["calls"].as_u64().unwrap() + row["shed"].as_u64().unwrap();
        assert!(answered > 0, "{row}");
        let is_open = !row["offered"].is_null();
        runs.entry(row["name"].as_str().unwrap())
            .or_default()
            .push(is_open);
    }
    assert_eq!(runs.len(), 20, "{runs:?}");
    for (name, runs) in runs {
        // `--quick` has one closed loop, of 16 connections, and then the open loop.
        assert_eq!(runs, [false, true], "{name}");
    }
}

fn check_mix(results: &Value) {
    let mixes = results["mix"].as_array().unwrap();
    let paces: Vec<_> = mixes
        .iter()
        .map(|mix| mix["pace"].as_str().unwrap())
        .collect();
    assert_eq!(paces, ["closed", "open"]);
    for mix in mixes {
        assert_eq!(mix["errors"].as_object().unwrap().len(), 0, "{mix}");
        assert!(mix["turns"].as_u64().unwrap() > 0, "{mix}");
        let calls = mix["calls"].as_array().unwrap();
        for rpc in ["AppendMessages", "PersistToolResult", "PrepareContext"] {
            assert!(calls.iter().any(|call| call["rpc"] == rpc), "{rpc}: {mix}");
        }
    }
}

/// Asserts that the page is self-contained, and that the data of servers and ghz is deleted.
fn check_files(out: &Path) {
    let files = fs::read_dir(out)
        .unwrap()
        .map(|file| file.unwrap().file_name());
    let mut files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
    files.sort();
    assert_eq!(
        files,
        [
            "growth.svg", "latency.svg", "memory.svg", "report.html", "results.json",
            "sessions.svg"
        ]
    );
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 4);
    for outside in ["<script", "<link", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    for file in ["growth.svg", "latency.svg", "memory.svg", "sessions.svg"] {
        let svg = fs::read_to_string(out.join(file)).unwrap();
        assert!(svg.starts_with("<svg ") && !svg.contains("NaN"), "{file}");
    }
}

#[test]
fn an_unknown_run_is_rejected() {
    let out = tempfile::tempdir().unwrap();
    let (went_well, said) = load(out.path(), &["--only", "nothing-like-that"]);
    assert!(
        !went_well && said.contains("--only nothing-like-that names no run"),
        "{said}"
    );
    let (went_well, said) = load(out.path(), &["--seconds", "0"]);
    assert!(
        !went_well && said.contains("--seconds is 0 and has to be"),
        "{said}"
    );
}
