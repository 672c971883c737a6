//! Tests of full windows: rejected prompts, prepared summaries, conversations over many windows, and irreducible views.

use std::time::Duration;

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    Compaction, CompactionMode, CompactionStrategy, EventKind, Level, LevelAction, LevelReport,
    ListEventsRequest, MessageInput, PrepareContextRequest, PrepareContextResponse, PromptTooLong,
    SessionEvent, SkipReason, Trigger, level_report::Detail,
};
use palimpsest_tests::say::{
    append, assistant, assistant_call, prepare, result, small_window, user, work,
};
use palimpsest_tests::{name, refused};
use tonic::{Code, Status};

use crate::repeats::World;

fn request(messages: Vec<MessageInput>) -> PrepareContextRequest {
    PrepareContextRequest {
        target: Some(small_window()),
        ..prepare(&name("s"), messages)
    }
}

impl World {
    async fn prepare(
        &mut self,
        request: PrepareContextRequest,
    ) -> Result<PrepareContextResponse, Status> {
        Ok(self.client.prepare_context(request).await?.into_inner())
    }

    async fn turns(&mut self, turns: std::ops::Range<usize>) {
        for number in turns {
            let mut request = request(work(number));
            request.set_compaction_mode(CompactionMode::Never);
            self.prepare(request).await.unwrap();
        }
    }
}

fn too_long(gap: u32, messages: Vec<MessageInput>) -> PrepareContextRequest {
    let mut request = request(messages);
    request.prompt_too_long = Some(PromptTooLong {
        error_text: match gap {
            // An error without token counts gives no excess.
            0 => String::new(),
            gap => format!(
                "prompt is too long: {} tokens > 200000 maximum",
                200_000 + gap
            ),
        },
        ..PromptTooLong::default()
    });
    request
}

fn reports(reply: &PrepareContextResponse) -> Vec<&LevelReport> {
    let reports = reply.level_reports.iter();
    reports
        .filter(|stage| stage.level() == Level::Compaction)
        .collect()
}

fn compaction(stage: &LevelReport) -> &Compaction {
    match &stage.detail {
        Some(Detail::Compaction(compaction)) => compaction,
        other => panic!("{other:?}"),
    }
}

fn text(reply: &PrepareContextResponse) -> String {
    let messages = reply.messages_json.iter();
    let messages: Vec<_> = messages.map(|one| String::from_utf8_lossy(one)).collect();
    messages.join("\n")
}

#[tokio::test]
async fn a_rejected_prompt_is_compacted_and_keeps_its_last_turn() {
    let mut world = World::new(&[]).await;
    world.turns(0..3).await;
    let reply = world.prepare(too_long(3_000, vec![])).await.unwrap();
    let reports = reports(&reply);
    assert_eq!(reports.len(), 1, "{reports:?}");
    let compaction = compaction(reports[0]);
    assert_eq!(compaction.trigger(), Trigger::PromptTooLong);
    assert_eq!(compaction.strategy(), CompactionStrategy::Model);
    let shown = text(&reply);
    // The read content is attached as a file. The conversation is not.
    assert!(
        shown.contains("\"text\":\"please do the step 2 of the plan\""),
        "{shown}"
    );
    assert!(
        !shown.contains("\"text\":\"please do the step 1 of the plan\""),
        "{shown}"
    );
}

