//! Tests of quotas for all projects together: the reason, the retry delay, and the metric.

use std::time::Duration;

use palimpsest_proto::context::v1::GetSessionRequest;
use palimpsest_tests::Server;
use palimpsest_tests::say::{append, noise, user};
use tonic::Code;

use crate::quotas::{of, over, server};

/// Returns the number of counted rejections of a method with a reason.
fn counted(server: &Server, method: &str, reason: &str) -> u64 {
    let scraped = server.scrape();
    let line = scraped.lines().find(|line| {
        line.starts_with("palimpsest_rpc_errors_total")
            && line.contains(&format!("method=\"{method}\""))
            && line.contains(&format!("reason=\"{reason}\""))
    });
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

fn ask(project: &str, session: &str) -> GetSessionRequest {
    GetSessionRequest {
        session: of(project, session),
        ..Default::default()
    }
}

#[tokio::test]
async fn the_rate_of_all_projects_is_limited() {
    let (slow, _folder) = server("[quotas.server]\nrequests_per_second = 1\n");
    let sessions = slow.sessions().await;
    // Each project calls once, and all calls are concurrent, because sequential calls can take longer than a second on
    // a slow machine.
    let burst = (0..20).map(|number| {
        let mut sessions = sessions.clone();
        async move {
            let request = ask(&format!("p{number}"), "s");
            sessions.get_session(request).await.unwrap_err()
        }
    });
    let answers = futures::future::join_all(burst).await;
    let mut refusals = answers
        .into_iter()
        .filter(|status| status.code() == Code::ResourceExhausted);
    let refusal = refusals.next().expect("more than one call in a burst");
    let refused = 1 + refusals.count() as u64;
    let limit = "quotas.server.requests_per_second";
    let wait = over(&refusal, "REQUEST_RATE_EXCEEDED", limit, "1").unwrap();
    assert!(wait <= Duration::from_secs(20), "{wait:?}");
    let counted_refusals = counted(&slow, "GetSession", "REQUEST_RATE_EXCEEDED");
    assert_eq!(counted_refusals, refused);

    let (server, _folder) = server("[quotas.server]\nbytes_per_second = 20000\n");
    let mut client = server.context().await;
    let large = |project| append(&of(project, "s"), vec![user(&"x".repeat(100_000))]);
    client.append_messages(large("a")).await.unwrap();
    let status = client.append_messages(large("b")).await.unwrap_err();
    let limit = "quotas.server.bytes_per_second";
    let wait = over(&status, "BYTE_RATE_EXCEEDED", limit, "20000").unwrap();
    assert!(wait > Duration::ZERO, "{wait:?}");
    assert_eq!(counted(&server, "AppendMessages", "BYTE_RATE_EXCEEDED"), 1);
    tokio::time::sleep(wait).await;
    client.append_messages(large("b")).await.unwrap();
}

#[tokio::test]
async fn the_storage_of_all_projects_is_limited() {
    let lines = "[quotas.server]\nsessions = 2\nstored_bytes = 100000\n";
    let (server, _folder) = server(lines);
    let mut client = server.context().await;
    let one = |project| append(&of(project, "s"), vec![user("x")]);
    client.append_messages(one("a")).await.unwrap();
    client.append_messages(one("b")).await.unwrap();
    let status = client.append_messages(one("c")).await.unwrap_err();
    let wait = over(&status, "QUOTA_EXCEEDED", "quotas.server.sessions", "2");
    assert_eq!(wait, None, "a storage quota has no retry delay");
    assert_eq!(counted(&server, "AppendMessages", "QUOTA_EXCEEDED"), 1);
    // Bytes that do not compress, appended to a session of another project each time.
    let noise = noise(1, 60_000);
    let mut refusal = None;
    for number in 0..10 {
        let project = if number % 2 == 0 { "a" } else { "b" };
        let more = append(&of(project, "s"), vec![user(&noise)]);
        if let Err(status) = client.append_messages(more).await {
            refusal = Some(status);
            break;
        }
        // The server reads the usage of the store once a second.
        tokio::time::sleep(Duration::from_millis(1_050)).await;
    }
    let refusal = refusal.expect("ten times 30 KB are more than 100");
    let limit = "quotas.server.stored_bytes";
    assert_eq!(over(&refusal, "QUOTA_EXCEEDED", limit, "100000"), None);
    assert_eq!(counted(&server, "AppendMessages", "QUOTA_EXCEEDED"), 2);
    // Reading still works.
    server
        .sessions()
        .await
        .get_session(ask("a", "s"))
        .await
        .unwrap();
}
