//! Tests of rewinds: later messages leave the view, and nothing else changes.

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    CompactRequest, CompactionStrategy, GetSessionRequest, ListMessagesRequest,
    RestoreContextRequest, RewindSessionRequest, Visibility,
};
use palimpsest_tests::array::values;
use palimpsest_tests::say::{assistant, prepare, user, uuid, with_id};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Array, name, refused};
use tonic::Code;

use crate::SERVER;

fn to(session: &str, number: u64) -> RewindSessionRequest {
    RewindSessionRequest {
        session: name(session),
        target_message: Some(TargetMessage::ToMessageId(uuid(number))),
        ..Default::default()
    }
}

/// Appends five messages with ids 1 to 5.
async fn five(client: &mut Context, session: &str) -> Array {
    let say = |number| {
        let text = format!("m{number}");
        let said = if number % 2 == 1 {
            user(&text)
        } else {
            assistant(&text)
        };
        with_id(&uuid(number), said)
    };
    let request = prepare(&name(session), (1..=5).map(say).collect());
    let mut array = Array::default();
    array.take(&client.prepare_context(request).await.unwrap().into_inner());
    array
}

#[tokio::test]
async fn the_delta_after_a_rewind_is_correct_and_originals_remain() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut array = five(&mut client, "rewind").await;
    let three = array.messages[..3].to_vec();
    let reply = client
        .rewind_session(to("rewind", 3))
        .await
        .unwrap()
        .into_inner();
    let rewound = reply.rewound.unwrap();
    assert_eq!(rewound.to_message_id, uuid(3));
    assert_eq!(rewound.message_ids, [uuid(4), uuid(5)]);
    assert_eq!(reply.epoch, 1);
    // The response is regenerated three times.
    for round in 0..3 {
        let mut request = prepare(&name("rewind"), Vec::new());
        request.known_etag = array.etag.clone();
        let reply = client.prepare_context(request).await.unwrap().into_inner();
        array.take(&reply);
        assert!(reply.sendable);
        assert_eq!(array.messages, three);
        let answer = assistant(&format!("another {round}"));
        let mut request = prepare(&name("rewind"), vec![answer, user("go on")]);
        request.known_etag = array.etag.clone();
        array.take(&client.prepare_context(request).await.unwrap().into_inner());
        assert_eq!(
            array.values()[3]["content"][0]["text"],
            format!("another {round}")
        );
        client.rewind_session(to("rewind", 3)).await.unwrap();
    }
    let request = ListMessagesRequest {
        session: name("rewind"),
        ..Default::default()
    };
    let listed = shared
        .0
        .sessions()
        .await
        .list_messages(request)
        .await
        .unwrap()
        .into_inner();
    // Five messages at first, and two in each of three rounds.
    assert_eq!(listed.messages.len(), 11);
    assert_eq!(listed.messages[3].visibility(), Visibility::Rewound);
    assert_eq!(
        values(&listed.messages[3].messages_json)[0]["content"][0]["text"],
        "m4"
    );
}

#[tokio::test]
async fn a_rewind_before_the_first_message_empties_the_view() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    five(&mut client, "rewind-all").await;
    let request = RewindSessionRequest {
        target_message: Some(TargetMessage::BeforeMessageId(uuid(1))),
        ..to("rewind-all", 1)
    };
    let reply = client.rewind_session(request).await.unwrap().into_inner();
    let rewound = reply.rewound.unwrap();
    assert_eq!(
        (rewound.to_message_id.as_str(), rewound.message_ids.len()),
        ("", 5)
    );
    let view = client
        .prepare_context(prepare(&name("rewind-all"), Vec::new()))
        .await
        .unwrap();
    let view = view.into_inner();
    assert_eq!((view.view_messages, view.sendable), (0, false));
}

#[tokio::test]
async fn only_newly_removed_messages_are_reported() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    five(&mut client, "rewind-twice").await;
    client.rewind_session(to("rewind-twice", 3)).await.unwrap();
    let again = client
        .rewind_session(to("rewind-twice", 2))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(again.rewound.unwrap().message_ids, [uuid(3)]);
}

