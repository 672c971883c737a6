//! A server that speaks S3: `versitygw` over a folder, as `scripts/install-tools` builds it.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;

use crate::{free_port, leashed};

/// How long starting may take.
const PATIENCE: Duration = Duration::from_mins(2);
const SECRET: &str = "a-secret-of-tests";

/// The server, with one bucket.
#[derive(Debug)]
pub struct Bucket {
    folder: TempDir,
    port: u16,
    running: Option<Child>,
}

impl Bucket {
    /// A new one, whose bucket is empty.
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
            assert!(waited < PATIENCE, "it does not start: {log:?}");
            sleep(look_every);
            waited += look_every;
        }
        bucket
    }

    /// Where blobs are kept in it.
    pub fn url(&self) -> String {
        "s3://bucket/blobs".into()
    }

    /// How it is reached, as variables that clients of S3 know.
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

    /// Makes it take requests and answer none, until it goes on.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Makes it answer again.
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        // It is a child of the shell that stands between, beside one that watches over the two.
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

    /// The folder that the bucket is.
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
