//! Tests `palimpsest tune` on a transcript with a pause, after which `economy` compacts.

use std::fs;

use palimpsest_core::policy::{Overlay, Preset};
use serde_json::Value;

use super::replay::transcript;
use super::{palimpsest, said};

#[test]
fn policies_are_compared_in_a_table_in_json_and_in_a_chart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.jsonl");
    transcript(&file);
    let own = folder.path().join("own.toml");
    // With clearing, the view would be too small for a compaction.
    let policy = "preset = \"economy\"
        economy.min_view_tokens = 10000
        microcompact.enabled = false
        session_memory.keep_min_tokens = 500
        session_memory.keep_min_messages = 1
    ";
    fs::write(&own, policy).unwrap();
    let plot = folder.path().join("frontier.svg");
    let settings = folder.path().join("policy.toml");
    let args = [
        "tune",
        file.to_str().unwrap(),
        "--preset",
        own.to_str().unwrap(),
    ];
    let files = [
        "--plot",
        plot.to_str().unwrap(),
        "--output",
        settings.to_str().unwrap(),
        "--min-recall",
        "0",
    ];

    let table = said(&[&args[..], &files].concat());
    let row = |name: &str| {
        let found = table
            .lines()
            .find(|line| line.trim_start().starts_with(name));
        found
            .unwrap_or_else(|| panic!("no row {name}: {table}"))
            .to_owned()
    };
    assert!(row("none ").contains("100.0 %"), "{table}");
    for name in Preset::ALL.map(Preset::name) {
        row(&format!("{name} "));
    }
    assert!(table.contains("Recommended: "), "{table}");
    let settings = fs::read_to_string(settings).unwrap();
    assert!(table.ends_with(&format!("[policy]\n{settings}")), "{table}");
    Overlay::from_toml(&settings)
        .unwrap()
        .resolve(Preset::default())
        .unwrap();
    let svg = fs::read_to_string(plot).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"),
        "{svg}"
    );
    assert_eq!(svg.matches(r#"class="best""#).count(), 1, "{svg}");

    let json = said(&[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    let policies = json["policies"].as_array().unwrap();
    let of = |name: &str| {
        let found = policies.iter().find(|policy| policy["policy"] == name);
        found.unwrap_or_else(|| panic!("no policy {name}: {json}"))
    };
    let cost = |name: &str| of(name)["cost_milli"].as_u64().unwrap();
    assert_eq!(of("own")["compactions"], 1, "{json}");
    assert!(cost("own") < cost("none"), "{json}");
    assert!(
        of("own")["optimum_milli"].as_u64() <= Some(cost("own")),
        "{json}"
    );
    assert_eq!(of("none")["names"]["shown"], of("none")["names"]["all"]);
    assert!(of("own").get("settings").is_none(), "{json}");
}

#[test]
fn a_recall_outside_of_percentages_is_rejected() {
    let output = palimpsest(&["tune", "x", "--min-recall", "101"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        stderr.contains("must be a number from 0 to 100"),
        "{stderr}"
    );
    let output = palimpsest(&["tune", "missing-folder"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && stderr.contains("missing-folder"),
        "{stderr}"
    );
}
