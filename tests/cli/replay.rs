//! Tests `palimpsest replay` and `recall` on a transcript that causes levels to act.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{palimpsest, said};

/// Writes a transcript: a failing command, six more, a pause of 90 minutes, and another question.
pub(crate) fn transcript(path: &Path) {
    let mut lines = String::new();
    let mut number = 0;
    let mut add = |minute: u32, message: Value| {
        number += 1;
        let line = json!({
            "type": message["role"],
            "uuid": format!("00000000-0000-4000-8000-{number:012}"),
            "parentUuid": null,
            "timestamp": format!("2026-01-01T{:02}:{:02}:00.000Z", minute / 60, minute % 60),
            "message": message,
        });
        writeln!(lines, "{line}").unwrap();
    };
    add(
        0,
        json!({"role": "user", "content": "Find out why it fails."}),
    );
    for n in 0..7 {
        let id = format!("toolu_{n}");
        let input = json!({"command": format!("make step-{n}")});
        let call = json!({"type": "tool_use", "id": id, "name": "Bash", "input": input});
        let usage = json!({"input_tokens": 9_000 + n * 3_000, "output_tokens": 50});
        add(
            1,
            json!({
                "role": "assistant", "id": format!("msg_{n}"), "model": "m", "usage": usage, "content": [call],
            }),
        );
        let said = format!("step {n} went wrong\n{}", "some output\n".repeat(700));
        let result = json!({
            "type": "tool_result", "tool_use_id": id, "content": said, "is_error": true,
        });
        add(1, json!({"role": "user", "content": [result]}));
    }
    let answer = |id: &str| json!([{"type": "text", "text": format!("The answer is {id}.")}]);
    let response = |id: &str| {
        json!({
            "role": "assistant", "id": id, "model": "m", "content": answer(id),
        })
    };
    add(2, response("msg_a"));
    add(90, json!({"role": "user", "content": "And now?"}));
    add(91, response("msg_b"));
    fs::write(path, lines).unwrap();
}

