//! Tests of working state over gRPC: updates by key, survival of restarts, attachments after a compaction, and pins
//! that stay byte for byte.

use palimpsest_proto::context::v1::{
    AttachmentKind, BlockRef, Capability, CompactRequest, CompactResponse, CompactionStrategy,
    EventKind, FileState, Level, ListEventsRequest, ListMessagesRequest, MessageInput, Note,
    NoteKind, Pin, Plan, SnipRequest, Task, TaskStatus, UpdateWorkingStateRequest,
    UpdateWorkingStateResponse, WorkingState, WorkingStateRemoval, pin, session_event,
};
use palimpsest_tests::array::values;
use palimpsest_tests::say::{
    anthropic, append, assistant, assistant_call, prepare, result, user, uuid, with_id,
};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Server, name, refused, refused_field};
use serde_json::json;
use tonic::{Code, Status};

use crate::SERVER;

fn setting(session: &str, set: WorkingState) -> UpdateWorkingStateRequest {
    UpdateWorkingStateRequest {
        session: name(session),
        set: Some(set),
        ..UpdateWorkingStateRequest::default()
    }
}

async fn update(client: &mut Context, request: UpdateWorkingStateRequest) -> WorkingState {
    let reply = try_update(client, request).await.unwrap();
    reply.working_state.unwrap()
}

async fn try_update(
    client: &mut Context,
    request: UpdateWorkingStateRequest,
) -> Result<UpdateWorkingStateResponse, Status> {
    let reply = client.update_working_state(request).await;
    reply.map(tonic::Response::into_inner)
}

fn note(id: &str, text: &str) -> Note {
    Note {
        note_id: id.into(),
        kind: NoteKind::Decision.into(),
        text: text.into(),
    }
}

fn notes(notes: Vec<Note>) -> WorkingState {
    WorkingState {
        notes,
        ..WorkingState::default()
    }
}

fn pins(pins: Vec<(&str, pin::Target)>) -> WorkingState {
    let pin = |(id, target): (&str, pin::Target)| Pin {
        pin_id: id.into(),
        target: Some(target),
    };
    WorkingState {
        pins: pins.into_iter().map(pin).collect(),
        ..WorkingState::default()
    }
}

fn message(number: u64) -> pin::Target {
    pin::Target::MessageId(uuid(number))
}

async fn appended(client: &mut Context, session: &str, messages: Vec<MessageInput>) {
    let request = append(&name(session), messages);
    client.append_messages(request).await.unwrap();
}

async fn view(client: &mut Context, session: &str) -> String {
    let reply = client.prepare_context(prepare(&name(session), Vec::new()));
    let reply = reply.await.unwrap().into_inner();
    String::from_utf8(reply.messages_json.concat()).unwrap()
}

async fn compact(client: &mut Context, session: &str) -> CompactResponse {
    let request = CompactRequest {
        session: name(session),
        strategy: CompactionStrategy::Extractive.into(),
        ..CompactRequest::default()
    };
    client.compact(request).await.unwrap().into_inner()
}

/// Returns a turn of about 12,000 tokens.
fn work(number: usize) -> Vec<MessageInput> {
    vec![
        user(&format!("please do the step {number}")),
        assistant(&format!("the step {number} went like this. ").repeat(1_500)),
    ]
}

