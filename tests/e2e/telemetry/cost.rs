//! Measures the cost of telemetry: two servers of the same binary, one of which exports, called in alternation.

use std::time::Duration;

use palimpsest_tests::say::append;
use tempfile::TempDir;
use tokio::time::Instant;

use super::*;

/// Duration of a round on one server.
const ROUND: Duration = Duration::from_millis(1_500);
/// Number of counted rounds, each on both servers.
const ROUNDS: usize = 15;
/// Number of concurrent callers.
const CALLERS: usize = 8;

async fn calls(server: &Server, round: usize) -> usize {
    let tasks = (0..CALLERS).map(|caller| {
        let connection = server.context();
        async move {
            let mut client = connection.await;
            let session = name(&format!("r{round}-c{caller}"));
            let (began, mut calls) = (Instant::now(), 0);
            while began.elapsed() < ROUND {
                let text = format!("line {calls} of some length, as people write them");
                client
                    .append_messages(append(&session, vec![user(&text)]))
                    .await
                    .unwrap();
                client
                    .prepare_context(prepare(&session, Vec::new()))
                    .await
                    .unwrap();
                calls += 2;
            }
            calls
        }
    });
    futures::future::join_all(tasks).await.into_iter().sum()
}

/// Prints the ratio of the throughputs: `cargo test -p palimpsest-tests --test e2e cost -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures, and wants the machine for itself"]
async fn telemetry_costs_at_most_five_percent() {
    let receiver = Receiver::start_light();
    let endpoint = format!("otlp.endpoint={}", receiver.url);
    let (one, other): (TempDir, TempDir) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let off = Server::start(one.path(), &[]);
    let on = Server::start(other.path(), &["--set", &endpoint]);
    calls(&off, 0).await;
    calls(&on, 0).await;
    let mut ratios = Vec::new();
    let (mut all_off, mut all_on) = (0, 0);
    for round in 1..=ROUNDS {
        // The order of both servers alternates too.
        let (without, with) = if round % 2 == 0 {
            let without = calls(&off, round).await;
            (without, calls(&on, round).await)
        } else {
            let with = calls(&on, round).await;
            (calls(&off, round).await, with)
        };
        all_off += without;
        all_on += with;
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        ratios.push(with as f64 / without as f64);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ROUNDS / 2];
    println!("calls off {all_off}, on {all_on}; median ratio {median:.3}, all {ratios:.3?}");
    assert!(!receiver.spans().is_empty());
    assert!(median >= 0.95, "{ratios:?}");
}
