//! Tests of project quotas: each one rejects calls with its own reason and instructions.

use std::path::Path;
use std::time::Duration;

use palimpsest_proto::context::v1::{
    CreateSessionRequest, DeleteSessionRequest, GetSessionRequest, Session, WatchSessionRequest,
};
use palimpsest_tests::refused;
use palimpsest_tests::say::{append, noise, prepare, user};
use palimpsest_tests::server::Server;
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Starts a server with these lines in its configuration. Returns the server and its folder.
pub(crate) fn server(lines: &str) -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (started(folder.path(), lines), folder)
}

fn started(folder: &Path, lines: &str) -> Server {
    let config = folder.join("p.toml");
    std::fs::write(&config, format!("[worker]\nenabled = false\n{lines}")).unwrap();
    let data = folder.join("data");
    Server::start(&data, &["--config", config.to_str().unwrap()])
}

pub(crate) fn of(project: &str, session: &str) -> String {
    format!("projects/{project}/sessions/{session}")
}

#[track_caller]
pub(crate) fn over(status: &Status, reason: &str, quota: &str, limit: &str) -> Option<Duration> {
    let metadata = refused(status, Code::ResourceExhausted, reason);
    assert_eq!((&*metadata["quota"], &*metadata["limit"]), (quota, limit));
    let failure = status.get_details_quota_failure();
    assert_eq!(failure.unwrap().violations.len(), 1);
    let retry = status.get_details_retry_info();
    retry.and_then(|retry| retry.retry_delay)
}

