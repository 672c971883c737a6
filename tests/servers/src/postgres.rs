//! PostgreSQL as Debian packages it.

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

/// The role that owns everything in it.
pub const OWNER: &str = "palimpsest";

/// How long starting and stopping may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// How a cluster begins.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Lines for `postgresql.conf`.
    pub settings: Vec<String>,
    /// Lines of `pg_hba.conf`, in the place of those that let everybody in.
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
    /// A new one, which lets everybody on this machine in.
    pub fn start() -> Self {
        Self::with(&Options::default())
    }

    /// A new one.
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

    /// One that all tests of a process share, and that nobody drops: its folder goes with the process.
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

    /// A copy of this one that follows it. `name` is what this one knows it by, as in
    /// `synchronous_standby_names`.
    #[must_use]
    pub fn replica(&self, name: &str) -> Self {
        let mut replica = Self::empty();
        let from = format!(
            "host=127.0.0.1 port={} user={OWNER} application_name={name}",
            self.port
        );
        run(command("pg_basebackup")
            .args([
                "--dbname",
                &from,
                "--checkpoint",
                "fast",
                "--wal-method",
                "stream",
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

    /// Adds to one of its files. It reads them when it starts, or on [`Self::reload`].
    pub fn append_to(&self, file: &str, text: &str) {
        let path = self.data().join(file);
        let before = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, before + text).unwrap();
    }

    /// Puts a file into its folder, as only it may read it.
    pub fn put(&self, file: &str, content: &str) {
        let path = self.data().join(file);
        fs::write(&path, content).unwrap();
        own(&path);
        run(Command::new("chmod").arg("600").arg(&path));
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Where it listens, on this machine's own address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address, for its owner.
    pub fn url(&self) -> String {
        format!("postgres://{OWNER}@127.0.0.1:{}/postgres", self.port)
    }

    /// Starts it after it was stopped.
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
            assert!(waited < PATIENCE, "it does not start:\n{}", self.log());
            sleep(look_every);
            waited += look_every;
        }
    }

    /// Whether it takes connections.
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

    /// Stops it: `fast` as for a restart, `immediate` as a crash.
    pub fn stop(&mut self, mode: &str) {
        if self.running.is_none() {
            return;
        }
        run(command("pg_ctl")
            .args(["stop", "--wait", "--mode", mode, "--pgdata"])
            .arg(self.data()));
        self.end();
    }

    /// Closes the shell's input, and with it the server if it is still there.
    fn end(&mut self) {
        if let Some(mut running) = self.running.take() {
            drop(running.stdin.take());
            drop(running.wait());
        }
    }

    /// Makes a replica the one that takes writes.
    pub fn promote(&self) {
        run(command("pg_ctl")
            .args(["promote", "--wait", "--pgdata"])
            .arg(self.data()));
    }

    /// Makes it read its files again.
    pub fn reload(&self) {
        run(command("pg_ctl")
            .args(["reload", "--pgdata"])
            .arg(self.data()));
    }

    /// Runs statements in it, as its owner, and returns what they print.
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

    /// A client of it that prints what it is told and nothing else.
    fn client(&self) -> Command {
        let mut psql = command("psql");
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--set", "ON_ERROR_STOP=1", "--dbname", &self.url()]);
        psql
    }

    /// Ends all connections of the service's processes.
    pub fn end_connections(&self) {
        self.psql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE application_name = 'palimpsest'",
        );
    }

    /// Somebody's transaction that has locked something, by a statement that locks it.
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

    /// Waits until somebody, by the name of its connections, waits for a lock on a table.
    pub fn until_it_waits_for(&self, who: &str, table: &str) {
        self.until(&format!(
            "SELECT count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid)
             WHERE application_name = '{who}' AND NOT granted AND relation = '{table}'::regclass"
        ));
    }

    /// Waits until a question is answered with yes.
    pub fn until(&self, question: &str) {
        let look_every = Duration::from_millis(50);
        let mut waited = Duration::ZERO;
        while self.psql(question) != "t" {
            assert!(waited < PATIENCE, "it does not come: {question}");
            sleep(look_every);
            waited += look_every;
        }
    }

    /// What it has to say for itself.
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

/// A transaction that has locked something. What it locked is free when it is committed or dropped.
#[derive(Debug)]
pub struct Holder {
    psql: Child,
    asks: ChildStdin,
}

impl Holder {
    /// Lets go of it.
    pub fn commit(mut self) {
        writeln!(self.asks, "COMMIT;").unwrap();
        drop(self.asks);
        assert!(self.psql.wait().unwrap().success());
    }
}

/// One of PostgreSQL's programs: from the newest version that Debian's packages have installed, or from the path.
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

/// A command of PostgreSQL, as a user who may run it: it refuses to be run by root.
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

/// Whom root runs it as; nobody else than this process's own user otherwise.
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
