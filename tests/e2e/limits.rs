//! Tests of every limit: the rejection, its reason, and the named field.

use std::collections::HashMap;

use palimpsest_proto::context::v1::text_pattern::Pattern;
use palimpsest_proto::context::v1::{
    CreateSessionRequest, LimitPolicy, ListMessagesRequest, ListSessionsRequest, MessageInput,
    MessageMetadata, Policy, SearchMessagesRequest, Session, TextPattern,
};
use palimpsest_tests::say::{anthropic, append, assistant_call, prepare, result, user};
use palimpsest_tests::{Shared, name, refused, refused_field};
use serde_json::json;
use tonic::{Code, Status};

use crate::SERVER;

static TINY: Shared = Shared::new(&[
    "--set",
    "limits.max_request_bytes=20000",
    "--set",
    "limits.max_message_bytes=2000",
    "--set",
    "limits.max_messages=3",
    "--set",
    "limits.max_blocks=4",
    "--set",
    "limits.max_id_bytes=16",
    "--set",
    "limits.max_attributes=2",
    "--set",
    "limits.max_attribute_bytes=10",
    "--set",
    "limits.max_request_id_bytes=16",
    "--set",
    "limits.max_title_bytes=16",
    "--set",
    "limits.max_pattern_chars=16",
    "--set",
    "limits.max_page_size=5",
]);

async fn refusal(messages: Vec<MessageInput>) -> Status {
    let shared = TINY.get();
    let mut client = shared.0.context().await;
    let request = append(&name("limits"), messages.clone());
    let status = client.append_messages(request).await.unwrap_err();
    let request = prepare(&name("limits"), messages);
    let same = client.prepare_context(request).await.unwrap_err();
    assert_eq!(
        (same.code(), same.message()),
        (status.code(), status.message())
    );
    status
}

