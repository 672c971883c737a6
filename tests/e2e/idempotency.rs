//! Tests of repeated calls and of calls that arrive late.

use palimpsest_proto::context::v1::{
    AdoptedCompaction, AppendMessagesRequest, AppendOutcome, CreateSessionRequest,
    GetSessionRequest, SnipRequest,
};
use palimpsest_tests::say::{append, assistant, prepare, user, uuid, with_id};
use palimpsest_tests::{name, refused};
use tonic::Code;

use crate::SERVER;

#[tokio::test]
async fn p24_a_retry_appends_nothing_and_returns_the_same_reply() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut request = append(&name("p24"), vec![user("once")]);
    request.request_id = "r1".into();
    let first = client
        .append_messages(request.clone())
        .await
        .unwrap()
        .into_inner();
    // The session changes before the retry, so an answer from its current state would differ.
    client
        .append_messages(append(&name("p24"), vec![user("later")]))
        .await
        .unwrap();
    let again = client.append_messages(request).await.unwrap().into_inner();
    let (first, again) = (first.append.unwrap(), again.append.unwrap());
    assert_eq!(first.messages, again.messages);
    assert_eq!(
        first.session_created, again.session_created,
        "the same answer"
    );
    let view = client
        .prepare_context(prepare(&name("p24"), Vec::new()))
        .await
        .unwrap();
    let view = view.into_inner();
    let text = String::from_utf8(view.messages_json.concat()).unwrap();
    assert_eq!(text.matches("once").count(), 1, "{text}");
}

#[tokio::test]
async fn p24_concurrent_calls_with_one_request_id_append_one_message() {
    let shared = SERVER.get();
    for round in 0..10 {
        let (mut one, mut two) = (shared.0.context().await, shared.0.context().await);
        let session = name(&format!("p24-race-{round}"));
        let mut request = append(&session, vec![user("once")]);
        request.request_id = "same".into();
        let (a, b) = tokio::join!(
            one.append_messages(request.clone()),
            two.append_messages(request.clone())
        );
        let id = |reply: tonic::Response<palimpsest_proto::context::v1::AppendMessagesResponse>| {
            reply.into_inner().append.unwrap().messages[0]
                .message_id
                .clone()
        };
        assert_eq!(id(a.unwrap()), id(b.unwrap()));
        let view = one
            .prepare_context(prepare(&session, Vec::new()))
            .await
            .unwrap();
        let view = String::from_utf8(view.into_inner().messages_json.concat()).unwrap();
        assert_eq!(view.matches("once").count(), 1);
    }
}

#[tokio::test]
async fn p24_a_repeated_snip_returns_the_same_reply_and_serves_nothing() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("p24-snip");
    let messages = vec![with_id(&uuid(9_241), user("one")), user("two")];
    let appended = client.append_messages(append(&session, messages)).await;
    let request = SnipRequest {
        session: session.clone(),
        request_id: "r".into(),
        message_ids: vec![uuid(9_241)],
        expected_revision: Some(appended.unwrap().into_inner().revision),
        ..SnipRequest::default()
    };
    let first = client.snip(request.clone()).await.unwrap().into_inner();
    let later = append(&session, vec![user("later")]);
    let later = client.append_messages(later).await.unwrap().into_inner();
    let again = client.snip(request).await.unwrap().into_inner();
    assert_eq!(again.snipped, first.snipped);
    assert_eq!(again.revision, later.revision, "the repeat adds no event");
}

#[tokio::test]
async fn p24_a_repeated_adoption_returns_the_same_reply_and_serves_nothing() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("p24-adopt");
    let messages = vec![user("one"), assistant("two"), user("three")];
    let appended = client.append_messages(append(&session, messages)).await;
    let request = AppendMessagesRequest {
        request_id: "r".into(),
        adopted_compaction: Some(AdoptedCompaction::default()),
        expected_revision: Some(appended.unwrap().into_inner().revision),
        ..append(&session, vec![user("a summary of one to three")])
    };
    let first = client.append_messages(request.clone()).await.unwrap();
    let later = append(&session, vec![user("later")]);
    let later = client.append_messages(later).await.unwrap().into_inner();
    let again = client.append_messages(request).await.unwrap().into_inner();
    let first = first.into_inner().append.unwrap();
    assert_eq!(again.append.unwrap().messages, first.messages);
    assert_eq!(again.revision, later.revision, "the repeat adds no event");
}

#[tokio::test]
async fn an_adoption_without_a_session_is_an_append_and_can_expect_revision_zero() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let request = |revision| AppendMessagesRequest {
        adopted_compaction: Some(AdoptedCompaction::default()),
        expected_revision: Some(revision),
        ..append(&name("adopt-new"), vec![user("a summary of nothing")])
    };
    let status = client.append_messages(request(3)).await.unwrap_err();
    let metadata = refused(&status, Code::Aborted, "REVISION_MISMATCH");
    assert_eq!(metadata["current_revision"], "0");
    let response = client.append_messages(request(0)).await.unwrap();
    let appended = response.into_inner().append.unwrap();
    assert!(appended.session_created);
    assert_eq!(appended.messages.len(), 1);
}

