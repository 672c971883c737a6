//! Tests of session memory by a model: its input, the accepted parts of its output, and the fallback.

use palimpsest_fake_provider::{Behaviour, FakeProvider, Plan, Wording};
use palimpsest_proto::context::v1::{
    CompactRequest, CompactionStrategy, EventKind, ListEventsRequest, MemorySource, MemoryState,
};
use palimpsest_tests::say::prepare;
use tempfile::TempDir;

use super::*;

const MODEL: &str = "claude-notes";

/// The session memory that a model writes.
const NOTES: &str = "# Session Title\nThe importer, module by module\n\n\
                     # Current State\nModule 2 is mended; module 3 comes next.\n\n\
                     # Task specification\nMend every module of the importer.";

/// A server whose session memory is written by a model, and the provider of that model.
struct World {
    provider: FakeProvider,
    client: Context,
    server: Server,
    folder: TempDir,
}

impl World {
    async fn new(plans: Vec<Plan>) -> Self {
        let provider = FakeProvider::start().await.unwrap();
        provider.script(MODEL, plans);
        let url = format!("summarizer.base_url={}", provider.url());
        let settings = [
            "summarizer.provider=anthropic",
            &format!("summarizer.model={MODEL}"),
            "summarizer.api_key_env=TEST_KEY",
            "policy.autocompact.min_input_tokens=100",
            &url,
        ];
        let own = settings.iter().flat_map(|setting| ["--set", *setting]);
        let args: Vec<&str> = QUICK.iter().copied().chain(own).collect();
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start_with(folder.path(), &args, &[("TEST_KEY", "key-of-the-tests")]);
        Self {
            provider,
            client: server.context().await,
            server,
            folder,
        }
    }

    /// Returns the details of the recorded failures.
    async fn failures(&self, session: &str) -> Vec<String> {
        let list = ListEventsRequest {
            session: session.to_owned(),
            kinds: vec![EventKind::MemoryUpdateFailed.into()],
            ..ListEventsRequest::default()
        };
        let mut sessions = self.server.sessions().await;
        let events = sessions
            .list_events(list)
            .await
            .unwrap()
            .into_inner()
            .events;
        events.iter().map(|event| format!("{event:?}")).collect()
    }
}

fn says(text: &str) -> Plan {
    Plan::from(Behaviour::Say(text.to_owned()))
}

#[tokio::test]
async fn a_model_updates_session_memory_and_never_receives_a_secret() {
    let mut world = World::new(vec![says(NOTES), says(NOTES)]).await;
    let session = named("by-model");
    let secret = "sk-ant-api03-Zx8Kq2Lw9Rt4Yp7Bn3Vc6Md1Fg5Hj0Qs-Zx8Kq2Lw9Rt4Yp7Bn3Vc6Md1";
    let mut messages = turn(1, 2, 7_000);
    messages.extend(turn(2, 2, 4_000));
    messages.insert(
        0,
        asks(&format!("The key is {secret}; keep it to yourself.")),
    );
    say(&mut world.client, &session, messages).await;
    let ready = memory_when(&mut world.client, &session, |it| {
        it.state() == MemoryState::Ready
    })
    .await;
    assert_eq!(ready.source(), MemorySource::Model);
    assert!(section(&ready, "Current State").contains("module 3 comes next"));
    // A section that the model left out keeps the text of the template.
    assert_eq!(section(&ready, "Worklog").trim(), "");
    let requests = world.provider.requests();
    assert!(!requests.is_empty());
    for request in &requests {
        let body = request.body.to_string();
        assert!(!body.contains(secret), "a secret was sent");
        assert!(body.contains("Please mend module 1"), "{body}");
        assert!(request.body.get("tools").is_none() && request.body.get("thinking").is_none());
    }
    let path = file(world.folder.path(), &session);
    let text = file_when(&path, |text| text == ready.text).await;
    assert!(!text.contains(secret));
}

/// Whatever the model returns, placeholders are never accepted and failures are reported.
#[tokio::test]
async fn p26_session_memory_is_updated_without_a_model_after_a_failure() {
    let bad: Vec<(&str, Plan)> = vec![
        (
            "placeholders",
            says("# Current State\n[to be filled in]\n\n# Task specification\nN/A"),
        ),
        ("refused", Plan::from(Behaviour::Refuse)),
        ("declined", Plan::from(Behaviour::Cannot)),
        ("empty", Plan::from(Behaviour::Empty)),
        (
            "too-long",
            Plan::from(Behaviour::TooLong(Wording::Anthropic)),
        ),
        (
            "bad-request",
            Plan::from(Behaviour::Fail {
                status: 400,
                retry_after: None,
            }),
        ),
    ];
    for (what, plan) in bad {
        let mut world = World::new(vec![plan; 8]).await;
        let session = named(&format!("bad-{what}"));
        let mut messages = turn(1, 2, 7_000);
        messages.extend(turn(2, 2, 4_000));
        say(&mut world.client, &session, messages).await;
        let ready = memory_when(&mut world.client, &session, |it| {
            it.state() == MemoryState::Ready
        })
        .await;
        assert_eq!(ready.source(), MemorySource::Extractive, "{what}");
        assert!(
            section(&ready, "Task specification").contains("mend module 1"),
            "{what}"
        );
        let failures = world.failures(&session).await;
        assert!(!failures.is_empty(), "{what}: no failure was recorded");
    }
}

#[tokio::test]
async fn a_compaction_waits_for_a_running_update() {
    let slow = Plan {
        delay: Duration::from_secs(2),
        ..says(NOTES)
    };
    let mut world = World::new(vec![slow; 4]).await;
    let session = named("waits");
    let mut messages = turn(1, 2, 12_000);
    for number in 2..8 {
        messages.extend(turn(number, 2, 6_000));
    }
    // A message is part of the view only after it was served.
    let served = world.client.prepare_context(prepare(&session, messages));
    served.await.unwrap();
    let running = |it: &SessionMemory| it.running;
    memory_when(&mut world.client, &session, running).await;
    let request = CompactRequest {
        session: session.clone(),
        ..CompactRequest::default()
    };
    let reply = world.client.compact(request).await.unwrap().into_inner();
    let compaction = reply.compaction.unwrap();
    assert_eq!(compaction.strategy(), CompactionStrategy::SessionMemory);
    assert!(
        compaction.summary.contains("module 3 comes next"),
        "{compaction:#?}"
    );
}
