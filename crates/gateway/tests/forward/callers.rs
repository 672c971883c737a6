//! Callers: credentials, projects, rights and quotas.

use std::net::SocketAddr;
use std::sync::Arc;

use palimpsest_core::ids::{ProjectId, Timestamp};
use palimpsest_edge::access::Authenticator;
use palimpsest_edge::access::key::NewKey;
use palimpsest_edge::access::keyfile::{KeyEntry, KeyFile};
use palimpsest_engine::clock::{Clock, ManualClock};
use palimpsest_engine::quotas::{QuotaLimits, QuotaTracker, QuotasConfig};
use palimpsest_settings::AuthConfig;
use secrecy::ExposeSecret as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::raw::{Running, connect, in_time, limited_gateway, read_message, upstream};

/// Creates a key file with one key for each grant. Returns the authentication and the keys.
fn keys(
    clock: &Arc<dyn Clock>,
    grants: &[(&[&str], &[&str])],
) -> (Arc<Authenticator>, Vec<String>) {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let (mut file, mut texts) = (KeyFile::default(), Vec::new());
    for (projects, rights) in grants {
        let key = NewKey::random().unwrap();
        texts.push(key.text.expose_secret().to_owned());
        file.keys.push(KeyEntry {
            id: key.id.as_str().to_owned(),
            label: String::new(),
            hash: key.hash().text(),
            projects: owned(projects),
            rights: owned(rights),
            created: "2026-01-01T00:00:00Z".into(),
            expires: None,
            disabled: false,
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    std::fs::write(&path, file.text().unwrap()).unwrap();
    let config = AuthConfig {
        keys_file: Some(path),
        ..AuthConfig::default()
    };
    let authenticator = Authenticator::open(&config, Arc::clone(clock)).unwrap();
    (Arc::new(authenticator.unwrap()), texts)
}

fn clock() -> Arc<dyn Clock> {
    // The time never advances, so a used quota does not come back during a test.
    Arc::new(ManualClock::at(Timestamp::from_millis(1)))
}

/// Starts an upstream that reports the head of each request.
async fn reporting() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (report, heads) = mpsc::unbounded_channel();
    let address = upstream(move |mut stream: TcpStream| {
        let report = report.clone();
        async move {
            while let Some(request) = read_message(&mut stream).await {
                report.send(request.head_text()).unwrap();
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        }
    })
    .await;
    (address, heads)
}

async fn start(
    upstream: SocketAddr,
    authenticator: Option<Arc<Authenticator>>,
    quotas: Option<Arc<QuotaTracker>>,
) -> Running {
    let url = format!("http://{upstream}");
    limited_gateway(&url, None, |_| {}, (authenticator, quotas)).await
}

/// Sends a request with these headers. Returns status, head and body of the answer.
async fn send(gateway: &Running, path: &str, headers: &str) -> (u16, String, String) {
    let mut client = connect(gateway.address).await;
    let request =
        format!("POST {path} HTTP/1.1\r\nHost: g\r\n{headers}Content-Length: 2\r\n\r\n{{}}");
    client.write_all(request.as_bytes()).await.unwrap();
    let answer = read_message(&mut client).await.unwrap();
    let head = answer.head_text();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, answer.body_text())
}

#[tokio::test]
async fn a_key_admits_its_projects_with_its_rights_and_is_never_forwarded() {
    in_time(async {
        let (upstream, mut heads) = reporting().await;
        let (authenticator, keys) = keys(
            &clock(),
            &[
                (&["team-a"], &["write"]),
                (&["team-a", "team-b"], &["write"]),
                (&["*"], &["read"]),
            ],
        );
        let gateway = start(upstream, Some(authenticator), None).await;
        let with = |key: &str| format!("X-Palimpsest-Key: {key}\r\nx-api-key: sk-provider\r\n");
        let [one, several, reads] = [0, 1, 2].map(|at| with(&keys[at]));
        // The text has the form of a key, and its checksum is wrong.
        let wrong = with(&format!("plk_{}", "0".repeat(89)));
        let cases = [
            ("/v1/messages", one.as_str(), 200, ""),
            ("/p/team-a/v1/messages", &one, 200, ""),
            ("/p/team-b/v1/messages", &one, 404, "projects/team-b"),
            ("/v1/messages", &several, 400, "/p/PROJECT"),
            ("/p/team-b/v1/messages?beta=true", &several, 200, ""),
            (
                "/p/team-a/v1/messages",
                &reads,
                403,
                "the right write in projects/team-a",
            ),
            ("/p/team-a/v1/messages/count_tokens", &reads, 200, ""),
            ("/p/not%20valid/v1/messages", &one, 400, "no valid project"),
            (
                "/v1/messages",
                "x-api-key: sk-provider\r\n",
                401,
                "no credential",
            ),
            ("/v1/messages", &wrong, 401, "checksum"),
        ];
        let mut forwarded = 0;
        for (path, headers, expected, message) in cases {
            let (status, _, body) = send(&gateway, path, headers).await;
            assert_eq!(status, expected, "{path}: {body}");
            assert!(body.contains(message), "{path}: {body}");
            forwarded += usize::from(status == 200);
        }
        for _ in 0..forwarded {
            let head = heads.recv().await.unwrap();
            assert!(head.starts_with("POST /v1/messages"), "{head}");
            assert!(head.contains("x-api-key: sk-provider"), "{head}");
            assert!(
                !head.contains("plk_") && !head.contains("Palimpsest"),
                "{head}"
            );
        }
        assert!(
            heads.try_recv().is_err(),
            "a rejected request was forwarded"
        );
    })
    .await;
}

#[tokio::test]
async fn a_key_in_a_header_of_the_provider_is_rejected_in_every_mode() {
    in_time(async {
        let (upstream, mut heads) = reporting().await;
        let (authenticator, keys) = keys(&clock(), &[(&["*"], &["write"])]);
        let key = &keys[0];
        for authenticator in [None, Some(authenticator)] {
            let gateway = start(upstream, authenticator, None).await;
            for header in [
                "x-api-key: ",
                "api-key: ",
                "Authorization: Bearer ",
                "authorization:bearer  ",
            ] {
                let headers = format!("x-palimpsest-key: {key}\r\n{header}{key}\r\n");
                let (status, _, body) = send(&gateway, "/p/a/v1/responses", &headers).await;
                assert_eq!(status, 401, "{header}");
                assert!(body.contains("x-palimpsest-key"), "{body}");
                assert!(!body.contains(key.as_str()), "{body}");
            }
        }
        assert!(heads.try_recv().is_err(), "a key was forwarded");
    })
    .await;
}

#[tokio::test]
async fn a_quota_of_a_project_is_an_error_of_the_api() {
    in_time(async {
        let (upstream, mut heads) = reporting().await;
        let limits = QuotaLimits {
            requests_per_second: 1,
            request_burst: 1,
            ..QuotaLimits::default()
        };
        let small = ProjectId::new("small").unwrap();
        let config = QuotasConfig {
            // Only this project has limits. A request without a project in its path belongs to another one.
            projects: [(small, limits)].into(),
            ..QuotasConfig::default()
        };
        let quotas = Arc::new(QuotaTracker::new(config, clock()));
        let gateway = start(upstream, None, Some(quotas)).await;
        for (path, expected) in [
            ("/p/small/v1/messages", 200),
            ("/p/small/v1/messages", 429),
            ("/v1/messages", 200),
        ] {
            let (status, head, body) = send(&gateway, path, "").await;
            assert_eq!(status, expected, "{path}: {body}");
            if status == 429 {
                assert!(head.contains("retry-after: 1\r\n"), "{head}");
                assert!(body.contains(r#""type":"rate_limit_error""#), "{body}");
                assert!(
                    body.contains("requests_per_second of 1 for projects/small"),
                    "{body}"
                );
            }
        }
        assert!(heads.recv().await.is_some() && heads.recv().await.is_some());
    })
    .await;
}

#[tokio::test]
async fn a_request_counts_towards_its_project_until_the_end_of_its_response() {
    in_time(async {
        let (begun, mut begins) = mpsc::unbounded_channel();
        let upstream = upstream(move |mut stream: TcpStream| {
            let begun = begun.clone();
            async move {
                while read_message(&mut stream).await.is_some() {
                    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha";
                    stream.write_all(half).await.unwrap();
                    let (go_on, waits) = tokio::sync::oneshot::channel::<()>();
                    begun.send(go_on).unwrap();
                    if waits.await.is_err() {
                        return;
                    }
                    stream.write_all(b"lf").await.unwrap();
                }
            }
        })
        .await;
        let config = QuotasConfig {
            project: QuotaLimits {
                concurrent_requests: 1,
                ..QuotaLimits::default()
            },
            ..QuotasConfig::default()
        };
        let quotas = Arc::new(QuotaTracker::new(config, clock()));
        let gateway = start(upstream, None, Some(quotas)).await;
        let mut first = connect(gateway.address).await;
        first.write_all(crate::raw::REQUEST).await.unwrap();
        let go_on = begins.recv().await.unwrap();
        assert_eq!(send(&gateway, "/v1/messages", "").await.0, 429);
        go_on.send(()).unwrap();
        read_message(&mut first).await.unwrap();
        // The agent can have the last byte before the gateway releases the quota.
        while !gateway.requests.is_empty() {
            tokio::task::yield_now().await;
        }
        let second = tokio::spawn(async move { send(&gateway, "/v1/messages", "").await.0 });
        begins.recv().await.unwrap().send(()).unwrap();
        assert_eq!(second.await.unwrap(), 200);
    })
    .await;
}
