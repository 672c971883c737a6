//! Tests of deletion: it reports completion, survives a crash, and leaves no data.

use std::time::Duration;

use palimpsest_proto::context::v1::{
    CreateSessionRequest, GetSessionRequest, Session, UpdateSessionRequest,
};
use palimpsest_tests::say::{append, prepare, user};
use palimpsest_tests::{Server, name, refused};
use tokio::time::Instant;
use tonic::Code;

use super::{SETTINGS, delete, files, fill};

#[tokio::test]
async fn a_deletion_removes_everything_and_reports_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    let mut client = server.sessions().await;
    fill(&server, &name("gone"), 3).await;
    fill(&server, &name("kept"), 2).await;
    assert_eq!(files(folder.path(), "gone").len(), 3);
    // The partial file of a process that was killed during a write.
    let results = folder.path().join("blobs/p/gone/tool-results");
    std::fs::write(results.join("half-written.txt#1"), "left").unwrap();
    let reply = client.delete_session(delete(&name("gone"))).await.unwrap();
    let reply = reply.into_inner();
    assert_eq!((reply.deleted_sessions, reply.complete), (1, true));
    assert!(!folder.path().join("blobs/p/gone").exists());
    assert_eq!(files(folder.path(), "kept").len(), 2);
    let again = client.delete_session(delete(&name("gone"))).await;
    refused(&again.unwrap_err(), Code::NotFound, "SESSION_NOT_FOUND");
    // A new session under the same name is empty.
    fill(&server, &name("gone"), 1).await;
    let get = GetSessionRequest {
        session: name("gone"),
        ..GetSessionRequest::default()
    };
    let session = client.get_session(get).await.unwrap().into_inner();
    assert_eq!(session.session.unwrap().counts.unwrap().messages, 3);
    assert_eq!(files(folder.path(), "gone").len(), 1);
}

/// At whatever point the process ends, the session is complete or deleted. A restart finishes the deletion by itself.
#[tokio::test]
async fn an_interrupted_deletion_is_completed() {
    for point in [
        "log.decided", "log.synced", "delete.begun", "blob.deleted:2", "delete.removed",
        "delete.forgotten",
    ] {
        // Some points exist in the embedded log only. At the others, a shared store removes nothing until the lease of
        // the killed process expires, which takes long. One such point is therefore sufficient.
        let is_shared = palimpsest_tests::is_on_a_database();
        if is_shared && point != "blob.deleted:2" {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), SETTINGS);
        fill(&server, &name("gone"), 3).await;
        server.kill();
        let settings = [SETTINGS, &["--set", "store.canary_every_ms=3600000"]].concat();
        // The first write of this process is the write check.
        let at = point
            .strip_prefix("log.")
            .map_or_else(|| point.to_owned(), |point| format!("log.{point}:2"));
        let server = Server::start_with(folder.path(), &settings, &[("CRASH_AT", &at)]);
        let mut client = server.sessions().await;
        let cut = client.delete_session(delete(&name("gone"))).await;
        // A background task may reach the last point. The call can then reply first, and its reply is true.
        match cut {
            Err(_) => {}
            Ok(reply) => {
                assert_eq!(point, "delete.forgotten");
                assert!(reply.into_inner().complete);
            }
        }
        server.wait();

        let server = Server::start(folder.path(), SETTINGS);
        let mut client = server.sessions().await;
        let get = GetSessionRequest {
            session: name("gone"),
            ..GetSessionRequest::default()
        };
        match client.get_session(get).await {
            Ok(_) => {
                assert_eq!(point, "log.decided");
                assert_eq!(files(folder.path(), "gone").len(), 3);
                let reply = client.delete_session(delete(&name("gone"))).await.unwrap();
                assert!(reply.into_inner().complete);
            }
            Err(status) => {
                assert_ne!(point, "log.decided");
                refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
                let began = Instant::now();
                while folder.path().join("blobs/p/gone").exists() {
                    assert!(
                        began.elapsed() < Duration::from_mins(3),
                        "{point}: files are left"
                    );
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
        let mut context = server.context().await;
        let new = context.append_messages(append(&name("gone"), vec![user("new")]));
        // The creation and the message are two events. Remains of the old log would raise the revision.
        assert_eq!(new.await.unwrap().into_inner().revision, 2, "{point}");
        server.kill();
    }
}

#[tokio::test]
async fn a_hold_protects_a_session_and_its_family() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    let mut client = server.sessions().await;
    let create = |id: &str, parent: &str, hold: &str| CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: id.into(),
        session: Some(Session {
            parent_session: parent.into(),
            hold: hold.into(),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    for (id, parent, hold) in [
        ("main", String::new(), ""),
        ("sub", name("main"), ""),
        ("subsub", name("sub"), "case 7"),
    ] {
        let created = client.create_session(create(id, &parent, hold)).await;
        assert_eq!(created.unwrap().into_inner().session.unwrap().hold, hold);
    }
    let mut request = delete(&name("main"));
    let status = client.delete_session(request.clone()).await.unwrap_err();
    let metadata = refused(&status, Code::FailedPrecondition, "SESSION_HAS_SUBAGENTS");
    assert_eq!(metadata["subagents"], "2");
    request.delete_subagents = true;
    let status = client.delete_session(request.clone()).await.unwrap_err();
    let metadata = refused(&status, Code::FailedPrecondition, "SESSION_ON_HOLD");
    assert_eq!(metadata["session"], name("subsub"));
    for id in ["main", "sub", "subsub"] {
        let prepared = prepare(&name(id), vec![user("still here")]);
        server
            .context()
            .await
            .prepare_context(prepared)
            .await
            .unwrap();
    }
    let lift = UpdateSessionRequest {
        session: Some(Session {
            name: name("subsub"),
            ..Session::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["hold".into()],
        }),
        ..UpdateSessionRequest::default()
    };
    let lifted = client.update_session(lift).await.unwrap().into_inner();
    assert_eq!(lifted.session.unwrap().hold, "");
    let reply = client.delete_session(request).await.unwrap().into_inner();
    assert_eq!((reply.deleted_sessions, reply.complete), (3, true));
}
