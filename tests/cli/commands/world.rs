//! The terminal of one page: a home folder, a working folder and servers in the background.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use palimpsest_test_servers::Cluster;
use palimpsest_tests::authority::Authority;
use palimpsest_tests::binary;
use palimpsest_tests::markdown::repository;
use serde_json::Value;
use tempfile::TempDir;

use super::tables::{BEFORE, REPLACED, USE_POSTGRES};
use crate::replay::transcript;

/// Time limit for one block and for the start of a server. It only detects hangs.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Returns true if the line starts a server, which does not end by itself.
fn is_serve(line: &str) -> bool {
    let programs = ["cargo run --release -- serve", "palimpsest serve"];
    programs.iter().any(|it| line.trim_start().starts_with(it))
}

/// A server in the background. It is killed on drop, also after a failed assertion.
struct Background {
    child: Child,
    log: Receiver<String>,
}

impl Background {
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = channel();
        std::thread::spawn(move || {
            // Reads on after the receiver is dropped, so that the pipe never blocks the server.
            for line in stderr.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, log }
    }

    /// Returns the log line with the addresses as soon as the server is ready.
    #[track_caller]
    fn ready(&self, place: &str) -> Value {
        let (mut serving, mut log) = (Value::Null, String::new());
        while let Ok(line) = self.log.recv_timeout(TIMEOUT) {
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            match entry["message"].as_str() {
                Some("serving") => serving = entry,
                Some("ready") => return serving,
                _ => {}
            }
            writeln!(log, "{line}").unwrap();
        }
        panic!("{place}: the server is not ready:\n{log}");
    }

