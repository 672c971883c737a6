//! The real binary as a process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_test_servers::Cluster;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// A client of the service for agents.
pub type Context = ContextServiceClient<Channel>;
/// A client of the service for sessions.
pub type Sessions = SessionServiceClient<Channel>;

/// Time limit for a server's start and stop.
const TIMEOUT: Duration = Duration::from_mins(3);
/// Lets the operating system choose a free port.
const ANY_PORT: &str = "127.0.0.1:0";
/// The clients' message limit. It exceeds every server limit, so that the server rejects large messages and not the
/// client.
const NO_LIMIT: usize = usize::MAX;

/// A running server. It is killed on drop.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: String,
    admin: String,
    log: Arc<Mutex<Vec<String>>>,
    log_reader: Option<JoinHandle<()>>,
}

/// Returns the binary under test and builds it once. `PALIMPSEST_TEST_BINARY` names an existing binary instead, such as
/// a release build for long runs.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(named) = std::env::var_os("PALIMPSEST_TEST_BINARY") {
            return named.into();
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
        // With another selection of packages, dependencies have other features, and cargo would build them again. The
        // small test adds the features of dependencies of tests.
        let selection: &[&str] = if cfg!(debug_assertions) {
            &["--workspace", "--test", "cycles"]
        } else {
            // A release build of a measurement measures a release build of the server.
            &["--release", "-p", "palimpsest-cli"]
        };
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--locked", "--bin", "palimpsest"])
            .args(selection)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .status();
        assert!(built.unwrap().success(), "the binary does not build");
        // Tests are in `deps`, and the binary is in its parent folder.
        let test = std::env::current_exe().unwrap();
        test.parent().unwrap().with_file_name("palimpsest")
    })
}

/// Returns true if servers use a database instead of their data folder, which `PALIMPSEST_TEST_STORE=postgres` selects.
/// Tests of the embedded store are then skipped.
pub fn is_on_a_database() -> bool {
    std::env::var("PALIMPSEST_TEST_STORE").is_ok_and(|store| store == "postgres")
}

/// Returns the settings of a server on a database, with one schema per data folder. Empty if `extra` contains a store
/// of its own.
fn on_a_database(data_dir: &Path, extra: &[&str]) -> Vec<String> {
    if !is_on_a_database() || extra.iter().any(|it| it.starts_with("store.postgres.url=")) {
        return Vec::new();
    }
    let folder = data_dir.display().to_string();
    let schema: String = folder.chars().filter(char::is_ascii_alphanumeric).collect();
    let mut settings = vec![
        format!("store.postgres.url={}", Cluster::of_this_process().url()),
        format!("store.postgres.schema={schema}"),
        "store.postgres.connections=3".into(),
    ];
    let has_blobs = extra
        .iter()
        .any(|it| *it == "--blobs" || it.starts_with("blobs.url="));
    if !has_blobs {
        let folder = std::path::absolute(data_dir).unwrap().join("blobs");
        settings.push(format!("blobs.url=file://{}", folder.display()));
    }
    let settings = settings.into_iter().flat_map(|it| ["--set".to_owned(), it]);
    settings.collect()
}

/// Returns the binary under test as a command.
fn binary_command() -> Command {
    Command::new(binary())
}

fn text_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    // The values of these keys contain no JSON escapes, so a search replaces a parser.
    let start = format!("\"{key}\":\"");
    let rest = &line[line.find(&start)? + start.len()..];
    Some(&rest[..rest.find('"')?])
}

impl Server {
    /// Starts a server on a folder and waits until it is ready.
    pub fn start(data_dir: &Path, extra: &[&str]) -> Self {
        Self::start_with(data_dir, extra, &[])
    }

    /// Starts a server with environment variables.
    pub fn start_with(data_dir: &Path, extra: &[&str], vars: &[(&str, &str)]) -> Self {
        Self::start_until("ready", binary_command(), ANY_PORT, data_dir, extra, vars)
    }

