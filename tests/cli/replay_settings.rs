//! Tests `palimpsest replay` with settings from a file.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{palimpsest, said};

/// Settings for level 4 with a window of 12,000 tokens, of which 2,000 are reserved for the response.
const FOLDING: &str = r#"
preset = "claude-code"
tokens.default_window_tokens = 12000
autocompact.output_reserve_tokens = 2000
collapse = { enabled = true, max_risk = 1.0, pass_every_tokens = 500, min_freed_tokens = 50 }
"#;

/// Writes a transcript of three questions with six tool calls each. A result has about 500 tokens.
fn transcript(path: &Path) {
    let mut lines = String::new();
    let mut number = 0;
    let mut add = |message: Value| {
        number += 1;
        let line = json!({
            "type": message["role"],
            "uuid": format!("00000000-0000-4000-8000-{number:012}"),
            "parentUuid": null,
            "timestamp": format!("2026-01-01T10:{number:02}:00.000Z"),
            "message": message,
        });
        writeln!(lines, "{line}").unwrap();
    };
    for turn in 0..3 {
        add(json!({"role": "user", "content": format!("Please look into matter number {turn}.")}));
        for round in 0..6 {
            let id = format!("toolu_{turn}_{round}");
            let path = format!("/work/src/module_{turn}_{round}.rs");
            let call =
                json!({"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": path}});
            add(json!({
                "role": "assistant", "id": format!("msg_{turn}_{round}"), "model": "m", "content": [call],
            }));
            let said = format!("fn part_{turn}_{round}() stands here\n").repeat(45);
            let result = json!({"type": "tool_result", "tool_use_id": id, "content": said});
            add(json!({"role": "user", "content": [result]}));
        }
        let answer = json!([{"type": "text", "text": format!("Matter {turn} is settled.")}]);
        add(
            json!({"role": "assistant", "id": format!("msg_{turn}"), "model": "m", "content": answer}),
        );
    }
    fs::write(path, lines).unwrap();
}

#[test]
fn a_settings_file_has_its_own_column() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.jsonl");
    transcript(&file);
    let mine = folder.path().join("folding.toml");
    fs::write(&mine, FOLDING).unwrap();
    let presets = format!("claude-code,{}", mine.display());
    let file = file.to_str().unwrap();
    let args = [
        "replay", file, "--format", "claude-code", "--preset", &presets,
    ];

    let json: Value = serde_json::from_str(&said(&[&args[..], &["--json"]].concat())).unwrap();
    let names: Vec<&str> = (0..3)
        .map(|at| json[at]["preset"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["claude-code", "folding", "none"]);
    let (folding, none) = (&json[1], &json[2]);
    assert_eq!(json[0]["view_changes"], 0);
    assert!(folding["view_changes"].as_u64().unwrap() > 0, "{folding}");
    let by_trigger = folding["view_changes_by_trigger"].as_object().unwrap();
    assert!(
        by_trigger.keys().any(|key| key.contains("spans collapsed")),
        "{by_trigger:?}"
    );
    for count in ["invalid_views", "prefix_violations"] {
        assert_eq!(folding[count], 0, "{count}");
    }
    let tokens = |of: &Value| of["sent_tokens"].as_u64().unwrap();
    assert!(tokens(folding) < tokens(none), "{json}");
    assert!(
        folding["largest_view_tokens"].as_u64().unwrap() < 11_000,
        "{folding}"
    );
    let probes = &folding["probes"];
    assert_eq!(probes["lost"], 0, "{probes}");
    assert!(probes["recoverable"].as_u64().unwrap() > 0, "{probes}");

    let table = said(&args);
    assert!(
        table.contains("folding") && table.contains("spans collapsed"),
        "{table}"
    );
}

#[test]
fn an_invalid_settings_file_is_rejected_before_the_replay() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.jsonl");
    transcript(&file);
    let settings = folder.path().join("mine.toml");
    let fails = |text: Option<&str>, words: &str| {
        if let Some(text) = text {
            fs::write(&settings, text).unwrap();
        }
        let args = ["replay", file.to_str().unwrap(), "--format", "claude-code"];
        let presets = ["--preset", settings.to_str().unwrap()];
        let output = palimpsest(&[&args[..], &presets].concat());
        assert!(!output.status.success(), "{text:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(words), "{said}");
    };
    fails(None, "cannot be read");
    fails(Some("colapse.enabled = true"), "invalid setting");
    fails(Some("collapse.enabled = 1"), "invalid setting");
    fails(Some("collapse = "), "invalid setting");
}

#[test]
fn a_model_gives_its_window_and_prices() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.jsonl");
    transcript(&file);
    // Settings for level 4, without a window.
    let settings: Vec<&str> = FOLDING
        .lines()
        .filter(|line| !line.starts_with("tokens."))
        .collect();
    let mine = folder.path().join("mine.toml");
    fs::write(&mine, settings.join("\n")).unwrap();
    let args = [
        "replay",
        file.to_str().unwrap(),
        "--format",
        "claude-code",
        "--preset",
        mine.to_str().unwrap(),
    ];
    let json = |further: &[&str]| -> Value {
        let further = [&args[..], &["--json"], further].concat();
        serde_json::from_str(&said(&further)).unwrap()
    };
    let (small, large) = (
        json(&["--model", "gpt-4"]),
        json(&["--model", "claude-opus-4-5"]),
    );
    // Only the smaller window is too small for the conversation.
    assert!(small[0]["view_changes"].as_u64().unwrap() > 0, "{small}");
    assert_eq!(large[0]["view_changes"], 0, "{large}");
    // The prices are those of uncached input where a model has no prompt cache.
    let none = &small[1];
    assert_eq!(
        none["cost_milli"],
        none["sent_tokens"].as_u64().unwrap() * 1_000,
        "{none}"
    );
    // A million input tokens of gpt-4 cost 30 dollars.
    let usd = none["sent_tokens"].as_f64().unwrap() * 30.0 / 1e6;
    assert!(
        (none["cost_usd"].as_f64().unwrap() - usd).abs() < 1e-9,
        "{none}"
    );
    // `--window` replaces the window of the model, and not its prices.
    let wide = json(&["--model", "gpt-4", "--window", "200k"]);
    assert_eq!(wide[0]["view_changes"], 0, "{wide}");
    assert!(wide[0]["cost_usd"].is_number(), "{wide}");
    assert!(json(&[])[0].get("cost_usd").is_none());
    let table = said(&[&args[..], &["--model", "gpt-4"]].concat());
    assert!(table.contains("cost, in US dollars"), "{table}");
    let output = palimpsest(&[&args[..], &["--model", "claude-opus-4-55"]].concat());
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("similar names are") && error.contains("claude-opus-4-5"),
        "{error}"
    );
}
