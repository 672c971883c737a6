//! Tests of repeated compactions, and of compactions without a waiting caller.

use std::time::Duration;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_proto::context::v1::{
    CompactRequest, Compaction, CompactionMode, CompactionOverrides, CompactionState,
    CompactionStrategy, GetSessionRequest, MessageInput, SessionState,
};
use palimpsest_tests::say::{append, assistant, prepare, user};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Server, name, refused, refused_field};
use tempfile::TempDir;
use tonic::{Code, Status};

/// A server, its provider, and a client.
pub(crate) struct World {
    pub(crate) provider: FakeProvider,
    pub(crate) client: Context,
    pub(crate) server: Server,
    folder: TempDir,
    args: Vec<String>,
}

impl World {
    pub(crate) async fn new(settings: &[&str]) -> Self {
        Self::with_file(settings, "").await
    }

    /// Starts a world with a configuration file and settings.
    pub(crate) async fn with_file(settings: &[&str], file: &str) -> Self {
        let provider = FakeProvider::start().await.unwrap();
        let url = format!("summarizer.base_url={}", provider.url());
        let usual = [
            "worker.enabled=false",
            "summarizer.provider=anthropic",
            "summarizer.model=claude-fake",
            "summarizer.api_key_env=TEST_KEY",
            "policy.autocompact.min_input_tokens=100",
            &url,
        ];
        // The last value of a repeated setting applies. Without a provider, no other setting of the summarizer is
        // allowed.
        let none = settings.contains(&"summarizer.provider=none");
        let all = usual.iter().chain(settings);
        let all = all.filter(|setting| !none || !setting.starts_with("summarizer."));
        let args = all.flat_map(|setting| ["--set".to_owned(), (*setting).to_owned()]);
        let mut args: Vec<String> = args.collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.toml");
        std::fs::write(&path, file).unwrap();
        args.extend(["--config".to_owned(), path.to_str().unwrap().to_owned()]);
        let server = start(&folder, &args);
        Self {
            provider,
            client: server.context().await,
            server,
            folder,
            args,
        }
    }

    /// Starts a world with a session that is large enough for a summary.
    async fn at_work() -> Self {
        let mut world = Self::new(&[]).await;
        let request = prepare(&name("s"), work());
        world.client.prepare_context(request).await.unwrap();
        world
    }

    /// Restarts the server with another configuration file.
    pub(crate) async fn restarted_with(self, file: &str) -> Self {
        std::fs::write(self.folder.path().join("settings.toml"), file).unwrap();
        self.restarted().await
    }

    pub(crate) async fn restarted(self) -> Self {
        self.server.kill();
        let server = start(&self.folder, &self.args);
        Self {
            client: server.context().await,
            server,
            ..self
        }
    }

    pub(crate) async fn compact(&self, request: CompactRequest) -> Result<Compaction, Status> {
        let reply = self.client.clone().compact(request).await?;
        Ok(reply.into_inner().compaction.unwrap())
    }

    async fn state(&self) -> SessionState {
        let mut sessions = self.server.sessions().await;
        let request = GetSessionRequest {
            session: name("s"),
            ..GetSessionRequest::default()
        };
        let reply = sessions.get_session(request).await.unwrap().into_inner();
        reply.session.unwrap().state()
    }
}

fn start(folder: &TempDir, args: &[String]) -> Server {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Server::start_with(folder.path(), &args, &[("TEST_KEY", "key-of-the-tests")])
}

/// Returns a compaction request with a model whose name has this suffix.
pub(crate) fn request(id: &str, model: &str) -> CompactRequest {
    CompactRequest {
        session: name("s"),
        request_id: id.to_owned(),
        strategy: CompactionStrategy::Model.into(),
        overrides: Some(CompactionOverrides {
            model: format!("claude-fake{model}"),
            ..CompactionOverrides::default()
        }),
        ..CompactRequest::default()
    }
}

fn work() -> Vec<MessageInput> {
    let mut said = vec![user("Make the lights blink.")];
    said.push(assistant(&"The lights are driven by a timer. ".repeat(100)));
    said.push(user("Go on."));
    said
}

#[tokio::test]
async fn a_repeat_returns_the_same_compaction_even_after_a_restart() {
    let world = World::at_work().await;
    let first = world.compact(request("once", "")).await.unwrap();
    assert_eq!(first.state(), CompactionState::Succeeded);
    let again = world.compact(request("once", "")).await.unwrap();
    let same = |again: &Compaction| {
        assert_eq!(again.compaction_id, first.compaction_id);
        assert_eq!(
            (again.state(), again.strategy()),
            (first.state(), first.strategy())
        );
        assert_eq!(
            (&again.summary, &again.model),
            (&first.summary, &first.model)
        );
        assert_eq!(again.usage, first.usage);
    };
    same(&again);
    let world = world.restarted().await;
    same(&world.compact(request("once", "")).await.unwrap());
    assert_eq!(world.provider.requests().len(), 1);
    let refusal = world
        .compact(request("once", "+delay=1"))
        .await
        .unwrap_err();
    refused(&refusal, Code::AlreadyExists, "REQUEST_CONFLICT");
}

