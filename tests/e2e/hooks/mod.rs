//! Tests of the user's hooks: a real service is called around compactions, and its answers are applied.

mod failures;
pub(crate) mod service;
mod words;

use std::time::Duration;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    CompactRequest, Compaction, CompactionMode, CompactionStrategy, EventKind, HookCalled,
    HookKind, HookResult, Level, LevelAction, ListEventsRequest, MessageInput, PreCompactResponse,
    PrepareContextResponse, RewindSessionRequest, SessionStartSource, SkipReason, Target, Trigger,
    WatchSessionRequest, rewind_session_request::TargetMessage,
};
use palimpsest_tests::array::values;
use palimpsest_tests::say::{assistant, assistant_call, prepare, result, user};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Array, Server, name, refused};
use serde_json::Value;
use tempfile::TempDir;
use tonic::{Code, Status};

use self::service::{Answers, Hook};

const TOKEN: &str = "token-of-the-tests";
const VARS: [(&str, &str); 2] = [("HOOK_TOKEN", TOKEN), ("MODEL_KEY", "key")];

/// A server, a hook service, a provider, and a client.
struct World {
    hook: Hook,
    provider: FakeProvider,
    client: Context,
    server: Server,
    folder: TempDir,
    args: Vec<String>,
}

impl World {
    /// Starts a world with additional settings.
    async fn new(settings: &[&str]) -> Self {
        Self::with(Hook::start(), settings, &[]).await
    }

    /// Starts a world with a given hook service and environment variables.
    async fn with(hook: Hook, settings: &[&str], vars: &[(&str, &str)]) -> Self {
        let provider = FakeProvider::start().await.unwrap();
        let usual = [
            "worker.enabled=false".to_owned(),
            "policy.autocompact.min_input_tokens=100".to_owned(),
            format!("hooks.endpoints.own.url={}", hook.url),
            "hooks.endpoints.own.token_env=HOOK_TOKEN".to_owned(),
            "hooks.default_endpoint=own".to_owned(),
            "summarizer.provider=anthropic".to_owned(),
            format!("summarizer.base_url={}", provider.url()),
            "summarizer.model=claude-fake".to_owned(),
            "summarizer.api_key_env=MODEL_KEY".to_owned(),
        ];
        let all = usual
            .iter()
            .map(String::as_str)
            .chain(settings.iter().copied());
        let args: Vec<&str> = all.flat_map(|setting| ["--set", setting]).collect();
        let folder = tempfile::tempdir().unwrap();
        let vars = [&VARS, vars].concat();
        let server = Server::start_with(folder.path(), &args, &vars);
        Self {
            hook,
            provider,
            client: server.context().await,
            server,
            folder,
            args: args.iter().map(ToString::to_string).collect(),
        }
    }

    /// Kills and restarts the server with the same sessions.
    async fn restart(&mut self) {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        self.server.signal("KILL");
        self.server = Server::start_with(self.folder.path(), &args, &VARS);
        self.client = self.server.context().await;
    }

    /// Returns the view without any level acting on it.
    async fn view(&mut self, session: &str, messages: Vec<MessageInput>) -> Array {
        let mut request = prepare(&name(session), messages);
        request.set_compaction_mode(CompactionMode::Never);
        let reply = self.client.prepare_context(request).await;
        let mut array = Array::default();
        array.take(&reply.unwrap().into_inner());
        array
    }

    async fn compact(
        &mut self,
        session: &str,
        strategy: CompactionStrategy,
    ) -> Result<Compaction, Status> {
        let request = CompactRequest {
            session: name(session),
            strategy: strategy.into(),
            ..CompactRequest::default()
        };
        let reply = self.client.compact(request).await?;
        Ok(reply.into_inner().compaction.unwrap())
    }

    /// Returns the recorded hook calls of a session.
    async fn called(&self, session: &str) -> Vec<HookCalled> {
        let request = ListEventsRequest {
            kinds: vec![EventKind::HookCalled.into()],
            session: name(session),
            ..ListEventsRequest::default()
        };
        let mut sessions = self.server.sessions().await;
        let listed = sessions.list_events(request).await.unwrap().into_inner();
        let events = listed.events.into_iter();
        let called = events.map(|event| match event.event {
            Some(Event::HookCalled(called)) => called,
            other => panic!("{other:?}"),
        });
        called.collect()
    }
}

