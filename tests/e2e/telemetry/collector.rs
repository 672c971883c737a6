//! Tests of a working, a slow and a missing collector.

use std::time::Duration;

use palimpsest_tests::say::append;
use tokio::time::Instant;

use super::*;

/// Returns the duration of the slowest append.
async fn slowest(client: &mut Context, count: usize) -> Duration {
    let mut slowest = Duration::ZERO;
    for number in 0..count {
        let began = Instant::now();
        let messages = vec![user(&format!("line {number}"))];
        client
            .append_messages(append(&name("s"), messages))
            .await
            .unwrap();
        slowest = slowest.max(began.elapsed());
    }
    slowest
}

fn complaints(server: &Server) -> usize {
    let log = server.log();
    let about = |line: &&String| line.contains("the collector");
    log.iter().filter(about).count()
}

#[tokio::test]
async fn metrics_arrive_with_the_configured_headers() {
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
async fn a_slow_collector_slows_no_call_and_is_logged_once() {
    let settings = ["otlp.timeout_ms=10000", "worker.enabled=false"];
    let mut world = World::new(&settings).await;
    world.receiver.delay(Duration::from_hours(1));
    let slowest = slowest(&mut world.client, 2_000).await;
    // An export times out after ten seconds. No call waits for it.
    assert!(slowest < Duration::from_secs(9), "{slowest:?}");
    let began = Instant::now();
    while complaints(&world.server) < 2 {
        assert!(began.elapsed() < Duration::from_mins(2), "no complaint");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Longer than the next export.
    tokio::time::sleep(Duration::from_secs(12)).await;
    // One complaint for traces and one for metrics.
    assert_eq!(complaints(&world.server), 2, "{:?}", world.server.log());
    let began = Instant::now();
    tokio::task::spawn_blocking(move || world.server.stop())
        .await
        .unwrap();
    assert!(
        began.elapsed() < Duration::from_mins(2),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn an_unreachable_collector_is_logged_once() {
    // A port that is free for the moment.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let endpoint = format!("otlp.endpoint=http://{address}");
    let settings = [endpoint.as_str(), "worker.enabled=false"];
    let mut world = World::new(&settings).await;
    slowest(&mut world.client, 200).await;
    let began = Instant::now();
    while complaints(&world.server) < 2 {
        assert!(began.elapsed() < Duration::from_mins(2), "no complaint");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(complaints(&world.server), 2, "{:?}", world.server.log());
    let scraped = world.server.scrape();
    let failed = scraped.lines().any(|line| {
        line.starts_with(
            "palimpsest_telemetry_exports_total{outcome=\"failed\",signal=\"metrics\"}",
        ) && !line.ends_with(" 0")
    });
    assert!(failed, "{scraped}");
}
