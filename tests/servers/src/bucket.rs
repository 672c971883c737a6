//! An S3 server: `versitygw` on a folder, as `scripts/install-tools` builds it.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;

use crate::{free_port, leashed};

/// Time limit for the start.
const TIMEOUT: Duration = Duration::from_mins(2);
const SECRET: &str = "a-secret-of-tests";

/// The server with one bucket.
#[derive(Debug)]
pub struct Bucket {
    folder: TempDir,
    port: u16,
    running: Option<Child>,
}

impl Bucket {
    /// Starts a server with an empty bucket.
    pub fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("bucket-")
            .tempdir()
            .unwrap();
        fs::create_dir_all(folder.path().join("data/bucket")).unwrap();
        let port = free_port();
        let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/versitygw");
        assert!(
            tool.exists(),
            "scripts/install-tools builds {}",
            tool.display()
        );
        let mut command = leashed(&tool, &folder.path().join("log"));
        command
            .args(["--access", "tests", "--secret", SECRET, "--quiet"])
            .args(["--port", &format!("127.0.0.1:{port}"), "posix"])
            .arg(folder.path().join("data"));
        let running = Some(command.spawn().unwrap());
        let bucket = Self {
            folder,
            port,
            running,
        };
        let look_every = Duration::from_millis(20);
        let mut waited = Duration::ZERO;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(bucket.folder.path().join("log"));
            assert!(waited < TIMEOUT, "the bucket does not start: {log:?}");
            sleep(look_every);
            waited += look_every;
        }
        bucket
    }

    /// Returns the URL for blobs in the bucket.
    pub fn url(&self) -> String {
        "s3://bucket/blobs".into()
    }

    /// Returns the environment variables with the endpoint and the credentials for S3 clients.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "AWS_ENDPOINT_URL",
                format!("http://127.0.0.1:{}", self.port),
            ),
            ("AWS_ALLOW_HTTP", "true".into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ACCESS_KEY_ID", "tests".into()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.into()),
        ]
    }

    /// Suspends the server: it accepts requests and does not answer until [`Self::go_on`].
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Resumes the server.
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        // The server is a child of the watching shell. Another child, `cat`, waits for the end of the input.
        let shell = self.running.as_ref().unwrap().id();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        let children = children.unwrap();
        let is_it = |child: &&str| {
            let name = fs::read_to_string(format!("/proc/{child}/comm"));
            name.is_ok_and(|name| name.trim() == "versitygw")
        };
        let it = children.split_whitespace().find(is_it).unwrap();
        let done = Command::new("kill").args(["-s", signal, it]).status();
        assert!(done.unwrap().success());
    }

    /// Returns the folder of the bucket.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().join("data/bucket")
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            drop(running.stdin.take());
            drop(running.wait());
        }
    }
}
