//! Tests of the server's process: its limit of file handles, and its liveness after the embedded store has ended.

#![expect(clippy::disallowed_methods, reason = "real time passes")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use palimpsest_tests::{Server, is_on_a_database};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// A hang ends the test after this time.
const LIMIT: Duration = Duration::from_mins(3);
/// Pause between two looks at the server.
const PAUSE: Duration = Duration::from_millis(20);
/// The limit of file handles of the server with a shortage.
const HANDLES: u64 = 1_024;

/// A connection to the admin port that stays open. A process without free handles accepts no new one.
struct Admin(BufReader<TcpStream>);

impl Admin {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.admin()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self(BufReader::new(stream))
    }

    /// Returns the status and the body of `/healthz`.
    fn healthz(&mut self) -> (u16, String) {
        let request = b"GET /healthz HTTP/1.1\r\nhost: palimpsest\r\n\r\n";
        self.0.get_mut().write_all(request).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
    }
}

/// Sets the soft limit of file handles of the running server.
fn limit_handles(server: &Server, current: u64) {
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    let limit = Rlimit {
        current: Some(current),
        maximum: Some(HANDLES),
    };
    prlimit(pid, Resource::Nofile, limit).unwrap();
}

fn has_logged(server: &Server, text: &str) -> bool {
    server.log().iter().any(|line| line.contains(text))
}

#[tokio::test]
async fn liveness_fails_after_a_failed_sync_and_not_without_file_handles() {
    if is_on_a_database() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "--set",
        "worker.enabled=false",
        "--set",
        "store.canary_every_ms=200",
    ];
    let server = Server::start_limited(folder.path(), &settings, &format!("-n {HANDLES}"));
    let mut admin = Admin::connect(&server);
    assert_eq!(admin.healthz().0, 200);
    // The store syncs every new file of this folder in the commit that finds it.
    let side_files = folder.path().join("log/blobs");

    // A shortage of file handles: the sync of the canary cannot open the new file.
    limit_handles(&server, 1);
    fs::write(side_files.join("short"), "").unwrap();
    let began = Instant::now();
    while !has_logged(&server, "the store cannot sync for now") {
        assert_eq!(admin.healthz().0, 200);
        assert!(began.elapsed() < LIMIT, "{:?}", server.log());
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!(admin.healthz().0, 200);
    limit_handles(&server, HANDLES);
    while !server.is_ready() {
        assert!(began.elapsed() < LIMIT, "{:?}", server.log());
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!(Admin::connect(&server).healthz().0, 200);

    // A link to itself can never be opened. This failure of the sync is permanent, like that of a drive.
    symlink("loop", side_files.join("loop")).unwrap();
    let began = Instant::now();
    let why = loop {
        let (status, why) = Admin::connect(&server).healthz();
        if status != 200 {
            assert_eq!(status, 503, "{why}");
            break why;
        }
        assert!(began.elapsed() < LIMIT, "{:?}", server.log());
        tokio::time::sleep(PAUSE).await;
    };
    assert!(why.contains("must be restarted"), "{why}");
    assert!(!server.is_ready());
    let mut health = HealthClient::new(server.channel().await);
    let liveness = HealthCheckRequest {
        service: "palimpsest.liveness".into(),
    };
    while health
        .check(liveness.clone())
        .await
        .unwrap()
        .into_inner()
        .status()
        != ServingStatus::NotServing
    {
        // The admin port reports the end an instant before the gRPC health service does.
        assert!(began.elapsed() < LIMIT, "{:?}", server.log());
        tokio::time::sleep(PAUSE).await;
    }
}

#[test]
fn the_soft_limit_of_file_handles_is_raised() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_limited(folder.path(), &[], "-Sn 256");
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .unwrap();
    let numbers: Vec<_> = limit.split_whitespace().collect();
    let (soft, hard) = (numbers[0], numbers[1]);
    assert_ne!(hard, "256", "the hard limit leaves nothing to raise");
    assert_eq!(soft, hard, "{limits}");
}
