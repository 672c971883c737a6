//! Tests of `palimpsest run` with small programs as agents.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use palimpsest_fake_provider::{Behaviour, FakeProvider, Plan};
use palimpsest_tests::binary;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tempfile::TempDir;

const ANSWER: &str = "The tests pass now.";
const MODEL: &str = "gpt-fake";

/// Sends one request as OpenAI's SDKs do. Prints the base URL and the answer, and exits with code 7.
const CHAT: &str = r#"
import json, os, sys, urllib.request
base = os.environ["OPENAI_BASE_URL"]
body = {"model": "gpt-fake", "messages": [{"role": "user", "content": "fix the tests"}]}
headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
request = urllib.request.Request(base + "/chat/completions", json.dumps(body).encode(), headers)
answer = json.load(urllib.request.urlopen(request))
print(base)
print(answer["choices"][0]["message"]["content"])
sys.exit(7)
"#;

/// A home folder, in which `palimpsest run` stores its sessions.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::create_dir(home.temporary()).unwrap();
        home
    }

    fn temporary(&self) -> std::path::PathBuf {
        self.0.path().join("tmp")
    }

    fn runs(&self) -> std::path::PathBuf {
        self.0.path().join("data/palimpsest/runs")
    }

    fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(binary());
        command
            .arg("run")
            .args(arguments)
            .env_clear()
            .env("PATH", path())
            .env("HOME", self.0.path())
            .env("XDG_DATA_HOME", self.0.path().join("data"))
            .env("TMPDIR", self.temporary())
            .env("OPENAI_API_KEY", "key")
            .stdin(Stdio::null());
        command
    }
}

/// Returns the search path of this process, with the binary under test.
fn path() -> std::ffi::OsString {
    let own = binary().parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([own].into_iter().chain(std::env::split_paths(&path))).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Returns true if a program listens on the address of a base URL.
fn is_open(base_url: &str) -> bool {
    let address = base_url.trim_start_matches("http://").split('/').next();
    TcpStream::connect(address.unwrap()).is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_gets_its_base_url_and_its_requests_are_reported() {
    let provider = FakeProvider::start().await.unwrap();
    provider.script(MODEL, [Plan::from(Behaviour::Say(ANSWER.to_owned()))]);
    let home = Home::new();
    let upstream = provider.url();
    let output = home
        .run(["--upstream-openai", &upstream, "--", "python3", "-c", CHAT])
        .output()
        .unwrap();
    let (said, reported) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(7), "{said}{reported}");
    let (base_url, answer) = said.trim_end().split_once('\n').unwrap();
    assert_eq!(answer, ANSWER);
    assert!(base_url.starts_with("http://127.0.0.1:"), "{base_url}");
    assert_ne!(base_url, format!("{upstream}/v1"));
    assert!(!is_open(base_url), "the gateway still listens");
    let requests = provider.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        (requests[0].path.as_str(), requests[0].status),
        ("/v1/chat/completions", 200)
    );
    let input = provider.bill("key").input;
    let line = format!("palimpsest: 1 model request; {input} input tokens (0 read from the cache");
    assert!(reported.starts_with(&line), "{line}\n{reported}");
}

/// Changes the title of all sessions, which adds no message.
const RENAME: &str = r#"
import json, os, urllib.request
server = os.environ["PALIMPSEST_URL"] + "/v1/projects/default/sessions"
for session in json.load(urllib.request.urlopen(server)).get("sessions", []):
    address = os.environ["PALIMPSEST_URL"] + "/v1/" + session["name"]
    body = {"session": {"title": "Renamed"}, "update_mask": "title"}
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers, method="PATCH")
    urllib.request.urlopen(request).read()
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_sessions_with_new_messages_are_reported() {
    let provider = FakeProvider::start().await.unwrap();
    let home = Home::new();
    let upstream = provider.url();
    let run = |program: &str| {
        let mut run = home.run([
            "--upstream-openai", &upstream, "--", "python3", "-c", program,
        ]);
        stderr(&run.output().unwrap())
    };
    let first = run(CHAT);
    assert!(first.contains("palimpsest: 1 session:"), "{first}");
    // The first session changes, but only another one receives messages.
    let other = CHAT.replace("fix the tests", "write the docs");
    let second = run(&format!("{RENAME}\n{other}"));
    assert!(second.contains("palimpsest: 1 session:"), "{second}");
    assert!(second.contains("write the docs"), "{second}");
    assert!(!second.contains("Renamed"), "{second}");
}