    /// Starts a server with limits of its process. `limits` are arguments of the shell's `ulimit`, such as `-Sn 1024`.
    pub fn start_limited(data_dir: &Path, extra: &[&str], limits: &str) -> Self {
        // The limits apply before the program starts, so that it can raise the soft limits as usual.
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("ulimit {limits} && exec \"$0\" \"$@\"")]);
        shell.arg(binary());
        Self::start_until("ready", shell, ANY_PORT, data_dir, extra, &[])
    }

    /// Starts a server at a fixed address.
    pub fn start_at(address: &str, data_dir: &Path, extra: &[&str], vars: &[(&str, &str)]) -> Self {
        Self::start_until("ready", binary_command(), address, data_dir, extra, vars)
    }

    /// Starts a server that answers without becoming ready.
    pub fn start_unready(data_dir: &Path, extra: &[&str]) -> Self {
        Self::start_until("serving", binary_command(), ANY_PORT, data_dir, extra, &[])
    }

    /// Starts a server that ends at a crash point, and waits until it has ended. The server may end before it is ready.
    pub fn run_until_crash(data_dir: &Path, extra: &[&str], point: &str) -> ExitStatus {
        let (server, _lines) = Self::spawn(
            binary_command(),
            ANY_PORT,
            data_dir,
            extra,
            &[("CRASH_AT", point)],
        );
        server.wait()
    }

    /// Starts a server with a crash point. Returns `None` if background work reaches the point before the server is
    /// ready.
    pub fn start_to_crash(data_dir: &Path, extra: &[&str], point: &str) -> Option<Self> {
        let vars = [("CRASH_AT", point)];
        let (server, lines) = Self::spawn(binary_command(), ANY_PORT, data_dir, extra, &vars);
        server.awaited("ready", &lines).ok()
    }

    fn start_until(
        awaited: &str,
        command: Command,
        address: &str,
        data_dir: &Path,
        extra: &[&str],
        vars: &[(&str, &str)],
    ) -> Self {
        let (server, lines) = Self::spawn(command, address, data_dir, extra, vars);
        server
            .awaited(awaited, &lines)
            .unwrap_or_else(|server| panic!("not ready: {:?}", server.log()))
    }

    /// Waits for a log message. Returns the server as an error if its log ends or is silent before. On drop, the process
    /// is killed.
    fn awaited(mut self, awaited: &str, lines: &mpsc::Receiver<String>) -> Result<Self, Self> {
        let server = &mut self;
        loop {
            let Ok(line) = lines.recv_timeout(TIMEOUT) else {
                return Err(self);
            };
            let message = text_of(&line, "message");
            if message == Some("serving") {
                let text = |key| text_of(&line, key).unwrap().to_owned();
                (server.address, server.admin) = (text("grpc"), text("admin"));
            }
            if message == Some(awaited) {
                return Ok(self);
            }
        }
    }

    /// Starts the process and collects its log. Returns its log lines as they are written.
    fn spawn(
        mut command: Command,
        address: &str,
        data_dir: &Path,
        extra: &[&str],
        vars: &[(&str, &str)],
    ) -> (Self, mpsc::Receiver<String>) {
        let store = on_a_database(data_dir, extra);
        let mut child = command
            .args(["serve", "--listen", address, "--log-format", "json"])
            .args(["--admin-listen", ANY_PORT, "--data-dir"])
            .arg(data_dir)
            .args(extra)
            .args(store)
            // Variables such as `PALIMPSEST_CONFIG` are settings, and those of the machine must not reach the server.
            .env_clear()
            .envs(vars.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (sender, lines) = mpsc::channel();
        let kept = Arc::clone(&log);
        let log_reader = std::thread::spawn(move || {
            for line in stderr.map_while(Result::ok) {
                // The receiver is dropped once the server is ready.
                let _ = sender.send(line.clone());
                kept.lock().unwrap().push(line);
            }
        });
        let server = Self {
            child,
            address: String::new(),
            admin: String::new(),
            log,
            log_reader: Some(log_reader),
        };
        (server, lines)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the listen address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the address of the admin port.
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// Returns the address of the gateway. Empty if it is off.
    pub fn gateway(&self) -> String {
        let log = self.log();
        let mut serving = log.iter();
        let serving = serving.find(|line| text_of(line, "message") == Some("serving"));
        let address = serving.and_then(|line| text_of(line, "gateway"));
        address.unwrap_or_default().to_owned()
    }

    /// Returns the metrics as Prometheus would scrape them.
    pub fn scrape(&self) -> String {
        let answer = self.ask("/metrics");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body.to_owned()
    }

    /// Returns true if the server reports readiness.
    pub fn is_ready(&self) -> bool {
        self.ask("/readyz").starts_with("HTTP/1.1 200")
    }

    /// Returns the reply of the admin port.
    fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: palimpsest\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Returns all log lines so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Returns the log lines from index `first`, starting at 0.
    pub fn log_from(&self, first: usize) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.get(first..).map(<[String]>::to_vec).unwrap_or_default()
    }

    /// Kills the server with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal by name, such as TERM.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits until the process ends.
    pub fn wait(mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < TIMEOUT, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the server in an orderly way. Returns its complete log.
    pub fn stop(mut self) -> Vec<String> {
        self.signal("TERM");
        let (log, reader) = (Arc::clone(&self.log), self.log_reader.take());
        let status = self.wait();
        // The last lines may still be in the pipe.
        reader.unwrap().join().unwrap();
        let log = log.lock().unwrap().clone();
        assert!(status.success(), "{status}: {log:?}");
        log
    }

    /// Opens a new connection.
    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.tcp_nodelay(true).connect().await.unwrap()
    }

    /// Returns a client with its own connection.
    pub async fn context(&self) -> Context {
        ContextServiceClient::new(self.channel().await)
            .max_decoding_message_size(NO_LIMIT)
            .max_encoding_message_size(NO_LIMIT)
    }

    /// Returns a client with its own connection.
    pub async fn sessions(&self) -> Sessions {
        SessionServiceClient::new(self.channel().await)
            .max_decoding_message_size(NO_LIMIT)
            .max_encoding_message_size(NO_LIMIT)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process has already ended if a test stopped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that tests share. It starts with the first user and ends with the last, so that no process outlives the
/// tests.
#[derive(Debug)]
pub struct Shared {
    args: &'static [&'static str],
    running: Mutex<Weak<(Server, TempDir)>>,
}

impl Shared {
    /// Describes a server with these arguments. It is started later.
    pub const fn new(args: &'static [&'static str]) -> Self {
        Self {
            args,
            running: Mutex::new(Weak::new()),
        }
    }

    /// Returns the server, and starts it if it does not run.
    pub fn get(&self) -> Arc<(Server, TempDir)> {
        let mut running = self
            .running
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        running.upgrade().unwrap_or_else(|| {
            let folder = tempfile::tempdir().unwrap();
            let started = Arc::new((Server::start(folder.path(), self.args), folder));
            *running = Arc::downgrade(&started);
            started
        })
    }
}