#[tokio::test]
async fn a_repeated_rewind_returns_the_same_reply() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    five(&mut client, "rewind-retry").await;
    let mut request = to("rewind-retry", 3);
    request.request_id = "r".into();
    let one = client
        .rewind_session(request.clone())
        .await
        .unwrap()
        .into_inner();
    let two = client.rewind_session(request).await.unwrap().into_inner();
    assert_eq!(one.revision, two.revision);
    assert_eq!(one.rewound, two.rewound);
}

#[tokio::test]
async fn a_dry_run_rewinds_nothing() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let array = five(&mut client, "rewind-dry").await;
    let get = GetSessionRequest {
        session: name("rewind-dry"),
        ..GetSessionRequest::default()
    };
    let mut sessions = shared.0.sessions().await;
    let before = sessions
        .get_session(get.clone())
        .await
        .unwrap()
        .into_inner();
    let mut request = to("rewind-dry", 2);
    request.dry_run = true;
    let reply = client.rewind_session(request).await.unwrap().into_inner();
    assert_eq!(reply.rewound.unwrap().message_ids.len(), 3);
    assert_eq!(
        sessions.get_session(get).await.unwrap().into_inner(),
        before
    );
    let view = client
        .prepare_context(prepare(&name("rewind-dry"), Vec::new()))
        .await
        .unwrap();
    assert_eq!(view.into_inner().messages_json, array.messages);
}

#[tokio::test]
async fn a_rewind_to_a_missing_message_is_rejected() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    five(&mut client, "rewind-unknown").await;
    let status = client
        .rewind_session(to("rewind-unknown", 99))
        .await
        .unwrap_err();
    let metadata = refused(&status, Code::NotFound, "MESSAGE_NOT_FOUND");
    assert_eq!(metadata["message_id"], uuid(99));
    client
        .rewind_session(to("rewind-unknown", 2))
        .await
        .unwrap();
    let status = client
        .rewind_session(to("rewind-unknown", 4))
        .await
        .unwrap_err();
    let metadata = refused(&status, Code::FailedPrecondition, "MESSAGE_NOT_VISIBLE");
    assert_eq!(metadata["visibility"], "REWOUND");
    let status = client
        .rewind_session(to("no-such-session", 2))
        .await
        .unwrap_err();
    refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn the_input_after_an_undone_compaction_can_be_edited() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("edited-after-undo");
    let long = |number: u64| format!("m{number} ").repeat(4_000);
    let said = (1..=5).map(|number| {
        let text = long(number);
        let said = if number % 2 == 1 {
            user(&text)
        } else {
            assistant(&text)
        };
        with_id(&uuid(number), said)
    });
    let reply = client.prepare_context(prepare(&session, said.collect()));
    let before = reply.await.unwrap().into_inner().revision;
    let compact = CompactRequest {
        session: session.clone(),
        strategy: CompactionStrategy::Extractive.into(),
        ..CompactRequest::default()
    };
    client.compact(compact).await.unwrap();
    let undo = RestoreContextRequest {
        session: session.clone(),
        to_revision: before,
        ..RestoreContextRequest::default()
    };
    client.restore_context(undo).await.unwrap();
    let input = vec![
        with_id(&uuid(6), assistant("so")),
        with_id(&uuid(7), user("a typo")),
    ];
    // The messages of the compaction precede the answer in the transcript, so the edit of message 6 passes them.
    client
        .prepare_context(prepare(&session, input))
        .await
        .unwrap();
    for (number, left) in [(7, 1), (6, 1)] {
        let edit = RewindSessionRequest {
            session: session.clone(),
            target_message: Some(TargetMessage::BeforeMessageId(uuid(number))),
            ..RewindSessionRequest::default()
        };
        let reply = client.rewind_session(edit).await.unwrap().into_inner();
        let rewound = reply.rewound.unwrap();
        assert_eq!(rewound.message_ids.len(), left, "{rewound:?}");
    }
}
