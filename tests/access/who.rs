//! Tests of the records about who did what: the audit log, the credential of events, and metrics by project.

use palimpsest_proto::context::v1::admin_service_client::AdminServiceClient;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{
    DeleteSessionRequest, ListEventsRequest, ListProjectsRequest, ListSessionsRequest, Session,
    UpdateSessionRequest,
};
use palimpsest_tests::name;
use palimpsest_tests::say::{append, user};
use palimpsest_tests::tenant::with;
use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Channel;

use crate::world::{World, id_of, soon};

/// Returns the lines of the audit log.
pub(crate) fn lines(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(world.at("audit.jsonl")).unwrap();
    assert!(!text.contains("secret plan"), "{text}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the credential of each event of a session.
pub(crate) async fn credentials(
    sessions: &mut SessionServiceClient<Channel>,
    key: &str,
    session: &str,
) -> Vec<String> {
    let list = ListEventsRequest {
        session: session.to_owned(),
        page_size: 1_000,
        ..ListEventsRequest::default()
    };
    let events = sessions.list_events(with(key, list)).await.unwrap();
    let events = events.into_inner().events.into_iter();
    events.map(|event| event.credential).collect()
}

#[tokio::test]
async fn the_audit_log_has_a_line_for_each_change_and_each_denial() {
    let world = World::new();
    let writer = world.key("p", "read,write,admin");
    let reader = world.key("p", "read");
    let server = world.serve(&[world.setting("audit.file", "audit.jsonl")]);
    let channel = server.channel().await;
    let mut context = ContextServiceClient::new(channel.clone());
    let mut sessions = SessionServiceClient::new(channel.clone());

    let request = append(&name("s"), vec![user("a secret plan")]);
    context
        .append_messages(with(&writer, request))
        .await
        .unwrap();
    // A read is in no line.
    let list = ListSessionsRequest {
        parent: "projects/p".into(),
        ..ListSessionsRequest::default()
    };
    sessions.list_sessions(with(&reader, list)).await.unwrap();
    let delete = DeleteSessionRequest {
        session: name("s"),
        ..DeleteSessionRequest::default()
    };
    let denied = sessions
        .delete_session(with(&reader, delete.clone()))
        .await
        .unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    sessions
        .delete_session(with(&writer, delete))
        .await
        .unwrap();
    // A read of another project gets the error of a missing project.
    let foreign = ListSessionsRequest {
        parent: "projects/other".into(),
        ..ListSessionsRequest::default()
    };
    let denied = sessions.list_sessions(with(&reader, foreign)).await;
    assert_eq!(denied.unwrap_err().code(), Code::NotFound);

    // A line is written when the last byte of the reply was sent.
    soon("four lines", async || lines(&world).len() == 4).await;
    let fields = |line: &Value| {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        [
            text("who"),
            text("method"),
            text("outcome"),
            text("project"),
            text("session"),
        ]
    };
    let written: Vec<_> = lines(&world).iter().map(fields).collect();
    let of = |key: &str, method: &str, outcome: &str, session: &str| {
        [
            &format!("key {}", id_of(key)),
            method,
            outcome,
            "p",
            session,
        ]
        .map(str::to_owned)
    };
    let session = name("s");
    assert_eq!(written[0], of(&writer, "AppendMessages", "OK", &session));
    assert_eq!(
        written[1][..3],
        of(&reader, "DeleteSession", "PERMISSION_DENIED", "")[..3]
    );
    assert_eq!(written[2], of(&writer, "DeleteSession", "OK", &session));
    assert_eq!(
        written[3][..3],
        of(&reader, "ListSessions", "NOT_FOUND", "")[..3]
    );
    for line in lines(&world) {
        assert!(
            line["timestamp"].is_string() && line["trace_id"].is_string(),
            "{line}"
        );
    }
    // The audit log is no part of the other log.
    assert!(server.log().iter().all(|line| !line.contains("\"who\"")));
}

#[tokio::test]
async fn the_audit_log_names_the_right_that_an_update_needed() {
    let world = World::new();
    let admin = world.key("p", "read,write,admin");
    let server = world.serve(&[world.setting("audit.file", "audit.jsonl")]);
    let channel = server.channel().await;
    let mut context = ContextServiceClient::new(channel.clone());
    let mut sessions = SessionServiceClient::new(channel);
    let request = append(&name("s"), vec![user("a plan")]);
    context
        .append_messages(with(&admin, request))
        .await
        .unwrap();
    // Only the change of a hold needs the right `admin`.
    let updates = [
        ("title", "Plan", "write"),
        ("hold", "case 4711", "write"),
        ("hold", "", "admin"),
    ];
    for (field, value, _) in updates {
        let mut session = Session {
            name: name("s"),
            ..Session::default()
        };
        match field {
            "title" => session.title = value.into(),
            _ => session.hold = value.into(),
        }
        let request = UpdateSessionRequest {
            session: Some(session),
            update_mask: Some(prost_types::FieldMask {
                paths: vec![field.into()],
            }),
            ..UpdateSessionRequest::default()
        };
        sessions
            .update_session(with(&admin, request))
            .await
            .unwrap();
    }
    soon("four lines", async || lines(&world).len() == 4).await;
    let rights: Vec<Value> = lines(&world)[1..]
        .iter()
        .map(|line| line["right"].clone())
        .collect();
    assert_eq!(rights, updates.map(|(_, _, right)| right));
}

#[tokio::test]
async fn an_audit_log_that_cannot_be_opened_prevents_the_start() {
    let world = World::new();
    let file = world.at("no/such/folder/audit.jsonl");
    let output = palimpsest_tests::command::palimpsest(&[
        "serve",
        "--data-dir",
        world.at("data").to_str().unwrap(),
        "--set",
        &format!("audit.file={}", file.display()),
    ]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && error.contains("audit.file"),
        "{error}"
    );
}

#[tokio::test]
async fn events_name_the_credential_that_caused_them() {
    let world = World::new();
    let keys = [world.key("p", "read,write"), world.key("p", "read,write")];
    let server = world.serve(&[]);
    let channel = server.channel().await;
    let mut context = ContextServiceClient::new(channel.clone());
    for key in &keys {
        let request = append(&name("s"), vec![user("hello")]);
        context.append_messages(with(key, request)).await.unwrap();
    }
    let mut sessions = SessionServiceClient::new(channel);
    let by = credentials(&mut sessions, &keys[0], &name("s")).await;
    let [first, second] = [0, 1].map(|index: usize| format!("key {}", id_of(&keys[index])));
    // The first append also creates the session.
    assert_eq!(by, [first.clone(), first, second]);
}

#[tokio::test]
async fn events_name_the_credential_of_the_http_api_and_of_mcp() {
    let world = World::new();
    let writer = world.key("p", "read,write");
    let editor = world.key("p", "read,compact");
    let server = world.serve(&["mcp.allow_snip=true".to_owned()]);
    let post = async |path: &str, key: &str, body: Value| {
        let request = reqwest::Client::new()
            .post(format!("http://{}{path}", server.address()))
            .bearer_auth(key)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_string());
        let response = request.send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert!(status.is_success(), "{status} {text}");
        text
    };
    let texts = ["The first task.", "Done.", "The second task.", "I begin."];
    let messages = texts.iter().enumerate().map(|(index, text)| {
        let role = ["user", "assistant"][index % 2];
        let message = json!({"role": role, "content": text});
        json!({"payload": {"format": "anthropic_messages", "json": message}})
    });
    let messages: Vec<Value> = messages.collect();
    let path = format!("/v1/{}:prepare", name("s"));
    let prefix = json!({"tools": [{"name": "Snip"}]});
    let request = json!({"messages": messages, "prompt_prefix": prefix});
    let prepared = post(&path, &writer, request).await;
    let tag = prepared.split_once("[id:").unwrap().1[..6].to_owned();
    let mut sessions = SessionServiceClient::new(server.channel().await);
    let before = credentials(&mut sessions, &writer, &name("s")).await;
    let of_writer = format!("key {}", id_of(&writer));
    assert!(
        !before.is_empty() && before.iter().all(|by| *by == of_writer),
        "{before:?}"
    );
    let snip = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "Snip",
        "arguments": {"ids": [tag], "reason": "It is done."}}});
    let snipped = post(&format!("/mcp/{}", name("s")), &editor, snip).await;
    assert!(snipped.contains("Removed 1 turns"), "{snipped}");
    let after = credentials(&mut sessions, &writer, &name("s")).await;
    let of_editor = format!("key {}", id_of(&editor));
    let added = &after[before.len()..];
    assert!(!added.is_empty() && added.iter().all(|by| *by == of_editor));
}