#[tokio::test]
async fn working_state_is_updated_by_key_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let quiet = ["--set", "worker.enabled=false"];
    let server = Server::start(folder.path(), &quiet);
    let mut client = server.context().await;
    let first = WorkingState {
        notes: vec![note("a", "one"), note("b", "two")],
        plan: Some(Plan {
            path: String::new(),
            content: "look, then do".into(),
        }),
        files: vec![FileState {
            path: "/a.rs".into(),
            content: "fn a() {}".into(),
            ..FileState::default()
        }],
        ..WorkingState::default()
    };
    update(&mut client, setting("keys", first)).await;
    let second = UpdateWorkingStateRequest {
        remove: Some(WorkingStateRemoval {
            note_ids: vec!["a".into(), "never".into()],
            plan: true,
            ..WorkingStateRemoval::default()
        }),
        ..setting("keys", notes(vec![note("c", "three"), note("b", "2")]))
    };
    let after = update(&mut client, second).await;
    assert_eq!(after.notes, [note("b", "2"), note("c", "three")]);
    assert_eq!(after.plan, None);
    // The reply has the size and the digest of a file in place of its content.
    let file = &after.files[0];
    assert_eq!(
        (&*file.content, file.size_bytes, file.sha256.len()),
        ("", 9, 32)
    );
    assert!(file.access_time.is_some() && !file.stale);
    // An update with an effect is reported. An update without an effect is not.
    let read = update(&mut client, setting("keys", WorkingState::default())).await;
    assert_eq!(read, after);
    let mut sessions = server.sessions().await;
    let request = ListEventsRequest {
        session: name("keys"),
        kinds: vec![EventKind::WorkingStateUpdated.into()],
        ..ListEventsRequest::default()
    };
    let listed = sessions.list_events(request).await.unwrap().into_inner();
    let paths = listed.events.iter().map(|event| match &event.event {
        Some(session_event::Event::WorkingStateUpdated(event)) => event.paths.join(" "),
        other => panic!("{other:?}"),
    });
    let paths: Vec<String> = paths.collect();
    assert_eq!(paths, ["files plan notes", "plan notes"]);
    server.kill();
    let server = Server::start(folder.path(), &quiet);
    let mut client = server.context().await;
    let read = update(&mut client, setting("keys", WorkingState::default())).await;
    assert_eq!(read, after);
}

#[tokio::test]
async fn an_invalid_entry_is_rejected_by_path_and_changes_nothing() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = "state-wrong";
    appended(&mut client, session, vec![with_id(&uuid(1), user("hello"))]).await;
    let wrong = [
        (notes(vec![note("a", "")]), "set.notes[0].text"),
        (notes(vec![note("", "x")]), "set.notes[0].note_id"),
        (notes(vec![note("a", "x"), note("a", "y")]), "set.notes[1]"),
        (
            pins(vec![("p", pin::Target::Text(" \n".into()))]),
            "set.pins[0].text",
        ),
        (
            pins(vec![(
                "p",
                pin::Target::Block(BlockRef {
                    message_id: uuid(1),
                    block_index: 1,
                }),
            )]),
            "set.pins[0].block.block_index",
        ),
        (
            WorkingState {
                tasks: vec![Task {
                    task_id: "1".into(),
                    subject: "x".into(),
                    status: 99,
                    ..Task::default()
                }],
                ..WorkingState::default()
            },
            "set.tasks[0].status",
        ),
    ];
    for (set, field) in wrong {
        let refusal = try_update(&mut client, setting(session, set)).await;
        refused_field(&refusal.unwrap_err(), field);
    }
    let missing = setting(session, pins(vec![("p", message(9))]));
    let status = try_update(&mut client, missing).await.unwrap_err();
    refused(&status, Code::NotFound, "MESSAGE_NOT_FOUND");
    // `limits.max_working_state_bytes` is 8 MiB.
    let large = notes(vec![note("a", &"x".repeat(9 * 1024 * 1024))]);
    let status = try_update(&mut client, setting(session, large))
        .await
        .unwrap_err();
    let metadata = refused(&status, Code::ResourceExhausted, "WORKING_STATE_TOO_LARGE");
    assert_eq!(metadata["limit_bytes"], (8 * 1024 * 1024).to_string());
    let read = update(&mut client, setting(session, WorkingState::default())).await;
    assert_eq!(read, WorkingState::default());
}

