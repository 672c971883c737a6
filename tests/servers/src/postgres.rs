//! PostgreSQL from Debian's packages.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;

use crate::{free_port, leashed};

/// The role that owns all objects.
pub const OWNER: &str = "palimpsest";

/// Time limit for starts and stops.
const TIMEOUT: Duration = Duration::from_mins(2);

/// The initial configuration of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Lines for `postgresql.conf`.
    pub settings: Vec<String>,
    /// Lines of `pg_hba.conf`. They replace the lines that admit every user.
    pub access: Vec<String>,
}

/// A database server.
#[derive(Debug)]
pub struct Cluster {
    folder: TempDir,
    port: u16,
    running: Option<Child>,
    goes_with_process: bool,
}

impl Cluster {
    /// Starts a new server that admits every user of this machine.
    pub fn start() -> Self {
        Self::with(&Options::default())
    }

    /// Starts a new server with options.
    pub fn with(options: &Options) -> Self {
        let mut cluster = Self::empty();
        let data = cluster.data();
        run(command("initdb")
            .args(["--username", OWNER, "--auth", "trust", "--no-sync"])
            .args(["--encoding", "UTF8", "--locale", "C.UTF-8", "--pgdata"])
            .arg(&data));
        cluster.configure(options);
        cluster.start_again();
        cluster
    }

    /// Returns a server that all tests of a process share. It is never dropped, and its folder is deleted when the
    /// process ends.
    pub fn of_this_process() -> &'static Self {
        static RUNNING: OnceLock<Cluster> = OnceLock::new();
        RUNNING.get_or_init(|| {
            let mut cluster = Self::start();
            cluster.stop("fast");
            cluster.goes_with_process = true;
            cluster.start_again();
            cluster
        })
    }

    /// Starts a streaming replica of this server. `name` is its application name, as in `synchronous_standby_names`.
    #[must_use]
    pub fn replica(&self, name: &str) -> Self {
        let mut replica = Self::empty();
        let from = format!(
            "host=127.0.0.1 port={} user={OWNER} application_name={name}",
            self.port
        );
        run(command("pg_basebackup")
            .args([
                "--dbname", &from, "--checkpoint", "fast", "--wal-method", "stream",
            ])
            .args(["--write-recovery-conf", "--pgdata"])
            .arg(replica.data()));
        let port = format!("port = {}\n", replica.port);
        replica.append_to("postgresql.conf", &port);
        replica.start_again();
        replica
    }

    fn empty() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("postgresql-")
            .tempdir()
            .unwrap();
        own(folder.path());
        Self {
            folder,
            port: free_port(),
            running: None,
            goes_with_process: false,
        }
    }

    fn configure(&self, options: &Options) {
        let mut settings = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = ''\n\
             max_connections = 200\nshared_buffers = 64MB\nlog_min_messages = warning\n",
            self.port
        );
        for line in &options.settings {
            writeln!(settings, "{line}").unwrap();
        }
        self.append_to("postgresql.conf", &settings);
        if !options.access.is_empty() {
            fs::write(
                self.data().join("pg_hba.conf"),
                options.access.join("\n") + "\n",
            )
            .unwrap();
        }
    }

    /// Appends to a configuration file. The server reads it at its start or on [`Self::reload`].
    pub fn append_to(&self, file: &str, text: &str) {
        let path = self.data().join(file);
        let before = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, before + text).unwrap();
    }

    /// Writes a file to the data folder that only the server can read.
    pub fn put(&self, file: &str, content: &str) {
        let path = self.data().join(file);
        fs::write(&path, content).unwrap();
        own(&path);
        run(Command::new("chmod").arg("600").arg(&path));
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns the port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the connection URL of the owner.
    pub fn url(&self) -> String {
        format!("postgres://{OWNER}@127.0.0.1:{}/postgres", self.port)
    }

    /// Starts the server after a stop.
    pub fn start_again(&mut self) {
        let mut command = as_its_user(leashed(&binary("postgres"), &self.log_file()));
        command.arg("-D").arg(self.data());
        if self.goes_with_process {
            command.env("LEASH_FOLDER", self.folder.path());
        }
        self.running = Some(command.spawn().unwrap());
        let look_every = Duration::from_millis(50);
        let mut waited = Duration::ZERO;
        while !self.answers() {
            assert!(
                waited < TIMEOUT,
                "the database does not start:\n{}",
                self.log()
            );
            sleep(look_every);
            waited += look_every;
        }
    }

    /// Returns true if the server accepts connections.
    pub fn answers(&self) -> bool {
        let asked = command("pg_isready")
            .args([
                "--quiet",
                "--host",
                "127.0.0.1",
                "--port",
                &self.port.to_string(),
            ])
            .status();
        asked.is_ok_and(|status| status.success())
    }

    /// Stops the server. `fast` is a normal restart, `immediate` a crash.
    pub fn stop(&mut self, mode: &str) {
        if self.running.is_none() {
            return;
        }
        run(command("pg_ctl")
            .args(["stop", "--wait", "--mode", mode, "--pgdata"])
            .arg(self.data()));
        self.end();
    }

    /// Closes the shell's input, which stops the server if it still runs.
    fn end(&mut self) {
        if let Some(mut running) = self.running.take() {
            drop(running.stdin.take());
            drop(running.wait());
        }
    }

    /// Promotes a replica to primary.
    pub fn promote(&self) {
        run(command("pg_ctl")
            .args(["promote", "--wait", "--pgdata"])
            .arg(self.data()));
    }

    /// Reloads the configuration files.
    pub fn reload(&self) {
        run(command("pg_ctl")
            .args(["reload", "--pgdata"])
            .arg(self.data()));
    }

    /// Runs statements as the owner and returns their output.
    pub fn psql(&self, statements: &str) -> String {
        let done = self
            .client()
            .args(["--command", statements])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{statements}: {told}");
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    /// Returns a `psql` command that prints results only.
    fn client(&self) -> Command {
        let mut psql = command("psql");
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--set", "ON_ERROR_STOP=1", "--dbname", &self.url()]);
        psql
    }

    /// Terminates all connections of the service's processes.
    pub fn end_connections(&self) {
        self.psql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE application_name = 'palimpsest'",
        );
    }

    /// Opens a transaction that takes a lock by the given statement.
    pub fn holding(&self, lock: &str) -> Holder {
        let mut psql = self
            .client()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut asks = psql.stdin.take().unwrap();
        writeln!(asks, "BEGIN; {lock};\n\\echo held").unwrap();
        let answers = BufReader::new(psql.stdout.take().unwrap());
        let mut lines = answers.lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "held"), "{lock}");
        Holder { psql, asks }
    }

    /// Waits until a connection with the application name `who` waits for a lock on a table.
    pub fn until_it_waits_for(&self, who: &str, table: &str) {
        self.until(&format!(
            "SELECT count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid)
             WHERE application_name = '{who}' AND NOT granted AND relation = '{table}'::regclass"
        ));
    }

    /// Waits until a query returns true.
    pub fn until(&self, question: &str) {
        let look_every = Duration::from_millis(50);
        let mut waited = Duration::ZERO;
        while self.psql(question) != "t" {
            assert!(waited < TIMEOUT, "timed out waiting for: {question}");
            sleep(look_every);
            waited += look_every;
        }
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end();
    }
}

