//! Tests of a disk that fills up under the server. Writes are rejected with instructions, reads continue, and readiness
//! changes. The server recovers without a restart once space is free. The test uses a small file system of its own.
//! Without the right to mount, the test prints a message and does nothing.

#![expect(clippy::disallowed_methods, reason = "real time passes")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use palimpsest_proto::context::v1::{
    DeleteSessionRequest, GetSessionMemoryRequest, GetSessionRequest, ListMessagesRequest,
};
use palimpsest_tests::refused;
use palimpsest_tests::say::{append, noise, prepare, user};
use palimpsest_tests::server::Server;
use tonic::Code;
use tonic_types::StatusExt as _;

/// Unmounts on drop.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"])
            .arg(folder.path())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(folder))
    }

    /// Fills the remaining space with a foreign file.
    fn fill(&self) {
        let file = std::fs::File::create(self.0.path().join("ballast")).unwrap();
        // Writes of 64 KiB leave at most this much space when the first one fails.
        while std::io::Write::write_all(&mut &file, &vec![1; 1 << 16]).is_ok() {}
    }

    fn empty(&self) {
        std::fs::remove_file(self.0.path().join("ballast")).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A lazy unmount succeeds although files of the server may still be open.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn start(folder: &Path, reserve: &str) -> Server {
    let settings = settings(reserve);
    let args: Vec<_> = settings.iter().flat_map(|set| ["--set", set]).collect();
    Server::start(folder, &args)
}

fn settings(reserve: &str) -> [String; 3] {
    [
        "worker.enabled=false".into(),
        "store.canary_every_ms=100".into(),
        format!("store.min_free_bytes={reserve}"),
    ]
}

#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
async fn check_recovery_from_a_full_disk(reserve: &str) {
    let Some(disk) = Mounted::new() else {
        eprintln!("skipped: nothing can be mounted here, which takes root");
        return;
    };
    let data = disk.0.path().join("data");
    let server = start(&data, reserve);
    let mut client = server.context().await;
    let session = "projects/p/sessions/full";
    let said = |n: u64| append(session, vec![user(&format!("{n} {}", noise(n, 20_000)))]);
    for n in 0..20 {
        client.append_messages(said(n)).await.unwrap();
    }
    client
        .prepare_context(prepare(session, vec![]))
        .await
        .unwrap();
    disk.fill();
    let mut acknowledged = 20;
    let status = loop {
        match client.append_messages(said(acknowledged)).await {
            Ok(_) => acknowledged += 1,
            Err(status) => break status,
        }
        assert!(acknowledged < 5_000, "the disk was never full");
    };
    refused(&status, Code::Unavailable, "STORE_FULL");
    let retry = status.get_details_retry_info();
    assert!(retry.and_then(|retry| retry.retry_delay).is_some());
    // Reads continue.
    let mut sessions = server.sessions().await;
    let get = GetSessionRequest {
        session: session.into(),
        ..Default::default()
    };
    sessions.get_session(get).await.unwrap();
    let list = || ListMessagesRequest {
        session: session.into(),
        page_size: 1_000,
        ..Default::default()
    };
    let listed = sessions.list_messages(list()).await.unwrap().into_inner();
    assert!(listed.messages.len() as u64 >= acknowledged.min(100));
    let memory = GetSessionMemoryRequest {
        session: session.into(),
        ..Default::default()
    };
    client.get_session_memory(memory).await.unwrap();
    // Readiness changes.
    let logged = |text: &str| server.log().iter().any(|line| line.contains(text));
    let began = Instant::now();
    while !logged("the server is not ready") {
        assert!(
            began.elapsed() < Duration::from_mins(2),
            "the server did not become unready"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // After space is freed, the server recovers by itself.
    disk.empty();
    let began = Instant::now();
    while let Err(status) = client.append_messages(said(acknowledged)).await {
        refused(&status, Code::Unavailable, "STORE_FULL");
        assert!(began.elapsed() < Duration::from_mins(2), "{status:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.kill();
    let server = start(&data, reserve);
    let mut sessions = server.sessions().await;
    let mut texts = Vec::new();
    let mut page = list();
    loop {
        let listed = sessions
            .list_messages(page.clone())
            .await
            .unwrap()
            .into_inner();
        texts.extend(listed.messages.iter().map(|message| format!("{message:?}")));
        if listed.next_page_token.is_empty() {
            break;
        }
        page.page_token = listed.next_page_token;
    }
    // The last number is that of the message after the recovery.
    for n in 0..=acknowledged {
        let begins = format!("{n} {}", &noise(n, 20_000)[..40]);
        assert!(
            texts.iter().any(|text| text.contains(&begins)),
            "{n} is lost"
        );
    }
}

#[tokio::test]
async fn writes_stop_before_the_disk_is_full_and_resume_with_free_space() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    check_recovery_from_a_full_disk("8388608").await;
}

#[tokio::test]
async fn the_server_recovers_from_an_unexpectedly_full_disk() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    check_recovery_from_a_full_disk("0").await;
}

#[tokio::test]
async fn a_process_killed_on_a_full_disk_starts_for_reads_and_deletions() {
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let Some(disk) = Mounted::new() else {
        eprintln!("skipped: nothing can be mounted here, which takes root");
        return;
    };
    let data = disk.0.path().join("data");
    let server = start(&data, "4194304");
    let mut client = server.context().await;
    let session = |name: &str| format!("projects/p/sessions/{name}");
    for name in ["stays", "goes"] {
        for n in 0..10 {
            let said = vec![user(&format!("{n} {}", noise(n, 20_000)))];
            let appended = client.append_messages(append(&session(name), said)).await;
            appended.unwrap();
        }
    }
    disk.fill();
    server.kill();
    let settings = settings("4194304");
    let args: Vec<_> = settings.iter().flat_map(|set| ["--set", set]).collect();
    let get = |name: &str| GetSessionRequest {
        session: session(name),
        ..Default::default()
    };
    // A start must not use up the space that is left, so several starts succeed.
    for _ in 0..3 {
        let server = Server::start_unready(&data, &args);
        let mut sessions = server.sessions().await;
        sessions.get_session(get("stays")).await.unwrap();
        let said = append(&session("stays"), vec![user("more")]);
        let status = server.context().await.append_messages(said).await;
        refused(&status.unwrap_err(), Code::Unavailable, "STORE_FULL");
        server.kill();
    }
    let server = Server::start_unready(&data, &args);
    let mut sessions = server.sessions().await;
    let delete = DeleteSessionRequest {
        session: session("goes"),
        ..Default::default()
    };
    sessions.delete_session(delete).await.unwrap();
    let gone = sessions.get_session(get("goes")).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    let listed = ListMessagesRequest {
        session: session("stays"),
        page_size: 100,
        ..Default::default()
    };
    let listed = sessions.list_messages(listed).await.unwrap().into_inner();
    assert_eq!(listed.messages.len(), 10);
}
