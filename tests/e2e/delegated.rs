//! Tests of compactions with the caller's model: the service writes the request and accepts the summary.

use palimpsest_fake_provider::{Behaviour, FakeProvider};
use palimpsest_proto::context::v1::message_input::Content;
use palimpsest_proto::context::v1::{
    CommitSummaryRequest, CommitSummaryResponse, CompactRequest, CompactResponse,
    CompactionFailureReason, CompactionMode, CompactionOverrides, CompactionState,
    CompactionStrategy, DelegatedRequest, Format, Level, LevelAction, LevelReport, MessageForm,
    MessageInput, PrepareContextRequest, PromptTooLong, Provider, RewindSessionRequest, SkipReason,
    SyncContextRequest, Target, commit_summary_request::Outcome, level_report,
    rewind_session_request::TargetMessage,
};
use palimpsest_tests::say::{
    self, assistant, assistant_call, payload, prepare, result, small_window, summary, user,
};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Array, Server, name, refused, refused_field};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::{Code, Status};

const SETTINGS: [&str; 4] = [
    "--set",
    "worker.enabled=false",
    // With the default of 10,000, these short conversations would not be compacted.
    "--set",
    "policy.autocompact.min_input_tokens=100",
];

struct World {
    client: Context,
    server: Server,
    folder: TempDir,
}

impl World {
    async fn new(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let all = SETTINGS.iter().chain(settings).copied().collect::<Vec<_>>();
        let server = Server::start(folder.path(), &all);
        let client = server.context().await;
        Self {
            client,
            server,
            folder,
        }
    }

    /// Restarts the server after a kill, with the same sessions.
    async fn restarted(self) -> Self {
        self.server.kill();
        let server = Server::start(self.folder.path(), &SETTINGS);
        Self {
            client: server.context().await,
            server,
            folder: self.folder,
        }
    }

    async fn view(&mut self, session: &str, messages: Vec<MessageInput>) -> Vec<Value> {
        let request = prepare(&name(session), messages);
        let reply = self.client.prepare_context(request).await.unwrap();
        let mut array = Array::default();
        array.take(&reply.into_inner());
        array.values()
    }

    async fn delegate(&mut self, request: CompactRequest) -> CompactResponse {
        let reply = self.client.compact(request).await.unwrap().into_inner();
        let state = reply.compaction.as_ref().unwrap().state();
        assert_eq!(state, CompactionState::AwaitingSummary);
        reply
    }

    async fn commit(
        &mut self,
        session: &str,
        token: &[u8],
        outcome: Outcome,
    ) -> Result<CommitSummaryResponse, Status> {
        let request = CommitSummaryRequest {
            session: name(session),
            delegation_token: token.to_vec().into(),
            outcome: Some(outcome),
            model: "own-model".into(),
            ..CommitSummaryRequest::default()
        };
        Ok(self.client.commit_summary(request).await?.into_inner())
    }
}

fn delegated(session: &str) -> CompactRequest {
    CompactRequest {
        session: name(session),
        strategy: CompactionStrategy::Delegated.into(),
        ..CompactRequest::default()
    }
}

fn token(reply: &CompactResponse) -> Vec<u8> {
    let delegated = reply.delegated_request.as_ref().unwrap();
    delegated.delegation_token.to_vec()
}

/// Returns a conversation that is large enough for a summary.
fn work() -> Vec<MessageInput> {
    let lines = |what: &str| format!("{what} of the harbour lights\n").repeat(60);
    vec![
        user("Make the harbour lights blink twice, with the key AKIAIOSFODNN7EXAMPLE."),
        assistant_call("c1"),
        result("c1", &lines("source")),
        assistant("The lights are driven by a timer in lights.rs."),
        user("Then set that timer to two beats."),
        assistant_call("c2"),
        result("c2", &lines("timer")),
        assistant(&lines("a long account")),
    ]
}

