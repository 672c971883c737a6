//! Assertions about a gateway that manages conversations: it compacts them, costs no more, keeps the prompt cache, and
//! loses nothing.

use std::process::{Command, Output};

use palimpsest_fake_provider::{FakeProvider, Recorded};
use palimpsest_proto::context::v1::{GetSessionRequest, ListSessionsRequest, Session};
use palimpsest_tests::{Server, binary};
use serde_json::Value;

use crate::job::{FIRST_ANSWER, Job, Task, assert_answer, output, rounds};
use crate::kinds::{Kind, Prompt};

/// A task whose conversation exceeds the window of the model several times.
fn long_task() -> Task {
    Task {
        rounds: rounds().max(60),
        output_bytes: (4_000, 20_000),
        window: WINDOW,
    }
}

/// The window of the model, in tokens. The session and the agent know it too.
const WINDOW: u64 = 100_000;

/// The bytes of a line that the fake model's command prints.
const LINE_BYTES: u64 = 40;

/// Returns the output of the command of a round, as the fake provider scripts it.
fn output_of_round(task: Task, round: u64) -> String {
    let (least, most) = task.output_bytes;
    let bytes = least + round * 7_919 % (most - least + 1);
    let lines = (1..=bytes / LINE_BYTES + 1)
        .map(|line| format!("round {round:06} line {line:08} of the output."));
    lines.collect::<Vec<_>>().join("\n")
}

async fn is_managed(kind: Kind) {
    let provider = FakeProvider::start().await.unwrap();
    let task = long_task();
    let job = Job::new(kind, "managed", &provider, task);
    let window = format!("policy.tokens.default_window_tokens={WINDOW}");
    let prompt = Prompt::First(&job.first());
    let done = output(&job.through_run_with(&[&window], &provider, prompt));
    assert_answer(&done, FIRST_ANSWER);

    // The strict provider accepts no request above the window, and the agent did not compact by itself.
    let requests = job.round_requests(&provider);
    assert!(
        provider
            .requests()
            .iter()
            .all(|request| request.status == 200)
    );
    assert_eq!(requests.len() as u64, task.rounds + 1);
    let others = provider.requests().len() - requests.len();
    assert!(
        others <= 1,
        "{others} requests besides the rounds and a title"
    );

    let session = longest_session(&job).await;
    let counts = session.counts.unwrap_or_default();
    assert!(counts.compactions > 0, "{session:?}");
    let breaks = prefix_breaks(&job, &requests);
    assert!(
        breaks <= counts.compactions as usize,
        "{breaks} changes of the prefix, {} compactions",
        counts.compactions
    );
    assert_complete(&job, &session, task);
    assert_not_dearer(&job, &provider, task);
}

/// Returns the session of the task. Titles have sessions of their own.
async fn longest_session(job: &Job) -> Session {
    let server = Server::start(&job.data(), &[]);
    let request = ListSessionsRequest {
        parent: "projects/default".to_owned(),
        ..ListSessionsRequest::default()
    };
    let mut client = server.sessions().await;
    let listed = client.list_sessions(request).await;
    let sessions = listed.unwrap().into_inner().sessions;
    let messages = |session: &Session| session.counts.unwrap_or_default().messages;
    let longest = sessions.into_iter().max_by_key(messages);
    // A list does not count compactions.
    let request = GetSessionRequest {
        session: longest.expect("a session was recorded").name,
        ..GetSessionRequest::default()
    };
    let reply = client.get_session(request).await.unwrap().into_inner();
    server.stop();
    reply.session.unwrap()
}

/// Counts the requests that do not begin with the conversation of the request before. Each one costs a prompt cache.
fn prefix_breaks(job: &Job, requests: &[Recorded]) -> usize {
    let arrays: Vec<Vec<Value>> = requests
        .iter()
        .map(|request| {
            job.array(request)
                .iter()
                .cloned()
                .map(without_markers)
                .collect()
        })
        .collect();
    let breaks = arrays
        .windows(2)
        .filter(|pair| !pair[1].starts_with(&pair[0]));
    breaks.count()
}