#[tokio::test]
async fn p24_an_update_is_idempotent_and_can_expect_a_revision() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let first = UpdateWorkingStateRequest {
        request_id: "r".into(),
        ..setting("state-repeat", notes(vec![note("a", "one")]))
    };
    let reply = try_update(&mut client, first.clone()).await.unwrap();
    let again = try_update(&mut client, first.clone()).await.unwrap();
    assert_eq!(reply, again);
    let other = UpdateWorkingStateRequest {
        set: Some(notes(vec![note("a", "two")])),
        ..first
    };
    let status = try_update(&mut client, other.clone()).await.unwrap_err();
    refused(&status, Code::AlreadyExists, "REQUEST_CONFLICT");
    let stale = UpdateWorkingStateRequest {
        request_id: String::new(),
        expected_revision: Some(reply.revision - 1),
        ..other
    };
    let status = try_update(&mut client, stale).await.unwrap_err();
    refused(&status, Code::Aborted, "REVISION_MISMATCH");
}

#[tokio::test]
async fn p20_working_state_is_attached_and_open_calls_are_not_compacted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "worker.enabled=false"]);
    let mut client = server.context().await;
    let session = "p20";
    let mut messages = work(0);
    // The attached file is the content of the read without line numbers, after the edit.
    let read = json!({"type": "tool_use", "id": "read", "name": "Read", "input": {"file_path": "/src/a.rs"}});
    let edit = json!({"type": "tool_use", "id": "edit", "name": "Edit", "input": {"file_path": "/src/a.rs", "old_string": "one", "new_string": "uno"}});
    messages.extend([
        user("look at it and change it"),
        anthropic(&json!({"role": "assistant", "content": [read]})),
        result("read", "     1→// one\n     2→fn a() {}"),
        anthropic(&json!({"role": "assistant", "content": [edit]})),
        result("edit", "changed"),
        assistant("it is changed"),
        user("and now test it"),
        assistant_call("open"),
    ]);
    appended(&mut client, session, messages).await;
    let state = WorkingState {
        plan: Some(Plan {
            path: "/plan.md".into(),
            content: "1. change it\n2. test it".into(),
        }),
        tasks: vec![Task {
            task_id: "7".into(),
            subject: "test it".into(),
            status: TaskStatus::InProgress.into(),
            blocked_by: vec!["6".into()],
            agent: "tester".into(),
            metadata: [("prio".to_owned(), "high".to_owned())].into(),
            ..Task::default()
        }],
        tools: vec![Capability {
            name: "Deploy".into(),
            description: "Puts it out.".into(),
            discovered: true,
        }],
        notes: vec![note("n", "the API stays as it is")],
        pins: pins(vec![("p", pin::Target::Text("  exactly\tthis ".into()))]).pins,
        ..WorkingState::default()
    };
    update(&mut client, setting(session, state)).await;
    view(&mut client, session).await;
    let compaction = compact(&mut client, session).await.compaction.unwrap();
    let kinds: Vec<_> = compaction
        .attachments
        .iter()
        .map(|one| (one.kind(), &*one.name, one.omitted))
        .collect();
    let expected = [
        (AttachmentKind::File, "/src/a.rs", false),
        (AttachmentKind::Plan, "/plan.md", false),
        (AttachmentKind::Tasks, "", false),
        (AttachmentKind::Tools, "", false),
        (AttachmentKind::Notes, "", false),
        (AttachmentKind::Pin, "p", false),
    ];
    assert_eq!(kinds, expected);
    let boundary = compaction.boundary.unwrap();
    assert_eq!(boundary.discovered_tools, ["Deploy"]);
    // After the open call has its result, the view contains everything.
    appended(&mut client, session, vec![result("open", "all pass")]).await;
    let reply = client.prepare_context(prepare(&name(session), Vec::new()));
    let reply = reply.await.unwrap().into_inner();
    assert!(reply.sendable, "{reply:?}");
    let all = json!(values(&reply.messages_json)).to_string();
    // Content that is both kept and attached would appear twice.
    for said in [
        r"// uno\nfn a() {}\n",
        r"1. change it\n2. test it",
        "[in progress] 7: test it",
        "(blocked by 6; agent tester; prio high)",
        "Deploy (found during this session): Puts it out.",
        "the API stays as it is",
        r#""  exactly\tthis ""#,
        r#""text":"and now test it"#,
        r#""id":"open""#,
        "all pass",
    ] {
        assert_eq!(all.matches(said).count(), 1, "{said} in {all}");
    }
    // Each attachment is a separate message in the transcript.
    let mut sessions = server.sessions().await;
    let request = ListMessagesRequest {
        session: name(session),
        ..ListMessagesRequest::default()
    };
    let listed = sessions.list_messages(request).await.unwrap().into_inner();
    for one in &compaction.attachments {
        let found = listed
            .messages
            .iter()
            .find(|message| message.id == one.message_id);
        assert!(found.is_some(), "{one:?}");
    }
}

