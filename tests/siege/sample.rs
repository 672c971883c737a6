//! Samples memory, file handles and warnings of the server, four times a second.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palimpsest_tests::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const EVERY: Duration = Duration::from_millis(250);

/// The largest sampled values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Most {
    pub(crate) memory: u64,
    pub(crate) handles: usize,
    pub(crate) warnings: u64,
    /// The highest number of warnings per second.
    pub(crate) warnings_a_second: u64,
    /// The reason why the server ended, such as a kill above its memory limit.
    pub(crate) ended: Option<String>,
}

/// Samples the server until `stop`, and kills it above its memory limit, like its container would be killed. `ended` is
/// cancelled when the server ends.
pub(crate) async fn watch(
    server: Arc<Server>,
    most_memory: u64,
    stop: CancellationToken,
    ended: CancellationToken,
) -> Most {
    let mut most = Most::default();
    let mut lines = server.log().len();
    let mut second = (Instant::now(), 0);
    while stop
        .run_until_cancelled(tokio::time::sleep(EVERY))
        .await
        .is_some()
    {
        let Some((memory, handles)) = usage(server.pid()) else {
            most.ended
                .get_or_insert_with(|| "the server ended".to_owned());
            ended.cancel();
            break;
        };
        most.memory = most.memory.max(memory);
        most.handles = most.handles.max(handles);
        let new = server.log_from(lines);
        lines += new.len();
        let warnings = new
            .iter()
            .filter(|line| line.contains("\"level\":\"WARN\""));
        let warnings = warnings.count() as u64;
        most.warnings += warnings;
        second.1 += warnings;
        // On a busy machine, more than a second can pass between two samples.
        let passed = u64::try_from(second.0.elapsed().as_millis()).unwrap();
        if passed >= 1_000 {
            most.warnings_a_second = most.warnings_a_second.max(second.1 * 1_000 / passed);
            second = (Instant::now(), 0);
        }
        if memory > most_memory {
            most.ended = Some(format!("killed at {} MiB of memory", memory >> 20));
            server.signal("KILL");
            ended.cancel();
            break;
        }
    }
    most
}

/// Returns the resident memory and the open file handles of a process. `None` if it has ended.
fn usage(pid: u32) -> Option<(u64, usize)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // A process that has ended but was not waited for still has this file, without the line `VmRSS`.
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().ok()?;
    let handles = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some((kib * 1024, handles))
}

/// Returns true if the admin port answers a liveness probe within the time limit.
pub(crate) async fn is_alive(admin: &str, within: Duration) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(admin).await.ok()?;
        let request = b"GET /healthz HTTP/1.1\r\nhost: siege\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer.starts_with("HTTP/1.1 200"))
    };
    timeout(within, asked).await.ok().flatten() == Some(true)
}
