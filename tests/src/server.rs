//! The real binary as a process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};

use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_test_servers::Cluster;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// A client of the service that agents call.
pub type Context = ContextServiceClient<Channel>;
/// A client of the service for everything around it.
pub type Sessions = SessionServiceClient<Channel>;

/// How long a server may take to be ready, or to go down.
const PATIENCE: Duration = Duration::from_mins(3);
/// A port that is free.
const ANY_PORT: &str = "127.0.0.1:0";
/// What clients let in and out: more than any limit, so that the refusal is the server's.
const NO_LIMIT: usize = usize::MAX;

/// A running server; it dies with its value.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: String,
    admin: String,
    log: Arc<Mutex<Vec<String>>>,
}

/// The binary under test, built once; `PALIMPSEST_TEST_BINARY` names one that is there already, such as the
/// release that a long run is about.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(named) = std::env::var_os("PALIMPSEST_TEST_BINARY") {
            return named.into();
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--locked", "-p", "palimpsest-cli"])
            .args(["--bin", "palimpsest"])
            // Whoever measures is a release, and measures one.
            .args((!cfg!(debug_assertions)).then_some("--release"))
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .status();
        assert!(built.unwrap().success(), "the binary does not build");
        // Tests are in `deps`, beside which binaries are.
        let test = std::env::current_exe().unwrap();
        test.parent().unwrap().with_file_name("palimpsest")
    })
}

/// Whether servers keep their sessions in a database, which `PALIMPSEST_TEST_STORE=postgres` says, and not in their
/// data folder. A test that is about the embedded store has nothing to say then.
pub fn is_on_a_database() -> bool {
    std::env::var("PALIMPSEST_TEST_STORE").is_ok_and(|store| store == "postgres")
}

/// The settings of a server that keeps its sessions in a database, in a schema for each data folder; none where it
/// says itself what it uses.
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

/// The binary under test, with nothing around it.
fn binary_command() -> Command {
    Command::new(binary())
}

fn text_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let start = format!("\"{key}\":\"");
    let rest = &line[line.find(&start)? + start.len()..];
    Some(&rest[..rest.find('"')?])
}

impl Server {
    /// Starts a server on a folder and waits until it is ready.
    pub fn start(data_dir: &Path, extra: &[&str]) -> Self {
        Self::start_with(data_dir, extra, &[])
    }

    /// The same, with variables in its environment.
    pub fn start_with(data_dir: &Path, extra: &[&str], vars: &[(&str, &str)]) -> Self {
        Self::start_until("ready", binary_command(), ANY_PORT, data_dir, extra, vars)
    }

    /// Starts a server under limits of its process: the arguments of a shell's `ulimit`, such as `-Sn 1024`.
    pub fn start_limited(data_dir: &Path, extra: &[&str], limits: &str) -> Self {
        // The limits are in force before the program begins, so that it can raise the soft ones as it would anywhere.
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("ulimit {limits} && exec \"$0\" \"$@\"")]);
        shell.arg(binary());
        Self::start_until("ready", shell, ANY_PORT, data_dir, extra, &[])
    }

    /// The same, at an address that its clients know.
    pub fn start_at(address: &str, data_dir: &Path, extra: &[&str], vars: &[(&str, &str)]) -> Self {
        Self::start_until("ready", binary_command(), address, data_dir, extra, vars)
    }

    /// The same, for one that is not ready and answers all the same.
    pub fn start_unready(data_dir: &Path, extra: &[&str]) -> Self {
        Self::start_until("serving", binary_command(), ANY_PORT, data_dir, extra, &[])
    }

    fn start_until(
        awaited: &str,
        mut command: Command,
        address: &str,
        data_dir: &Path,
        extra: &[&str],
        vars: &[(&str, &str)],
    ) -> Self {
        let store = on_a_database(data_dir, extra);
        let mut child = command
            .args(["serve", "--listen", address, "--log-format", "json"])
            .args(["--admin-listen", ANY_PORT, "--data-dir"])
            .arg(data_dir)
            .args(extra)
            .args(store)
            .env_clear()
            .envs(vars.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (sender, received) = mpsc::channel();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // Nobody listens any more once the server is ready.
                let _ = sender.send(line.clone());
                kept.lock().unwrap().push(line);
            }
        });
        // From here on a failure ends the process.
        let mut server = Self {
            child,
            address: String::new(),
            admin: String::new(),
            log,
        };
        loop {
            let line = received.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("not ready: {:?}", server.log()));
            let message = text_of(&line, "message");
            if message == Some("serving") {
                let text = |key| text_of(&line, key).unwrap().to_owned();
                (server.address, server.admin) = (text("grpc"), text("admin"));
            }
            if message == Some(awaited) {
                return server;
            }
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The address of the admin port.
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// What Prometheus would read now.
    pub fn scrape(&self) -> String {
        let answer = self.ask("/metrics");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body.to_owned()
    }

    /// Whether it says that it can be called.
    pub fn is_ready(&self) -> bool {
        self.ask("/readyz").starts_with("HTTP/1.1 200")
    }

    /// What the admin port answers.
    fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: palimpsest\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// What it logged so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// The lines that it logged from the line number `first` on, from 0.
    pub fn log_from(&self, first: usize) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.get(first..).map(<[String]>::to_vec).unwrap_or_default()
    }

    /// Ends it as a power failure would: SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends it a signal by its name, such as TERM.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let kill = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits for its end.
    pub fn wait(mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it in order.
    pub fn stop(self) {
        self.signal("TERM");
        let log = Arc::clone(&self.log);
        let status = self.wait();
        assert!(status.success(), "{status}: {log:?}");
    }

    /// A connection of its own.
    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.tcp_nodelay(true).connect().await.unwrap()
    }

    /// A client with a connection of its own.
    pub async fn context(&self) -> Context {
        ContextServiceClient::new(self.channel().await)
            .max_decoding_message_size(NO_LIMIT)
            .max_encoding_message_size(NO_LIMIT)
    }

    /// A client with a connection of its own.
    pub async fn sessions(&self) -> Sessions {
        SessionServiceClient::new(self.channel().await)
            .max_decoding_message_size(NO_LIMIT)
            .max_encoding_message_size(NO_LIMIT)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It is gone already when a test ended it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that tests share: it starts with the first that wants it and ends with the last, so that
/// no process outlives the tests.
#[derive(Debug)]
pub struct Shared {
    args: &'static [&'static str],
    running: Mutex<Weak<(Server, TempDir)>>,
}

impl Shared {
    /// A server with these arguments.
    pub const fn new(args: &'static [&'static str]) -> Self {
        Self {
            args,
            running: Mutex::new(Weak::new()),
        }
    }

    /// The server.
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