#[tokio::test]
async fn the_oldest_rounds_are_dropped_from_a_prompt_that_stays_too_long() {
    // No compaction has enough input, so only the removal of the oldest rounds can shorten the view.
    let mut world = World::new(&["policy.autocompact.min_input_tokens=1000000"]).await;
    world.turns(0..4).await;
    let reply = world
        .prepare(too_long(5_000, vec![user("is it short now?")]))
        .await
        .unwrap();
    let found = reports(&reply);
    assert_eq!(found[0].skip_reason(), SkipReason::TooLittleInput);
    let dropped = compaction(found[1]);
    assert_eq!(dropped.strategy(), CompactionStrategy::DropOldest);
    let what = dropped.dropped.as_ref().unwrap();
    // Whole rounds are dropped until the excess of 5,000 tokens is covered.
    assert!((5_000..12_000).contains(&what.tokens), "{what:?}");
    assert!(what.messages >= 5 && what.rounds >= 2, "{what:?}");
    let shown = text(&reply);
    assert!(!shown.contains("0 line 17 of a listing") && shown.contains("3 line 17 of a listing"));
    assert!(
        shown.contains("were left out without a summary") && shown.contains("is it short now?")
    );
    let report = reply.recovery.as_ref().unwrap();
    assert!(
        report.total_tokens >= 5_000 && report.items[0].tool_use.is_some(),
        "{report:?}"
    );
    assert!(reply.sendable);
    // Without token counts in the error, a share of the rounds is removed, repeatedly if needed.
    let mut last = reply;
    for attempt in 0..30 {
        let next = world.prepare(too_long(0, vec![])).await;
        match next {
            Ok(next) => {
                let now = next.tokens.as_ref().unwrap().total_tokens;
                assert!(
                    now < last.tokens.as_ref().unwrap().total_tokens,
                    "{attempt}"
                );
                last = next;
            }
            Err(status) => {
                refused(&status, Code::ResourceExhausted, "PROMPT_TOO_LONG");
                assert!(attempt > 1, "{attempt}");
                break;
            }
        }
        assert!(attempt < 29, "the rejected prompt is retried without end");
    }
    let still = world.prepare(request(vec![])).await.unwrap();
    assert!(text(&still).contains("is it short now?"));
    // Messages that were appended with a rejected call stay.
    let refusal = world
        .prepare(too_long(900_000, vec![user("one more word")]))
        .await;
    refused(
        &refusal.unwrap_err(),
        Code::ResourceExhausted,
        "PROMPT_TOO_LONG",
    );
    let still = world.prepare(request(vec![])).await.unwrap();
    assert!(text(&still).contains("one more word"));
}

#[tokio::test]
async fn a_rejected_prompt_that_became_smaller_is_returned() {
    let mut world = World::new(&[]).await;
    let mut messages = vec![user("read it"), assistant_call("large")];
    messages.push(result("large", &"word ".repeat(3_000)));
    let before = world.prepare(request(messages)).await.unwrap();
    let before = before.tokens.unwrap().total_tokens;
    // The provider counts more tokens than this server, so no view is shorter by this number.
    let reply = world.prepare(too_long(10_000_000, vec![])).await.unwrap();
    assert!(reply.sendable);
    assert!(reply.tokens.unwrap().total_tokens < before);
    // At last the view cannot become smaller any more.
    for _ in 0..10 {
        if let Err(status) = world.prepare(too_long(10_000_000, vec![])).await {
            refused(&status, Code::ResourceExhausted, "PROMPT_TOO_LONG");
            return;
        }
    }
    panic!("the rejected prompt is retried without end");
}

/// A caller can change to a model with a smaller window between two turns.
#[tokio::test]
async fn a_smaller_window_triggers_a_compaction_without_new_messages() {
    let mut world = World::new(&[]).await;
    for number in 0..6 {
        let mut large = request(work(number));
        let target = large.target.as_mut().unwrap();
        target.window_tokens = Some(1_000_000);
        let reply = world.prepare(large).await.unwrap();
        assert!(reports(&reply).is_empty(), "{:?}", reply.level_reports);
    }
    let reply = world.prepare(request(vec![])).await.unwrap();
    let [stage] = reports(&reply)[..] else {
        panic!("{:?}", reply.level_reports);
    };
    assert_eq!(stage.action(), LevelAction::Applied, "{stage:?}");
    // A repeat for the same target records nothing.
    let repeat = world.prepare(request(vec![])).await.unwrap();
    let again = world.prepare(request(vec![])).await.unwrap();
    assert_eq!(repeat.revision, again.revision);
}

const AHEAD: [&str; 2] = [
    "policy.autocompact.prepare_ahead=true",
    // Three turns of work exceed the warning threshold of 12,000 tokens, and not the compaction threshold of 17,000.
    "policy.autocompact.warn_buffer_tokens=5000",
];