#[tokio::test]
async fn the_call_rate_is_limited_by_project_with_a_correct_retry_delay() {
    let (server, _folder) = server(
        "[quotas]\nrequests_per_second = 1\n[projects.free.quotas]\nrequests_per_second = 0\n",
    );
    let mut sessions = server.sessions().await;
    let ask = |project: &str| GetSessionRequest {
        session: of(project, "none"),
        ..Default::default()
    };
    // All calls are concurrent, because sequential calls can take longer than a second on a slow machine.
    let burst = (0..20).map(|_| {
        let mut sessions = sessions.clone();
        async move { sessions.get_session(ask("p")).await.unwrap_err() }
    });
    let answers = futures::future::join_all(burst).await;
    let mut refusals = answers.into_iter();
    let refusal = refusals.find(|status| status.code() == Code::ResourceExhausted);
    let refusal = refusal.expect("more than one call in a burst");
    let wait = over(
        &refusal,
        "REQUEST_RATE_EXCEEDED",
        "quotas.requests_per_second",
        "1",
    );
    let wait = wait.unwrap();
    assert!(wait <= Duration::from_secs(20), "{wait:?}");
    // Other projects are not affected, and projects without a limit are not limited.
    for project in ["q", "free", "free", "free", "free", "free", "free"] {
        let status = sessions.get_session(ask(project)).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{project}: {status:?}");
    }
    tokio::time::sleep(wait).await;
    let status = sessions.get_session(ask("p")).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn a_large_request_is_admitted_and_charged_to_later_ones() {
    let (server, _folder) = server("[quotas]\nbytes_per_second = 20000\n");
    let mut client = server.context().await;
    let large = || append(&of("p", "a"), vec![user(&"x".repeat(100_000))]);
    client.append_messages(large()).await.unwrap();
    let status = client.append_messages(large()).await.unwrap_err();
    let wait = over(
        &status,
        "BYTE_RATE_EXCEEDED",
        "quotas.bytes_per_second",
        "20000",
    );
    let wait = wait.unwrap();
    // The burst covers one second. The remaining debt is at most four seconds, minus the time since the first call.
    assert!(
        wait > Duration::ZERO && wait < Duration::from_millis(4_200),
        "{wait:?}"
    );
    tokio::time::sleep(wait).await;
    client.append_messages(large()).await.unwrap();
}

#[tokio::test]
async fn concurrent_watches_are_limited() {
    let (server, _folder) = server("[quotas]\nwatches = 1\n");
    let mut client = server.context().await;
    client
        .append_messages(append(&of("p", "a"), vec![user("x")]))
        .await
        .unwrap();
    let mut sessions = server.sessions().await;
    let watch = || WatchSessionRequest {
        session: of("p", "a"),
        ..Default::default()
    };
    let first = sessions.watch_session(watch()).await.unwrap();
    let status = sessions.watch_session(watch()).await.unwrap_err();
    over(&status, "CONCURRENCY_EXCEEDED", "quotas.watches", "1");
    drop(first);
    let began = Instant::now();
    while sessions.watch_session(watch()).await.is_err() {
        assert!(
            began.elapsed() < Duration::from_mins(2),
            "the permit of a closed watch was not released"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn sessions_and_stored_bytes_are_counted_after_a_kill() {
    let lines = "[quotas]\nsessions = 2\nstored_bytes = 100000\n";
    let (server, folder) = server(lines);
    let mut client = server.context().await;
    for session in ["a", "b"] {
        client
            .append_messages(append(&of("p", session), vec![user("x")]))
            .await
            .unwrap();
    }
    let create = || CreateSessionRequest {
        parent: "projects/p".into(),
        session: Some(Session::default()),
        ..Default::default()
    };
    let status = server.sessions().await.create_session(create()).await;
    let wait = over(
        &status.unwrap_err(),
        "QUOTA_EXCEEDED",
        "quotas.sessions",
        "2",
    );
    assert_eq!(wait, None, "a storage quota has no retry delay");
    server.kill();

    let server = started(folder.path(), lines);
    let mut client = server.context().await;
    let third = append(&of("p", "c"), vec![user("x")]);
    let status = client.append_messages(third.clone()).await.unwrap_err();
    over(&status, "QUOTA_EXCEEDED", "quotas.sessions", "2");
    let other = append(&of("q", "c"), vec![user("x")]);
    client.append_messages(other).await.unwrap();
    // Bytes that do not compress, appended to an existing session.
    let noise = noise(1, 60_000);
    let more = || append(&of("p", "a"), vec![user(&noise)]);
    let mut status = None;
    for _ in 0..10 {
        if let Err(refusal) = client.append_messages(more()).await {
            status = Some(refusal);
            break;
        }
        // The server reads the usage of the store once a second.
        tokio::time::sleep(Duration::from_millis(1_050)).await;
    }
    let status = status.expect("ten times 30 KB are more than 100");
    over(&status, "QUOTA_EXCEEDED", "quotas.stored_bytes", "100000");
    // Reading and preparing still work, and a deletion frees quota.
    client
        .prepare_context(prepare(&of("p", "a"), vec![]))
        .await
        .unwrap();
    let mut sessions = server.sessions().await;
    let delete = DeleteSessionRequest {
        session: of("p", "a"),
        ..Default::default()
    };
    sessions.delete_session(delete).await.unwrap();
    let began = Instant::now();
    while let Err(status) = client.append_messages(third.clone()).await {
        assert!(began.elapsed() < Duration::from_mins(2), "{status:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn requests_in_memory_are_bounded() {
    let (server, _folder) = server(
        "[limits]\nmax_request_bytes = 1048576\nmax_message_bytes = 1048576\n\
         [grpc]\nmax_request_bytes_in_flight = 1048576\n",
    );
    let large = |n: u32| append(&of("p", &format!("s{n}")), vec![user(&"x".repeat(900_000))]);
    // Connects first, so that all calls start at the same time.
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(server.context().await);
    }
    // Calls that arrive together can all be rejected, because each reserves memory as its bytes arrive. A repeat is
    // admitted when there is space.
    let calls = clients
        .into_iter()
        .zip(0..)
        .map(|(mut client, n)| async move {
            let began = Instant::now();
            while let Err(status) = client.append_messages(large(n)).await {
                refused(&status, Code::ResourceExhausted, "OVERLOADED");
                let retry = status.get_details_retry_info().unwrap();
                assert!(began.elapsed() < Duration::from_mins(2), "{status:?}");
                tokio::time::sleep(retry.retry_delay.unwrap()).await;
            }
        });
    futures::future::join_all(calls).await;
    // All permits were released.
    server
        .context()
        .await
        .append_messages(large(9))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_connection_above_the_limit_is_closed() {
    let (server, _folder) = server("[grpc]\nmax_connections = 1\n");
    let mut first = server.context().await;
    let said = || append(&of("p", "a"), vec![user("x")]);
    first.append_messages(said()).await.unwrap();
    let address = format!("http://{}", server.address());
    let second = tonic::transport::Endpoint::from_shared(address).unwrap();
    let refused = match second.connect().await {
        Err(_) => true,
        Ok(channel) => {
            let mut second =
                palimpsest_proto::context::v1::context_service_client::ContextServiceClient::new(
                    channel,
                );
            second.append_messages(said()).await.is_err()
        }
    };
    assert!(refused);
    first.append_messages(said()).await.unwrap();
}
