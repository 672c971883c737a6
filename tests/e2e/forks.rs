//! Tests of forks: a session begins with the conversation of another one.

use palimpsest_proto::context::v1::read_tool_result_request::Result as Whose;
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    CallRef, CreateSessionRequest, DeleteSessionRequest, ForkOrigin, ForkSessionRequest,
    GetSessionRequest, ListSessionsRequest, MessageInput, ReadToolResultRequest,
    RestoreContextRequest, RewindSessionRequest, Session, SessionFilter, UpdateSessionRequest,
};
use palimpsest_tests::array::{check_prefix, flat};
use palimpsest_tests::say::{
    append, assistant, assistant_call, noise, prepare, result, user, uuid, with_id,
};
use palimpsest_tests::server::{Context, Sessions};
use palimpsest_tests::{Array, name, refused};
use tonic::{Code, Status};

use crate::SERVER;

fn request(session: &str, fork: &str) -> ForkSessionRequest {
    ForkSessionRequest {
        session: name(session),
        session_id: fork.to_owned(),
        ..Default::default()
    }
}

async fn fork(client: &mut Sessions, request: ForkSessionRequest) -> Result<Session, Status> {
    let reply = client.fork_session(request).await?;
    Ok(reply.into_inner().session.unwrap())
}

/// Appends messages one by one, each with its number as id, and returns the view after each user message.
async fn talk(client: &mut Context, session: &str, count: u64) -> Vec<Array> {
    let mut views = Vec::new();
    for number in 1..=count {
        let text = format!("message {number}");
        if number % 2 == 0 {
            let message = with_id(&uuid(number), assistant(&text));
            let request = append(&name(session), vec![message]);
            client.append_messages(request).await.unwrap();
        } else {
            views.push(view(client, session, vec![with_id(&uuid(number), user(&text))]).await);
        }
    }
    views
}

async fn view(client: &mut Context, session: &str, messages: Vec<MessageInput>) -> Array {
    let reply = client
        .prepare_context(prepare(&name(session), messages))
        .await;
    let mut array = Array::default();
    array.take(&reply.unwrap().into_inner());
    array
}

async fn read(client: &mut Context, session: &str, result: Whose) -> Result<String, Status> {
    let request = ReadToolResultRequest {
        session: name(session),
        result: Some(result),
        max_bytes: 16 * 1024 * 1024,
        ..Default::default()
    };
    let mut stream = client.read_tool_result(request).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.message().await? {
        bytes.extend_from_slice(&chunk.data);
    }
    Ok(String::from_utf8(bytes).unwrap())
}

