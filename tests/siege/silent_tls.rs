//! Connections that never begin their TLS handshake, and clients that connect meanwhile.

use std::time::Duration;

use palimpsest_tests::Server;
use palimpsest_tests::authority::Authority;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

/// The name of this attack in `SIEGE_ONLY`.
pub(crate) const NAME: &str = "silent_tls";
/// Number of silent connections, and of clients that connect one after another meanwhile.
const SILENT: usize = 400;
const CLIENTS: usize = 60;
/// Maximum time to connect. The limit is the larger of this value and 20 times the maximum before.
const LIMIT: Duration = Duration::from_secs(1);
const SLOWER: u32 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "`make siege` runs it: it measures latencies"]
async fn clients_connect_despite_silent_handshakes() {
    if crate::variable("SIEGE_ONLY").is_some_and(|only| only != NAME) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    authority.write(folder.path());
    let file = |key: &str, name: &str| format!("{key}={}", folder.path().join(name).display());
    let settings = [
        file("tls.cert_file", "tls.crt"),
        file("tls.key_file", "tls.key"),
    ];
    let arguments: Vec<&str> = settings.iter().flat_map(|one| ["--set", one]).collect();
    let data = folder.path().join("data");
    let server = Server::start_limited(&data, &arguments, crate::SOFT_HANDLES);
    let port = server.address().rsplit_once(':').unwrap().1;
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority.pem()))
        .domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{port}")).unwrap();
    let endpoint = endpoint.tls_config(tls).unwrap();

    let before = slowest(&endpoint, LIMIT).await;
    let mut silent = JoinSet::new();
    for _ in 0..SILENT {
        let address = server.address().to_owned();
        silent.spawn(async move {
            loop {
                if let Ok(mut stream) = TcpStream::connect(&address).await {
                    // In TLS the client speaks first, so the read ends only when the server closes the connection.
                    let _ = stream.read(&mut [0; 1]).await;
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let limit = LIMIT.max(before * SLOWER);
    let during = slowest(&endpoint, limit).await;
    eprintln!(
        "slowest connection: {before:.1?} before, {during:.1?} beside {SILENT} silent ones, limit {limit:.1?}"
    );
    assert!(
        during <= limit,
        "a client waited {during:.1?} for its connection"
    );
}

/// Returns the longest time that a client needed to connect. Stops after the first client that exceeds `limit`, and
/// does not wait much longer than that.
async fn slowest(endpoint: &Endpoint, limit: Duration) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..CLIENTS {
        let began = Instant::now();
        let _ = tokio::time::timeout(limit * 2, endpoint.connect()).await;
        longest = longest.max(began.elapsed());
        if longest > limit {
            break;
        }
    }
    longest
}