#[test]
fn a_provider_that_cannot_be_reached_is_reported() {
    // Nothing listens on a port that was bound and released.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let upstream = format!("http://{free}");
    let home = Home::new();
    let output = home
        .run(["--upstream-openai", &upstream, "--", "python3", "-c", CHAT])
        .output()
        .unwrap();
    let reported = stderr(&output);
    assert!(
        reported.contains("the provider answered no request"),
        "{reported}"
    );
    assert!(reported.contains("--upstream-openai"), "{reported}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_base_url_of_the_environment_is_the_upstream() {
    let provider = FakeProvider::start().await.unwrap();
    let home = Home::new();
    for variable in ["OPENAI_BASE_URL", "OPENAI_API_BASE"] {
        let upstream = format!("{}/v1", provider.url());
        let mut run = home.run(["--", "python3", "-c", CHAT]);
        let output = run.env(variable, &upstream).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
        assert!(!stdout(&output).contains(&upstream));
    }
    assert_eq!(provider.requests().len(), 2);
}

#[test]
fn a_proxy_of_the_environment_is_not_used_for_the_gateway() {
    let home = Home::new();
    let print = "echo $NO_PROXY; echo $no_proxy";
    let mut run = home.run(["sh", "-c", print]);
    run.env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("no_proxy", "intern");
    let said = stdout(&run.output().unwrap());
    assert_eq!(said, "127.0.0.1\nintern,127.0.0.1\n");
}

#[test]
fn the_exit_code_is_that_of_the_agent() {
    let home = Home::new();
    let code = |arguments: &[&str]| {
        let output = home.run(arguments).output().unwrap();
        (output.status.code().unwrap(), stderr(&output))
    };
    assert_eq!(code(&["true"]), (0, String::new()));
    assert_eq!(code(&["--", "sh", "-c", "exit 64"]), (64, String::new()));
    // A shell reports an end by signal 9 (SIGKILL) as 128 + 9.
    assert_eq!(code(&["--", "sh", "-c", "kill -KILL $$"]).0, 128 + 9);
    // Shells use 127 for a missing program, and 126 for one that cannot be executed.
    let (missing, error) = code(&["--", "no-such-agent"]);
    assert_eq!(missing, 127);
    assert!(
        error.starts_with("palimpsest: cannot run no-such-agent: "),
        "{error}"
    );
    assert_eq!(code(&["--", "/"]).0, 126);
}

#[test]
fn an_invalid_upstream_is_an_error_of_usage() {
    let home = Home::new();
    let run = home
        .run(["--upstream-anthropic", "not a url", "--", "true"])
        .output();
    let output = run.unwrap();
    assert_eq!(output.status.code(), Some(64));
    let error = stderr(&output);
    assert!(error.contains("--upstream-anthropic"), "{error}");
}

/// Starts a run and waits for the first line of its agent.
fn started(mut run: Command) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut child = run
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    (child, lines, line)
}