#[test]
fn presets_are_compared_in_a_table_in_json_and_in_a_chart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.jsonl");
    let plot = folder.path().join("plot.svg");
    transcript(&file);
    let folder = folder.path().to_str().unwrap();
    let args = ["replay", folder, "--format", "claude-code"];
    let presets = ["--preset", "claude-code,threshold"];

    let table = said(&[&args[..], &presets, &["--plot", plot.to_str().unwrap()]].concat());
    let cells = |name: &str| -> Vec<String> {
        let row = table.lines().find(|line| line.trim().starts_with(name));
        let row = row.unwrap_or_else(|| panic!("no row {name}: {table}"));
        let cells = row.trim().trim_start_matches(name).split("  ");
        cells
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .map(str::to_owned)
            .collect()
    };
    // The columns are `claude-code`, `threshold`, and `none`, which is always added.
    assert_eq!(cells("results cleared by time"), ["1", "0", "0"]);
    assert_eq!(cells("prepares"), ["10", "10", "10"]);
    // The pause clears all results except the latest five. The errors of the other two can be read back.
    assert_eq!(cells("recoverable"), ["2", "0", "0"]);
    assert_eq!(cells("lost"), ["0", "0", "0"]);
    assert_eq!(cells("compared with none")[2], "100.0 %");
    assert!(
        table
            .trim_end()
            .ends_with("every compacted view contains the latest user message."),
        "{table}"
    );

    let svg = fs::read_to_string(plot).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"),
        "{svg}"
    );
    assert_eq!(svg.matches("<polyline").count(), 3);
    assert!(svg.contains("session.jsonl, 9 requests"), "{svg}");

    let json = said(&[&args[..], &presets, &["--json"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    let presets: Vec<&str> = (0..3)
        .map(|at| json[at]["preset"].as_str().unwrap())
        .collect();
    assert_eq!(presets, ["claude-code", "threshold", "none"]);
    let (first, none) = (&json[0], &json[2]);
    assert_eq!(first["probes_by_kind"]["errors"]["recoverable"], 2);
    assert_eq!(
        first["view_changes_by_trigger"]["results cleared by time"],
        1
    );
    assert_eq!(none["view_changes"], 0);
    assert_eq!(first["files"][0]["file"], "session.jsonl");
    assert_eq!(first["files"][0]["sent_tokens"], first["sent_tokens"]);
    let tokens = |of: &Value| of["sent_tokens"].as_u64().unwrap();
    assert!(tokens(first) < tokens(none), "{json}");
    let parts = ["cache_read_tokens", "cache_write_tokens", "uncached_tokens"];
    let parts = parts.map(|part| none[part].as_u64().unwrap());
    assert_eq!(parts.iter().sum::<u64>(), tokens(none));
}

#[test]
fn an_input_that_cannot_be_replayed_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let fails = |args: &[&str], words: &str| {
        let output = palimpsest(args);
        assert!(!output.status.success(), "{args:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(words), "{said}");
    };
    let args = ["replay", path, "--format", "claude-code"];
    fails(&args, "no transcripts found");
    fails(
        &[&args[..], &["--preset", "best"]].concat(),
        "must be one of claude-code",
    );
    fs::write(folder.path().join("empty.jsonl"), "{}\n").unwrap();
    fails(&args, "check --format");
}

#[test]
fn a_small_window_is_compacted_and_its_summaries_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.jsonl");
    let summaries = folder.path().join("summaries.md");
    transcript(&file);
    let replay = |window: &[&str]| -> Value {
        let args = [
            "replay",
            file.to_str().unwrap(),
            "--format",
            "claude-code",
            "--json",
        ];
        let more = ["--summaries", summaries.to_str().unwrap()];
        serde_json::from_str(&said(&[&args[..], &more, window].concat())).unwrap()
    };
    let whole = replay(&[]);
    assert_eq!(whole[0]["compactions"], 0);
    assert_eq!(fs::read_to_string(&summaries).unwrap(), "");
    let small = replay(&["--window", "32000"]);
    assert!(small[0]["compactions"].as_u64() > Some(0), "{small:#}");
    assert_eq!(
        small[1]["compactions"], 0,
        "nothing is compacted under none"
    );
    assert_eq!(small[0]["lost_requests"], 0);
    let after = small[0]["compacted_tokens_after"].as_u64();
    assert!(after < small[0]["compacted_tokens_before"].as_u64());
    let facts = &small[0]["facts_in_summaries"];
    assert!(facts["all"].as_u64() > Some(0), "{facts}");
    assert!(facts["found"].as_u64() >= facts["word_for_word"].as_u64());
    let summaries = fs::read_to_string(&summaries).unwrap();
    assert!(summaries.contains("make step-"), "{summaries}");
}

#[test]
fn recall_is_measured_in_a_table_in_json_and_by_the_worst_cases() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.jsonl");
    transcript(&file);
    let own = folder.path().join("own.md");
    fs::write(&own, "Nothing of it.").unwrap();
    let args = ["recall", file.to_str().unwrap(), "--format", "claude-code"];
    let output = palimpsest(&args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{stderr}");
    assert!(stderr.contains("pass a smaller --window"), "{stderr}");
    // A smaller window compacts, but no later call uses a name of the conversation.
    let output = palimpsest(&[&args[..], &["--window", "32000"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{stderr}");
    assert!(stderr.contains("use no name"), "{stderr}");

    let mut lines = fs::read_to_string(&file).unwrap();
    // The last call needs a name of the first message, which a summary must therefore contain.
    let last = json!({
        "type": "assistant",
        "uuid": "00000000-0000-4000-8000-000000000099",
        "parentUuid": null,
        "timestamp": "2026-01-01T01:32:00.000Z",
        "message": {"role": "assistant", "id": "msg_c", "model": "m", "content": [
            {"type": "tool_use", "id": "toolu_z", "name": "Read", "input": {"file_path": "step-5/main.c"}},
        ]},
    });
    lines = lines.replace(
        "Find out why it fails.",
        "Find out why step-5/main.c fails.",
    );
    writeln!(lines, "{last}").unwrap();
    fs::write(&file, lines).unwrap();
    let small = [
        &args[..],
        &["--window", "32000", "--text", own.to_str().unwrap()],
    ]
    .concat();
    let table = said(&[&small[..], &["--worst", "1"]].concat());
    assert!(table.contains("compactions by the policy: "), "{table}");
    for row in ["summary ", "view ", "tail of this length", "own.md"] {
        assert!(table.contains(row), "{table}");
    }
    let json: Value = serde_json::from_str(&said(&[&small[..], &["--json"]].concat())).unwrap();
    assert_eq!(json["recorded"], json!({}));
    let summary = &json["by_policy"]["summary"];
    let needs = summary["needs"]["all"].as_u64().unwrap();
    assert!(needs > 0, "{json}");
    let own = json["by_policy"][own.to_str().unwrap()]["needs"]["shown"].as_u64();
    assert_eq!(own, Some(0), "{json}");
    let of_compactions = json["compactions"].as_array().unwrap().iter();
    let listed: usize = of_compactions
        .map(|one| one["needs"].as_array().unwrap().len())
        .sum();
    assert_eq!(listed as u64, needs);
    assert_eq!(json["compactions"][0]["needs"][0]["name"], "step-5/main.c");
}