#[tokio::test]
async fn p05_pins_are_the_same_bytes_after_ten_compactions() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "worker.enabled=false"]);
    let mut client = server.context().await;
    let session = "p05";
    // White space and a character outside the basic plane reveal any normalization.
    let rule = "never push to\tmain  \n\u{1f512}";
    let messages = vec![
        with_id(&uuid(1), user(rule)),
        assistant("understood"),
        user("read it"),
        assistant_call("spec"),
        with_id(&uuid(2), result("spec", "the whole specification\r\n")),
        assistant("it is read"),
    ];
    appended(&mut client, session, messages).await;
    let pinned = pins(vec![
        ("rule", message(1)),
        (
            "spec",
            pin::Target::Block(BlockRef {
                message_id: uuid(2),
                block_index: 0,
            }),
        ),
        ("text", pin::Target::Text("  in these words\r\n ".into())),
    ]);
    update(&mut client, setting(session, pinned)).await;
    // The view is searched as JSON, so the expected texts are escaped like JSON.
    let expected = [
        json!("the whole specification\r\n").to_string(),
        json!("  in these words\r\n ").to_string(),
    ];
    for round in 0..10 {
        appended(&mut client, session, work(round)).await;
        appended(&mut client, session, vec![user("go on")]).await;
        view(&mut client, session).await;
        let compaction = compact(&mut client, session).await.compaction.unwrap();
        let boundary = compaction.boundary.unwrap();
        assert!(boundary.kept_message_ids.contains(&uuid(1)), "{boundary:?}");
        let reply = client.prepare_context(prepare(&name(session), Vec::new()));
        let values = values(&reply.await.unwrap().into_inner().messages_json);
        let all = json!(values).to_string();
        for said in &expected {
            assert_eq!(all.matches(said).count(), 1, "round {round}: {said}\n{all}");
        }
        // A file or a summary may quote the rule, so a text block must be equal to the rule.
        let texts = values.iter().flat_map(|message| {
            let blocks = message["content"].as_array().cloned().unwrap_or_default();
            blocks
                .into_iter()
                .filter_map(|block| Some(block["text"].as_str()?.to_owned()))
        });
        let same = texts.filter(|text| text == rule).count();
        assert_eq!(same, 1, "round {round}");
    }
}

