//! Tests `palimpsest replay` and `recall` without a path: they read the logs of the agents of a made-up home folder.

use std::fs;
use std::path::Path;

use palimpsest_tests::palimpsest_with;
use serde_json::Value;

use super::formats::{CLAUDE_CODE, CODEX, COPILOT, GEMINI, PI, write};

/// Runs a command in a home folder. Returns standard output, or standard error with `Err` if it failed, and standard
/// error.
fn run(args: &[&str], vars: &[(&str, &str)]) -> (Result<String, String>, String) {
    let output = palimpsest_with(args, vars);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let stderr = text(&output.stderr);
    let stdout = text(&output.stdout);
    let outcome = if output.status.success() {
        Ok(stdout)
    } else {
        Err(stderr.clone())
    };
    (outcome, stderr)
}

/// Writes the logs of five agents, and files that the agents keep beside them.
fn write_logs(home: &Path) {
    write(home, ".claude/projects/-w/one.jsonl", CLAUDE_CODE);
    write(
        home,
        ".claude/projects/-w/sessions-index.json",
        "{\"version\":1,\"entries\":[]}",
    );
    // A stored result has the format of an API.
    write(
        home,
        ".claude/projects/-w/one/tool-results/x.json",
        "[{\"type\":\"text\",\"text\":\"a result\"}]",
    );
    write(
        home,
        ".claude/projects/-w/one/subagents/agent-7.meta.json",
        "{\"agentType\":\"Explore\"}",
    );
    write(home, ".codex/sessions/2026/01/02/rollout-1.jsonl", CODEX);
    write(home, ".copilot/session-state/3/events.jsonl", COPILOT);
    write(home, ".gemini/tmp/p/chats/session-1.jsonl", GEMINI);
    write(
        home,
        ".gemini/tmp/p/logs.json",
        r#"[{"sessionId":"s","messageId":0,"type":"user","message":"hello","timestamp":"2026-01-02T03:04:05.000Z"}]"#,
    );
    write(home, ".pi/agent/sessions/--w--/four.jsonl", PI);
}

#[test]
fn the_logs_of_all_agents_are_found_in_the_home_folder() {
    let folder = tempfile::tempdir().unwrap();
    write_logs(folder.path());
    let home = folder.path().to_str().unwrap();
    let vars = [("HOME", home)];

    let table = run(&["replay"], &vars).0.unwrap();
    for line in [
        format!("Claude Code: 1 sessions in 1 files of {home}/.claude/projects\n"),
        format!("Codex: 1 sessions in 1 files of {home}/.codex/sessions\n"),
        format!("Copilot CLI: 1 sessions in 1 files of {home}/.copilot/session-state\n"),
        format!("Gemini CLI: 1 sessions in 1 files of {home}/.gemini/tmp\n"),
        format!("pi: 1 sessions in 1 files of {home}/.pi/agent/sessions\n"),
        "4 files of these folders are not sessions and were ignored: \
         -w/one/subagents/agent-7.meta.json, -w/one/tool-results/x.json, -w/sessions-index.json, p/logs.json\n"
            .to_owned(),
    ] {
        assert!(table.contains(&line), "{line}{table}");
    }
    assert!(!table.contains("UNRECOGNIZED"), "{table}");

    let (json, about_logs) = run(&["replay", "--json"], &vars);
    let json: Value = serde_json::from_str(&json.unwrap()).unwrap();
    assert_eq!(json[0]["sessions"], 5);
    assert_eq!(json[0]["files"].as_array().unwrap().len(), 5);
    assert!(about_logs.contains("pi: 1 sessions"), "{about_logs}");

    // A format limits the command to the agent that writes it.
    let codex = run(&["replay", "--format", "codex", "--json"], &vars).0;
    let codex: Value = serde_json::from_str(&codex.unwrap()).unwrap();
    assert_eq!(codex[0]["sessions"], 1);

    // The files beside the logs are ignored in a folder, and an error if they are named.
    let json = run(&["replay", "--json", home], &vars).0.unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["sessions"], 5);
    run(&["verify", home], &vars).0.unwrap();
    let project = format!("{home}/.claude/projects/-w");
    let log = format!("{project}/one.jsonl");
    let beside = format!("{project}/one/subagents/agent-7.meta.json");
    let error = run(&["replay", &log, &beside], &vars).0.unwrap_err();
    assert!(error.contains("were not recognized"), "{error}");
    // Any other file can be a damaged transcript.
    write(folder.path(), ".claude/projects/-w/other.json", "{}");
    let error = run(&["replay", &project], &vars).0.unwrap_err();
    assert!(error.contains("were not recognized"), "{error}");
    fs::remove_file(format!("{project}/other.json")).unwrap();

    // These short sessions have no compaction, but the folders are reported first.
    let recall = palimpsest_with(&["recall"], &vars);
    let stdout = String::from_utf8_lossy(&recall.stdout).into_owned();
    assert!(stdout.contains("pi: 1 sessions"), "{stdout}");
    let stderr = String::from_utf8_lossy(&recall.stderr).into_owned();
    assert!(stderr.contains("in 5 sessions"), "{stderr}");
}

#[test]
fn variables_of_the_agents_name_other_folders() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    write(&elsewhere, "projects/-w/one.jsonl", CLAUDE_CODE);
    write(&elsewhere, "sessions/2026/01/02/rollout-1.jsonl", CODEX);
    let (home, elsewhere) = (home.to_str().unwrap(), elsewhere.to_str().unwrap());
    let vars = [
        ("USERPROFILE", home),
        ("CLAUDE_CONFIG_DIR", elsewhere),
        ("CODEX_HOME", elsewhere),
        // An empty variable is not set.
        ("COPILOT_HOME", ""),
    ];
    let table = run(&["replay"], &vars).0.unwrap();
    for line in [
        format!("Claude Code: 1 sessions in 1 files of {elsewhere}/projects\n"),
        format!("Codex: 1 sessions in 1 files of {elsewhere}/sessions\n"),
    ] {
        assert!(table.contains(&line), "{line}{table}");
    }
    assert!(!table.contains("pi:"), "{table}");
}

#[test]
fn missing_logs_are_an_error_that_names_the_places() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().to_str().unwrap();
    let check = || {
        for command in ["replay", "recall"] {
            let error = run(&[command], &[("HOME", home)]).0.unwrap_err();
            for part in [
                format!(
                    "no session of an agent was found in {home}/.claude/projects (Claude Code)"
                ),
                "Pass a file or a folder".to_owned(),
                "`opencode export`".to_owned(),
            ] {
                assert!(error.contains(&part), "{part}: {error}");
            }
        }
    };
    check();
    // A folder without sessions does not count.
    write(folder.path(), ".claude/projects/-w/index.json", "{}");
    check();
    let error = run(&["replay", "--format", "opencode"], &[("HOME", home)]).0;
    let error = error.unwrap_err();
    assert!(
        error.contains("no agent keeps logs in the format opencode"),
        "{error}"
    );
    let error = run(&["replay"], &[]).0.unwrap_err();
    assert!(error.contains("set HOME"), "{error}");
}