fn attributes(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn described(metadata: MessageMetadata) -> MessageInput {
    MessageInput {
        metadata: Some(metadata),
        ..user("x")
    }
}

#[tokio::test]
async fn the_bytes_of_a_message_are_limited() {
    let status = refusal(vec![user("ok"), user(&"x".repeat(2_500))]).await;
    let metadata = refused(&status, Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
    assert_eq!(metadata["field"], "messages[1].payload.json");
    assert_eq!(metadata["limit_bytes"], "2000");
}

#[tokio::test]
async fn the_bytes_of_a_call_are_limited() {
    let status = refusal(vec![user(&"x".repeat(30_000))]).await;
    let metadata = refused(&status, Code::ResourceExhausted, "REQUEST_TOO_LARGE");
    assert_eq!(metadata["limit_bytes"], "20000");
}

#[tokio::test]
async fn the_messages_of_a_call_are_limited() {
    refused_field(&refusal(vec![user("x"); 4]).await, "messages");
    // The limit counts the messages inside of a payload too.
    let one = json!({"role": "user", "content": "x"});
    let inside = anthropic(&json!([one, one, one, one]));
    refused_field(&refusal(vec![inside]).await, "messages");
}

#[tokio::test]
async fn the_blocks_of_a_message_are_limited() {
    let blocks = vec![json!({"type": "text", "text": "x"}); 5];
    let status = refusal(vec![anthropic(&json!({"role": "user", "content": blocks}))]).await;
    refused_field(&status, "messages[0].payload.json");
}

#[tokio::test]
async fn the_bytes_of_an_id_are_limited() {
    let long = "x".repeat(17);
    for said in [assistant_call(&long), result(&long, "r")] {
        refused_field(&refusal(vec![said]).await, "messages[0].payload.json");
    }
    let metadata = MessageMetadata {
        model: long,
        ..Default::default()
    };
    let status = refusal(vec![described(metadata)]).await;
    refused_field(&status, "messages[0].metadata.model");
}

#[tokio::test]
async fn the_number_and_length_of_attributes_are_limited() {
    for pairs in [
        &[("a", ""), ("b", ""), ("c", "")][..],
        // Name and value have 11 bytes together.
        &[("name", "1234567")],
        &[("", "x")],
    ] {
        let metadata = MessageMetadata {
            attributes: attributes(pairs),
            ..Default::default()
        };
        let status = refusal(vec![described(metadata)]).await;
        refused_field(&status, "messages[0].metadata.attributes");
        let session = Session {
            attributes: attributes(pairs),
            ..Default::default()
        };
        refused_field(&creation(session).await, "session.attributes");
    }
}

#[tokio::test]
async fn a_page_above_the_limit_is_a_page_of_the_limit() {
    let shared = TINY.get();
    let mut client = shared.0.sessions().await;
    for id in ["a", "b", "c", "d", "e", "f"] {
        let request = CreateSessionRequest {
            parent: "projects/pages".into(),
            session_id: id.into(),
            ..Default::default()
        };
        client.create_session(request).await.unwrap();
    }
    let request = ListSessionsRequest {
        parent: "projects/pages".into(),
        page_size: 1_000,
        ..Default::default()
    };
    let page = client.list_sessions(request.clone()).await.unwrap();
    let page = page.into_inner();
    assert_eq!(page.sessions.len(), 5);
    let request = ListSessionsRequest {
        page_token: page.next_page_token,
        ..request
    };
    let page = client.list_sessions(request).await.unwrap().into_inner();
    assert_eq!(page.sessions.len(), 1);
}

async fn creation(session: Session) -> Status {
    let request = CreateSessionRequest {
        parent: "projects/p".into(),
        session: Some(session),
        ..Default::default()
    };
    let shared = TINY.get();
    shared
        .0
        .sessions()
        .await
        .create_session(request)
        .await
        .unwrap_err()
}

#[tokio::test]
async fn request_ids_titles_and_patterns_are_limited() {
    let shared = TINY.get();
    let mut client = shared.0.context().await;
    let mut request = append(&name("limits"), vec![user("x")]);
    request.request_id = "x".repeat(17);
    refused_field(
        &client.append_messages(request).await.unwrap_err(),
        "request_id",
    );
    let session = Session {
        title: "x".repeat(17),
        ..Default::default()
    };
    refused_field(&creation(session).await, "session.title");
    client
        .append_messages(append(&name("pattern"), vec![user("x")]))
        .await
        .unwrap();
    let pattern = TextPattern {
        pattern: Some(Pattern::Literal("x".repeat(17))),
        ..Default::default()
    };
    let request = SearchMessagesRequest {
        session: name("pattern"),
        pattern: Some(pattern),
        ..Default::default()
    };
    let mut sessions = shared.0.sessions().await;
    let status = sessions.search_messages(request).await.unwrap_err();
    refused_field(&status, "pattern.literal");
}

#[tokio::test]
async fn the_entries_of_a_page_are_limited() {
    let shared = TINY.get();
    let mut client = shared.0.context().await;
    for _ in 0..3 {
        client
            .append_messages(append(&name("pages"), vec![user("x"); 3]))
            .await
            .unwrap();
    }
    let request = ListMessagesRequest {
        session: name("pages"),
        ..Default::default()
    };
    let page = shared
        .0
        .sessions()
        .await
        .list_messages(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(page.messages.len(), 5);
    assert_ne!(page.next_page_token, "");
}

#[tokio::test]
async fn a_rejected_call_changes_nothing() {
    let shared = TINY.get();
    let mut client = shared.0.context().await;
    let session = name("unchanged");
    client
        .append_messages(append(&session, vec![user("x")]))
        .await
        .unwrap();
    let messages = vec![user("y"), user(&"x".repeat(2_500))];
    client
        .append_messages(append(&session, messages))
        .await
        .unwrap_err();
    let view = client
        .prepare_context(prepare(&session, Vec::new()))
        .await
        .unwrap();
    assert_eq!(view.into_inner().view_messages, 1);
}

#[tokio::test]
async fn the_default_limits_are_enforced() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    // 33 MiB in messages below the message limit, then one message of 100 MB.
    let part = user(&"x".repeat(3 << 20));
    let many = append(&name("large"), vec![part; 11]);
    let status = client.append_messages(many).await.unwrap_err();
    refused(&status, Code::ResourceExhausted, "REQUEST_TOO_LARGE");
    let huge = append(&name("large"), vec![user(&"x".repeat(100_000_000))]);
    let status = client.append_messages(huge).await.unwrap_err();
    refused(&status, Code::ResourceExhausted, "REQUEST_TOO_LARGE");
    let large = append(&name("large"), vec![user(&"x".repeat(17 << 20))]);
    let status = client.append_messages(large).await.unwrap_err();
    let metadata = refused(&status, Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
    assert_eq!(metadata["limit_bytes"], (16 << 20).to_string());
    client
        .append_messages(append(&name("large"), vec![user("fine")]))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_session_can_have_narrower_limits() {
    let shared = SERVER.get();
    let limits = LimitPolicy {
        max_message_bytes: Some(2_000),
        max_messages: Some(2),
        max_blocks: Some(2),
        max_tool_use_id_chars: Some(8),
        max_pattern_chars: Some(4),
        max_attributes_bytes: Some(20),
        max_reply_bytes: Some(1_500),
        ..LimitPolicy::default()
    };
    let policy = Policy {
        limits: Some(limits),
        ..Policy::default()
    };
    let request = CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: "narrow".into(),
        session: Some(Session {
            name: name("narrow"),
            policy_overrides: Some(policy),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    let mut sessions = shared.0.sessions().await;
    sessions.create_session(request).await.unwrap();
    let mut client = shared.0.context().await;
    let three = json!({"role": "user", "content": [
        {"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "text", "text": "c"},
    ]});
    let noted = MessageMetadata {
        attributes: attributes(&[("name", "12345678"), ("other", "12345678")]),
        ..MessageMetadata::default()
    };
    // A size has the unit bytes. A count is an invalid field, with the count and its unit in the text.
    let refusals = [
        (
            vec![user("a"), user("b"), user("c")],
            "messages",
            Some("must have at most 2 entries, has 3"),
        ),
        (vec![user(&"x".repeat(2_100))], "messages[0].content", None),
        (
            vec![anthropic(&three)],
            "messages[0].content",
            Some("must have at most 2 blocks, has 3"),
        ),
        (
            vec![user("a"), assistant_call("a-long-one")],
            "messages[1].content[0].id",
            Some("must have at most 8 characters, has 10"),
        ),
        (vec![described(noted)], "messages[0].attributes", None),
    ];
    for (messages, field, count) in refusals {
        let request = append(&name("narrow"), messages.clone());
        let status = client.append_messages(request).await.unwrap_err();
        if let Some(count) = count {
            refused_field(&status, field);
            assert!(status.message().contains(count), "{field}: {status}");
        } else {
            let metadata = refused(&status, Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
            assert_eq!(metadata["field"], field);
        }
        // Without a limit in the policy, only the server's limits apply.
        let request = append(&name("not-narrow"), messages);
        client.append_messages(request).await.unwrap();
    }
    let request = SearchMessagesRequest {
        session: name("narrow"),
        pattern: Some(TextPattern {
            pattern: Some(Pattern::Literal("12345".into())),
            ..TextPattern::default()
        }),
        ..SearchMessagesRequest::default()
    };
    let status = sessions.search_messages(request).await.unwrap_err();
    refused_field(&status, "pattern.literal");
    // The append succeeds, and only the view exceeds `max_reply_bytes`.
    let long = vec![user(&"x".repeat(1_800))];
    let reply = client.prepare_context(prepare(&name("narrow"), long)).await;
    assert!(reply.unwrap().into_inner().view_omitted);
}