    /// Stops the server in an orderly way, so that its store can be used again.
    fn stop(mut self) {
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(kill.unwrap().success());
        // The log ends with the process.
        let mut log = Vec::new();
        let end = loop {
            match self.log.recv_timeout(TIMEOUT) {
                Ok(line) => log.push(line),
                Err(end) => break end,
            }
        };
        assert_eq!(end, RecvTimeoutError::Disconnected, "{log:?}");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {log:?}");
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // The process has already ended if a test stopped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The terminal of one page.
pub(super) struct World {
    /// The servers since the last block with a server. Dropped first, because they use the folder.
    servers: Vec<Background>,
    /// Real ports by the printed ones.
    ports: Vec<(&'static str, String)>,
    folder: TempDir,
}

impl World {
    pub(super) fn new(page: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        for name in [
            "bin",
            "work",
            "tmp",
            "var/lib",
            "var/backups",
            "var/log/palimpsest",
            "home/.claude/projects/my-project",
            "home/.claude/projects/-home-ann-shop",
            "home/.local/share/bash-completion/completions",
        ] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        // The shell resolves `scripts/..` by name, so scripts write into this folder and not into the repository.
        for name in ["deploy", "scripts", "clients"] {
            symlink(repository().join(name), top.join("work").join(name)).unwrap();
        }
        let authority = Authority::new();
        authority.write(&top.join("work"));
        fs::write(top.join("work/ca.pem"), authority.pem()).unwrap();
        transcript(&top.join("home/.claude/projects/my-project/my-session.jsonl"));
        // With this option, curl fails if the reply is an error.
        fs::write(top.join("home/.curlrc"), "fail-with-body\n").unwrap();
        symlink(binary(), top.join("bin/palimpsest")).unwrap();
        // Stands for `cargo run --release --`, because a test must not build.
        let cargo =
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec palimpsest \"$@\"\n";
        fs::write(top.join("bin/cargo"), cargo).unwrap();
        fs::set_permissions(top.join("bin/cargo"), fs::Permissions::from_mode(0o755)).unwrap();

        let world = Self {
            servers: Vec::new(),
            ports: Vec::new(),
            folder,
        };
        world.export(&world.variables(page));
        world
    }

    /// Returns the variables at the start of a page. The system chooses all ports, since tests run in parallel.
    fn variables(&self, page: &str) -> Vec<(&'static str, String)> {
        let top = self.folder.path().display();
        let path = std::env::var("PATH").unwrap();
        let mut variables = vec![
            ("WORLD", top.to_string()),
            ("HOME", format!("{top}/home")),
            ("TMPDIR", format!("{top}/tmp")),
            ("PATH", format!("{top}/bin:{path}")),
            ("PALIMPSEST_LOG_FORMAT", "json".into()),
        ];
        for name in [
            "PALIMPSEST_LISTEN",
            "PALIMPSEST_ADMIN_LISTEN",
            "PALIMPSEST_GATEWAY_LISTEN",
        ] {
            variables.push((name, "127.0.0.1:0".into()));
        }
        if BEFORE.iter().any(|it| it.0 == page && it.2 == USE_POSTGRES) {
            variables.push(("POSTGRES_URL", Cluster::of_this_process().url()));
        }
        variables
    }

    /// Adds variables to the terminal.
    fn export(&self, variables: &[(&str, String)]) {
        let file = self.folder.path().join("variables");
        let mut text = fs::read_to_string(&file).unwrap_or_default();
        for (name, value) in variables {
            writeln!(text, "export {name}='{value}'").unwrap();
        }
        fs::write(file, text).unwrap();
    }

    /// Returns a shell that runs the script with the variables of the terminal. `shell` is its program with arguments.
    fn shell(&self, shell: &[&str], script: &str) -> Command {
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).arg("-c");
        command.arg(format!("set -eo pipefail; . ../variables\n{script}"));
        command.current_dir(self.folder.path().join("work"));
        command.env_clear().stdin(Stdio::null());
        command
    }

    /// Replaces the values that the page cannot know.
    fn replaced(&self, text: &str) -> String {
        let values = REPLACED.iter().copied();
        let text = values.fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        let ports = self.ports.iter();
        ports.fold(text, |text, (from, to)| text.replace(from, to))
    }

    /// Runs commands to their end. Returns their standard output.
    #[track_caller]
    fn finish(&self, place: &str, commands: &str) -> String {
        if commands.trim().is_empty() {
            return String::new();
        }
        let commands = self.replaced(commands);
        let limit = TIMEOUT.as_secs().to_string();
        let shell = ["timeout", "--signal=KILL", &limit, "bash"];
        // The next block begins with the variables with which this one ends.
        let script = format!("{commands}\nexport -p > ../variables");
        let output = self.shell(&shell, &script).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        assert!(
            status.success(),
            "{place}: {status}\n{commands}\nstdout:\n{stdout}\nstderr:\n{stderr}"
        );
        stdout
    }

    /// Starts a server in the background and waits until it is ready.
    #[track_caller]
    fn serve(&mut self, place: &str, line: &str) {
        let line = self.replaced(line);
        let server = Background::start(self.shell(&["bash"], &format!("exec {line}")));
        let serving = server.ready(place);
        let port = |key: &str| {
            let address = serving[key].as_str().unwrap_or_default();
            format!(":{}", address.rsplit(':').next().unwrap_or_default())
        };
        self.ports = vec![
            (":50051", port("grpc")),
            (":50052", port("admin")),
            (":50053", port("gateway")),
        ];
        let scheme = if serving["tls"] == true {
            "https"
        } else {
            "http"
        };
        let address = format!("{scheme}://localhost{}", port("grpc"));
        // Commands without an address call the default port, which a server of the machine may use.
        self.export(&[("PALIMPSEST_URL", address)]);
        self.servers.push(server);
    }

    pub(super) fn stop(&mut self) {
        self.servers.drain(..).for_each(Background::stop);
    }

    /// Runs the lines of a block. A server runs until the next block with a server. Returns the standard output.
    #[track_caller]
    pub(super) fn run(&mut self, place: &str, text: &str) -> String {
        let text = text.replace("\\\n", " ");
        if text.lines().any(is_serve) {
            self.stop();
        }
        let (mut commands, mut stdout) = (String::new(), String::new());
        for line in text.lines() {
            if is_serve(line) || line.trim() == "stop" {
                stdout += &self.finish(place, &std::mem::take(&mut commands));
            }
            if is_serve(line) {
                self.serve(place, line);
            } else if line.trim() == "stop" {
                self.stop();
            } else {
                writeln!(commands, "{line}").unwrap();
            }
        }
        stdout + &self.finish(place, &commands)
    }
}
