//! Several servers and workers on one PostgreSQL database and one blob store.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_test_servers::{Bucket, Cluster};
use palimpsest_tests::{Context, Server, Sessions, palimpsest_with};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// Time limit of a client for a connection while a server restarts.
const CONNECT: Duration = Duration::from_secs(2);

/// A process, or its configuration while it is stopped.
#[derive(Debug)]
struct Replica {
    address: String,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    folder: PathBuf,
    running: Mutex<Option<Server>>,
}

impl Replica {
    fn start(&self) -> Server {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let variables = borrowed(&self.variables);
        Server::start_at(&self.address, &self.folder, &arguments, &variables)
    }
}

/// All processes.
#[derive(Debug)]
pub(crate) struct Deployment {
    servers: Vec<Arc<Replica>>,
    workers: Vec<Arc<Replica>>,
    channels: Vec<Channel>,
    /// The settings that all processes share, also for later ones.
    shared: Vec<String>,
    /// The bucket of the blobs. `None` if the blobs are in a folder.
    bucket: Option<Bucket>,
    folder: TempDir,
}

/// Borrows the variables of a bucket, for a command.
pub(crate) fn borrowed<'a>(variables: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    let variables = variables.iter();
    variables
        .map(|(name, value)| (*name, value.as_str()))
        .collect()
}

/// Returns the database URL for settings.
pub(crate) fn at(clusters: &[&Cluster]) -> String {
    let hosts = clusters
        .iter()
        .map(|cluster| format!("127.0.0.1:{}", cluster.port()));
    let hosts = hosts.collect::<Vec<_>>().join(",");
    format!("postgres://palimpsest@{hosts}/postgres")
}

impl Deployment {
    /// Starts servers and workers on a database. Without workers, each server also runs a worker.
    pub(crate) fn start(
        database: &str,
        bucket: Option<Bucket>,
        (servers, workers): (usize, usize),
        extra: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let blobs = bucket.as_ref().map_or_else(
            || format!("file://{}", folder.path().join("blobs").display()),
            Bucket::url,
        );
        let mut shared = vec![
            format!("store.postgres.url={database}"),
            format!("blobs.url={blobs}"),
        ];
        shared.extend(extra.iter().map(|setting| (*setting).to_owned()));
        let mut deployment = Self {
            servers: Vec::new(),
            workers: Vec::new(),
            channels: Vec::new(),
            shared,
            bucket,
            folder,
        };
        let role = if workers == 0 { "all" } else { "server" };
        for _ in 0..servers {
            let server = deployment.replica(role);
            let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
            // A server can be down when a client is created, so the client connects with its first call.
            let endpoint = endpoint.tcp_nodelay(true).connect_timeout(CONNECT);
            deployment.channels.push(endpoint.connect_lazy());
            deployment.servers.push(server);
        }
        for _ in 0..workers {
            let worker = deployment.replica("worker");
            deployment.workers.push(worker);
        }
        deployment
    }

    fn replica(&self, role: &str) -> Arc<Replica> {
        let mut arguments = vec!["--role".to_owned(), role.to_owned()];
        for setting in &self.shared {
            arguments.extend(["--set".to_owned(), setting.clone()]);
        }
        let number = self.servers.len() + self.workers.len();
        // With a fixed address, the channels reconnect after a restart.
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let replica = Replica {
            address: port.local_addr().unwrap().to_string(),
            arguments,
            variables: self
                .bucket
                .as_ref()
                .map_or_else(Vec::new, Bucket::variables),
            folder: self.folder.path().join(format!("{role}-{number}")),
            running: Mutex::default(),
        };
        drop(port);
        *replica.running.lock().unwrap() = Some(replica.start());
        Arc::new(replica)
    }

    /// Returns the number of servers.
    pub(crate) fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Returns the process ids of the running processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let all = self.servers.iter().chain(&self.workers);
        all.filter_map(|one| Some(one.running.lock().unwrap().as_ref()?.pid()))
            .collect()
    }

    /// Returns the number of processes.
    pub(crate) fn processes(&self) -> usize {
        self.servers.len() + self.workers.len()
    }

    /// Returns a client of one server.
    pub(crate) fn context(&self, server: usize) -> Context {
        ContextServiceClient::new(self.channels[server].clone())
            .max_decoding_message_size(usize::MAX)
    }

    /// Returns the connection to one server.
    pub(crate) fn channel(&self, server: usize) -> Channel {
        self.channels[server].clone()
    }

    /// Returns a client of one server.
    pub(crate) fn sessions(&self, server: usize) -> Sessions {
        SessionServiceClient::new(self.channels[server].clone())
            .max_decoding_message_size(usize::MAX)
    }

    fn process(&self, number: usize) -> &Replica {
        let mut all = self.servers.iter().chain(&self.workers);
        all.nth(number).unwrap()
    }

    /// Returns the value of a metric of a process, summed over all its labels.
    pub(crate) fn metric(&self, number: usize, name: &str) -> f64 {
        let running = self.process(number).running.lock().unwrap();
        let text = running.as_ref().unwrap().scrape();
        let rows = text.lines().filter(|line| line.starts_with(name));
        rows.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Kills a process with SIGKILL.
    pub(crate) fn kill(&self, number: usize) {
        let running = self.process(number).running.lock().unwrap().take();
        running.unwrap().kill();
    }

    /// Starts a stopped process again.
    pub(crate) fn start_again(&self, number: usize) {
        let process = self.process(number);
        *process.running.lock().unwrap() = Some(process.start());
    }

    /// Runs a command on the same database and blob store.
    pub(crate) fn run(&self, command: &str, extra: &[&str]) -> Output {
        let mut arguments = vec![command];
        let shared = self.shared.iter().map(String::as_str);
        for setting in shared.chain(extra.iter().copied()) {
            arguments.extend(["--set", setting]);
        }
        let bucket = self.bucket.as_ref();
        let variables = bucket.map_or_else(Vec::new, Bucket::variables);
        let variables = borrowed(&variables);
        palimpsest_with(&arguments, &variables)
    }

    /// Returns the bucket of the blobs.
    pub(crate) fn bucket(&self) -> &Bucket {
        self.bucket.as_ref().unwrap()
    }

    /// Returns true if the bucket contains stored results.
    pub(crate) fn has_results(&self) -> bool {
        let sessions = self
            .bucket
            .as_ref()
            .map(|bucket| bucket.folder().join("blobs/p"));
        let sessions = sessions.into_iter().flat_map(std::fs::read_dir).flatten();
        let mut results = sessions
            .flatten()
            .map(|session| session.path().join("tool-results"));
        results.any(|folder| folder.is_dir())
    }

    /// Returns the log lines of all processes.
    pub(crate) fn log(&self) -> Vec<String> {
        let all = self.servers.iter().chain(&self.workers);
        let logs = all.filter_map(|one| Some(one.running.lock().unwrap().as_ref()?.log()));
        logs.flatten().collect()
    }

    /// Stops all processes in an orderly way.
    pub(crate) fn stop(&self) {
        for one in self.servers.iter().chain(&self.workers) {
            if let Some(server) = one.running.lock().unwrap().take() {
                server.stop();
            }
        }
    }
}
