//! Tests of `UpdateSessionMemory`: the text of a person becomes a version and reaches the file.

use palimpsest_proto::context::v1::{
    CreateSessionRequest, GetSessionRequest, MemorySource, MemoryState, Policy, Session,
    SessionMemoryPolicy, UpdateSessionMemoryRequest,
};
use palimpsest_tests::{refused, refused_field};
use tonic::{Code, Status};

use super::*;

/// A key of a known form.
const KEY: &str = "sk-ant-api03-Zq7xKJ2mPvL9sTnR4wYbC6dFgH8jN1kQ";

fn edit(session: &str, text: &str, expected_version: u64) -> UpdateSessionMemoryRequest {
    UpdateSessionMemoryRequest {
        session: session.to_owned(),
        text: text.to_owned(),
        expected_version,
        ..UpdateSessionMemoryRequest::default()
    }
}

async fn update(
    client: &mut Context,
    request: UpdateSessionMemoryRequest,
) -> Result<SessionMemory, Status> {
    let response = client.update_session_memory(request).await?;
    Ok(response.into_inner().memory.unwrap())
}

async fn revision(server: &Server, session: &str) -> u64 {
    let request = GetSessionRequest {
        session: session.to_owned(),
        ..GetSessionRequest::default()
    };
    let found = server.sessions().await.get_session(request).await.unwrap();
    found.into_inner().session.unwrap().revision
}

#[tokio::test]
async fn a_text_of_a_call_reaches_the_file_and_survives_updates() {
    let running = SERVER.get();
    let (server, folder) = &*running;
    let mut client = server.context().await;
    let session = named("by-call");
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    let first = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    let path = file(folder.path(), &session);
    file_when(&path, |text| text == first.text).await;
    // A key of a known form is removed, as from every text.
    // The line before the next heading belongs to `Learnings`.
    let rule = format!("Ask Ann before {KEY} is used.\n# Old heading\n\n# Key results\n");
    let text = first.text.replace("# Key results\n", &rule);

    let before = revision(server, &session).await;
    let mut request = edit(&session, &text, first.version);
    request.dry_run = true;
    let planned = update(&mut client, request.clone()).await.unwrap();
    assert_eq!(planned.version, first.version + 1);
    assert_eq!(revision(server, &session).await, before, "a dry run wrote");

    request.dry_run = false;
    request.request_id = "edit-1".into();
    let edited = update(&mut client, request.clone()).await.unwrap();
    assert_eq!(edited.source(), MemorySource::Edited);
    assert_eq!(
        (edited.version, &edited.text),
        (planned.version, &planned.text)
    );
    assert_eq!(
        edited.last_summarized_message_id,
        first.last_summarized_message_id
    );
    let learnings = section(&edited, "Learnings");
    assert!(learnings.starts_with("Ask Ann before "), "{learnings}");
    assert!(learnings.contains("# Old heading"), "{learnings}");
    assert!(!learnings.contains(KEY), "a secret was stored");
    // No update is due, and the file is written all the same.
    file_when(&path, |text| text == edited.text).await;
    let after = revision(server, &session).await;

    // A repeat is answered, although its version has passed. The same text as a new call changes nothing.
    let again = update(&mut client, request).await.unwrap();
    assert_eq!(again.version, edited.version);
    let same = edit(&session, &edited.text, edited.version);
    assert_eq!(
        update(&mut client, same).await.unwrap().version,
        edited.version
    );
    assert_eq!(revision(server, &session).await, after);

    // An update needs 5,000 tokens and three calls.
    say(&mut client, &session, turn(2, 3, 6_500)).await;
    let next = memory_when(&mut client, &session, |it| it.version > edited.version).await;
    assert_eq!(next.source(), MemorySource::Extractive);
    assert!(
        section(&next, "Learnings").contains("Ask Ann before "),
        "{}",
        next.text
    );
    assert!(next.text.contains("mend module 2"), "{}", next.text);
    file_when(&path, |text| text == next.text).await;
}

#[tokio::test]
async fn an_edit_of_the_file_that_is_not_recorded_yet_is_kept() {
    let running = SERVER.get();
    let (server, folder) = &*running;
    let mut client = server.context().await;
    let session = named("by-call-and-file");
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    let first = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    let path = file(folder.path(), &session);
    let text = file_when(&path, |text| text == first.text).await;
    let by_hand = text.replace("# Key results\n", "By hand.\n\n# Key results\n");
    std::fs::write(&path, by_hand).unwrap();

    let by_call = first
        .text
        .replace("# Key results\n", "By call.\n\n# Key results\n");
    let status = update(&mut client, edit(&session, &by_call, first.version)).await;
    let metadata = refused(
        &status.unwrap_err(),
        Code::Aborted,
        "MEMORY_VERSION_MISMATCH",
    );
    assert_eq!(metadata["current_version"], (first.version + 1).to_string());
    let recorded = memory(&mut client, &session).await;
    assert_eq!(recorded.source(), MemorySource::Edited);
    assert!(section(&recorded, "Learnings").contains("By hand."));

    let both = recorded.text.replace("By hand.\n", "By hand.\nBy call.\n");
    let edited = update(&mut client, edit(&session, &both, recorded.version));
    let edited = edited.await.unwrap();
    let learnings = section(&edited, "Learnings");
    assert!(learnings.contains("By hand.") && learnings.contains("By call."));
    file_when(&path, |text| text == edited.text).await;
    assert_eq!(memory(&mut client, &session).await.version, edited.version);
}

