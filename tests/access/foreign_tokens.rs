//! Tests of page and delegation tokens that the server issued to one tenant and another tenant uses. With the name of
//! the owner's session the reply is "not found". With the name of an own session the token is invalid.

use palimpsest_proto::context::v1::commit_summary_request::Outcome;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{
    CommitSummaryRequest, CompactRequest, CompactionStrategy, ListEventsRequest,
    ListMessagesRequest, ListSessionsRequest, MessageInput,
};
use palimpsest_tests::refused;
use palimpsest_tests::say::{append, assistant, prepare, user};
use palimpsest_tests::tenant::{told, with};
use tonic::{Code, Status};

use crate::world::World;

const RIGHTS: &str = "read,write,compact,admin";

fn work() -> Vec<MessageInput> {
    let long = "The lights are driven by a timer. ".repeat(100);
    vec![
        user("Blink."),
        assistant(&long),
        user("Twice."),
        assistant(&long),
    ]
}

/// Asserts that the error for another tenant's session equals the error for a missing session.
#[track_caller]
fn as_missing(theirs: &Status, nobodys: &Status) {
    refused(theirs, Code::NotFound, "SESSION_NOT_FOUND");
    // Both names have the same length, so that equal errors differ in the name only.
    assert_eq!(told(theirs, &[]), told(nobodys, &[("nobod", "there")]));
}

fn of(project: &str, session: &str) -> String {
    format!("projects/{project}/sessions/{session}")
}

/// Gets a page token for the owner's session and uses it with another tenant's key. `list` returns the next page token.
async fn tokens_of_sessions(
    [theirs, mine]: [&str; 2],
    mut list: impl AsyncFnMut(&str, String, String) -> Result<String, Status>,
) {
    let token = list(theirs, of("bbb", "there"), String::new())
        .await
        .unwrap();
    assert!(!token.is_empty());
    let mut list = async |name| list(mine, name, token.clone()).await.unwrap_err();
    let (there, nobodys) = (
        list(of("bbb", "there")).await,
        list(of("bbb", "nobod")).await,
    );
    as_missing(&there, &nobodys);
    // A page token belongs to one request. Another request rejects it.
    refused(
        &list(of("aaa", "there")).await,
        Code::InvalidArgument,
        "INVALID_PAGE_TOKEN",
    );
}

#[tokio::test]
async fn page_tokens_of_another_tenant_are_rejected() {
    let world = World::new();
    let (theirs, mine) = (world.key("bbb", RIGHTS), world.key("aaa", RIGHTS));
    let server = world.serve(&[]);
    let mut context = ContextServiceClient::new(server.channel().await);
    let mut client = SessionServiceClient::new(server.channel().await);
    for (project, key, session) in [
        ("bbb", &theirs, "there"),
        ("bbb", &theirs, "other"),
        ("aaa", &mine, "there"),
    ] {
        let said = with(key, append(&of(project, session), work()));
        context.append_messages(said).await.unwrap();
    }

    let keys = [theirs.as_str(), mine.as_str()];
    let mut messages = client.clone();
    tokens_of_sessions(keys, async |key, session, page_token| {
        let page = ListMessagesRequest {
            session,
            page_size: 1,
            page_token,
            ..Default::default()
        };
        let listed = messages.list_messages(with(key, page)).await?;
        Ok(listed.into_inner().next_page_token)
    })
    .await;
    let mut events = client.clone();
    tokens_of_sessions(keys, async |key, session, page_token| {
        let page = ListEventsRequest {
            session,
            page_size: 1,
            page_token,
            ..Default::default()
        };
        let listed = events.list_events(with(key, page)).await?;
        Ok(listed.into_inner().next_page_token)
    })
    .await;

    let page = |project: &str, token: &str| ListSessionsRequest {
        parent: format!("projects/{project}"),
        page_size: 1,
        page_token: token.into(),
        ..Default::default()
    };
    let first = client
        .list_sessions(with(&theirs, page("bbb", "")))
        .await
        .unwrap();
    let token = first.into_inner().next_page_token;
    assert!(!token.is_empty());
    let mut list = async |project| {
        client
            .list_sessions(with(&mine, page(project, &token)))
            .await
            .unwrap_err()
    };
    refused(&list("bbb").await, Code::NotFound, "PROJECT_NOT_FOUND");
    refused(
        &list("aaa").await,
        Code::InvalidArgument,
        "INVALID_PAGE_TOKEN",
    );
}

#[tokio::test]
async fn delegation_tokens_of_another_session_are_rejected() {
    let world = World::new();
    let (theirs, mine) = (world.key("bbb", RIGHTS), world.key("aaa", RIGHTS));
    let server = world.serve(&["policy.autocompact.min_input_tokens=100".to_owned()]);
    let mut client = ContextServiceClient::new(server.channel().await);
    let mut tokens = Vec::new();
    for (project, key) in [("bbb", &theirs), ("aaa", &mine)] {
        let said = with(key, prepare(&of(project, "there"), work()));
        client.prepare_context(said).await.unwrap();
        let compact = CompactRequest {
            session: of(project, "there"),
            strategy: CompactionStrategy::Delegated.into(),
            ..CompactRequest::default()
        };
        let reply = client
            .compact(with(key, compact))
            .await
            .unwrap()
            .into_inner();
        tokens.push(reply.delegated_request.unwrap().delegation_token);
    }
    let made_up = || Outcome::Summary("what somebody else made up".into());
    let mut commit = async |key: &str, session: String, outcome: Outcome| {
        let request = CommitSummaryRequest {
            session,
            delegation_token: tokens[0].clone(),
            outcome: Some(outcome),
            model: "own-model".into(),
            ..CommitSummaryRequest::default()
        };
        client.commit_summary(with(key, request)).await
    };
    let there = commit(&mine, of("bbb", "there"), made_up())
        .await
        .unwrap_err();
    let nobodys = commit(&mine, of("bbb", "nobod"), made_up())
        .await
        .unwrap_err();
    as_missing(&there, &nobodys);
    // The caller's own session also waits for a summary, but with another delegation token.
    let own = commit(&mine, of("aaa", "there"), made_up())
        .await
        .unwrap_err();
    refused(&own, Code::NotFound, "DELEGATION_NOT_FOUND");
    // No rejected attempt consumed the token.
    let failed = Outcome::FailureDetail("the model was down".into());
    commit(&theirs, of("bbb", "there"), failed).await.unwrap();
}
