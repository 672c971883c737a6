//! One conversation of an agent: its home folder, its script, and its runs.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use palimpsest_fake_provider::{FakeProvider, Recorded};
use palimpsest_tests::binary;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kinds::{Kind, Prompt, Way};

/// The last answers of the two parts of a conversation.
pub(crate) const FIRST_ANSWER: &str = "The first part is done.";
pub(crate) const NEXT_ANSWER: &str = "The next part is done.";
/// The text that selects the script of the second part.
const NEXT: &str = "Now do the next part";
/// The maximum time of a run in seconds. A run that hangs is killed, so that its test fails with its output.
const TIMEOUT_S: &str = "1500";

/// Returns the number of rounds of a conversation.
pub(crate) fn rounds() -> u64 {
    let rounds = std::env::var("AGENTS_ROUNDS").ok();
    rounds.map_or(10, |rounds| {
        rounds.parse().expect("AGENTS_ROUNDS is a number")
    })
}

/// A conversation.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) key: String,
    pub(crate) home: TempDir,
    /// A word that only this conversation contains.
    pub(crate) mark: String,
}

/// The script of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) rounds: u64,
    /// The smallest and the largest output of a command, in bytes.
    pub(crate) output_bytes: (u64, u64),
    /// The window of the model, in tokens.
    pub(crate) window: u64,
}

impl Job {
    /// Prepares a home folder for an agent whose model has this window.
    pub(crate) fn unscripted(kind: Kind, name: &str, window: u64) -> Self {
        let home = tempfile::tempdir().unwrap();
        kind.configure(home.path(), window);
        Self {
            kind,
            key: format!("key-{kind:?}-{name}"),
            home,
            mark: format!("mark-{kind:?}-{name}"),
        }
    }

    /// Prepares a home folder, and adds the script of the conversation to the provider.
    pub(crate) fn new(kind: Kind, name: &str, provider: &FakeProvider, task: Task) -> Self {
        let job = Self::unscripted(kind, name, task.window);
        let scripts = [
            // The first script that matches decides, so that of the second part precedes.
            json!({
                "match": {"key": job.key, "text": NEXT}, "window": task.window,
                "agent": {"rounds": 1, "output_bytes": task.output_bytes, "text": NEXT_ANSWER},
            }),
            json!({
                "match": {"key": job.key}, "window": task.window,
                "agent": {"rounds": task.rounds, "output_bytes": task.output_bytes, "text": FIRST_ANSWER},
            }),
        ];
        for script in scripts {
            let script = serde_json::from_value(script).unwrap();
            provider.add_script(script).unwrap();
        }
        job
    }

    /// Returns the first prompt.
    pub(crate) fn first(&self) -> String {
        format!(
            "Do the first part of the task {}. Run all commands.",
            self.mark
        )
    }

    /// Returns the second prompt.
    pub(crate) fn next(&self) -> String {
        format!("{NEXT} of the task {}.", self.mark)
    }

    /// Returns the folder of the sessions.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("sessions")
    }

    /// Returns the command of a prompt that `palimpsest run` runs. Its requests go to the provider.
    pub(crate) fn through_run(&self, provider: &FakeProvider, prompt: Prompt<'_>) -> Command {
        self.through_run_with(&[], provider, prompt)
    }

    /// Returns the command of a prompt that `palimpsest run` runs with settings.
    pub(crate) fn through_run_with(
        &self,
        settings: &[&str],
        provider: &FakeProvider,
        prompt: Prompt<'_>,
    ) -> Command {
        let mut command = Command::new(binary());
        command.arg("run").arg("--data-dir").arg(self.data());
        // A busy machine must not change the outcome.
        command.args(["--set", "gateway.prepare_timeout_ms=120000"]);
        command.args(settings.iter().flat_map(|setting| ["--set", setting]));
        command.args(["--upstream-anthropic", &provider.url()]);
        command.args(["--upstream-openai", &provider.url(), "--"]);
        command.args(self.kind.words(self.home.path(), prompt, Way::Run));
        self.kind
            .set_environment(&mut command, self.home.path(), &self.key, Way::Run);
        command
    }

    /// Returns the command of a prompt whose requests go to an address.
    pub(crate) fn to(&self, base_url: &str, prompt: Prompt<'_>) -> Command {
        let way = Way::To(base_url);
        let words = self.kind.words(self.home.path(), prompt, way);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        self.kind
            .set_environment(&mut command, self.home.path(), &self.key, way);
        command
    }

    /// Returns the recorded requests of this conversation.
    pub(crate) fn requests(&self, provider: &FakeProvider) -> Vec<Recorded> {
        let mut requests = provider.requests();
        requests.retain(|request| {
            let raw = String::from_utf8_lossy(&request.raw);
            raw.contains(&self.mark)
        });
        requests
    }

    /// Returns the requests of rounds: those with tools. Titles and summaries have none.
    pub(crate) fn round_requests(&self, provider: &FakeProvider) -> Vec<Recorded> {
        let mut requests = self.requests(provider);
        requests.retain(|request| {
            let tools = request.body["tools"].as_array();
            tools.is_some_and(|tools| !tools.is_empty())
        });
        requests
    }

    /// Returns the conversation of a request.
    pub(crate) fn array<'a>(&self, request: &'a Recorded) -> &'a [Value] {
        request.body[self.kind.array()].as_array().unwrap()
    }
}

/// Runs a command to its end. Its output goes to files, so that a child process with an open pipe delays nothing.
pub(crate) fn output(command: &Command) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut limited = Command::new("timeout");
    limited.args(["--signal=KILL", TIMEOUT_S]);
    limited.arg(command.get_program()).args(command.get_args());
    limited.env_clear();
    limited.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let status = limited
        .current_dir(command.get_current_dir().unwrap())
        .stdin(Stdio::null())
        .stdout(File::create(path("stdout")).unwrap())
        .stderr(File::create(path("stderr")).unwrap())
        .status()
        .unwrap();
    Output {
        status,
        stdout: std::fs::read(path("stdout")).unwrap(),
        stderr: std::fs::read(path("stderr")).unwrap(),
    }
}

/// Asserts that a run succeeded and that its last line is this answer.
#[track_caller]
pub(crate) fn assert_answer(output: &Output, answer: &str) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    // Results of commands can be long.
    let end = stderr.ceil_char_boundary(stderr.len().saturating_sub(4_000));
    assert!(
        output.status.success(),
        "{}\n{stdout}\n{}",
        output.status,
        &stderr[end..]
    );
    let last = stdout.trim_end().lines().last().unwrap_or_default();
    assert_eq!(last, answer, "{stdout}\n{}", &stderr[end..]);
}

/// Kills a process on drop, so that a failed test leaves none behind.
#[derive(Debug)]
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
