//! Tests of sessions: creation, reads, updates, lists and deletion.

use std::collections::HashSet;

use palimpsest_proto::context::v1::{
    CreateSessionRequest, DeleteSessionRequest, GetSessionRequest, ListSessionsRequest,
    MessageInput, Session, SessionCounts, SessionFilter, SessionOrder, SessionState,
    UpdateSessionRequest,
};
use palimpsest_tests::say::{anthropic, append, assistant_call, noise, result, user};
use palimpsest_tests::server::Sessions;
use palimpsest_tests::{Server, name, refused};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::SERVER;

fn new(project: &str, id: &str, session: Session) -> CreateSessionRequest {
    CreateSessionRequest {
        parent: format!("projects/{project}"),
        session_id: id.to_owned(),
        session: Some(session),
        ..Default::default()
    }
}

async fn get(client: &mut Sessions, session: &str) -> Result<Session, Status> {
    let request = GetSessionRequest {
        session: session.to_owned(),
        ..GetSessionRequest::default()
    };
    let reply = client.get_session(request).await?;
    Ok(reply.into_inner().session.unwrap())
}

#[tokio::test]
async fn a_session_is_created_read_and_updated() {
    let shared = SERVER.get();
    let mut client = shared.0.sessions().await;
    let session = Session {
        title: "a title".into(),
        attributes: [("k".to_owned(), "v".to_owned())].into(),
        ..Default::default()
    };
    let request = new("p", "made", session);
    let made = client
        .create_session(request.clone())
        .await
        .unwrap()
        .into_inner()
        .session
        .unwrap();
    assert_eq!(
        (made.name.as_str(), made.state()),
        (name("made").as_str(), SessionState::Empty)
    );
    assert_eq!(made.revision, 1);
    assert_eq!(get(&mut client, &made.name).await.unwrap(), made);
    let status = client.create_session(request).await.unwrap_err();
    refused(&status, Code::AlreadyExists, "SESSION_EXISTS");

    let mut request = UpdateSessionRequest {
        session: Some(Session {
            name: name("made"),
            title: "another".into(),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["title".into(), "attributes".into()],
        }),
        ..Default::default()
    };
    let changed = client
        .update_session(request.clone())
        .await
        .unwrap()
        .into_inner();
    let changed = changed.session.unwrap();
    assert_eq!(
        (changed.title.as_str(), changed.attributes.len()),
        ("another", 0)
    );
    assert_eq!(get(&mut client, &name("made")).await.unwrap(), changed);
    for path in [
        "name", "revision", "parent_session", "nonsense", "title.x", "",
    ] {
        request.update_mask = Some(prost_types::FieldMask {
            paths: vec![path.into()],
        });
        let status = client.update_session(request.clone()).await.unwrap_err();
        refused(&status, Code::InvalidArgument, "INVALID_FIELD");
    }
    request.update_mask = None;
    // The update of the title increased the revision, so the revision of the creation is stale.
    request.expected_revision = Some(made.revision);
    let status = client.update_session(request).await.unwrap_err();
    refused(&status, Code::Aborted, "REVISION_MISMATCH");
}

#[tokio::test]
async fn a_session_without_an_id_gets_a_generated_id() {
    let shared = SERVER.get();
    let mut client = shared.0.sessions().await;
    let request = new("p", "", Session::default());
    let one = client
        .create_session(request.clone())
        .await
        .unwrap()
        .into_inner()
        .session
        .unwrap();
    let two = client
        .create_session(request)
        .await
        .unwrap()
        .into_inner()
        .session
        .unwrap();
    assert_ne!(one.name, two.name);
    // A UUID as text has 36 characters.
    assert_eq!(one.name.len(), name("").len() + 36);
}