#[tokio::test]
async fn p05_no_level_removes_pinned_content() {
    let folder = tempfile::tempdir().unwrap();
    let quiet = ["--set", "worker.enabled=false"];
    let server = Server::start(folder.path(), &quiet);
    let mut client = server.context().await;
    let session = "p05-levels";
    // Five results of 45,000 characters together exceed the limit of a message.
    let ids = ["a", "b", "c", "d", "e"];
    let calls: Vec<_> = ids
        .iter()
        .map(|id| json!({"type": "tool_use", "id": id, "name": "Read", "input": {"path": id}}))
        .collect();
    let mut messages = vec![
        with_id(&uuid(1), user("look")),
        anthropic(&json!({"role": "assistant", "content": calls})),
    ];
    for (number, id) in (10..).zip(ids) {
        // The pinned result is one character longer than the others, so level 1 would store it first.
        let text = format!("{id} {}", id.repeat(45_000 + usize::from(id == "a")));
        messages.push(with_id(&uuid(number), result(id, &text)));
    }
    appended(&mut client, session, messages).await;
    update(
        &mut client,
        setting(session, pins(vec![("p", message(10))])),
    )
    .await;
    let pinned = format!("a {}", "a".repeat(45_001));
    // Level 1 stores another result, although the pinned one is the largest.
    let shown = view(&mut client, session).await;
    assert!(shown.contains(&pinned) && shown.contains("<persisted-output>"));
    appended(
        &mut client,
        session,
        vec![assistant("seen"), with_id(&uuid(2), user("go on"))],
    )
    .await;
    view(&mut client, session).await;
    // Level 2 rejects the pinned block, alone and with its message.
    let mut sessions = server.sessions().await;
    let request = ListMessagesRequest {
        session: name(session),
        ..ListMessagesRequest::default()
    };
    let listed = sessions.list_messages(request).await.unwrap().into_inner();
    let flags: Vec<_> = listed
        .messages
        .iter()
        .filter(|message| message.pinned)
        .collect();
    assert_eq!(flags.len(), 1);
    let snips = [
        SnipRequest {
            turn_ids: vec![listed.messages[0].turn_id.clone()],
            ..SnipRequest::default()
        },
        SnipRequest {
            message_ids: vec![uuid(10)],
            ..SnipRequest::default()
        },
        SnipRequest {
            message_ids: vec![listed.messages[1].id.clone()],
            ..SnipRequest::default()
        },
        SnipRequest {
            blocks: vec![BlockRef {
                message_id: uuid(10),
                block_index: 0,
            }],
            ..SnipRequest::default()
        },
    ];
    for snip in snips {
        let request = SnipRequest {
            session: name(session),
            ..snip
        };
        let status = client.snip(request).await.unwrap_err();
        let metadata = refused(&status, Code::FailedPrecondition, "PINNED");
        assert_eq!(metadata["pin_id"], "p");
    }
    // Level 3 clears all others except the last few. Level 4 does not collapse the pinned round.
    for level in [Level::Microcompact, Level::Collapse] {
        let request = CompactRequest {
            session: name(session),
            level: level.into(),
            target_tokens: Some(1),
            ..CompactRequest::default()
        };
        // A level without any other content to reduce returns an error.
        let reply = client.compact(request).await;
        if let Err(status) = reply {
            assert_eq!(
                status.code(),
                Code::FailedPrecondition,
                "{level:?}: {status:?}"
            );
        }
        assert!(
            view(&mut client, session).await.contains(&pinned),
            "{level:?}"
        );
    }
    appended(&mut client, session, work(1)).await;
    appended(&mut client, session, vec![user("go on")]).await;
    view(&mut client, session).await;
    compact(&mut client, session).await;
    assert!(view(&mut client, session).await.contains(&pinned));
    // Without the pin, the content can be removed.
    let remove = UpdateWorkingStateRequest {
        session: name(session),
        remove: Some(WorkingStateRemoval {
            pin_ids: vec!["p".into()],
            ..WorkingStateRemoval::default()
        }),
        ..UpdateWorkingStateRequest::default()
    };
    update(&mut client, remove).await;
    compact(&mut client, session).await;
    let after = view(&mut client, session).await;
    assert!(!after.contains(r#""type":"tool_result""#));
    // Removed content cannot be pinned.
    let late = setting(session, pins(vec![("late", message(10))]));
    let status = try_update(&mut client, late).await.unwrap_err();
    let metadata = refused(&status, Code::FailedPrecondition, "MESSAGE_NOT_VISIBLE");
    assert_eq!(metadata["visibility"], "COMPACTED");
}