#[tokio::test]
async fn a_repeat_waits_for_the_running_compaction() {
    let world = World::at_work().await;
    let slow = || request("slow", "+delay=5000");
    let (one, other, third) = tokio::join!(world.compact(slow()), world.compact(slow()), async {
        while world.state().await != SessionState::Compacting {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        world.compact(request("third", "")).await
    });
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.compaction_id, other.compaction_id);
    assert_eq!(one.summary, other.summary);
    assert_eq!(world.provider.requests().len(), 1);
    let metadata = refused(
        &third.unwrap_err(),
        Code::FailedPrecondition,
        "COMPACTION_RUNNING",
    );
    assert_eq!(metadata["compaction_id"], one.compaction_id);
    assert_ne!(world.state().await, SessionState::Compacting);
}

#[tokio::test]
async fn a_repeat_returns_the_same_failure_even_after_a_restart() {
    let world = World::at_work().await;
    let bad = || request("bad", "+refuse");
    let first = world.compact(bad()).await.unwrap_err();
    let metadata = refused(&first, Code::FailedPrecondition, "SUMMARY_REJECTED");
    assert_eq!(metadata["failure_reason"], "SUMMARY_REFUSED");
    let asked = world.provider.requests().len();
    let again = world.compact(bad()).await.unwrap_err();
    assert_eq!(
        (again.code(), again.message()),
        (first.code(), first.message())
    );
    let world = world.restarted().await;
    let again = world.compact(bad()).await.unwrap_err();
    assert_eq!(
        (again.code(), again.message()),
        (first.code(), first.message())
    );
    assert_eq!(world.provider.requests().len(), asked);
}

#[tokio::test]
async fn a_repeat_after_a_crash_returns_the_failure_immediately() {
    // On a database, another process may run the compaction, so it ends at its deadline only.
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let world = World::at_work().await;
    let slow = || request("slow", "+delay=60000");
    let call = {
        let mut client = world.client.clone();
        tokio::spawn(async move { client.compact(slow()).await })
    };
    while world.state().await != SessionState::Compacting {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let world = world.restarted().await;
    assert!(call.await.unwrap().is_err());
    let requests = world.provider.requests().len();
    let refusal = world.compact(slow()).await.unwrap_err();
    refused(&refusal, Code::Unavailable, "MODEL_UNAVAILABLE");
    // The repeat waits for no model.
    assert_eq!(world.provider.requests().len(), requests);
    let done = world.compact(request("next", "")).await.unwrap();
    assert_eq!(done.state(), CompactionState::Succeeded);
}

#[tokio::test]
async fn p14_p15_no_call_waits_for_a_background_compaction() {
    let mut world = World::at_work().await;
    let mut beside = request("beside", "+delay=700");
    beside.set_compaction_mode(CompactionMode::Background);
    let started = world.compact(beside.clone()).await.unwrap();
    assert_eq!(started.state(), CompactionState::Running);
    assert_eq!(world.state().await, SessionState::Compacting);
    // Messages are appended meanwhile, each exactly once.
    for n in 0..20 {
        let said = vec![user(&format!("meanwhile {n}"))];
        world
            .client
            .append_messages(append(&name("s"), said))
            .await
            .unwrap();
    }
    let again = world.compact(beside.clone()).await.unwrap();
    assert_eq!(again.compaction_id, started.compaction_id);
    beside.set_compaction_mode(CompactionMode::Never);
    // Without its request id, this call is new and no repeat.
    beside.request_id.clear();
    refused_field(
        &world.compact(beside.clone()).await.unwrap_err(),
        "compaction_mode",
    );
    beside.set_compaction_mode(CompactionMode::Background);
    beside.request_id = "beside".into();
    let mut ended = again;
    for _ in 0..100 {
        if ended.state() != CompactionState::Running {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        ended = world.compact(beside.clone()).await.unwrap();
    }
    assert_eq!(ended.state(), CompactionState::Succeeded);
    let view = world
        .client
        .prepare_context(prepare(&name("s"), vec![]))
        .await
        .unwrap();
    let json = view.into_inner().messages_json;
    let shown: Vec<_> = json
        .iter()
        .map(|one| String::from_utf8_lossy(one))
        .collect();
    let shown = shown.join("\n");
    assert!(shown.contains("<conversation-summary>"));
    for n in 0..20 {
        let said = format!("\"text\":\"meanwhile {n}\"");
        assert_eq!(shown.matches(&said).count(), 1, "{n}: {shown}");
    }
}
