//! Tests that every part of `make bench` runs: all rows, quickly. The figures are not meaningful, except for the
//! counted memory of sessions.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn read(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn every_row_is_measured_with_its_limit() {
    let out = tempfile::tempdir().unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_palimpsest-bench"))
        .args(["--quick", "--out"])
        .arg(out.path())
        .env("PALIMPSEST_TEST_BINARY", palimpsest_tests::binary())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let complained = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}{complained}");

    let figures = read(&out.path().join("figures.json"));
    let rows = figures["rows"].as_array().unwrap();
    let expected = [
        "Snip, 100 KB view",
        "GetSessionMemory, 100 KB session",
        "PersistToolResult, inline, 20 KB result",
        "AppendMessages, JSON, 1 KB result",
        "PrepareContext, delta, 1 KB delta",
        "PrepareContext, delta, view of 200,000 tokens",
        "PrepareContext, delta after 200 messages",
        "Compact, session memory, ",
        "cold open, 200 messages",
        "memory of a loaded session, 200 messages",
        "memory of an idle session",
        "start with 100 sessions, ready",
        "memory then, while nothing goes on",
        "append to PostgreSQL, 1 KB frame",
        "gateway, median, ",
        "gateway, p99, ",
        "gateway, first byte, ",
        "gateway, a request with a compaction",
        "HTTP, processor time of PrepareContext",
        "HTTP, processor time of SyncContext",
    ];
    assert_eq!(rows.len(), expected.len(), "{said}");
    for (row, expected) in rows.iter().zip(expected) {
        let what = row["what"].as_str().unwrap();
        assert!(what.starts_with(expected), "{what}");
        assert!(said.contains(what), "{what} is not in the table: {said}");
        let of = |what: &str| row[what]["value"].as_f64().unwrap();
        assert!(of("limit") > 0.0, "{row}");
        assert!(row["ratio"]["median"].is_f64(), "{row}");
        // An idle session may need no memory at all.
        let is_measured = of("measured") > 0.0 || what == "memory of an idle session";
        assert!(is_measured, "{row}");
        if what.starts_with("memory of") {
            assert_eq!(row["is_met"], true, "{row}");
        }
    }
    check_limits(&read(&out.path().join("limits.json")), rows);
    let left = fs::read_dir(out.path()).unwrap().count();
    assert_eq!(left, 2, "the data of the servers was not removed");
}

/// Asserts that the limits file has the names of the works that `make load` reads.
fn check_limits(limits: &Value, rows: &[Value]) {
    let names: Vec<_> = limits.as_object().unwrap().keys().collect();
    let works = [
        "append-json-1k", "memory", "persist-20k", "prepare-delta-1k", "snip",
    ];
    assert_eq!(names, works);
    for row in rows {
        if let Some(work) = row["work"].as_str() {
            let limit = row["limit"]["value"].as_f64().unwrap();
            assert!(
                (limits[work].as_f64().unwrap() - limit).abs() <= 1.0,
                "{row}"
            );
            assert!(row["beside"].as_array().unwrap().len() >= 2, "{row}");
        }
    }
}