#[tokio::test]
async fn an_adoption_that_replaces_nothing_serves_the_view_and_appends() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("adopt-nothing");
    let kept = uuid(1);
    let messages = vec![with_id(&kept, user("stays"))];
    let appended = client.append_messages(append(&session, messages)).await;
    let before = appended.unwrap().into_inner().revision;
    let request = AppendMessagesRequest {
        adopted_compaction: Some(AdoptedCompaction {
            kept_message_ids: vec![kept],
            ..AdoptedCompaction::default()
        }),
        expected_revision: Some(before),
        ..append(&session, vec![user("a summary of nothing")])
    };
    let adopted = client.append_messages(request).await.unwrap().into_inner();
    assert_eq!(
        adopted.revision,
        before + 2,
        "one event serves, one appends"
    );
}

#[tokio::test]
async fn p24_another_body_under_the_same_request_id_is_a_conflict() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut request = append(&name("conflict"), vec![user("one")]);
    request.request_id = "r".into();
    let before = client
        .append_messages(request.clone())
        .await
        .unwrap()
        .into_inner();
    request.messages = vec![user("two")];
    let status = client.append_messages(request).await.unwrap_err();
    let metadata = refused(&status, Code::AlreadyExists, "REQUEST_CONFLICT");
    assert_eq!(metadata["request_id"], "r");
    assert_ne!(metadata["stored_digest"], metadata["given_digest"]);
    let get = GetSessionRequest {
        session: name("conflict"),
        ..GetSessionRequest::default()
    };
    let session = shared
        .0
        .sessions()
        .await
        .get_session(get)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(session.session.unwrap().revision, before.revision);
}

#[tokio::test]
async fn a_prepare_is_repeatable_with_another_etag() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut request = prepare(&name("retry-prepare"), vec![user("once")]);
    request.request_id = "r1".into();
    let first = client
        .prepare_context(request.clone())
        .await
        .unwrap()
        .into_inner();
    // The etag is no part of the request's digest, because a client may know a newer array at the retry.
    request.known_etag = first.etag.clone();
    let again = client.prepare_context(request).await.unwrap().into_inner();
    assert_eq!((again.keep_messages, again.view_messages), (1, 1));
    assert_eq!(again.etag, first.etag);
    assert_eq!(
        first.append.unwrap().messages,
        again.append.unwrap().messages
    );
}

#[tokio::test]
async fn a_message_id_identifies_its_content() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("message-id");
    let first = append(&session, vec![with_id(&uuid(1), user("one"))]);
    let revision = client
        .append_messages(first.clone())
        .await
        .unwrap()
        .into_inner()
        .revision;
    let again = client.append_messages(first).await.unwrap().into_inner();
    assert_eq!(again.revision, revision, "nothing was stored");
    let message = &again.append.unwrap().messages[0];
    assert_eq!(message.outcome(), AppendOutcome::Duplicate);
    assert_eq!(message.message_id, uuid(1));
    // The append is atomic, so the valid first message must not be stored either.
    let other = append(&session, vec![user("new"), with_id(&uuid(1), user("two"))]);
    let status = client.append_messages(other).await.unwrap_err();
    let metadata = refused(&status, Code::AlreadyExists, "MESSAGE_CONFLICT");
    assert_eq!(metadata["message_id"], uuid(1));
    assert_ne!(metadata["stored_digest"], metadata["given_digest"]);
    let view = client
        .prepare_context(prepare(&session, Vec::new()))
        .await
        .unwrap();
    assert_eq!(
        view.into_inner().view_messages,
        1,
        "a rejected append stored a message"
    );
}

#[tokio::test]
async fn a_session_is_created_once_per_request_id() {
    let shared = SERVER.get();
    let mut client = shared.0.sessions().await;
    let mut request = CreateSessionRequest {
        parent: "projects/p".into(),
        request_id: "create-1".into(),
        ..Default::default()
    };
    let one = client
        .create_session(request.clone())
        .await
        .unwrap()
        .into_inner();
    let two = client
        .create_session(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(one.session, two.session);
    request.session = Some(palimpsest_proto::context::v1::Session {
        title: "other".into(),
        ..Default::default()
    });
    let status = client.create_session(request).await.unwrap_err();
    refused(&status, Code::AlreadyExists, "REQUEST_CONFLICT");
}

#[tokio::test]
async fn an_expected_revision_must_match() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("expected");
    let mut request = append(&session, vec![user("one")]);
    request.expected_revision = Some(3);
    let status = client.append_messages(request.clone()).await.unwrap_err();
    let metadata = refused(&status, Code::Aborted, "REVISION_MISMATCH");
    assert_eq!(
        (
            metadata["expected_revision"].as_str(),
            metadata["current_revision"].as_str()
        ),
        ("3", "0")
    );
    // Revision 0 means that the session must not exist.
    request.expected_revision = Some(0);
    let revision = client
        .append_messages(request.clone())
        .await
        .unwrap()
        .into_inner()
        .revision;
    let status = client.append_messages(request.clone()).await.unwrap_err();
    let metadata = refused(&status, Code::Aborted, "REVISION_MISMATCH");
    assert_eq!(metadata["current_revision"], revision.to_string());
    request.expected_revision = Some(revision);
    client.append_messages(request).await.unwrap();
}