/// Returns a conversation that is large enough for a summary.
fn work() -> Vec<MessageInput> {
    let lines = |what: &str| format!("{what} of the harbour lights\n").repeat(60);
    vec![
        user("Make the harbour lights blink twice."),
        assistant_call("c1"),
        result("c1", &lines("source")),
        assistant("The lights are driven by a timer in lights.rs."),
        user("Then set that timer to two beats."),
        assistant_call("c2"),
        result("c2", &lines("timer")),
        assistant(&lines("a long account")),
    ]
}

fn text(array: &Array) -> String {
    let values = values(&array.messages);
    values
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

fn outcomes(compaction: &Compaction) -> Vec<(HookKind, HookResult)> {
    let outcomes = compaction.hook_outcomes.iter();
    outcomes.map(|one| (one.hook(), one.result())).collect()
}

fn veto(reason: &str) -> Answers {
    Answers {
        pre: PreCompactResponse {
            veto_reason: Some(reason.to_owned()),
            ..PreCompactResponse::default()
        },
        ..Answers::default()
    }
}

/// Returns a target whose window is too small for the work.
fn tiny() -> Target {
    Target {
        // The compaction threshold is 3,000 tokens: the window minus 20,000 for the output and a buffer of 13,000.
        window_tokens: Some(36_000),
        ..Target::default()
    }
}

async fn turn(
    client: &mut Context,
    session: &str,
    messages: Vec<MessageInput>,
) -> PrepareContextResponse {
    let mut request = prepare(&name(session), messages);
    request.target = Some(tiny());
    client.prepare_context(request).await.unwrap().into_inner()
}

/// Returns the report of level 5.
fn stage(reply: &PrepareContextResponse) -> &palimpsest_proto::context::v1::LevelReport {
    let mut reports = reply.level_reports.iter();
    reports
        .find(|stage| stage.level() == Level::Compaction)
        .unwrap()
}

#[tokio::test]
async fn hooks_are_called_and_their_results_are_recorded() {
    let mut world = World::new(&["policy.summary.instructions=Keep all port numbers."]).await;
    world.view("s", work()).await;
    let mut sessions = world.server.sessions().await;
    let watch = WatchSessionRequest {
        session: name("s"),
        ..WatchSessionRequest::default()
    };
    let mut watched = sessions.watch_session(watch).await.unwrap().into_inner();
    let mut request = tonic::Request::new(CompactRequest {
        session: name("s"),
        ..CompactRequest::default()
    });
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    request
        .metadata_mut()
        .insert("traceparent", parent.parse().unwrap());
    let reply = world.client.compact(request).await.unwrap().into_inner();
    let compaction = reply.compaction.unwrap();

    let all = [
        HookKind::PreCompact,
        HookKind::PostCompact,
        HookKind::SessionStart,
    ];
    let continued: Vec<_> = all
        .iter()
        .map(|hook| (*hook, HookResult::Continued))
        .collect();
    assert_eq!(outcomes(&compaction), continued);
    let asked = world.hook.asked();
    let (pre, post, start) = (&asked.pre[0], &asked.post[0], &asked.start[0]);
    assert_eq!(pre.session, name("s"));
    assert_eq!(pre.compaction_id, compaction.compaction_id);
    assert_eq!(
        (pre.trigger(), pre.strategy()),
        (Trigger::Manual, CompactionStrategy::Model)
    );
    assert_eq!(pre.instructions, "Keep all port numbers.");
    assert!(pre.input_tokens > 300 && pre.budget.is_some());
    assert!(!pre.first_message_id.is_empty() && pre.first_message_id != pre.last_message_id);
    // The hook receives the compaction in its final state.
    let seen = post.compaction.as_ref().unwrap();
    let boundary = compaction.boundary.as_ref().unwrap();
    assert_eq!(seen.summary, compaction.summary);
    assert_eq!(
        seen.boundary.as_ref().unwrap().after_tokens,
        boundary.after_tokens
    );
    assert_eq!(
        seen.boundary.as_ref().unwrap().kept_message_ids,
        boundary.kept_message_ids
    );
    assert_eq!(start.source(), SessionStartSource::Compact);
    assert_eq!(start.compaction_id, compaction.compaction_id);
    for metadata in &asked.metadata {
        let shown = |name: &str| metadata.get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(shown("authorization"), format!("Bearer {TOKEN}"));
        assert!(shown("traceparent").contains(trace));
        assert!(metadata.get("grpc-timeout").is_some());
    }
    let called = world.called("s").await;
    let hooks: Vec<HookKind> = called
        .iter()
        .map(|it| it.outcome.as_ref().unwrap().hook())
        .collect();
    assert_eq!(hooks, all);
    assert!(
        called
            .iter()
            .all(|it| it.compaction_id == compaction.compaction_id)
    );
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let next = watched.message().await.unwrap().unwrap();
        if let Some(Event::HookCalled(called)) = next.event.and_then(|event| event.event) {
            seen.push(called.outcome.unwrap().hook());
        }
    }
    assert_eq!(seen, all);
    let log = world.server.log().concat();
    assert!(
        !log.contains(TOKEN) && !log.contains("Keep all port numbers."),
        "{log}"
    );
}