#[tokio::test]
async fn a_deleted_session_is_not_found_and_its_name_is_reusable() {
    let shared = SERVER.get();
    let (mut client, mut context) = (shared.0.sessions().await, shared.0.context().await);
    context
        .append_messages(append(&name("doomed"), vec![user("first life")]))
        .await
        .unwrap();
    let child = Session {
        parent_session: name("doomed"),
        ..Default::default()
    };
    client
        .create_session(new("p", "doomed-child", child))
        .await
        .unwrap();
    let mut request = DeleteSessionRequest {
        session: name("doomed"),
        ..Default::default()
    };
    let status = client.delete_session(request.clone()).await.unwrap_err();
    let metadata = refused(&status, Code::FailedPrecondition, "SESSION_HAS_SUBAGENTS");
    assert_eq!(metadata["subagents"], "1");
    request.delete_subagents = true;
    let deleted = client
        .delete_session(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(deleted.deleted_sessions, 2);
    for gone in ["doomed", "doomed-child"] {
        let status = get(&mut client, &name(gone)).await.unwrap_err();
        refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
    }
    let status = client.delete_session(request.clone()).await.unwrap_err();
    refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
    request.allow_missing = true;
    let deleted = client.delete_session(request).await.unwrap().into_inner();
    assert_eq!(deleted.deleted_sessions, 0);
    context
        .append_messages(append(&name("doomed"), vec![user("second life")]))
        .await
        .unwrap();
    let again = get(&mut client, &name("doomed")).await.unwrap();
    assert_eq!(again.first_prompt, "second life");
    assert_eq!(again.counts.unwrap().messages, 1);
}

/// Returns a response of the provider, or a fragment of one.
fn response(id: &str, block: &Value, output: u64) -> MessageInput {
    anthropic(&json!({
        "id": id, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [block],
        "usage": {"input_tokens": 100, "cache_read_input_tokens": 1_000, "output_tokens": output},
    }))
}

#[tokio::test]
async fn counts_of_a_session_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let call = json!({"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}});
    let messages = vec![
        user("Read a."),
        response("m1", &json!({"type": "text", "text": "I read it."}), 20),
        response("m1", &call, 50),
        // A result of more than 50,000 characters is persisted.
        result("t1", &noise(1, 300_000)),
        response("m2", &json!({"type": "text", "text": "It is long."}), 10),
        user("Thank you."),
    ];
    let session = name("counted");
    let mut context = server.context().await;
    context
        .append_messages(append(&session, messages))
        .await
        .unwrap();
    let before = get(&mut server.sessions().await, &session).await.unwrap();
    let expected = SessionCounts {
        messages: 6,
        visible_messages: 6,
        user_turns: 2,
        tool_calls: 1,
        persisted_results: 1,
        compactions: 0,
        // Both fragments of `m1` are one response, so its usage counts once, with the last output.
        reported_tokens: 1_150 + 1_110,
    };
    assert_eq!(before.counts, Some(expected));
    server.stop();
    let server = Server::start(folder.path(), &[]);
    let mut sessions = server.sessions().await;
    let after = get(&mut sessions, &session).await.unwrap();
    assert_eq!(after.counts, Some(expected));
}

async fn list(client: &mut Sessions, request: ListSessionsRequest) -> Vec<Session> {
    let mut request = ListSessionsRequest {
        parent: "projects/listed".into(),
        ..request
    };
    let mut all = Vec::new();
    loop {
        let page = client
            .list_sessions(request.clone())
            .await
            .unwrap()
            .into_inner();
        assert!(request.page_size == 0 || page.sessions.len() <= request.page_size as usize);
        all.extend(page.sessions);
        if page.next_page_token.is_empty() {
            return all;
        }
        request.page_token = page.next_page_token;
    }
}

fn ids(sessions: &[Session]) -> Vec<&str> {
    let ids = sessions.iter();
    ids.map(|session| session.name.rsplit('/').next().unwrap())
        .collect()
}

#[tokio::test]
async fn sessions_are_listed_in_pages_with_filters_and_orders() {
    let shared = SERVER.get();
    let (mut client, mut context) = (shared.0.sessions().await, shared.0.context().await);
    for number in 0..120 {
        let session = Session {
            title: format!("Title {number}."),
            parent_session: if number >= 110 {
                "projects/listed/sessions/s000".into()
            } else {
                String::new()
            },
            attributes: [("even".to_owned(), (number % 2 == 0).to_string())].into(),
            ..Default::default()
        };
        client
            .create_session(new("listed", &format!("s{number:03}"), session))
            .await
            .unwrap();
    }
    let said = vec![user("go"), assistant_call("t")];
    context
        .append_messages(append("projects/listed/sessions/s007", said))
        .await
        .unwrap();

    let pages = |page_size, order: SessionOrder| ListSessionsRequest {
        page_size,
        order: order.into(),
        ..Default::default()
    };
    let created: Vec<_> = (0..120).map(|number| format!("s{number:03}")).collect();
    for page_size in [0, 1, 7, 120, 1_000] {
        let all = list(&mut client, pages(page_size, SessionOrder::CreatedAsc)).await;
        let unique: HashSet<_> = ids(&all).into_iter().collect();
        assert_eq!(
            (all.len(), unique.len()),
            (120, 120),
            "pages of {page_size}"
        );
        assert!(all.is_sorted_by_key(|session| {
            session.create_time.map(|time| (time.seconds, time.nanos))
        }));
        assert!(all.iter().all(|session| session.policy.is_none()));
    }
    let mut down = list(&mut client, pages(11, SessionOrder::CreatedDesc)).await;
    let up = list(&mut client, pages(50, SessionOrder::CreatedAsc)).await;
    let time = |session: &Session| session.create_time.map(|time| (time.seconds, time.nanos));
    assert!(down.is_sorted_by(|a, b| time(a) >= time(b)));
    down.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(ids(&down), created);
    assert_eq!(ids(&up).iter().collect::<HashSet<_>>().len(), created.len());
    // The default order is by the latest event, and the append to `s007` is the latest.
    let updated = list(&mut client, pages(13, SessionOrder::Unspecified)).await;
    assert_eq!((ids(&updated)[0], updated.len()), ("s007", 120));

    let filtered = |filter| ListSessionsRequest {
        page_size: 9,
        filter: Some(filter),
        ..Default::default()
    };
    let expect = [
        (
            SessionFilter {
                main_only: true,
                ..Default::default()
            },
            110,
        ),
        (
            SessionFilter {
                parent_session: "projects/listed/sessions/s000".into(),
                ..Default::default()
            },
            10,
        ),
        (
            SessionFilter {
                // `Title 11.` and the ten titles from 110 to 119 match.
                text: "tITLE 11".into(),
                ..Default::default()
            },
            11,
        ),
        (
            SessionFilter {
                attributes: [("even".to_owned(), "true".to_owned())].into(),
                ..Default::default()
            },
            60,
        ),
        (
            SessionFilter {
                main_only: true,
                attributes: [("even".to_owned(), "true".to_owned())].into(),
                ..Default::default()
            },
            55,
        ),
    ];
    let in_state = |state: SessionState| {
        filtered(SessionFilter {
            states: vec![state.into()],
            ..Default::default()
        })
    };
    let waiting = list(&mut client, in_state(SessionState::AwaitingResults)).await;
    assert_eq!(ids(&waiting), ["s007"]);
    assert_eq!(waiting[0].state(), SessionState::AwaitingResults);
    let empty = list(&mut client, in_state(SessionState::Empty)).await;
    assert_eq!(empty.len(), 119);
    for (filter, count) in expect {
        let found = list(&mut client, filtered(filter.clone())).await;
        assert_eq!(found.len(), count, "{filter:?}");
    }

    let mut request = ListSessionsRequest {
        parent: "projects/listed".into(),
        page_size: 5,
        ..Default::default()
    };
    let token = client
        .list_sessions(request.clone())
        .await
        .unwrap()
        .into_inner()
        .next_page_token;
    // A page token is valid for the order of its list only.
    request.page_token = token;
    request.order = SessionOrder::CreatedAsc.into();
    let status = client.list_sessions(request.clone()).await.unwrap_err();
    refused(&status, Code::InvalidArgument, "INVALID_PAGE_TOKEN");
    request.page_token = "garbage".into();
    let status = client.list_sessions(request).await.unwrap_err();
    refused(&status, Code::InvalidArgument, "INVALID_PAGE_TOKEN");
}
