//! Tests that the binary accepts the commands of the README.

use std::path::Path;

use super::{for_help, palimpsest};

/// Returns the arguments of every `cargo run --release -- …` in the README.
fn commands() -> Vec<Vec<String>> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    readme
        .lines()
        .filter_map(|line| line.trim().strip_prefix("cargo run --release -- "))
        .map(|rest| {
            let command = rest.split(['#', '>']).next().unwrap_or_default();
            command.split_whitespace().map(str::to_owned).collect()
        })
        .collect()
}

#[test]
fn every_command_of_the_readme_is_accepted_by_the_binary() {
    let commands = commands();
    assert!(commands.len() >= 7, "{commands:?}");
    for command in commands {
        let output = palimpsest(&for_help(&command));
        assert!(output.status.success(), "{command:?} is not a command");
    }
}

#[test]
fn the_default_ports_are_50051_and_50052() {
    let config = String::from_utf8(palimpsest(&["config"]).stdout).unwrap();
    assert!(config.contains("127.0.0.1:50051"), "{config}");
    assert!(config.contains("127.0.0.1:50052"), "{config}");
}
