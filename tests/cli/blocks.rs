//! Parses or runs every code block in the README and the docs, by its language.
//!
//! A block without a language is a command line if its first word is a program that the docs use. Otherwise the block
//! shows output. A language without a check fails the test. `tests/clients` runs the README's clients and the programs
//! of the API guide, and `tests/sdks` those of `docs/sdks.md`. The tests of the packages run those of `docs/frameworks`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use palimpsest_tests::markdown::{Block, blocks_of, pages, repository};
use palimpsest_tests::palimpsest;

/// Returns all pages of documentation, except for those of frameworks.
fn all_pages() -> Vec<PathBuf> {
    let single = [
        "README.md", "CONTRIBUTING.md", "SECURITY.md", "clients/README.md",
    ];
    let folders = ["docs", "docs/api", "docs/decisions"];
    let single = single.into_iter().map(str::to_owned);
    let pages = single.chain(folders.into_iter().flat_map(pages));
    pages.map(|page| repository().join(page)).collect()
}

/// Returns the arguments with `--help` as last one: the binary parses the others and prints help instead of running.
/// Arguments after `--` are those of another program.
fn for_help(arguments: &[String]) -> Vec<&str> {
    let own = arguments.iter().take_while(|argument| *argument != "--");
    own.map(String::as_str).chain(["--help"]).collect()
}

const PROGRAMS: [&str; 13] = [
    "cargo", "make", "palimpsest", "export", "helm", "kubectl", "docker", "python3", "curl",
    "scripts/", "target/", "tests/", "UPDATE_EXPECT=1",
];

fn is_shell(text: &str) -> bool {
    PROGRAMS.iter().any(|program| text.starts_with(program))
}

/// Asserts that a program accepts the block on standard input.
#[track_caller]
fn accepted(block: &Block, program: &str, args: &[&str]) {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(block.text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", block.place);
}

/// Splits a shell line into words, without pipes and redirections.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '|' | '>' | '<' | '&' | ';') => break,
            // A number sign inside of a word begins no comment.
            (None, '#') if words.last().is_some_and(String::is_empty) => break,
            (None, _) if c.is_whitespace() => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the arguments if the line runs the binary.
fn arguments(line: &str) -> Option<Vec<String>> {
    let words = words(line);
    // A word such as `NAME=value` before the program sets a variable.
    let is_variable = |word: &&String| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        })
    };
    let variables = words.iter().take_while(is_variable).count();
    let words = &words[variables..];
    let run = ["cargo", "run", "--release", "--"];
    if words.iter().take(run.len()).eq(run) {
        return Some(words[run.len()..].to_vec());
    }
    let program = words.first()?;
    let is_it = program == "palimpsest" || program == "target/release/palimpsest";
    is_it.then(|| words[1..].to_vec())
}

/// Checks a command line: its syntax, the program's arguments, make's targets and the files that it runs.
fn check_shell(block: &Block, targets: &BTreeSet<String>) {
    accepted(block, "bash", &["-n"]);
    // A backslash continues a command in the next line.
    for line in block.text.replace("\\\n", " ").lines() {
        if let Some(args) = arguments(line) {
            let output = palimpsest(&for_help(&args));
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {line}: {stderr}", block.place);
            continue;
        }
        let words = words(line);
        match words.first().map(String::as_str) {
            Some("make") => assert!(targets.contains(&words[1]), "{}: {line}", block.place),
            Some(script) if script.starts_with("scripts/") || script.starts_with("tests/") => {
                assert!(
                    repository().join(script).exists(),
                    "{}: {line}",
                    block.place
                );
            }
            _ => {}
        }
    }
}

fn check_toml(block: &Block) {
    // Settings of Codex, with which `tests/agents` runs it.
    if block.text.starts_with("[mcp_servers.") {
        let read = "import sys, tomllib; tomllib.loads(sys.stdin.read())";
        return accepted(block, "python3", &["-c", read]);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("palimpsest.toml");
    fs::write(&file, &block.text).unwrap();
    let output = palimpsest(&["config", "--config", file.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", block.place);
}

#[test]
fn every_code_block_of_the_documentation_is_valid() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let targets = makefile.lines().filter_map(|line| line.split_once(':'));
    let targets: BTreeSet<String> = targets.map(|(name, _)| name.to_owned()).collect();
    let mut checked = BTreeSet::new();
    for block in all_pages().iter().flat_map(|page| blocks_of(page)) {
        let text = block.text.trim();
        let what = match block.language.as_str() {
            "" if is_shell(text) => "shell",
            "" => "output",
            "sh" | "bash" | "shell" => "shell",
            other => other,
        };
        match what {
            "shell" => check_shell(&block, &targets),
            "toml" => check_toml(&block),
            "python" => {
                let read = "import ast, sys; ast.parse(sys.stdin.read())";
                accepted(&block, "python3", &["-c", read]);
            }
            // Run in `tests/clients` and `tests/sdks`, where the compiler is installed.
            "typescript" => {
                let is_run =
                    block.place.contains("docs/api/") || block.place.contains("docs/sdks.md");
                assert!(is_run, "{}", block.place);
            }
            "json" => {
                let parsed: Result<serde_json::Value, _> = serde_json::from_str(text);
                assert!(parsed.is_ok(), "{}: {parsed:?}", block.place);
            }
            "yaml" => {
                let parsed: Result<serde_json::Value, _> = serde_saphyr::from_str(text);
                assert!(parsed.is_ok(), "{}: {parsed:?}", block.place);
            }
            "mermaid" => {
                let kinds = ["sequenceDiagram", "flowchart", "stateDiagram", "graph"];
                let is_known = kinds.iter().any(|kind| text.starts_with(kind));
                assert!(is_known, "{}: not a diagram", block.place);
            }
            "sql" => assert!(text.ends_with(';'), "{}: not whole", block.place),
            "output" | "text" => {}
            other => panic!("{}: nothing checks the language {other}", block.place),
        }
        checked.insert(what.to_owned());
    }
    for language in ["shell", "toml", "python", "json", "mermaid"] {
        assert!(
            checked.contains(language),
            "no block of {language} was found"
        );
    }
}
