//! Tests that sessions past their retention are exported and deleted, and that protected sessions stay.

use std::path::Path;
use std::time::Duration;

use palimpsest_proto::context::v1::{
    CreateSessionRequest, ListMessagesRequest, ListSessionsRequest, Session, UpdateSessionRequest,
    WatchSessionRequest,
};
use palimpsest_tests::say::{append, user};
use palimpsest_tests::unreadable::add_unreadable_session;
use palimpsest_tests::{Server, files_below, name};
use tokio::time::Instant;

use super::{SETTINGS, files, fill, succeeds};

const PATIENCE: Duration = Duration::from_mins(2);

fn with<'a>(settings: &[&'a str]) -> Vec<&'a str> {
    let set = settings.iter().flat_map(|setting| ["--set", setting]);
    let quick = [
        "--set",
        "retention.every_ms=200",
        "--set",
        "retention.duty_cycle_percent=100",
    ];
    SETTINGS.iter().copied().chain(quick).chain(set).collect()
}

async fn names(server: &Server) -> Vec<String> {
    let request = ListSessionsRequest {
        parent: "projects/p".into(),
        page_size: 1_000,
        ..ListSessionsRequest::default()
    };
    let list = server.sessions().await.list_sessions(request).await;
    let sessions = list.unwrap().into_inner().sessions.into_iter();
    let mut names: Vec<_> = sessions
        .map(|it| it.name.rsplit('/').next().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

async fn become_names(server: &Server, expected: &[&str]) {
    let began = Instant::now();
    loop {
        let names = names(server).await;
        if names == expected {
            return;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{names:?} instead of {expected:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn create(server: &Server, id: &str, parent: &str, hold: &str) {
    let request = CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: id.into(),
        session: Some(Session {
            parent_session: parent.into(),
            hold: hold.into(),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    server
        .sessions()
        .await
        .create_session(request)
        .await
        .unwrap();
}

async fn touch(server: &Server, session: &str) {
    let said = append(&name(session), vec![user("and this")]);
    server.context().await.append_messages(said).await.unwrap();
}

/// Removes the hold of a session.
async fn release(server: &Server, session: &str) {
    let request = UpdateSessionRequest {
        session: Some(Session {
            name: name(session),
            ..Session::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["hold".into()],
        }),
        ..UpdateSessionRequest::default()
    };
    let mut sessions = server.sessions().await;
    sessions.update_session(request).await.unwrap();
}

fn exported(place: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in files_below(place) {
        let text = std::fs::read_to_string(&entry).unwrap();
        found.push(text);
    }
    found.sort();
    found
}

#[tokio::test]
async fn expired_sessions_are_exported_and_deleted_unless_needed() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (data, place) = (root.path().join("data"), root.path().join("exports"));
    let url = format!("retention.export_url=file://{}", place.display());
    let server = Server::start(&data, SETTINGS);
    fill(&server, &name("old"), 3).await;
    let mut client = server.sessions().await;
    let list = ListMessagesRequest {
        session: name("old"),
        ..ListMessagesRequest::default()
    };
    let messages = client
        .list_messages(list)
        .await
        .unwrap()
        .into_inner()
        .messages;
    assert_eq!(files(&data, "old").len(), 3);
    create(&server, "held", "", "case 7").await;
    create(&server, "parent", "", "").await;
    // The holds protect the sessions until the test watches them.
    create(&server, "child", &name("parent"), "for now").await;
    create(&server, "watched", "", "for now").await;
    server.stop();

    let server = Server::start(&data, &with(&[&url, "retention.max_age=3s"]));
    let mut client = server.sessions().await;
    let mut watching = Vec::new();
    for id in ["child", "watched"] {
        let watch = WatchSessionRequest {
            session: name(id),
            ..WatchSessionRequest::default()
        };
        watching.push(client.watch_session(watch).await.unwrap());
        release(&server, id).await;
    }
    // All other sessions are older than this one, so they have expired when it is deleted. A child protects its parent.
    create(&server, "youngest", "", "").await;
    become_names(&server, &["child", "held", "parent", "watched"]).await;
    let texts = exported(&place);
    assert_eq!(texts.len(), 2, "two sessions were deleted");
    let old: Vec<_> = texts
        .iter()
        .filter(|text| text.contains(&messages[0].id))
        .collect();
    // The first line is a header, and the last line confirms completeness.
    assert_eq!(old[0].lines().count(), messages.len() + 2);
    for message in &messages {
        assert!(old[0].contains(&message.id));
    }
    let began = Instant::now();
    while data.join("blobs/p/old").exists() {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(watching);
    become_names(&server, &["held"]).await;
    // `old` and `youngest` left first. `child`, `watched` and `parent` followed.
    assert_eq!(exported(&place).len(), 5);
    server.stop();
    let checked = succeeds(&[
        "verify-store",
        "--json",
        "--data-dir",
        data.to_str().unwrap(),
    ]);
    let checked: serde_json::Value = serde_json::from_str(&checked).unwrap();
    assert_eq!(
        (
            &checked["sessions"], &checked["deleting"], &checked["orphans"]
        ),
        (&1.into(), &0.into(), &0.into())
    );
}

#[tokio::test]
async fn a_failed_export_prevents_the_deletion() {
    let root = tempfile::tempdir().unwrap();
    let (data, place) = (root.path().join("data"), root.path().join("exports"));
    let url = format!("retention.export_url=file://{}", place.display());
    let server = Server::start(&data, &with(&[&url, "retention.max_age=1s"]));
    // A file blocks the creation of the project's folder.
    std::fs::write(place.join("p"), "in the way").unwrap();
    fill(&server, &name("kept"), 1).await;
    let began = Instant::now();
    let failed = |line: &String| line.contains("failed to export an expired session");
    while !server.log().iter().any(failed) {
        assert!(began.elapsed() < PATIENCE, "{:?}", server.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(names(&server).await, ["kept"]);
    std::fs::remove_file(place.join("p")).unwrap();
    become_names(&server, &[]).await;
    assert_eq!(exported(&place).len(), 1);
}

#[tokio::test]
async fn a_project_above_its_quota_loses_its_oldest_sessions() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let config = root.path().join("palimpsest.toml");
    // In a project, 0 means no quota.
    let text = "[retention]\nmax_sessions = 1\nevery_ms = 200\n\
                [projects.p.retention]\nmax_sessions = 3\n\
                [projects.free.retention]\nmax_sessions = 0\n";
    std::fs::write(&config, text).unwrap();
    let server = Server::start(&data, SETTINGS);
    for session in ["a", "b", "c", "d", "e"] {
        touch(&server, session).await;
        let free = append(
            &format!("projects/free/sessions/{session}"),
            vec![user("x")],
        );
        server.context().await.append_messages(free).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The last change counts, so `a` becomes the newest of the five.
    touch(&server, "a").await;
    server.stop();
    let with_config = [SETTINGS, &["--config", config.to_str().unwrap()]].concat();
    let server = Server::start(&data, &with_config);
    become_names(&server, &["a", "d", "e"]).await;
    let list = ListSessionsRequest {
        parent: "projects/free".into(),
        ..ListSessionsRequest::default()
    };
    let free = server.sessions().await.list_sessions(list).await.unwrap();
    assert_eq!(free.into_inner().sessions.len(), 5);
}

#[tokio::test]
async fn an_unreadable_row_does_not_stop_retention() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path();
    let server = Server::start(data, SETTINGS);
    for session in ["old", "older"] {
        touch(&server, session).await;
    }
    server.stop();
    // Retention reads the rows in the order of their names, so these are the first and the last one.
    for session in ["a", "z"] {
        add_unreadable_session(data, &name(session)).await;
    }
    let server = Server::start(data, &with(&["retention.max_age=1s"]));
    become_names(&server, &[]).await;
    let list = ListSessionsRequest {
        parent: "projects/p".into(),
        ..ListSessionsRequest::default()
    };
    let left = server.sessions().await.list_sessions(list).await.unwrap();
    assert_eq!(left.into_inner().unreadable_sessions, 2);
}
