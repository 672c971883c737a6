//! Waits until the worker has completed background work, so that this work does not affect the next measurement.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use palimpsest_proto::context::v1::{GetSessionMemoryRequest, MemoryState};
use palimpsest_tests::{Context, Server};

use crate::retry::answered;

/// Maximum number of waits for a session. Each wait has a fixed length.
const ATTEMPTS: usize = 30;
const WAIT: &str = "10s";

/// Interval between two checks of the server.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until no update of session memory is due or running, but at most for `most`. Background work of a run would
/// otherwise affect the next one.
pub async fn rested(server: &Server, most: Duration) {
    let began = Instant::now();
    while began.elapsed() < most && is_busy(&server.scrape()) {
        tokio::time::sleep(LOOK).await;
    }
}

fn is_busy(metrics: &str) -> bool {
    let gauges = [
        "palimpsest_session_memory_updates_in_progress",
        "palimpsest_session_memory_lag_seconds",
    ];
    let lines = metrics
        .lines()
        // The lines `# HELP` and `# TYPE` begin with `#`, so their numbers do not count.
        .filter(|line| gauges.iter().any(|gauge| line.starts_with(gauge)));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() > 0.0
}

/// Waits until no update is due for a session. Returns true if the session has session memory.
pub async fn settled(client: &Context, session: &str) -> Result<bool> {
    let request = GetSessionMemoryRequest {
        session: session.to_owned(),
        wait: Some(WAIT.parse()?),
        ..GetSessionMemoryRequest::default()
    };
    for _ in 0..ATTEMPTS {
        let reply = answered(client, &request, |mut client, request| async move {
            client.get_session_memory(request).await
        });
        let memory = reply.await?.reply.into_inner().memory.unwrap_or_default();
        match memory.state() {
            MemoryState::Ready => return Ok(true),
            MemoryState::NotStarted | MemoryState::Disabled => return Ok(false),
            _ => {}
        }
    }
    bail!("the worker has not written the summary of {session}")
}

#[cfg(test)]
mod tests {
    use super::is_busy;

    #[test]
    fn a_server_is_busy_while_a_summary_is_due_or_written() {
        let metrics = |in_work: &str, lag: &str| {
            format!(
                "# HELP palimpsest_session_memory_updates_in_progress Sessions 7\npalimpsest_session_memory_updates_in_progress {in_work}\n\
                 palimpsest_session_memory_lag_seconds{{a=\"b c\"}} {lag}\npalimpsest_session_memory_updates_total 9\n"
            )
        };
        assert!(!is_busy(&metrics("0", "0")));
        assert!(is_busy(&metrics("1", "0")));
        assert!(is_busy(&metrics("0", "0.25")));
    }
}
