//! Tests of unreadable rows and late deletions on a shared database.

use std::time::Duration;

use palimpsest_proto::context::v1::{DeleteSessionRequest, GetSessionRequest, ListSessionsRequest};
use palimpsest_test_servers::Cluster;
use palimpsest_tests::name;
use palimpsest_tests::say::{append, user};
use tonic::{Code, Request};

use crate::deployment::{Deployment, at};
use crate::replicas::delete;

async fn say(deployment: &Deployment, session: &str) {
    let said = append(&name(session), vec![user("x")]);
    deployment.context(0).append_messages(said).await.unwrap();
}

async fn listed(deployment: &Deployment) -> (Vec<String>, u32) {
    let request = ListSessionsRequest {
        parent: "projects/p".into(),
        ..ListSessionsRequest::default()
    };
    let page = deployment.sessions(0).list_sessions(request).await.unwrap();
    let page = page.into_inner();
    let mut names: Vec<_> = page.sessions.into_iter().map(|it| it.name).collect();
    names.sort();
    (names, page.unreadable_sessions)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_row_does_not_break_lists_or_deletions() {
    let cluster = Cluster::start();
    let deployment = Deployment::start(&at(&[&cluster]), None, (1, 0), &["worker.enabled=false"]);
    for session in ["a", "b", "c", "d"] {
        say(&deployment, session).await;
    }
    // One row has a summary that cannot be decoded, and the other one an impossible size.
    cluster.psql(
        "UPDATE palimpsest.sessions SET summary = '\\xff' WHERE key = 'p!a';
         UPDATE palimpsest.sessions SET log_bytes = -1 WHERE key = 'p!b'",
    );
    assert_eq!(listed(&deployment).await, (vec![name("c"), name("d")], 2));
    delete(&deployment, 0, &name("c")).await;
    assert_eq!(listed(&deployment).await, (vec![name("d")], 2));
    assert!((deployment.metric(0, "palimpsest_sessions_unreadable") - 2.0).abs() < 0.1);
    let logged = deployment.log();
    let told = logged.iter().filter(|line| line.contains("cannot be read"));
    assert_eq!(told.count(), 2, "each unreadable row must be logged once");
    let verified = deployment.run("verify-store", &[]);
    let said = String::from_utf8_lossy(&verified.stdout);
    assert!(!verified.status.success(), "{said}");
    for damaged in ["p/sessions/a", "p/sessions/b"] {
        assert!(said.contains(damaged), "{said}");
    }
    assert!(!said.contains("p/sessions/d"), "{said}");
    // The next append writes a new row.
    say(&deployment, "a").await;
    assert_eq!(listed(&deployment).await, (vec![name("a"), name("d")], 1));
    deployment.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queued_deletion_of_an_expired_call_is_not_executed() {
    let cluster = Cluster::start();
    let deployment = Deployment::start(&at(&[&cluster]), None, (1, 0), &["worker.enabled=false"]);
    say(&deployment, "held").await;
    // An append that waits for the row lock holds the session until then.
    let holder =
        cluster.holding("SELECT 1 FROM palimpsest.sessions WHERE key = 'p!held' FOR UPDATE");
    let mut client = deployment.context(0);
    let waits = tokio::spawn(async move {
        let said = append(&name("held"), vec![user("later")]);
        client.append_messages(said).await
    });
    cluster.until("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
    let mut request = Request::new(DeleteSessionRequest {
        session: name("held"),
        ..DeleteSessionRequest::default()
    });
    request.set_timeout(Duration::from_secs(1));
    let late = deployment
        .sessions(0)
        .delete_session(request)
        .await
        .unwrap_err();
    assert!(
        [Code::DeadlineExceeded, Code::Cancelled].contains(&late.code()),
        "{late:?}"
    );
    holder.commit();
    waits.await.unwrap().unwrap();
    // The deletion's work is complete when no change is in flight.
    while deployment.metric(0, "palimpsest_mutations_in_flight") > 0.0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let request = GetSessionRequest {
        session: name("held"),
        ..GetSessionRequest::default()
    };
    deployment.sessions(0).get_session(request).await.unwrap();
    deployment.stop();
}
