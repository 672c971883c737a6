//! Tests of `palimpsest memory`: the text is shown, compared and edited, by file, standard input and editor.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use palimpsest_tests::binary;
use serde_json::Value;

use crate::demo::terminal;
use crate::operator::{Operator, contains};

/// The waits for the first text, 20 ms each.
const MAX_WAITS: usize = 6_000;

/// Starts a server and waits for the first text of session memory. Returns its version and the text.
async fn with_memory() -> (Operator, u64, String) {
    let settings = ["worker.poll_ms=50", "worker.edit_debounce_ms=50"];
    let world = Operator::new(&settings).await;
    for _ in 0..MAX_WAITS {
        let memory = world.json(&["memory", "show", "work"]);
        if memory["state"] == "ready" {
            let version = memory["version"].as_u64().unwrap();
            return (world, version, memory["text"].as_str().unwrap().to_owned());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("session memory has no text");
}

fn version(world: &Operator) -> Value {
    world.json(&["memory", "show", "work"])["version"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn session_memory_is_shown_compared_and_edited() {
    let (world, first, text) = with_memory().await;
    let shown = world.run(&["memory", "show", "work"]);
    assert_eq!(String::from_utf8(shown.stdout).unwrap(), text);
    let about = String::from_utf8(shown.stderr).unwrap();
    contains(
        &about,
        &[&format!("version {first} without a model"), "tokens, ready"],
    );

    let edited = text.replace("# Key results\n", "Ask Ann first.\n\n# Key results\n");
    let file = world.folder.path().join("summary.md");
    fs::write(&file, &edited).unwrap();
    let file = file.to_str().unwrap();
    let edit = ["memory", "edit", "work", "--file", file];
    let planned = world.said(&[&edit[..], &["--dry-run"]].concat());
    assert_eq!(planned, "# Learnings\n+ Ask Ann first.\n\n");
    assert_eq!(version(&world), first, "a dry run wrote");
    let same = world.folder.path().join("same.md");
    fs::write(&same, &text).unwrap();
    let same = ["memory", "edit", "work", "--file", same.to_str().unwrap()];
    contains(&world.said(&same), &["the text is the same"]);

    let done = world.said(&edit);
    contains(
        &done,
        &[
            "changed Learnings",
            &format!("version {} by a person", first + 1),
            "revision",
        ],
    );
    // A script names the version that it has read.
    let number = first.to_string();
    let stale = [&edit[..], &["--version", &number]].concat();
    contains(
        &world.error(&stale),
        &["MEMORY_VERSION_MISMATCH", "read it again"],
    );
    let empty = world.folder.path().join("empty.md");
    fs::write(&empty, "nothing here\n").unwrap();
    let empty = ["memory", "edit", "work", "--file", empty.to_str().unwrap()];
    contains(&world.error(&empty), &["contains no heading of a section"]);
    assert_eq!(version(&world), first + 1);

    // Standard input, and the reply as JSON.
    let again = edited.replace("Ask Ann first.", "Ask Bob first.");
    let mut child = Command::new(binary())
        .args(["memory", "edit", "work", "--json", "--server"])
        .arg(world.server.address())
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(again.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reply["memory"]["version"], first + 2);
    assert_eq!(reply["memory"]["source"], "edited");
    contains(
        reply["memory"]["text"].as_str().unwrap(),
        &["Ask Bob first."],
    );
}

/// Runs `memory edit` on a terminal with a shell script as the editor. `$1` is the file.
fn edit_with(world: &Operator, script: &str) -> Output {
    let editor = world.folder.path().join("editor.sh");
    fs::write(&editor, script).unwrap();
    // The other end must stay open, because a closed one ends the terminal.
    let (_screen, process) = terminal(80, 24);
    let input: File = process;
    let kept = world.folder.path().join("kept");
    fs::create_dir_all(&kept).unwrap();
    Command::new(binary())
        .args(["memory", "edit", "work", "--server"])
        .arg(world.server.address())
        .env_clear()
        // `VISUAL` precedes `EDITOR`, whose program would fail.
        .env("EDITOR", "false")
        .env("VISUAL", format!("sh {}", editor.display()))
        .env("TMPDIR", &kept)
        .stdin(input)
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_of_an_editor_is_sent_and_never_lost() {
    let (world, first, text) = with_memory().await;
    let output = edit_with(&world, "exit 0");
    contains(
        &String::from_utf8_lossy(&output.stdout),
        &["nothing was edited"],
    );
    let output = edit_with(&world, "exit 3");
    assert_eq!(output.status.code(), Some(1));
    contains(
        &String::from_utf8_lossy(&output.stderr),
        &["nothing was changed"],
    );
    let output = edit_with(&world, "echo '# Learnings\nAsk Ann first.' >> \"$1\"");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(version(&world), first + 1);

    // Another person is faster.
    let other = world.folder.path().join("other.md");
    fs::write(&other, text.replace("# Worklog\n", "# Worklog\nFaster.\n")).unwrap();
    let faster = format!(
        "{} memory edit work --file {} --server {}\necho 'Slower.' >> \"$1\"",
        binary().display(),
        other.display(),
        world.server.address()
    );
    let output = edit_with(&world, &faster);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    contains(&stderr, &["MEMORY_VERSION_MISMATCH", "your text is in "]);
    let kept = stderr.split("your text is in ").nth(1).unwrap();
    let kept = kept.split(": ").next().unwrap().trim();
    contains(&fs::read_to_string(kept).unwrap(), &["Slower."]);
    assert_eq!(version(&world), first + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_text_is_written_below_the_headings() {
    let world = Operator::new(&["worker.enabled=false"]).await;
    contains(
        &String::from_utf8_lossy(&world.run(&["memory", "show", "work"]).stderr),
        &["work: "],
    );
    let script = "grep -q '# Session Title' \"$1\" && echo 'Done so far.' >> \"$1\"";
    let output = edit_with(&world, script);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    contains(
        &String::from_utf8_lossy(&output.stdout),
        &["changed Worklog", "version 1 by a person"],
    );
}