/// A transaction that holds a lock. The lock is released on commit or drop.
#[derive(Debug)]
pub struct Holder {
    psql: Child,
    asks: ChildStdin,
}

impl Holder {
    /// Commits the transaction and releases the lock.
    pub fn commit(mut self) {
        writeln!(self.asks, "COMMIT;").unwrap();
        drop(self.asks);
        assert!(self.psql.wait().unwrap().success());
    }
}

/// Returns the path of a PostgreSQL program: from the newest version of Debian's packages, otherwise from `PATH`.
pub fn binary(name: &str) -> PathBuf {
    let mut installed: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|version| {
            let number = version.file_name().to_str()?.parse().ok()?;
            let path = version.path().join("bin").join(name);
            path.exists().then_some((number, path))
        })
        .collect();
    installed.sort();
    installed
        .pop()
        .map_or_else(|| PathBuf::from(name), |(_, path)| path)
}

/// Returns a command of PostgreSQL. It runs as another user if this process is root, because PostgreSQL refuses to run
/// as root.
fn command(name: &str) -> Command {
    let mut command = as_its_user(Command::new(binary(name)));
    command.stdin(Stdio::null());
    command
}

fn as_its_user(mut command: Command) -> Command {
    if let Some((uid, gid)) = its_user() {
        command.uid(uid).gid(gid).current_dir("/");
    }
    command
}

fn own(path: &Path) {
    if let Some((uid, gid)) = its_user() {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
}

/// Returns the user and group for PostgreSQL if this process is root. `None` otherwise.
fn its_user() -> Option<(u32, u32)> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    if uid.split_whitespace().nth(1)? != "0" {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let of = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    of("postgres").or_else(|| of("nobody"))
}

fn run(command: &mut Command) {
    let done = command.output();
    let done = done.unwrap_or_else(|error| {
        panic!("{command:?} cannot be run ({error}): scripts/install-tools installs PostgreSQL")
    });
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {told}");
}
