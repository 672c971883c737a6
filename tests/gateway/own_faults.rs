//! Faults of Palimpsest itself: the agent goes on, and its conversation is complete again when the fault is over.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures::future::join_all;
use palimpsest_fake_provider::FakeProvider;
use palimpsest_test_servers::Cluster;
use palimpsest_tests::Server;
use serde_json::json;

use crate::agent::{Agent, Api, Reply};
use crate::world::visible;

/// Unmounts on drop.
struct Mounted(tempfile::TempDir);

impl Mounted {
    /// Mounts a small file system. `None` without the right to mount.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"]);
        let mounted = mount.arg(folder.path()).status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(folder))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn start(folder: &Path, provider: &FakeProvider, settings: &[&str]) -> Server {
    let upstream = provider.url();
    let own = [
        "gateway.enabled=true".to_owned(),
        "gateway.listen=127.0.0.1:0".to_owned(),
        "worker.enabled=false".to_owned(),
        "store.canary_every_ms=100".to_owned(),
        format!("gateway.upstreams.anthropic.base_url={upstream}"),
    ];
    let settings = settings.iter().map(|it| (*it).to_owned()).chain(own);
    let args: Vec<String> = settings.flat_map(|it| ["--set".to_owned(), it]).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Server::start(folder, &args)
}

fn agent(server: &Server, name: &str) -> Agent {
    let url = format!("http://{}", server.gateway());
    Agent::new(Api::Messages, &url, Some(name))
}

/// Sends the conversation with another input. The provider must get the agent's own bytes.
async fn unmanaged(agent: &mut Agent, provider: &FakeProvider, text: &str) -> Reply {
    agent.say(text);
    let body = agent.body().to_string();
    let (reply, _) = agent.step().await;
    assert_eq!(
        reply.header("x-palimpsest-body"),
        Some("unmanaged"),
        "{reply:?}"
    );
    assert_eq!(provider.requests().pop().unwrap().raw, body.as_bytes());
    reply
}

/// Sends the conversation until a session takes it.
async fn until_managed(agent: &mut Agent) {
    for number in 0.. {
        agent.say(&format!("Is it over? {number}"));
        let (reply, _) = agent.step().await;
        if reply.header("x-palimpsest-body") == Some("original") {
            return;
        }
        assert!(number < 600, "{reply:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The session has all that the agent sent and received, each message once.
async fn is_complete(server: &Server, agent: &Agent, name: &str) {
    let shown = visible(server, &format!("projects/default/sessions/{name}")).await;
    // The last response becomes visible with the next request.
    let sent = &agent.conversation[..agent.conversation.len() - 1];
    assert_eq!(json!(shown), json!(sent));
}

#[tokio::test]
async fn an_agent_goes_on_while_the_disk_is_full() {
    let Some(disk) = Mounted::new() else {
        eprintln!("skipped: nothing can be mounted here, which takes root");
        return;
    };
    let provider = FakeProvider::start().await.unwrap();
    let server = start(
        &disk.0.path().join("data"),
        &provider,
        &["store.min_free_bytes=1048576"],
    );
    let mut agent = agent(&server, "full");
    agent.say("Before.");
    let (reply, _) = agent.step().await;
    assert_eq!(
        reply.header("x-palimpsest-body"),
        Some("original"),
        "{reply:?}"
    );
    let ballast = disk.0.path().join("ballast");
    let file = std::fs::File::create(&ballast).unwrap();
    while std::io::Write::write_all(&mut &file, &vec![1; 1 << 16]).is_ok() {}
    // An open file would keep its space.
    drop(file);
    for number in 0..3 {
        let reply = unmanaged(
            &mut agent,
            &provider,
            &format!("While it is full {number}."),
        )
        .await;
        assert_eq!(
            reply.header("x-palimpsest-reason"),
            Some("store"),
            "{reply:?}"
        );
    }
    std::fs::remove_file(&ballast).unwrap();
    until_managed(&mut agent).await;
    is_complete(&server, &agent, "full").await;
}

#[tokio::test]
async fn an_agent_goes_on_while_the_database_is_gone() {
    let mut cluster = Cluster::start();
    let provider = FakeProvider::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let blobs = format!("blobs.url=file://{}", folder.path().join("blobs").display());
    let url = format!("store.postgres.url={}", cluster.url());
    let settings = [&*url, &blobs, "gateway.prepare_timeout_ms=2000"];
    let server = start(folder.path(), &provider, &settings);
    let mut agent = agent(&server, "gone");
    agent.say("Before.");
    agent.step().await;
    cluster.stop("immediate");
    for number in 0..3 {
        let reply = unmanaged(
            &mut agent,
            &provider,
            &format!("While it is gone {number}."),
        )
        .await;
        let reason = reply.header("x-palimpsest-reason");
        assert!(matches!(reason, Some("store" | "timeout")), "{reply:?}");
    }
    cluster.start_again();
    until_managed(&mut agent).await;
    is_complete(&server, &agent, "gone").await;
}

#[tokio::test]
async fn agents_go_on_while_the_memory_for_bodies_is_in_use() {
    let provider = FakeProvider::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let settings = ["gateway.max_request_bytes_in_flight=1048576"];
    let server = start(folder.path(), &provider, &settings);
    // Each body has about 460 KB. At most two of the twelve fit into 1 MiB at the same time.
    let rounds = (0..12).map(|number| {
        let mut agent = agent(&server, &format!("many-{number}"));
        async move {
            agent.say(&"A text of some length. ".repeat(20_000));
            let reply = agent.step().await.0;
            let body = reply.header("x-palimpsest-body").unwrap().to_owned();
            let reason = reply.header("x-palimpsest-reason").map(str::to_owned);
            (body, reason)
        }
    });
    let outcomes = join_all(rounds).await;
    for (body, reason) in &outcomes {
        let expected = if body == "unmanaged" {
            Some("memory")
        } else {
            None
        };
        assert_eq!(reason.as_deref(), expected, "{outcomes:?}");
    }
    // When the load is over, the memory is free again.
    let mut last = agent(&server, "many-last");
    last.say(&"A text of some length. ".repeat(20_000));
    let (reply, _) = last.step().await;
    assert_eq!(
        reply.header("x-palimpsest-body"),
        Some("original"),
        "{reply:?}"
    );
}
