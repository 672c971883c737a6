//! Tests of released coding agents through `palimpsest run`, against the strict fake provider.
//!
//! `scripts/install-tools` installs Codex, OpenCode and pi. Each agent runs without a terminal, in a home folder of its
//! own, with a key that only the fake provider accepts, and without any other network. The fake model calls the shell of
//! the agent in each round. `AGENTS_ROUNDS` sets the number of rounds, 10 by default. `AGENTS_CLAUDE=1` adds Claude Code,
//! if the machine has it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(
    clippy::print_stdout,
    reason = "it prints which agents are skipped, and the bills"
)]

mod job;
mod kinds;
mod logs;
mod managed;
mod mcp;
mod readme;
mod resumed;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_tests::binary;
use serde_json::json;

use crate::job::{FIRST_ANSWER, Job, Killed, NEXT_ANSWER, Task, assert_answer, output, rounds};
use crate::kinds::{Kind, Prompt};

/// A task whose conversation stays within the window, so that no agent compacts it.
fn whole_task(rounds: u64) -> Task {
    // Of a long task, the provider could not record all requests, and the session would compact it.
    let output_bytes = if rounds <= 20 {
        (2_000, 20_000)
    } else {
        (500, 3_000)
    };
    Task {
        rounds,
        output_bytes,
        // A token has at least one byte, so the window holds every possible output.
        window: 200_000 + (rounds + 1) * output_bytes.1,
    }
}

/// Asserts that the provider accepted all requests of a job.
#[track_caller]
fn assert_all_accepted(job: &Job, provider: &FakeProvider) {
    for request in provider.requests() {
        assert_eq!(
            request.status, 200,
            "{:?}: {} {}",
            job.kind, request.path, request.body
        );
    }
}

/// Works for some rounds, then continues the conversation with a new process.
async fn works_and_continues(kind: Kind) {
    let provider = FakeProvider::start().await.unwrap();
    let rounds = rounds();
    let job = Job::new(kind, "whole", &provider, whole_task(rounds));
    let run = |prompt: Prompt<'_>| output(&job.through_run(&provider, prompt));

    let first = run(Prompt::First(&job.first()));
    assert_answer(&first, FIRST_ANSWER);
    assert_all_accepted(&job, &provider);
    let requests = job.round_requests(&provider);
    // Each round has one request, and the final answer needs one more.
    assert_eq!(requests.len() as u64, rounds + 1, "{kind:?}");
    assert!(requests.iter().all(|request| request.path == kind.path()));
    let reported = String::from_utf8_lossy(&first.stderr).into_owned();
    let model_requests = format!("palimpsest: {} model requests; ", provider.requests().len());
    assert!(
        reported.contains(&model_requests),
        "{model_requests}\n{reported}"
    );

    let next = run(Prompt::Next(&job.next()));
    assert_answer(&next, NEXT_ANSWER);
    assert_all_accepted(&job, &provider);
    let continued = job.round_requests(&provider);
    // The second part has one round and an answer, which are two more requests.
    assert_eq!(continued.len() as u64, rounds + 3, "{kind:?}");
    // The second process sends the first part of the conversation again.
    let last = continued.last().unwrap().body.to_string();
    assert!(last.contains(&job.first()), "{kind:?}: {last}");
    assert!(last.contains(&job.next()), "{kind:?}: {last}");
    logs::assert_complete(&job, rounds + 1);
}

/// Interrupts the agent while the provider streams its answer.
async fn ends_the_request_when_interrupted(kind: Kind) {
    let provider = FakeProvider::start().await.unwrap();
    let job = Job::unscripted(kind, "interrupt", 200_000);
    // The answer takes more than an hour, so only the interrupt can end the request.
    let endless = json!({
        "match": {"key": job.key, "tools": true},
        "turns": [{"text": "word ".repeat(20_000), "pace": {"gap_ms": 1_000, "delta_bytes": 20}}],
    });
    provider
        .add_script(serde_json::from_value(endless).unwrap())
        .unwrap();
    let mut command = job.through_run(&provider, Prompt::First(&job.first()));
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    // The provider records a request when its answer begins.
    while job.round_requests(&provider).is_empty() {
        assert!(
            child.0.try_wait().unwrap().is_none(),
            "{kind:?} ended by itself"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(provider.abandoned(), 0);
    let pid = child.0.id().to_string();
    let kill = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(kill.unwrap().success());
    let status = tokio::task::spawn_blocking(move || child.0.wait()).await;
    status.unwrap().unwrap();
    while provider.abandoned() == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Defines the tests of one agent.
macro_rules! tests_of {
    ($module:ident, $kind:expr) => {
        mod $module {
            use crate::kinds::Kind;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn works_through_the_gateway_and_continues() {
                if Kind::all().contains(&$kind) {
                    crate::works_and_continues($kind).await;
                }
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn an_interrupt_ends_the_request_to_the_provider() {
                if Kind::all().contains(&$kind) {
                    crate::ends_the_request_when_interrupted($kind).await;
                }
            }
        }
    };
}

tests_of!(codex, Kind::Codex);
tests_of!(opencode, Kind::OpenCode);
tests_of!(pi, Kind::Pi);
tests_of!(claude_code, Kind::ClaudeCode);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_through_one_gateway_do_not_mix() {
    let provider = FakeProvider::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let gateway = Command::new(binary())
        // The server takes each variable with this prefix for a setting.
        .env_remove("PALIMPSEST_TEST_BINARY")
        .args(["run", "--data-dir"])
        .arg(folder.path())
        .args(["--upstream-anthropic", &provider.url()])
        .args(["--upstream-openai", &provider.url()])
        // Holds the gateway open until the input ends.
        .args(["--", "sh", "-c", "echo $ANTHROPIC_BASE_URL; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut gateway = Killed(gateway);
    let mut base_url = String::new();
    let stdout = gateway.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut base_url).unwrap();

    let task = whole_task(3);
    let jobs: Vec<Job> = Kind::all()
        .into_iter()
        .flat_map(|kind| ["left", "right"].map(|name| Job::new(kind, name, &provider, task)))
        .collect();
    std::thread::scope(|scope| {
        for job in &jobs {
            let base_url = base_url.trim();
            scope.spawn(move || {
                let done = output(&job.to(base_url, Prompt::First(&job.first())));
                assert_answer(&done, FIRST_ANSWER);
            });
        }
    });
    for job in &jobs {
        assert_all_accepted(job, &provider);
        let requests = job.round_requests(&provider);
        assert_eq!(requests.len() as u64, task.rounds + 1, "{}", job.mark);
        let others = jobs.iter().filter(|other| other.mark != job.mark);
        for other in others {
            let mixed = requests
                .iter()
                .find(|request| request.body.to_string().contains(&other.mark));
            assert!(
                mixed.is_none(),
                "{} is in a request of {}",
                other.mark,
                job.mark
            );
        }
    }
    drop(gateway.0.stdin.take());
    gateway.0.wait().unwrap();
}