#[tokio::test]
async fn a_fork_has_the_view_of_that_point_and_its_own_future() {
    let shared = SERVER.get();
    let (mut client, mut sessions) = (shared.0.context().await, shared.0.sessions().await);
    let source = CreateSessionRequest {
        parent: "projects/p".to_owned(),
        session_id: "forked".to_owned(),
        ..Default::default()
    };
    sessions.create_session(source).await.unwrap();
    let retitled = UpdateSessionRequest {
        session: Some(Session {
            name: name("forked"),
            title: "the first try".to_owned(),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["title".to_owned()],
        }),
        ..Default::default()
    };
    sessions.update_session(retitled).await.unwrap();
    let views = talk(&mut client, "forked", 5).await;
    let three = ForkSessionRequest {
        last_message_id: uuid(3),
        title: "another try".to_owned(),
        ..request("forked", "forked-3")
    };
    let made = fork(&mut sessions, three).await.unwrap();
    let origin = ForkOrigin {
        session: name("forked"),
        message_id: uuid(3),
    };
    assert_eq!(made.name, name("forked-3"));
    assert_eq!(made.title, "another try");
    assert_eq!(made.forked_from, Some(origin));
    assert_eq!(made.parent_session, "");
    // The bytes are equal, turn ids included, so the provider's prompt cache is of use.
    let served = view(&mut client, "forked-3", vec![]).await;
    // The views follow the messages 1, 3 and 5, so index 1 ends with message 3.
    assert_eq!(served.messages, views[1].messages);
    let answers = vec![assistant("another answer"), user("go on")];
    let other = view(&mut client, "forked-3", answers).await;
    check_prefix(&flat(&served.messages), &flat(&other.messages));
    assert_eq!(other.messages.len(), 5);
    let original = view(&mut client, "forked", vec![]).await;
    assert_eq!(original.messages, views[2].messages);
    // Without a message, the fork has the whole conversation, and ids are unique within each session.
    let whole = ForkSessionRequest {
        as_subagent: true,
        ..request("forked-3", "forked-whole")
    };
    let whole = fork(&mut sessions, whole).await.unwrap();
    assert_eq!(whole.parent_session, name("forked-3"));
    let served = view(&mut client, "forked-whole", vec![]).await;
    assert_eq!(served.messages, other.messages);
    let listed = ListSessionsRequest {
        parent: "projects/p".to_owned(),
        filter: Some(SessionFilter {
            text: "another try".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let listed = sessions.list_sessions(listed).await.unwrap().into_inner();
    let forks = listed.sessions.iter().filter_map(|session| {
        let origin = session.forked_from.as_ref()?;
        Some((&*session.name, &*origin.session))
    });
    let mut forks: Vec<_> = forks.collect();
    forks.sort_unstable();
    let expected = [("forked-3", "forked"), ("forked-whole", "forked-3")];
    let expected = expected.map(|(fork, origin)| (name(fork), name(origin)));
    let expected: Vec<_> = expected
        .iter()
        .map(|(fork, origin)| (&**fork, &**origin))
        .collect();
    assert_eq!(forks, expected);
}

#[tokio::test]
async fn a_fork_within_one_append_rewinds_the_later_messages() {
    let shared = SERVER.get();
    let (mut client, mut sessions) = (shared.0.context().await, shared.0.sessions().await);
    let message = |number: u64, input| with_id(&uuid(number), input);
    let all = vec![
        message(1, user("one")),
        message(2, assistant("two")),
        message(3, user("three")),
    ];
    let served = view(&mut client, "at-once", all).await;
    let one = ForkSessionRequest {
        last_message_id: uuid(1),
        ..request("at-once", "at-once-1")
    };
    let made = fork(&mut sessions, one).await.unwrap();
    assert_eq!(made.counts.unwrap().visible_messages, 1);
    let forked = view(&mut client, "at-once-1", vec![]).await;
    assert_eq!(forked.messages, served.messages[..1]);
}

#[tokio::test]
async fn a_fork_keeps_its_results_after_the_deletion_of_its_origin() {
    let shared = SERVER.get();
    let (mut client, mut sessions) = (shared.0.context().await, shared.0.sessions().await);
    let text = noise(7, 120_000);
    let messages = vec![
        user("read it"),
        assistant_call("call-1"),
        result("call-1", &text),
    ];
    let served = view(&mut client, "results", messages).await;
    let shown = String::from_utf8(served.messages[2].to_vec()).unwrap();
    assert!(shown.contains("persisted-output"), "{shown}");
    let made = fork(&mut sessions, request("results", "results-fork")).await;
    assert_eq!(made.unwrap().counts.unwrap().persisted_results, 1);
    let deleted = DeleteSessionRequest {
        session: name("results"),
        ..Default::default()
    };
    sessions.delete_session(deleted).await.unwrap();
    let forked = view(&mut client, "results-fork", vec![]).await;
    assert_eq!(forked.messages, served.messages);
    let call = CallRef {
        tool_use_id: "call-1".to_owned(),
        ..Default::default()
    };
    let by_call = read(&mut client, "results-fork", Whose::Call(call)).await;
    assert_eq!(by_call.unwrap(), text);
    // The view contains the reference of the origin, which leads to the copy.
    let at = shown.find("palimpsest://p/results/").unwrap();
    let end = shown[at..].find(|c: char| c.is_whitespace() || "\"\\<>".contains(c));
    let reference = shown[at..at + end.unwrap()]
        .trim_end_matches('.')
        .to_owned();
    let by_reference = read(&mut client, "results-fork", Whose::Reference(reference)).await;
    assert_eq!(by_reference.unwrap(), text);
}

#[tokio::test]
async fn a_repeat_returns_the_first_fork() {
    let shared = SERVER.get();
    let (mut client, mut sessions) = (shared.0.context().await, shared.0.sessions().await);
    talk(&mut client, "again", 3).await;
    let stamped = ForkSessionRequest {
        request_id: "fork-again".to_owned(),
        ..request("again", "")
    };
    let first = fork(&mut sessions, stamped.clone()).await.unwrap();
    view(
        &mut client,
        "again",
        vec![assistant("later"), user("later")],
    )
    .await;
    let repeated = fork(&mut sessions, stamped.clone()).await.unwrap();
    assert_eq!(repeated, first);
    let deleted = DeleteSessionRequest {
        session: name("again"),
        ..Default::default()
    };
    sessions.delete_session(deleted).await.unwrap();
    assert_eq!(fork(&mut sessions, stamped.clone()).await.unwrap(), first);
    let other = ForkSessionRequest {
        title: "another body".to_owned(),
        ..stamped
    };
    let status = fork(&mut sessions, other).await.unwrap_err();
    refused(&status, Code::AlreadyExists, "REQUEST_CONFLICT");
    // Request ids of the origin are not those of the fork.
    let get = GetSessionRequest {
        session: first.name.clone(),
        ..Default::default()
    };
    let found = sessions.get_session(get).await.unwrap().into_inner();
    assert_eq!(found.session.unwrap().forked_from, first.forked_from);
}

#[tokio::test]
async fn a_fork_of_nothing_is_rejected() {
    let shared = SERVER.get();
    let (mut client, mut sessions) = (shared.0.context().await, shared.0.sessions().await);
    let status = fork(&mut sessions, request("missing", "x"))
        .await
        .unwrap_err();
    refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
    talk(&mut client, "known", 1).await;
    let unknown = ForkSessionRequest {
        last_message_id: uuid(99),
        ..request("known", "x")
    };
    let status = fork(&mut sessions, unknown).await.unwrap_err();
    refused(&status, Code::NotFound, "MESSAGE_NOT_FOUND");
    let status = fork(&mut sessions, request("known", "known")).await;
    refused(&status.unwrap_err(), Code::AlreadyExists, "SESSION_EXISTS");
    let empty = CreateSessionRequest {
        parent: "projects/p".to_owned(),
        session_id: "without-messages".to_owned(),
        ..Default::default()
    };
    sessions.create_session(empty).await.unwrap();
    let status = fork(&mut sessions, request("without-messages", "x")).await;
    refused(&status.unwrap_err(), Code::InvalidArgument, "INVALID_FIELD");
}

/// Messages that an undo brought back are not in memory.
#[tokio::test]
async fn a_fork_after_an_undo_rewinds_the_later_messages() {
    let shared = SERVER.get();
    let (mut client, mut sessions) = (shared.0.context().await, shared.0.sessions().await);
    let message = |number: u64, input| with_id(&uuid(number), input);
    let first = vec![
        message(1, user("one")),
        message(2, assistant("two")),
        message(3, user("three")),
    ];
    view(&mut client, "undone", first).await;
    let rewind = RewindSessionRequest {
        session: name("undone"),
        target_message: Some(TargetMessage::ToMessageId(uuid(1))),
        ..Default::default()
    };
    let rewound = client.rewind_session(rewind).await.unwrap().into_inner();
    let restore = RestoreContextRequest {
        session: name("undone"),
        to_revision: rewound.revision - 1,
        ..Default::default()
    };
    client.restore_context(restore).await.unwrap();
    let later = vec![message(4, assistant("four")), message(5, user("five"))];
    let served = view(&mut client, "undone", later).await;
    let one = ForkSessionRequest {
        last_message_id: uuid(4),
        ..request("undone", "undone-1")
    };
    fork(&mut sessions, one).await.unwrap();
    let forked = view(&mut client, "undone-1", vec![]).await;
    assert_eq!(forked.messages, served.messages[..4]);
}