#[tokio::test]
async fn a_dry_run_calls_no_hook_and_disabled_hooks_are_not_called() {
    let mut world = World::new(&[]).await;
    world.view("s", work()).await;
    let request = CompactRequest {
        session: name("s"),
        dry_run: true,
        ..CompactRequest::default()
    };
    world.client.compact(request).await.unwrap();
    assert_eq!(world.hook.count(), (0, 0, 0));

    let off =
        ["pre_compact", "post_compact"].map(|hook| format!("policy.hooks.{hook}.enabled=false"));
    let mut world = World::new(&off.each_ref().map(String::as_str)).await;
    world.view("s", work()).await;
    world
        .compact("s", CompactionStrategy::Extractive)
        .await
        .unwrap();
    assert_eq!(world.hook.count(), (0, 0, 1));
}

#[tokio::test]
async fn a_veto_of_a_manual_compaction_rejects_the_call() {
    let mut world = World::new(&[]).await;
    let before = world.view("s", work()).await;
    world.hook.answers(veto("a release is going on"));
    for strategy in [
        CompactionStrategy::Unspecified,
        CompactionStrategy::Extractive,
        CompactionStrategy::Delegated,
    ] {
        let refusal = world.compact("s", strategy).await.unwrap_err();
        let metadata = refused(&refusal, Code::FailedPrecondition, "HOOK_VETOED");
        assert_eq!(metadata["hook"], "PreCompact");
        assert_eq!(metadata["reason"], "a release is going on");
    }
    assert_eq!(world.view("s", vec![]).await.messages, before.messages);
    assert_eq!(world.hook.count(), (3, 0, 0));
    assert!(world.provider.requests().is_empty());
    let called = world.called("s").await;
    let last = called.last().unwrap().outcome.clone().unwrap();
    assert_eq!(last.result(), HookResult::Vetoed);
    assert_eq!(last.detail, "a release is going on");
    // After the hook stops vetoing, a compaction runs immediately.
    world.hook.answers(Answers::default());
    world
        .compact("s", CompactionStrategy::Unspecified)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_vetoed_automatic_compaction_is_retried_after_the_next_input() {
    // With one allowed failure, a counted veto would pause automatic compaction.
    let mut world = World::new(&["policy.autocompact.max_failures=1"]).await;
    world.view("s", work()).await;
    world.hook.answers(veto("not now"));
    let mut larger = vec![user(&"And more lamps. ".repeat(900))];
    larger.push(assistant("Yes."));
    let reply = turn(&mut world.client, "s", larger).await;
    let vetoed = stage(&reply);
    assert_eq!(vetoed.action(), LevelAction::Failed, "{vetoed:?}");
    let Some(palimpsest_proto::context::v1::level_report::Detail::Compaction(compaction)) =
        &vetoed.detail
    else {
        panic!("{vetoed:?}");
    };
    assert_eq!(
        outcomes(compaction),
        [(HookKind::PreCompact, HookResult::Vetoed)]
    );
    let failure = compaction.failure.as_ref().unwrap();
    // A veto does not count as a failure.
    assert_eq!(
        (failure.consecutive_failures, failure.auto_paused),
        (0, false)
    );
    assert!(failure.detail.contains("not now"));
    assert_eq!(world.hook.count().0, 1);

    // A response is no user input, so the veto still holds.
    let reply = turn(&mut world.client, "s", vec![assistant("I go on.")]).await;
    assert_eq!(stage(&reply).skip_reason(), SkipReason::HeldAfterVeto);
    assert_eq!(
        world.hook.count().0,
        1,
        "the hook was called again after its veto"
    );

    world.hook.answers(Answers::default());
    let reply = turn(&mut world.client, "s", vec![user("Now then.")]).await;
    assert_eq!(stage(&reply).action(), LevelAction::Applied);
    assert_eq!(world.hook.asked().pre[1].trigger(), Trigger::Auto);
}

/// Waits until the hooks were called this many times.
async fn asked_so_often(world: &World, counts: (usize, usize, usize)) {
    while world.hook.count() != counts {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_view_rewound_during_a_hook_call_is_not_compacted() {
    let mut world = World::new(&[]).await;
    world.view("s", work()).await;
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    world.hook.answers(Answers {
        gate: Some(gate.clone()),
        ..Answers::default()
    });
    let mut other = world.server.context().await;
    let request = CompactRequest {
        session: name("s"),
        strategy: CompactionStrategy::Extractive.into(),
        ..CompactRequest::default()
    };
    let compacting = tokio::spawn(async move { other.compact(request).await });
    asked_so_often(&world, (1, 0, 0)).await;
    // The notification released `PreCompact`. The rewind now happens during `PostCompact`.
    gate.notify_one();
    asked_so_often(&world, (1, 1, 0)).await;
    let listed = palimpsest_proto::context::v1::ListMessagesRequest {
        session: name("s"),
        ..Default::default()
    };
    let mut sessions = world.server.sessions().await;
    let listed = sessions.list_messages(listed).await.unwrap().into_inner();
    let rewind = RewindSessionRequest {
        session: name("s"),
        target_message: Some(TargetMessage::ToMessageId(listed.messages[3].id.clone())),
        ..RewindSessionRequest::default()
    };
    world.client.rewind_session(rewind).await.unwrap();
    let before = world.view("s", vec![]).await;
    // `Notify` stores at most one permit, so both calls may release one hook only. The later call releases the last
    // hook.
    gate.notify_one();
    gate.notify_one();
    let ended = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        gate.notify_one();
    });
    let refusal = compacting.await.unwrap().unwrap_err();
    refused(&refusal, Code::Aborted, "COMPACTION_RANGE_CHANGED");
    ended.await.unwrap();
    assert_eq!(world.view("s", vec![]).await.messages, before.messages);
    // The calls are recorded, and none of their messages is in the view.
    let called = world.called("s").await;
    assert_eq!(called.len(), 3);
    assert!(
        called
            .iter()
            .all(|it| it.outcome.as_ref().unwrap().message_ids.is_empty())
    );
}

#[tokio::test]
async fn appends_during_a_hook_call_are_kept() {
    let mut world = World::new(&[]).await;
    world.view("s", work()).await;
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    world.hook.answers(Answers {
        gate: Some(gate.clone()),
        ..Answers::default()
    });
    let mut other = world.server.context().await;
    let request = CompactRequest {
        session: name("s"),
        strategy: CompactionStrategy::Extractive.into(),
        ..CompactRequest::default()
    };
    let compacting = tokio::spawn(async move { other.compact(request).await });
    // Three hooks are called, and messages are appended during each call.
    for (round, counts) in [(1, 0, 0), (1, 1, 0), (1, 1, 1)].into_iter().enumerate() {
        asked_so_often(&world, counts).await;
        for at in 0..17 {
            let said = format!("meanwhile {round} {at}");
            world.view("s", vec![user(&said), assistant("noted")]).await;
        }
        gate.notify_one();
    }
    let compaction = compacting
        .await
        .unwrap()
        .unwrap()
        .into_inner()
        .compaction
        .unwrap();
    assert_eq!(outcomes(&compaction).len(), 3);
    let shown = text(&world.view("s", vec![]).await);
    // The conversation has left the view. The read content is attached as a file.
    assert!(!shown.contains("tool_result"));
    for round in 0..3 {
        for at in 0..17 {
            assert!(
                shown.contains(&format!("meanwhile {round} {at}")),
                "{round} {at}: {shown}"
            );
        }
    }
    assert_eq!(
        world.hook.count(),
        (1, 1, 1),
        "appends during the hook call must not repeat the hooks"
    );
}
