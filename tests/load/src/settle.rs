//! Waits until the worker has done what it does in the background, so that it does not fall upon what is
//! measured next.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use palimpsest_proto::context::v1::{GetSessionMemoryRequest, MemoryState};
use palimpsest_tests::{Context, Server};

use crate::retry::answered;

/// How often a session is waited for, each time so long.
const ATTEMPTS: usize = 30;
const WAIT: &str = "10s";

/// How often the server is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until no summary is due and none is written, but no longer than so long: after a run that leaves a lot
/// to do, the next one would be measured beside it.
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
        .filter(|line| gauges.iter().any(|gauge| line.starts_with(gauge)));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() > 0.0
}

/// Waits until nothing is due for a session; says whether it has a summary.
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
