//! Tests of failures: a failed write is reported and retried, and an update that a kill interrupted is completed.

use palimpsest_proto::context::v1::MemoryState;
use palimpsest_tests::binary;

use super::*;

#[tokio::test]
async fn an_unwritable_file_is_reported_and_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let server = own(folder.path(), &[]);
    let mut client = server.context().await;
    let session = named("unwritable");
    // A file blocks the creation of the session's folder.
    let place = file(folder.path(), &session);
    let of_session = place.parent().unwrap().parent().unwrap();
    std::fs::create_dir_all(of_session.parent().unwrap()).unwrap();
    std::fs::write(of_session, "in the way").unwrap();
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    let told = memory_when(&mut client, &session, |it| it.last_failure.is_some()).await;
    assert_eq!(
        told.state(),
        MemoryState::Ready,
        "the text must be available: {told:#?}"
    );
    assert!(told.text.contains("mend module 1"));
    let failure = told.last_failure.unwrap();
    assert!(
        failure.detail.contains("summary.md could not be written"),
        "{failure:?}"
    );
    let again = memory_when(&mut client, &session, |it| {
        it.last_failure
            .as_ref()
            .is_some_and(|failure| failure.attempts > 1)
    });
    assert!(
        again
            .await
            .last_failure
            .unwrap()
            .next_attempt_time
            .is_some()
    );
    std::fs::remove_file(of_session).unwrap();
    file_when(&place, |text| text == told.text).await;
    memory_when(&mut client, &session, |it| it.last_failure.is_none()).await;
    let warned = server
        .log()
        .into_iter()
        .any(|line| line.contains("failed to write summary.md"));
    assert!(warned, "{:?}", server.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_update_is_completed_after_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    let session = named("killed");
    let path = file(folder.path(), &session);
    for round in 0_usize..8 {
        let server = own(folder.path(), &[]);
        let mut client = server.context().await;
        say(&mut client, &session, turn(round, 3, 12_000)).await;
        // The template, the run, the commit and the file are some milliseconds apart, so each delay hits another step.
        tokio::time::sleep(Duration::from_millis(6 * u64::try_from(round).unwrap())).await;
        server.kill();
        let server = own(folder.path(), &[]);
        let mut client = server.context().await;
        let noted = format!("mend module {round}");
        let ready = memory_when(&mut client, &session, |it| {
            it.state() == MemoryState::Ready && it.text.contains(&noted)
        });
        let ready = ready.await;
        file_when(&path, |text| text == ready.text).await;
        server.kill();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_not_written_before_a_kill_is_written_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let session = named("unwritten");
    let path = file(folder.path(), &session);
    let of_session = path.parent().unwrap().parent().unwrap();
    // The server starts first, because it refuses a blob store that already contains files.
    let server = own(folder.path(), &[]);
    std::fs::create_dir_all(of_session.parent().unwrap()).unwrap();
    std::fs::write(of_session, "in the way").unwrap();
    let mut client = server.context().await;
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    let ready = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    server.kill();
    std::fs::remove_file(of_session).unwrap();
    let server = own(folder.path(), &[]);
    file_when(&path, |text| text == ready.text).await;
    let mut client = server.context().await;
    let after = memory_when(&mut client, &session, |it| it.last_failure.is_none()).await;
    assert_eq!(after.version, ready.version, "the copy is no new version");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_memory_lags_until_a_worker_runs() {
    // On a database, a worker may run beside the server.
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let session = named("alone");
    let server = own(folder.path(), &["--set", "worker.enabled=false"]);
    let mut client = server.context().await;
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    let late = memory(&mut client, &session).await;
    assert_eq!(
        (late.state(), late.version),
        (MemoryState::Behind, 0),
        "{late:#?}"
    );
    let work = |folder: &Path| {
        let mut command = std::process::Command::new(binary());
        command
            .args(["worker", "--listen", "127.0.0.1:0"])
            .args(["--admin-listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder)
            .env_clear();
        command
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let refused = work(folder.path()).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(
        said.contains("in use by another process") && said.contains("stop that one first"),
        "{said}"
    );
    server.stop();
    let worker = work(folder.path());
    let path = file(folder.path(), &session);
    file_when(&path, |text| text.contains("mend module 1")).await;
    let pid = worker.id().to_string();
    std::process::Command::new("kill")
        .args(["-s", "TERM", &pid])
        .status()
        .unwrap();
    let ended = worker.wait_with_output().unwrap();
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let server = own(folder.path(), &["--set", "worker.enabled=false"]);
    let ready = memory(&mut server.context().await, &session).await;
    assert_eq!(ready.state(), MemoryState::Ready);
}

#[tokio::test]
async fn p25_secrets_reach_neither_a_summary_nor_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[QUICK, &["--log-level", "debug"]].concat());
    let mut client = server.context().await;
    let session = named("secrets");
    let key = format!("sk-ant-api03-{}", "Ab1Cd2Ef3G".repeat(9));
    let github = format!("ghp_{}", "a1B2c3D4e5".repeat(4).get(..36).unwrap());
    let private = format!(
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
        "MIIEowIBAAKCAQEA7bq8Zk2x9F".repeat(30)
    );
    let mut messages = vec![
        asks(&format!(
            "Deploy it with the key {key}, and never with another."
        )),
        anthropic(&json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": "t1", "name": "Bash",
             "input": {"command": format!("GITHUB_TOKEN={github} ./deploy.sh --verbose")}},
        ]})),
        result(
            "t1",
            &format!("error: bad key\n{private}\npassword=hunter2hunter2"),
        ),
        says(&format!(
            "The deploy failed although the token {github} was right."
        )),
    ];
    messages.extend(turn(1, 3, 12_000));
    say(&mut client, &session, messages).await;
    let ready = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    let path = file(folder.path(), &session);
    let file = file_when(&path, |text| text == ready.text).await;
    assert!(file.contains("[redacted"), "{file}");
    let log = server.log().join("\n");
    // A part of a key is a leak too.
    for secret in [
        &key[..],
        &key[..30],
        &github,
        &private[40..80],
        "hunter2hunter2",
    ] {
        assert!(!file.contains(secret), "{secret} in {file}");
        assert!(!log.contains(secret), "{secret} in the log");
    }
}