#[test]
fn signals_are_forwarded_to_the_agent() {
    for (name, code) in [("INT", 3), ("TERM", 4), ("HUP", 5), ("USR1", 6)] {
        let home = Home::new();
        // The wait for a background process ends at a signal, unlike that for a program in the foreground.
        let script = format!("trap 'kill $!; exit {code}' {name}; sleep 600 & echo started; wait");
        let (mut child, _lines, line) = started(home.run(["--", "sh", "-c", &script]));
        assert_eq!(line, "started\n");
        let kill = Command::new("kill")
            .args(["-s", name, &child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
    }
}

/// Prints a line per SIGINT, and ends at the end of its input.
const COUNT_INTERRUPTS: &str = r#"
import signal, sys
def count(*_): print("interrupted", flush=True)
signal.signal(signal.SIGINT, count)
print("started", flush=True)
for line in sys.stdin:
    print("line", flush=True)
"#;

#[test]
fn ctrl_c_in_a_terminal_reaches_the_agent_once() {
    let home = Home::new();
    // `NOCTTY` prevents that the terminal becomes that of the test.
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let terminal = fs::File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let run = home.run(["--", "python3", "-u", "-c", COUNT_INTERRUPTS]);
    // `setsid --ctty` makes the terminal that of the process, as a terminal program does.
    let mut in_terminal = Command::new("setsid");
    in_terminal
        .args(["--ctty", "--wait"])
        .arg(run.get_program())
        .args(run.get_args())
        .env_clear()
        .envs(
            run.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(terminal.try_clone().unwrap())
        .stdout(terminal.try_clone().unwrap())
        .stderr(terminal);
    let mut child = in_terminal.spawn().unwrap();
    // The command holds the terminal open, and the screen would not end with the process.
    drop(in_terminal);
    let mut controller = fs::File::from(controller);
    let mut screen = ScreenReader::new(controller.try_clone().unwrap());
    screen.until("started");
    controller.write_all(b"\x03").unwrap();
    screen.until("interrupted");
    // The agent answers this line after a second signal, if there was one.
    controller.write_all(b"x\n").unwrap();
    screen.until("line");
    // Ctrl+D ends the input of the agent.
    controller.write_all(b"\x04").unwrap();
    assert!(child.wait().unwrap().success(), "{}", screen.seen);
    let interrupts = screen.seen.matches("interrupted").count();
    assert_eq!(interrupts, 1, "{}", screen.seen);
}

/// Reads a terminal.
struct ScreenReader {
    terminal: fs::File,
    seen: String,
}

impl ScreenReader {
    fn new(terminal: fs::File) -> Self {
        Self {
            terminal,
            seen: String::new(),
        }
    }

    /// Reads until the text appears.
    fn until(&mut self, text: &str) {
        let mut buffer = [0; 1_024];
        while !self.seen.contains(text) {
            let read = self.terminal.read(&mut buffer).unwrap();
            assert_ne!(read, 0, "{}", self.seen);
            self.seen += &String::from_utf8_lossy(&buffer[..read]);
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn runs_at_the_same_time_have_folders_of_their_own() {
    let home = Home::new();
    let wait = ["--", "sh", "-c", "echo $PALIMPSEST_URL; read line"];
    let (mut first, _lines, first_server) = started(home.run(wait));
    let (mut second, _lines, second_server) = started(home.run(wait));
    assert_ne!(first_server, second_server);
    assert_eq!(names(&home.runs()), ["0", "1"]);
    drop((first.stdin.take(), second.stdin.take()));
    // `read` fails at the end of the input.
    assert_eq!(first.wait().unwrap().code(), Some(1));
    assert_eq!(second.wait().unwrap().code(), Some(1));
    // A later run takes a folder that is free again.
    assert!(home.run(["true"]).status().unwrap().success());
    assert_eq!(names(&home.runs()), ["0", "1"]);
}

#[test]
fn a_folder_in_use_is_an_error() {
    let home = Home::new();
    let folder = home.0.path().join("mine");
    let folder = folder.to_str().unwrap();
    let wait = [
        "--data-dir",
        folder,
        "--",
        "sh",
        "-c",
        "echo started; read line",
    ];
    let (mut first, _lines, _) = started(home.run(wait));
    let output = home
        .run(["--data-dir", folder, "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    assert!(
        error.contains("another `palimpsest run` uses it"),
        "{error}"
    );
    drop(first.stdin.take());
    first.wait().unwrap();
    assert!(
        home.run(["--data-dir", folder, "--", "true"])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_temporary_run_leaves_no_file() {
    let home = Home::new();
    let output = home
        .run(["--temporary", "--", "sh", "-c", "ls $TMPDIR"])
        .output()
        .unwrap();
    assert!(
        stdout(&output).starts_with("palimpsest-run-"),
        "{}",
        stdout(&output)
    );
    assert!(names(&home.temporary()).is_empty());
    assert!(!home.runs().exists());
}

#[test]
fn commands_in_a_run_reach_its_server() {
    let home = Home::new();
    let file = home.0.path().join("chat.json");
    fs::write(&file, r#"[{"role": "user", "content": "hello"}]"#).unwrap();
    let import = [
        "palimpsest",
        "import",
        "--format",
        "openai",
        file.to_str().unwrap(),
    ];
    let output = home.run(import).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    // The folder persists, so a later run finds the session.
    let output = home
        .run(["palimpsest", "sessions", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("\"first_prompt\":\"hello\""),
        "{}",
        stdout(&output)
    );
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(home.runs()).unwrap().permissions());
    assert_eq!(
        mode & 0o077,
        0,
        "other users can read the sessions: {mode:o}"
    );
}
