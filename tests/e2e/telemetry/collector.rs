//! Tests of a working, a slow and a missing collector.

use std::time::Duration;

use palimpsest_tests::say::append;
use tokio::time::Instant;

use super::transports::sum;
use super::*;

async fn append_lines(client: &mut Context, count: usize) {
    for number in 0..count {
        let messages = vec![user(&format!("line {number}"))];
        client
            .append_messages(append(&name("s"), messages))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn metrics_arrive_with_the_configured_headers() {
    // Only the embedded store has the metric `palimpsest.store.sync.duration`.
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let settings = [
        "otlp.headers_env=COLLECTOR_HEADERS",
        "otlp.resource_attributes=team=one",
    ];
    let vars = [("COLLECTOR_HEADERS", "x-key=key-of-the-collector")];
    let mut world = World::with(&settings, &vars).await;
    world.prepare("s", work("lamp")).await;
    for _ in 0..100 {
        let metrics = world.receiver.metrics();
        if metrics.contains("palimpsest.rpc.duration") {
            assert!(metrics.contains("palimpsest.store.sync.duration"));
            assert!(metrics.contains("process.resident_memory"));
            let metadata = world.receiver.last_metadata();
            assert_eq!(metadata.get("x-key").unwrap(), "key-of-the-collector");
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{:?}", world.receiver.metrics());
}

#[tokio::test]
async fn remaining_telemetry_is_sent_at_shutdown() {
    let mut world = World::new(&[]).await;
    world.prepare("s", work("lamp")).await;
    let receiver = world.receiver.clone();
    // The server exports its last spans at shutdown, before the batch interval ends.
    tokio::task::spawn_blocking(move || world.server.stop())
        .await
        .unwrap();
    let spans = receiver.spans();
    assert!(
        spans
            .iter()
            .any(|span| span.name.ends_with("PrepareContext"))
    );
}

#[tokio::test]
async fn a_slow_collector_slows_no_call() {
    let settings = ["otlp.timeout_ms=60000", "worker.enabled=false"];
    let mut world = World::new(&settings).await;
    world.receiver.delay(Duration::from_hours(1));
    // The metrics are exported every 200 ms. An earlier export has ended. The collector holds the next one.
    let received = world.receiver.text().len();
    while world.receiver.text().len() == received {
        append_lines(&mut world.client, 1).await;
    }
    let ended = sum(&world.server, &["telemetry_exports_total"]);
    // Few enough to end before the timeout of an export on a slow machine.
    append_lines(&mut world.client, 50).await;
    // No call waited for an export, because none has ended.
    assert_eq!(sum(&world.server, &["telemetry_exports_total"]), ended);
}

#[tokio::test]
async fn a_slow_collector_is_logged_once() {
    let mut world = World::new(&["worker.enabled=false"]).await;
    world.receiver.delay(Duration::from_hours(1));
    assert_logged_once(&mut world).await;
    // Exports are cancelled at shutdown. `Server::wait` fails if the process hangs.
    tokio::task::spawn_blocking(move || world.server.stop())
        .await
        .unwrap();
}

#[tokio::test]
async fn an_unreachable_collector_is_logged_once() {
    let port = ReservedPort::reserve();
    let endpoint = format!("otlp.endpoint=http://{}", port.address());
    let mut world = World::new(&[endpoint.as_str(), "worker.enabled=false"]).await;
    assert_logged_once(&mut world).await;
}

/// Asserts that repeated failures of the exports are logged once for traces and once for metrics.
async fn assert_logged_once(world: &mut World) {
    for signal in ["traces", "metrics"] {
        let label = format!("signal=\"{signal}\"");
        let words = ["telemetry_exports_total", "outcome=\"failed\"", &label];
        let began = Instant::now();
        while sum(&world.server, &words) < 3 {
            assert!(began.elapsed() < Duration::from_mins(2), "{signal}");
            // Spans are exported only if calls create them.
            append_lines(&mut world.client, 1).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let log = world.server.log();
    for signal in ["traces", "metrics"] {
        let label = format!("\"signal\":\"{signal}\"");
        let lines = log.iter().filter(|line| line.contains(&label));
        let lines: Vec<_> = lines.filter(|it| it.contains("the collector")).collect();
        // On a slow machine, an export can fail and another one succeed before the collector stops to answer. Each
        // begin and each end of a failure is logged once, and the last failure has not ended.
        let ends = lines
            .iter()
            .map(|it| it.contains("accepts telemetry again"));
        let alternates = ends.enumerate().all(|(at, is_end)| is_end == (at % 2 == 1));
        assert!(alternates && lines.len() % 2 == 1, "{lines:?}");
    }
}