/// Removes cache markers, which move with each request, and the difference between a text and one block of text.
fn without_markers(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .into_iter()
                .filter(|(name, _)| name != "cache_control");
            let fields = fields.map(|(name, value)| match value {
                Value::String(text) if name == "content" => {
                    (name, serde_json::json!([{"type": "text", "text": text}]))
                }
                value => (name, without_markers(value)),
            });
            Value::Object(fields.collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_markers).collect()),
        value => value,
    }
}

/// Asserts that the transcript contains the output of every round.
#[track_caller]
fn assert_complete(job: &Job, session: &Session, task: Task) {
    let export: Output = Command::new(binary())
        // The server takes each variable with this prefix for a setting.
        .env_remove("PALIMPSEST_TEST_BINARY")
        .arg("run")
        .arg("--data-dir")
        .arg(job.data())
        .args(["--", binary().to_str().unwrap(), "export", &session.name])
        .args(["--format", "anthropic"])
        .output()
        .unwrap();
    assert!(
        export.status.success(),
        "{}",
        String::from_utf8_lossy(&export.stderr)
    );
    let transcript: Value = serde_json::from_slice(&export.stdout).unwrap();
    let mut texts = Vec::new();
    collect_texts(&transcript, &mut texts);
    for round in 1..=task.rounds {
        let output = output_of_round(task, round);
        let is_there = |text: &&&str| match job.kind {
            // Codex cuts the middle of a long output before it sends it.
            Kind::Codex => {
                let mut lines = output.lines();
                let ends = [lines.next(), lines.next_back()];
                ends.into_iter().flatten().all(|line| text.contains(line))
            }
            _ => text.contains(&output),
        };
        assert!(
            texts.iter().find(is_there).is_some(),
            "the output of round {round} is lost"
        );
    }
}

fn collect_texts<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(values) => values.iter().for_each(|value| collect_texts(value, texts)),
        Value::Object(fields) => fields
            .values()
            .for_each(|value| collect_texts(value, texts)),
        _ => {}
    }
}

/// Asserts that the same task costs no less without the gateway, with a model whose window is large enough.
#[track_caller]
fn assert_not_dearer(job: &Job, provider: &FakeProvider, task: Task) {
    // Without the gateway, OpenCode fails at the smaller window.
    let task = Task {
        window: 1_000_000,
        ..task
    };
    let direct = Job::new(job.kind, "direct", provider, task);
    let done = output(&direct.to(&provider.url(), Prompt::First(&direct.first())));
    assert_answer(&done, FIRST_ANSWER);
    let (managed, unmanaged) = (provider.bill(&job.key), provider.bill(&direct.key));
    println!(
        "{:?}: {} of {}",
        job.kind, managed.cost_milli, unmanaged.cost_milli
    );
    assert!(
        managed.cost_milli <= unmanaged.cost_milli,
        "{managed:?} {unmanaged:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_is_managed() {
    is_managed(Kind::Codex).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencode_is_managed() {
    is_managed(Kind::OpenCode).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pi_is_managed() {
    is_managed(Kind::Pi).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_code_is_managed() {
    if Kind::all().contains(&Kind::ClaudeCode) {
        is_managed(Kind::ClaudeCode).await;
    }
}

/// The session knows a larger window than Codex, so Codex compacts by itself, and the gateway serves its compactions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compactions_of_codex_are_served() {
    let provider = FakeProvider::start().await.unwrap();
    let task = Task {
        rounds: 40,
        output_bytes: (4_000, 12_000),
        window: 60_000,
    };
    let job = Job::new(Kind::Codex, "served", &provider, task);
    let settings = [
        "policy.tokens.default_window_tokens=1000000",
        "gateway.upstreams.openai.compaction=served",
    ];
    let prompt = Prompt::First(&job.first());
    let done = output(&job.through_run_with(&settings, &provider, prompt));
    assert_answer(&done, FIRST_ANSWER);
    // The provider gets the rounds and no request for a compaction. Each compaction changes the prefix once.
    let all = provider.requests();
    assert!(all.iter().all(|request| request.status == 200));
    let requests = job.round_requests(&provider);
    assert_eq!(requests.len() as u64, task.rounds + 1);
    let session = longest_session(&job).await;
    let counts = session.counts.unwrap_or_default();
    assert!(counts.compactions > 1, "{session:?}");
    assert_eq!(prefix_breaks(&job, &requests), counts.compactions as usize);
    assert_complete(&job, &session, task);
}