/// An editor that only adds blank lines makes a file with another digest and the same lines.
#[tokio::test]
async fn a_file_with_the_same_lines_does_not_replace_the_text_of_a_call() {
    let running = SERVER.get();
    let (server, folder) = &*running;
    let mut client = server.context().await;
    let session = named("by-call-same-file");
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    let first = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    let path = file(folder.path(), &session);
    let text = file_when(&path, |text| text == first.text).await;
    std::fs::write(&path, format!("\n\n{text}\n\n")).unwrap();
    let by_call = text.replace("# Key results\n", "By call.\n\n# Key results\n");
    let edited = update(&mut client, edit(&session, &by_call, first.version));
    let edited = edited.await.unwrap();
    assert_eq!(edited.version, first.version + 1);
    file_when(&path, |text| text == edited.text).await;
    assert_eq!(memory(&mut client, &session).await.version, edited.version);
}

#[tokio::test]
async fn a_person_can_write_the_first_text() {
    let running = SERVER.get();
    let (server, folder) = &*running;
    let mut client = server.context().await;
    let session = named("by-call-first");
    say(&mut client, &session, turn(1, 1, 100)).await;
    let text = "# Task specification\nMend the importer.\n";
    let edited = update(&mut client, edit(&session, text, 0)).await.unwrap();
    assert_eq!((edited.version, edited.source()), (1, MemorySource::Edited));
    assert_eq!(edited.last_summarized_message_id, "");
    let path = file(folder.path(), &session);
    file_when(&path, |text| text == edited.text).await;
}

/// The commit of the call puts the session into the work queue, so a worker that starts later writes the file.
#[tokio::test]
async fn a_text_reaches_the_file_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = own(folder.path(), &["--set", "worker.enabled=false"]);
    let mut client = server.context().await;
    let session = named("by-call-restart");
    say(&mut client, &session, turn(1, 1, 100)).await;
    let text = "# Task specification\nMend the importer.\n";
    let edited = update(&mut client, edit(&session, text, 0)).await.unwrap();
    let path = file(folder.path(), &session);
    assert!(!path.exists());
    server.kill();
    let _server = own(folder.path(), &[]);
    file_when(&path, |text| text == edited.text).await;
}

#[tokio::test]
async fn an_unusable_text_is_rejected_and_changes_nothing() {
    let running = SERVER.get();
    let server = &running.0;
    let mut client = server.context().await;
    let session = named("by-call-rejected");
    let good = "# Learnings\nAsk Ann.\n";
    let missing = update(&mut client, edit(&session, good, 0)).await;
    refused(&missing.unwrap_err(), Code::NotFound, "SESSION_NOT_FOUND");

    say(&mut client, &session, turn(1, 1, 100)).await;
    let before = revision(server, &session).await;
    let outdated = update(&mut client, edit(&session, good, 3)).await;
    let metadata = refused(
        &outdated.unwrap_err(),
        Code::Aborted,
        "MEMORY_VERSION_MISMATCH",
    );
    assert_eq!(
        (
            &*metadata["expected_version"],
            &*metadata["current_version"]
        ),
        ("3", "0")
    );
    for text in ["", "Ask Ann.\n", "# My own heading\nAsk Ann.\n"] {
        let status = update(&mut client, edit(&session, text, 0)).await;
        refused_field(&status.unwrap_err(), "text");
    }
    // 8 bytes for each of the 12,000 tokens of the policy.
    let large = format!("# Learnings\n{}", "x".repeat(96_000));
    let status = update(&mut client, edit(&session, &large, 0)).await;
    let metadata = refused(
        &status.unwrap_err(),
        Code::ResourceExhausted,
        "MESSAGE_TOO_LARGE",
    );
    assert_eq!(metadata["limit_bytes"], "96000");
    assert_eq!(revision(server, &session).await, before);
    // A smaller text is cut to the limits, like an edit of the file.
    let long = format!("# Learnings\n{}", "one more rule\n".repeat(2_000));
    let cut = update(&mut client, edit(&session, &long, 0)).await.unwrap();
    let learnings = cut.sections.iter().find(|it| it.title == "Learnings");
    assert!(learnings.unwrap().truncated);
}

#[tokio::test]
async fn a_session_without_session_memory_takes_no_text() {
    let running = SERVER.get();
    let server = &running.0;
    let create = CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: "memory-by-call-off".into(),
        session: Some(Session {
            policy_overrides: Some(Policy {
                session_memory: Some(SessionMemoryPolicy {
                    enabled: Some(false),
                    ..SessionMemoryPolicy::default()
                }),
                ..Policy::default()
            }),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    server
        .sessions()
        .await
        .create_session(create)
        .await
        .unwrap();
    let mut client = server.context().await;
    let session = named("by-call-off");
    let status = update(&mut client, edit(&session, "# Learnings\nx\n", 0)).await;
    let metadata = refused(
        &status.unwrap_err(),
        Code::FailedPrecondition,
        "DISABLED_BY_POLICY",
    );
    assert_eq!(metadata["setting"], "session_memory.enabled");
}
