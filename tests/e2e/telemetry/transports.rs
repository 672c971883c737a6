//! Tests of the transports to a collector: gRPC and HTTP, plain and with TLS, and a collector that restarts.

use std::time::Duration;

use palimpsest_tests::authority::Authority;
use palimpsest_tests::say::append;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::receiver::attribute;
use super::*;

const PROTOCOLS: [&str; 2] = ["grpc", "http/protobuf"];
/// Number of checks for a background action, and the interval between them.
const LOOKS: usize = 2_400;
const PAUSE: Duration = Duration::from_millis(50);

/// Returns the sum of all samples whose line contains these words.
pub(super) fn sum(server: &Server, words: &[&str]) -> u64 {
    let scraped = server.scrape();
    let lines = scraped.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter(|line| words.iter().all(|word| line.contains(word)));
    let values = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    values.sum()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("timed out waiting for: {what}");
}

/// Appends 100 lines to the session `s`.
async fn append_lines(client: &mut Context) {
    for number in 0..100 {
        let said = append(&name("s"), vec![user(&format!("line {number}"))]);
        client.append_messages(said).await.unwrap();
    }
}

/// Appends to the session, and waits until its span arrives at the collector.
async fn arrives(world: &mut World, receiver: &Receiver, session: &str) {
    let said = append(&name(session), vec![user("is anybody there?")]);
    world.client.append_messages(said).await.unwrap();
    until(session, || has(receiver, session)).await;
}

/// Returns true if a span of the session arrived.
fn has(receiver: &Receiver, session: &str) -> bool {
    let (spans, name) = (receiver.spans(), name(session));
    let mut of_session = spans.iter().filter_map(|it| attribute(it, "session"));
    of_session.any(|of| of == name)
}

#[tokio::test]
async fn spans_are_exported_after_a_reconnect_and_lost_ones_are_counted() {
    for protocol in PROTOCOLS {
        let port = ReservedPort::reserve();
        let endpoint = format!("otlp.endpoint=http://{}", port.address());
        let over = format!("otlp.protocol={protocol}");
        let mut world = World::new(&[
            &endpoint,
            &over,
            "otlp.timeout_ms=10000",
            "worker.enabled=false",
        ])
        .await;
        let failed = |world: &World| {
            sum(
                &world.server,
                &["telemetry_spans_dropped_total", "export_failed"],
            )
        };
        append_lines(&mut world.client).await;
        until("a failed export", || failed(&world) > 0).await;

        let first = Receiver::at(&port);
        arrives(&mut world, &first, "came").await;
        assert_eq!(first.protocols(), [protocol]);
        let again = |world: &World| {
            let log = world.server.log();
            log.iter()
                .filter(|line| line.contains("accepts telemetry again"))
                .count()
        };
        until("that is told", || again(&world) >= 1).await;
        append_lines(&mut world.client).await;

        first.stop();
        let before = failed(&world);
        append_lines(&mut world.client).await;
        until("it has gone", || failed(&world) > before).await;

        let second = Receiver::at(&port);
        arrives(&mut world, &second, "back").await;
        // Every span was exported or counted as dropped.
        until("nothing is on its way", || {
            let of = |metric| sum(&world.server, &[metric]);
            let taken = of("palimpsest_telemetry_spans_exported_total");
            let dropped = of("palimpsest_telemetry_spans_dropped_total");
            of("palimpsest_telemetry_spans_total") == taken + dropped && taken > 0
        })
        .await;
    }
}

#[tokio::test]
async fn the_server_and_a_tls_collector_authenticate_each_other() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert, key) = authority.sign("localhost");
    let ca = write("ca.pem", authority.pem());
    let shown = authority.sign("palimpsest");
    let shown = [write("client.pem", shown.0), write("client.key", shown.1)];
    for protocol in PROTOCOLS {
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(&cert, &key))
            .client_ca_root(Certificate::from_pem(authority.pem()));
        let receiver = Receiver::with_tls(tls);
        let endpoint = format!("otlp.endpoint={}", receiver.url);
        let over = format!("otlp.protocol={protocol}");
        let settings = [endpoint.as_str(), over.as_str(), "worker.enabled=false"];
        let known = [
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_str()),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &shown[0]),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", &shown[1]),
        ];
        let mut world = World::with(&settings, &known).await;
        arrives(&mut world, &receiver, "known").await;
        assert_eq!(receiver.protocols(), [protocol]);

        // Without a client certificate the collector rejects exports. Without its CA the server sends none.
        for vars in [&known[..1], &[]] {
            let mut world = World::with(&settings, vars).await;
            append_lines(&mut world.client).await;
            until("nothing is taken", || {
                sum(
                    &world.server,
                    &["telemetry_spans_dropped_total", "export_failed"],
                ) > 0
            })
            .await;
            // No span of the session arrived.
            assert!(!has(&receiver, "s"), "{protocol}: {vars:?}");
        }
    }
}