#[tokio::test]
async fn a_credential_lists_its_own_projects_and_metrics_have_a_label_for_each() {
    let world = World::new();
    let mine = world.key("aaa", "read,write");
    let theirs = world.key("bbb", "read,write");
    let server = world.serve(&[]);
    let channel = server.channel().await;
    let mut context = ContextServiceClient::new(channel.clone());
    for (key, project) in [(&mine, "aaa"), (&theirs, "bbb")] {
        let request = append(
            &format!("projects/{project}/sessions/s"),
            vec![user("hello")],
        );
        context.append_messages(with(key, request)).await.unwrap();
    }
    let mut admin = AdminServiceClient::new(channel);
    let listed = admin
        .list_projects(with(&mine, ListProjectsRequest::default()))
        .await
        .unwrap();
    let names: Vec<_> = listed
        .into_inner()
        .projects
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(names, ["projects/aaa"]);
    let nobody = admin
        .list_projects(ListProjectsRequest::default())
        .await
        .unwrap_err();
    assert_eq!(nobody.code(), Code::Unauthenticated);
    let metrics = server.scrape();
    for project in ["aaa", "bbb"] {
        let label = format!("project=\"{project}\"");
        let line = metrics.lines().find(|line| {
            line.starts_with("palimpsest_project_calls_total") && line.contains(&label)
        });
        assert!(line.is_some_and(|line| line.ends_with(" 1")), "{line:?}");
    }
}
