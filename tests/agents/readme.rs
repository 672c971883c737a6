//! The command of the README that runs an agent, as the README shows it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_tests::binary;

use crate::job::{FIRST_ANSWER, Job, Task, assert_answer, output};
use crate::kinds::{INSTALLED, Kind, Way};

/// Returns the words after `cargo run --release --` of the command with `run`.
fn command() -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let mut lines = readme.lines();
    let line = lines.find_map(|line| line.strip_prefix("cargo run --release -- run -- "));
    let line = line.expect("the README shows how to run an agent");
    // Only the prompt has quotes.
    let (words, prompt) = line.split_once('"').unwrap();
    let words = ["run", "--"].into_iter().chain(words.split_whitespace());
    let prompt = prompt.trim_end_matches('"');
    words.chain([prompt]).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_of_the_readme_runs_codex() {
    let provider = FakeProvider::start().await.unwrap();
    let task = Task {
        rounds: 2,
        output_bytes: (2_000, 3_000),
        window: 200_000,
    };
    let job = Job::new(Kind::Codex, "readme", &provider, task);
    let mut run = Command::new(binary());
    run.args(command());
    Kind::Codex.set_environment(&mut run, job.home.path(), &job.key, Way::Run);
    // npx finds the pinned version in the project, so it downloads none. Codex works in a repository only.
    let work = job.home.path().join("work");
    symlink(INSTALLED, work.join("node_modules")).unwrap();
    fs::write(
        work.join("package.json"),
        r#"{"dependencies": {"@openai/codex": "*"}}"#,
    )
    .unwrap();
    let init = Command::new("git")
        .args(["init", "--quiet"])
        .current_dir(&work)
        .status();
    assert!(init.unwrap().success());
    // The address of the provider is in the environment of the user.
    run.env("OPENAI_BASE_URL", format!("{}/v1", provider.url()));
    let done = output(&run);
    assert_answer(&done, FIRST_ANSWER);
    let report = String::from_utf8_lossy(&done.stderr);
    assert!(report.contains("palimpsest: 3 model requests"), "{report}");
    assert_eq!(provider.requests().len(), 3);
}
