//! Requests that no session takes: the agent works as without the gateway.

use serde_json::json;

use crate::agent::{Agent, Api, gzip};
use crate::world::World;

#[tokio::test]
async fn a_request_that_no_session_takes_is_forwarded_as_it_is() {
    let world = World::start(&["gateway.max_request_bytes=4096"]).await;
    let reason = async |agent: &Agent, body: String| {
        let reply = agent.post(agent.api.path(), body.clone()).await;
        let sent = world.upstream().pop().unwrap();
        assert_eq!(sent.raw, body.as_bytes());
        assert_eq!(
            reply.header("x-palimpsest-body"),
            Some("unmanaged"),
            "{reply:?}"
        );
        let reason = reply.header("x-palimpsest-reason").unwrap().to_owned();
        (reply.status, reason)
    };
    let mut agent = Agent::new(Api::Messages, &world.url, Some("faults"));
    agent.say("Hello.");
    let body = agent.body().to_string();
    // The provider decides about a request that Palimpsest cannot read.
    assert_eq!(
        reason(&agent, "{".to_owned()).await,
        (400, "unreadable".into())
    );
    let padded = body + &" ".repeat(5_000);
    assert_eq!(reason(&agent, padded).await, (200, "too_large".into()));
    let mut stateful = Agent::new(Api::Responses, &world.url, Some("faults"));
    stateful.say("Hello.");
    let mut body = stateful.body();
    body["previous_response_id"] = json!("resp_1");
    let (_, stated) = reason(&stateful, body.to_string()).await;
    assert_eq!(stated, "stateful");
    let counts = world.server.scrape();
    for reason in ["unreadable", "too_large", "stateful"] {
        let line = format!("palimpsest_gateway_unmanaged_total{{reason=\"{reason}\"}} 1");
        assert!(counts.contains(&line), "{line}: {counts}");
    }
}

#[tokio::test]
async fn a_required_session_rejects_unmanaged_requests() {
    let world = World::start(&["gateway.require_session=true"]).await;
    for api in Api::ALL {
        let agent = Agent::new(api, &world.url, None);
        let reply = agent.post(api.path(), "{".to_owned()).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.text.contains("gateway.require_session"), "{reply:?}");
        assert!(world.upstream().is_empty());
    }
}

#[tokio::test]
async fn a_rejected_request_with_a_long_rest_announces_the_close() {
    let world = World::start(&["gateway.require_session=true"]).await;
    let agent = Agent::new(Api::Messages, &world.url, None);
    // The path names no valid project, so the body is not read.
    let path = format!("/p/-/{}", agent.api.path());
    let short = agent.post(&path, " ".repeat(10_000)).await;
    assert_eq!((short.status, short.header("connection")), (400, None));
    let long = agent.post(&path, " ".repeat(4_000_000)).await;
    assert_eq!(
        (long.status, long.header("connection")),
        (400, Some("close"))
    );
}

#[tokio::test]
async fn a_gateway_that_does_not_manage_forwards_only() {
    let world = World::start(&["gateway.manage=false"]).await;
    let mut agent = Agent::new(Api::Messages, &world.url, Some("forwarded"));
    agent.say("Hello.");
    let (reply, _) = agent.step().await;
    assert_eq!(reply.header("x-palimpsest-body"), None);
    let mut sessions = world.server.sessions().await;
    let request = palimpsest_proto::context::v1::ListSessionsRequest {
        parent: "projects/default".into(),
        ..Default::default()
    };
    let listed = sessions.list_sessions(request).await.unwrap().into_inner();
    assert!(listed.sessions.is_empty());
}

#[tokio::test]
async fn the_limit_of_a_body_counts_its_decompressed_bytes() {
    let world = World::start(&["gateway.max_request_bytes=4096"]).await;
    let mut agent = Agent::new(Api::Messages, &world.url, Some("compressed"));
    agent.say("Hello.");
    let padded = gzip(&(agent.body().to_string() + &" ".repeat(100_000)));
    assert!(padded.len() < 4_096);
    let reply = agent.post_gzip(agent.api.path(), padded.clone()).await;
    let reason = reply.header("x-palimpsest-reason");
    assert_eq!(reason, Some("too_large"), "{reply:?}");
    assert_eq!(world.upstream().pop().unwrap().raw, padded);
}
