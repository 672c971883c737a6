//! Measures the cost of telemetry: two servers of the same binary, one of which exports, called in alternation.

use palimpsest_tests::say::append;
use tempfile::TempDir;

use super::*;

/// Number of counted rounds, each on both servers.
const ROUNDS: usize = 15;
/// Number of concurrent callers.
const CALLERS: usize = 8;
/// Number of turns of a caller in a round. A turn is two calls.
const TURNS: usize = 250;
/// The maximum processor time with exports, relative to the same calls without.
const MAX_RATIO: f64 = 1.05;

/// Makes the calls of a round.
async fn round(server: &Server, round: usize) {
    let tasks = (0..CALLERS).map(|caller| {
        let connection = server.context();
        async move {
            let mut client = connection.await;
            let session = name(&format!("r{round}-c{caller}"));
            for turn in 0..TURNS {
                let text = format!("line {turn} of some length, as people write them");
                client
                    .append_messages(append(&session, vec![user(&text)]))
                    .await
                    .unwrap();
                client
                    .prepare_context(prepare(&session, Vec::new()))
                    .await
                    .unwrap();
            }
        }
    });
    futures::future::join_all(tasks).await;
}

/// Returns the processor time of a server in seconds. Other load on the machine is no part of it.
fn processor_seconds(server: &Server) -> f64 {
    let scraped = server.scrape();
    let mut lines = scraped.lines();
    let line = lines.find(|line| line.starts_with("process_cpu_seconds_total "));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Prints the ratio of the processor times: `cargo test -p palimpsest-tests --test e2e cost -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures, and takes a minute"]
async fn telemetry_costs_at_most_five_percent() {
    let receiver = Receiver::start_light();
    let endpoint = format!("otlp.endpoint={}", receiver.url);
    let (one, other): (TempDir, TempDir) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let off = Server::start(one.path(), &[]);
    let on = Server::start(other.path(), &["--set", &endpoint]);
    let servers = [&off, &on];
    // The first round of each server fills its caches and is not counted.
    for server in servers {
        round(server, 0).await;
    }
    let before = servers.map(processor_seconds);
    for number in 1..=ROUNDS {
        // The order of both servers alternates too.
        let order = if number % 2 == 0 {
            [&off, &on]
        } else {
            [&on, &off]
        };
        for server in order {
            round(server, number).await;
        }
    }
    let after = servers.map(processor_seconds);
    let [off, on] = [after[0] - before[0], after[1] - before[1]];
    println!("processor time: {off:.2} s without exports, {on:.2} s with exports");
    assert!(!receiver.spans().is_empty());
    assert!(on / off <= MAX_RATIO, "{on:.2} s instead of {off:.2} s");
}