#[tokio::test]
async fn a_delegated_summary_is_committed_even_after_a_restart() {
    let mut world = World::new(&[]).await;
    world.view("s", work()).await;
    let mut request = delegated("s");
    request.request_id = "delegated-once".into();
    request.overrides = Some(CompactionOverrides {
        instructions: "Name the lamp maker.".into(),
        ..CompactionOverrides::default()
    });
    let reply = world.delegate(request.clone()).await;
    let asked = reply.delegated_request.clone().unwrap();
    let body: Value = serde_json::from_slice(&asked.request_json).unwrap();
    assert!(asked.input_tokens > 300 && asked.expire_time.is_some());
    assert!(body["max_tokens"].as_u64().unwrap() > 0);
    assert!(body.get("tools").is_none() && body.get("model").is_none());
    let text = body.to_string();
    for part in [
        "Name the lamp maker.",
        "Make the harbour lights blink twice",
        "[called read with",
        "[the tool returned] source of the harbour lights",
        "\"cache_control\":{\"type\":\"ephemeral\"}",
        "[redacted: ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("AKIAIOSFODNN7EXAMPLE") && !text.contains("[id:"));
    // Messages are appended meanwhile, and the same request can be obtained again.
    world.view("s", vec![user("One more thing.")]).await;
    let mut world = world.restarted().await;
    let again = world.delegate(request).await.delegated_request.unwrap();
    assert_eq!(again, asked);
    let text = summary("The keeper wants two blinks");
    let token = asked.delegation_token;
    let commit = Outcome::Summary(text);
    let done = world.commit("s", &token, commit.clone()).await.unwrap();
    let compaction = done.compaction.unwrap();
    assert_eq!(compaction.state(), CompactionState::Succeeded);
    assert_eq!(compaction.strategy(), CompactionStrategy::Delegated);
    assert_eq!(compaction.model, "own-model");
    assert!(compaction.summary.contains("The keeper wants two blinks"));
    let shown = Value::Array(world.view("s", vec![]).await).to_string();
    assert!(shown.contains("The keeper wants two blinks") && shown.contains("One more thing."));
    assert!(!shown.contains("a long account of"), "{shown}");
    // The same summary again returns the same answer. Another one is rejected, because the token is used.
    let mut world = world.restarted().await;
    let same = world.commit("s", &token, commit).await.unwrap();
    assert_eq!(
        same.compaction.unwrap().compaction_id,
        compaction.compaction_id
    );
    assert!(
        same.revision >= done.revision,
        "the repeat must report the current revision"
    );
    let other = Outcome::Summary(summary("Something else"));
    let refusal = world.commit("s", &token, other).await.unwrap_err();
    refused(&refusal, Code::NotFound, "DELEGATION_NOT_FOUND");
}

#[tokio::test]
async fn p07_a_rejected_summary_leaves_its_token_valid() {
    let mut world = World::new(&[]).await;
    let before = world.view("s", work()).await;
    let reply = world.delegate(delegated("s")).await;
    let token = token(&reply);
    for (text, reason) in [
        ("", "SUMMARY_EMPTY"),
        (
            "<analysis>much</analysis><summary> </summary>",
            "SUMMARY_EMPTY",
        ),
        ("I'm sorry, but I can't help with that.", "SUMMARY_REFUSED"),
        ("short", "SUMMARY_INCOMPLETE"),
    ] {
        let commit = Outcome::Summary(text.into());
        let refusal = world.commit("s", &token, commit).await.unwrap_err();
        let metadata = refused(&refusal, Code::FailedPrecondition, "SUMMARY_REJECTED");
        assert_eq!(metadata["failure_reason"], reason, "{text}");
    }
    // A summary that is larger than its messages would enlarge the view.
    let huge = summary(&"The keeper wants two blinks. ".repeat(2_000));
    let refusal = world.commit("s", &token, Outcome::Summary(huge)).await;
    let metadata = refused(
        &refusal.unwrap_err(),
        Code::FailedPrecondition,
        "SUMMARY_REJECTED",
    );
    assert_eq!(metadata["failure_reason"], "NOT_SMALLER");
    let cut = CommitSummaryRequest {
        session: name("s"),
        delegation_token: token.clone().into(),
        outcome: Some(Outcome::Summary(summary("cut off"))),
        truncated: true,
        ..CommitSummaryRequest::default()
    };
    let refusal = world.client.commit_summary(cut).await.unwrap_err();
    let metadata = refused(&refusal, Code::FailedPrecondition, "SUMMARY_REJECTED");
    assert_eq!(metadata["failure_reason"], "SUMMARY_TRUNCATED");
    let shown = world.view("s", vec![]).await;
    assert_eq!(shown, before, "nothing has changed");
    // A summary without sections is accepted and completed with known facts.
    let free = "The keeper wants two blinks; the timer in lights.rs has been set to two beats.";
    let done = world
        .commit("s", &token, Outcome::Summary(free.repeat(3)))
        .await;
    let summary = done.unwrap().compaction.unwrap().summary;
    assert!(summary.contains(free) && summary.contains("Make the harbour lights blink twice"));
}

#[tokio::test]
async fn a_summary_of_changed_messages_is_rejected() {
    let mut world = World::new(&[]).await;
    world.view("s", work()).await;
    let reply = world.delegate(delegated("s")).await;
    // A second delegation would summarize the same messages again.
    let refusal = world.client.compact(delegated("s")).await.unwrap_err();
    let metadata = refused(&refusal, Code::FailedPrecondition, "COMPACTION_RUNNING");
    let id = reply.compaction.as_ref().unwrap().compaction_id.clone();
    assert_eq!(metadata["compaction_id"], id);
    let mut sessions = world.server.sessions().await;
    let listed = palimpsest_proto::context::v1::ListMessagesRequest {
        session: name("s"),
        page_size: 3,
        ..Default::default()
    };
    let listed = sessions.list_messages(listed).await.unwrap().into_inner();
    let rewind = RewindSessionRequest {
        session: name("s"),
        target_message: Some(TargetMessage::ToMessageId(listed.messages[2].id.clone())),
        ..RewindSessionRequest::default()
    };
    world.client.rewind_session(rewind).await.unwrap();
    let before = world.view("s", vec![]).await;
    let token = token(&reply);
    // A caller may retry the commit, so the error must be the same each time.
    for _ in 0..2 {
        let text = Outcome::Summary(summary("The keeper wants two blinks"));
        let refusal = world.commit("s", &token, text).await.unwrap_err();
        let metadata = refused(&refusal, Code::Aborted, "COMPACTION_RANGE_CHANGED");
        assert_eq!(metadata["compaction_id"], id);
        assert!(metadata.contains_key("current_revision"));
    }
    assert_eq!(world.view("s", vec![]).await, before);
}

#[tokio::test]
async fn foreign_and_invalid_delegation_tokens_are_rejected() {
    let mut world = World::new(&[]).await;
    world.view("s", work()).await;
    world.view("t", work()).await;
    // Session `t` has a delegation too, so only the token decides.
    let token = token(&world.delegate(delegated("s")).await);
    world.delegate(delegated("t")).await;
    let mut bent = token.clone();
    bent[12] ^= 1;
    let text = || Outcome::Summary(summary("The keeper wants two blinks"));
    for (session, token) in [("t", token.as_slice()), ("s", &bent), ("s", b"nonsense")] {
        let refusal = world.commit(session, token, text()).await.unwrap_err();
        refused(&refusal, Code::NotFound, "DELEGATION_NOT_FOUND");
    }
    let refusal = world.commit("s", b"", text()).await.unwrap_err();
    refused_field(&refusal, "delegation_token");
    let nothing = CommitSummaryRequest {
        session: name("s"),
        delegation_token: token.clone().into(),
        ..CommitSummaryRequest::default()
    };
    let refusal = world.client.commit_summary(nothing).await.unwrap_err();
    refused_field(&refusal, "outcome");
    // A reported failure ends the compaction and uses the token.
    let failed = Outcome::FailureDetail("the model was down".into());
    let done = world.commit("s", &token, failed.clone()).await.unwrap();
    let failure = done.compaction.unwrap().failure.unwrap();
    assert_eq!(failure.reason(), CompactionFailureReason::DelegateFailed);
    assert_eq!(failure.detail, "the model was down");
    world.commit("s", &token, failed).await.unwrap();
    let refusal = world.commit("s", &token, text()).await.unwrap_err();
    refused(&refusal, Code::NotFound, "DELEGATION_NOT_FOUND");
    world.delegate(delegated("s")).await;
}

#[tokio::test]
async fn a_delegation_expires_and_the_next_command_closes_it() {
    let settings = ["--set", "policy.autocompact.timeout=1s"];
    let mut world = World::new(&settings).await;
    world.view("s", work()).await;
    let token = token(&world.delegate(delegated("s")).await);
    // The timeout of the compaction is one second.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let text = Outcome::Summary(summary("too late"));
    let refusal = world.commit("s", &token, text).await.unwrap_err();
    refused(&refusal, Code::NotFound, "DELEGATION_NOT_FOUND");
    let reply = world.delegate(delegated("s")).await;
    // The second compaction of the session. Ids count from 0.
    assert_eq!(reply.compaction.unwrap().compaction_id, "compaction-1");
}

#[tokio::test]
async fn a_delegated_request_fits_the_window_and_can_be_shortened() {
    let mut world = World::new(&[]).await;
    let mut said = Vec::new();
    for n in 0..40 {
        said.push(user(&format!("And lamp {n}? ").repeat(40)));
        said.push(assistant(&format!("Lamp {n} blinks. ").repeat(40)));
    }
    let mut request = prepare(&name("s"), said);
    request.set_compaction_mode(CompactionMode::Never);
    world.client.prepare_context(request).await.unwrap();
    let small = Target {
        provider: Provider::Openai.into(),
        window_tokens: Some(8_000),
        ..Target::default()
    };
    let request = CompactRequest {
        target: Some(small),
        form: MessageForm::Typed.into(),
        ..delegated("s")
    };
    let reply = world.delegate(request).await;
    let asked = reply.delegated_request.unwrap();
    let output = asked.max_output_tokens;
    assert!(
        asked.input_tokens + output <= 8_000,
        "{}",
        asked.input_tokens
    );
    assert!(output <= 2_000 && !asked.system_prompt.is_empty() && asked.messages.len() > 2);
    let dropped = reply.compaction.unwrap().dropped.unwrap();
    assert!(
        dropped.messages > 10 && dropped.tokens > 1_000,
        "{dropped:?}"
    );
    let too_long = Outcome::PromptTooLong(PromptTooLong {
        actual_tokens: Some(8_500),
        limit_tokens: Some(8_000),
        ..PromptTooLong::default()
    });
    let first = asked.delegation_token;
    let shorter = world.commit("s", &first, too_long.clone()).await.unwrap();
    let asked_again = shorter.delegated_request.unwrap();
    // The provider reported an excess of 500 tokens, so the next request has at least 500 fewer.
    assert!(asked_again.input_tokens < asked.input_tokens - 499);
    let compaction = shorter.compaction.unwrap();
    assert_eq!(compaction.state(), CompactionState::AwaitingSummary);
    assert!(compaction.dropped.unwrap().tokens >= dropped.tokens + 500);
    // A repeat changes nothing, and the earlier token is invalid.
    let repeat = world.commit("s", &first, too_long).await.unwrap();
    assert_eq!(repeat.delegated_request.unwrap(), asked_again);
    assert_eq!(repeat.revision, shorter.revision);
    let text = Outcome::Summary(summary("The keeper wants two blinks"));
    let refusal = world.commit("s", &first, text.clone()).await.unwrap_err();
    refused(&refusal, Code::NotFound, "DELEGATION_NOT_FOUND");
    let done = world
        .commit("s", &asked_again.delegation_token, text)
        .await
        .unwrap();
    let compaction = done.compaction.unwrap();
    assert_eq!(compaction.state(), CompactionState::Succeeded);
    assert!(compaction.dropped.unwrap().tokens >= dropped.tokens + 500);
}

#[tokio::test]
async fn a_delegated_compaction_ends_after_too_many_shortenings() {
    let mut world = World::new(&[]).await;
    let before = world.view("s", work()).await;
    let mut token = token(&world.delegate(delegated("s")).await);
    for attempt in 0..10 {
        let too_long = Outcome::PromptTooLong(PromptTooLong::default());
        let reply = world.commit("s", &token, too_long).await.unwrap();
        let compaction = reply.compaction.unwrap();
        if compaction.state() == CompactionState::Failed {
            assert_eq!(compaction.strategy(), CompactionStrategy::Delegated);
            assert!(compaction.start_time.is_some());
            let reason = compaction.failure.unwrap().reason();
            assert_eq!(reason, CompactionFailureReason::PromptTooLong);
            assert!((1..=3).contains(&attempt), "{attempt}");
            assert_eq!(world.view("s", vec![]).await, before);
            return;
        }
        token = reply.delegated_request.unwrap().delegation_token.to_vec();
    }
    panic!("the compaction did not end");
}

/// Appends turns until an automatic compaction is due at the next call.
async fn grow(world: &mut World, session: &str) {
    for number in 0..6 {
        let mut request = prepare(&name(session), say::work(number));
        request.target = Some(small_window());
        request.set_compaction_mode(CompactionMode::Never);
        world.client.prepare_context(request).await.unwrap();
    }
}

fn delegating(session: &str, messages: Vec<MessageInput>) -> PrepareContextRequest {
    PrepareContextRequest {
        target: Some(small_window()),
        delegate_summary: true,
        ..prepare(&name(session), messages)
    }
}

fn compaction_report(reports: &[LevelReport]) -> &LevelReport {
    let mut reports = reports.iter();
    reports
        .find(|report| report.level() == Level::Compaction)
        .unwrap()
}

/// Sends the request to a model as a caller does, and returns the text of the answer.
async fn answer_of_model(provider: &FakeProvider, request: &DelegatedRequest) -> String {
    let mut body: Value = serde_json::from_slice(&request.request_json).unwrap();
    body["model"] = "claude-fake".into();
    let url = format!("{}/v1/messages", provider.url());
    let sent = reqwest::Client::new()
        .post(url)
        .header("x-api-key", "key-of-the-tests")
        .header("anthropic-version", "2023-06-01")
        .body(body.to_string());
    let reply = sent.send().await.unwrap();
    assert!(
        reply.status().is_success(),
        "{}",
        reply.text().await.unwrap()
    );
    let reply: Value = serde_json::from_slice(&reply.bytes().await.unwrap()).unwrap();
    reply["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_due_compaction_is_delegated_in_the_loop_of_the_caller() {
    let provider = FakeProvider::start().await.unwrap();
    let text = summary("The keeper wants two blinks");
    provider.script("claude-fake", [Behaviour::Say(text)]);
    let mut world = World::new(&[]).await;
    grow(&mut world, "s").await;
    let request = delegating("s", vec![user("and now the last step")]);
    let reply = world.client.prepare_context(request).await.unwrap();
    let reply = reply.into_inner();
    // The reply has the view as it is, which can be sent.
    let report = compaction_report(&reply.level_reports);
    assert_eq!(report.action(), LevelAction::Started);
    assert!(reply.sendable && reply.epoch == 0);
    let before = reply.messages_json.clone();
    let asked = reply.delegated_request.unwrap();
    let body = String::from_utf8(asked.request_json.to_vec()).unwrap();
    // The last user input stays in the view, so the summary does not cover it.
    assert!(body.contains("step 0") && !body.contains("and now the last step"));
    // Later calls return the same request, also after a restart. Other callers do not get it.
    let mut world = world.restarted().await;
    let again = world.client.prepare_context(delegating("s", vec![])).await;
    let again = again.unwrap().into_inner();
    assert_eq!(again.delegated_request.as_ref(), Some(&asked));
    assert_eq!(again.messages_json, before);
    let mut request = delegating("s", vec![]);
    request.delegate_summary = false;
    let other = world.client.prepare_context(request).await.unwrap();
    let other = other.into_inner();
    assert_eq!(other.delegated_request, None);
    let report = compaction_report(&other.level_reports);
    assert_eq!(report.skip_reason(), SkipReason::AlreadyRunning);

    let answer = answer_of_model(&provider, &asked).await;
    let outcome = Outcome::Summary(answer);
    let done = world.commit("s", &asked.delegation_token, outcome).await;
    let compaction = done.unwrap().compaction.unwrap();
    assert_eq!(compaction.state(), CompactionState::Succeeded);
    let after = world.client.prepare_context(delegating("s", vec![])).await;
    let after = after.unwrap().into_inner();
    assert_eq!((after.delegated_request, after.epoch), (None, 1));
    let shown = String::from_utf8(after.messages_json.concat()).unwrap();
    assert!(
        shown.contains("The keeper wants two blinks") && shown.contains("and now the last step"),
        "{shown}"
    );
    assert!(!shown.contains("0 line 17 of a listing"), "{shown}");
}

#[tokio::test]
async fn a_failed_delegation_leaves_the_view_and_counts_as_a_failed_attempt() {
    // One counted failure pauses automatic compaction.
    let mut world = World::new(&["--set", "policy.autocompact.max_failures=1"]).await;
    grow(&mut world, "s").await;
    let first = world.client.prepare_context(delegating("s", vec![])).await;
    let first = first.unwrap().into_inner();
    let token = first.delegated_request.unwrap().delegation_token;
    let failed = Outcome::FailureDetail("no credit".into());
    let done = world.commit("s", &token, failed).await.unwrap();
    assert_eq!(done.compaction.unwrap().state(), CompactionState::Failed);
    let next = world.client.prepare_context(delegating("s", vec![])).await;
    let next = next.unwrap().into_inner();
    assert_eq!(next.messages_json, first.messages_json);
    assert_eq!(next.delegated_request, None);
    assert!(next.budget.unwrap().auto_paused);
}

#[tokio::test]
async fn a_rejected_prompt_and_a_dry_run_are_not_delegated() {
    let mut world = World::new(&[]).await;
    grow(&mut world, "s").await;
    let mut request = delegating("s", vec![]);
    request.dry_run = true;
    let reply = world.client.prepare_context(request).await.unwrap();
    assert_eq!(reply.into_inner().delegated_request, None);
    // After a rejected prompt, the caller needs a shorter view with this reply. The delegation is ignored.
    let mut request = delegating("s", vec![user("go on")]);
    request.prompt_too_long = Some(PromptTooLong::default());
    let reply = world.client.prepare_context(request).await.unwrap();
    let reply = reply.into_inner();
    assert_eq!(reply.delegated_request, None);
    let report = compaction_report(&reply.level_reports);
    let Some(level_report::Detail::Compaction(compaction)) = &report.detail else {
        panic!("{report:?}")
    };
    assert_eq!(compaction.strategy(), CompactionStrategy::Extractive);
}

#[tokio::test]
async fn a_whole_array_can_delegate_and_a_model_of_the_server_cannot_be_named() {
    let mut world = World::new(&[]).await;
    let words = "word ".repeat(4_000);
    let turns = (0..6).flat_map(|turn| {
        [
            json!({"role": "user", "content": format!("question {turn} {words}")}),
            json!({"role": "assistant", "content": format!("answer {turn}")}),
        ]
    });
    let last = json!({"role": "user", "content": "the last question"});
    let array: Vec<Value> = turns.chain([last]).collect();
    let MessageInput { content, .. } = payload(Format::AnthropicMessages, json!(array).to_string());
    let Some(Content::Payload(payload)) = content else {
        panic!("no payload")
    };
    let request = SyncContextRequest {
        session: name("s"),
        payload: Some(payload),
        target: Some(small_window()),
        delegate_summary: true,
        ..SyncContextRequest::default()
    };
    let reply = world.client.sync_context(request.clone()).await.unwrap();
    let context = reply.into_inner().context.unwrap();
    assert!(context.delegated_request.is_some());
    // The caller's model writes the summary, so the name of a model of the server would have no effect.
    let mut by_name = request;
    by_name.compaction_overrides = Some(CompactionOverrides {
        model: "some-model".into(),
        ..CompactionOverrides::default()
    });
    let refusal = world.client.sync_context(by_name).await.unwrap_err();
    refused_field(&refusal, "compaction_overrides.model");
}