impl World {
    async fn ends_of_preparations(&self) -> Vec<SessionEvent> {
        let request = ListEventsRequest {
            kinds: vec![
                EventKind::LevelStarted.into(),
                EventKind::SummaryPrepared.into(),
            ],
            session: name("s"),
            ..ListEventsRequest::default()
        };
        let mut sessions = self.server.sessions().await;
        let listed = sessions.list_events(request).await.unwrap();
        listed.into_inner().events
    }

    /// Waits until the first prepared summary is recorded. The view must stay the same.
    async fn prepared(&mut self, epoch: u64) {
        let began = tokio::time::Instant::now();
        loop {
            let reply = self.prepare(request(vec![])).await.unwrap();
            assert_eq!(reply.epoch, epoch, "nothing is put in place ahead");
            if let [started, ended] = &self.ends_of_preparations().await[..] {
                let id = |event: &SessionEvent| event.effect.as_ref().unwrap().operation_id.clone();
                assert_eq!(id(started), id(ended));
                let Some(Event::SummaryPrepared(prepared)) = &ended.event else {
                    panic!("{ended:?}");
                };
                assert_eq!(prepared.strategy(), CompactionStrategy::Model);
                assert_eq!(prepared.model, "claude-fake");
                return;
            }
            assert!(began.elapsed() < Duration::from_mins(3), "no summary");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_prepared_summary_is_used_immediately_even_after_a_restart() {
    let mut world = World::new(&AHEAD).await;
    world.turns(0..3).await;
    let epoch = world.prepare(request(vec![])).await.unwrap().epoch;
    world.prepared(epoch).await;
    let mut world = world.restarted().await;
    let mut found = None;
    for number in 3..5 {
        let reply = world.prepare(request(work(number))).await.unwrap();
        if let [stage] = reports(&reply)[..] {
            assert_eq!(stage.action(), LevelAction::Applied, "{stage:?}");
            let compaction = compaction(stage);
            assert_eq!(compaction.strategy(), CompactionStrategy::Model);
            assert_eq!(compaction.model, "claude-fake");
            found = Some(text(&reply));
            break;
        }
    }
    let shown = found.expect("the prepared summary was not used");
    assert_eq!(world.provider.requests().len(), 1);
    // All later messages follow the summary.
    assert!(shown.contains("<conversation-summary>") && shown.contains("3 line 17 of a listing"));
    assert!(!shown.contains("1 line 17 of a listing"), "{shown}");
}

#[tokio::test]
async fn a_prepared_summary_of_changed_messages_is_discarded() {
    let mut world = World::new(&AHEAD).await;
    world.turns(0..3).await;
    let epoch = world.prepare(request(vec![])).await.unwrap().epoch;
    world.prepared(epoch).await;
    let mut sessions = world.server.sessions().await;
    let listed = palimpsest_proto::context::v1::ListMessagesRequest {
        session: name("s"),
        page_size: 10,
        ..Default::default()
    };
    let listed = sessions.list_messages(listed).await.unwrap().into_inner();
    // Index 7 ends the second turn. The rewind removes the third one, which the prepared summary covers.
    let to = TargetMessage::ToMessageId(listed.messages[7].id.clone());
    let rewind = palimpsest_proto::context::v1::RewindSessionRequest {
        session: name("s"),
        target_message: Some(to),
        ..Default::default()
    };
    world.client.rewind_session(rewind).await.unwrap();
    for number in 3..8 {
        let reply = world.prepare(request(work(number))).await.unwrap();
        if reports(&reply)
            .iter()
            .any(|stage| stage.action() == LevelAction::Applied)
        {
            assert!(world.provider.requests().len() > 1);
            let shown = text(&reply);
            assert!(
                !shown.contains("step 2"),
                "rewound content is shown again: {shown}"
            );
            return;
        }
    }
    panic!("the view was not compacted");
}

#[tokio::test]
async fn p02_five_windows_are_compacted_despite_any_model_failure() {
    for (settings, strategy) in [
        (
            &["summarizer.window_tokens=30000"][..],
            CompactionStrategy::Model,
        ),
        (
            &[
                "summarizer.model=claude-fake+ptl=anthropic",
                "summarizer.window_tokens=30000",
            ][..],
            CompactionStrategy::Extractive,
        ),
        (
            &["summarizer.provider=none"][..],
            CompactionStrategy::Extractive,
        ),
    ] {
        let mut world = World::new(settings).await;
        // 38 turns of about 4,000 tokens fill five windows of 30,000 tokens.
        for number in 0..38 {
            world
                .client
                .append_messages(append(&name("s"), work(number)))
                .await
                .unwrap();
        }
        let reply = world
            .prepare(request(vec![user("and now?")]))
            .await
            .unwrap();
        let reports = reports(&reply);
        let [stage] = reports[..] else {
            panic!("{reports:?}");
        };
        assert_eq!(
            stage.action(),
            LevelAction::Applied,
            "{settings:?}: {stage:?}"
        );
        assert_eq!(compaction(stage).strategy(), strategy, "{settings:?}");
        let effect = stage.effect.as_ref().unwrap();
        assert!(
            effect.before_tokens > 100_000 && effect.after_tokens < 17_000,
            "{effect:?}"
        );
        assert!(reply.sendable && text(&reply).contains("and now?"));
    }
}

#[tokio::test]
async fn p03_an_incompressible_view_is_compacted_only_once() {
    let mut world = World::new(&[]).await;
    world.turns(0..3).await;
    // The last user input stays word for word, and it alone exceeds the threshold of 17,000 tokens.
    let huge = "all of this has to be read, word for word, please\n".repeat(2_500);
    let reply = world.prepare(request(vec![user(&huge)])).await.unwrap();
    let first = reports(&reply);
    assert_eq!(first[0].action(), LevelAction::Applied, "{first:?}");
    assert!(reply.tokens.as_ref().unwrap().total_tokens > 17_000);
    let asked = world.provider.requests().len();
    // Without this state, each call would pay for a summary that cannot help.
    for answer in ["I read it.", "I read on."] {
        let reply = world
            .prepare(request(vec![assistant(answer)]))
            .await
            .unwrap();
        let reports = reports(&reply);
        assert_eq!(
            reports[0].skip_reason(),
            SkipReason::Irreducible,
            "{reports:?}"
        );
        // The reply reports the content that fills the window.
        assert!(reply.tokens.unwrap().breakdown.is_some() && reply.budget.is_some());
    }
    assert_eq!(world.provider.requests().len(), asked);
}

#[tokio::test]
async fn p18_the_summary_model_is_set_per_project_session_and_call() {
    let mut world = World::with_file(
        &["policy.summary.fallback_model=claude-fallback"],
        "[projects.p.policy]\nsummary.model = \"claude-of-project\"\n",
    )
    .await;
    let other = "projects/p/sessions/other";
    world
        .client
        .append_messages(append(other, work(0)))
        .await
        .unwrap();
    world
        .client
        .prepare_context(prepare(other, work(1)))
        .await
        .unwrap();
    let compact = palimpsest_proto::context::v1::CompactRequest {
        session: other.into(),
        ..Default::default()
    };
    let done = world.compact(compact).await.unwrap();
    assert_eq!(done.model, "claude-of-project");
    let mut sessions = world.server.sessions().await;
    let mut policy = palimpsest_proto::context::v1::Policy::default();
    policy.summary.get_or_insert_default().model = Some("claude-of-session".into());
    let create = palimpsest_proto::context::v1::CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: "s".into(),
        session: Some(palimpsest_proto::context::v1::Session {
            policy_overrides: Some(policy),
            ..Default::default()
        }),
        ..Default::default()
    };
    sessions.create_session(create).await.unwrap();
    world.turns(0..3).await;
    let mut compact = crate::repeats::request("", "");
    compact.overrides = None;
    let done = world.compact(compact).await.unwrap();
    assert_eq!(done.model, "claude-of-session");
    world.turns(3..6).await;
    let done = world
        .compact(crate::repeats::request("", "+refuse"))
        .await
        .unwrap();
    assert_eq!(done.model, "claude-fallback");
    let models: Vec<String> = world
        .provider
        .requests()
        .iter()
        .map(|request| request.body["model"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        models,
        [
            "claude-of-project", "claude-of-session", "claude-fake+refuse", "claude-fallback"
        ]
    );
}
