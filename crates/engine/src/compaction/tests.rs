//! Tests of the driver with a caller of hooks that needs no network.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_core::command::{Append, Command};
use palimpsest_core::compaction::{
    CompactionOutcome, CompactionRequest, HookRequest, StartedCompaction, SummaryTask,
};
use palimpsest_core::event::{
    CompactionFailureReason, CompactionHooks, Event, Hook, HookCall, Trigger,
};
use palimpsest_core::ids::{CompactionKey, SessionKey, Timestamp};
use palimpsest_core::message::{Block, Message, Role};
use palimpsest_core::policy::HookPolicy;
use palimpsest_core::session::{HookResult, RunningCompaction, Session, Strategy};
use palimpsest_core::summary::SummaryPart;
use palimpsest_core::view::TargetOverride;

use super::*;
use crate::sessions::Transaction;
use crate::test_engine::engine;

/// Disables the hooks that the tests do not use.
const OTHER_HOOKS: &str = "[hooks]\npre_compact.enabled = false\nsession_start.enabled = false\n";

/// The answer of every hook.
type Answer = fn() -> Result<HookDecision, String>;

/// A caller that answers at once and records the calls with their time limits.
#[derive(Debug)]
struct FakeHooks {
    answer: Answer,
    calls: Mutex<Vec<(Hook, Duration)>>,
}

#[async_trait]
impl HookCaller for FakeHooks {
    fn has_endpoint(&self, _: &HookPolicy) -> bool {
        true
    }

    async fn call(&self, request: &HookRequest, timeout: Duration) -> Result<HookDecision, String> {
        let mut calls = self.calls.lock().unwrap();
        calls.push((request.hook(), timeout));
        (self.answer)()
    }
}

/// Compacts a session of ten turns with the hook `PostCompact`. `rule` is the rule of the hook. Returns the last event and the calls of hooks.
async fn compacted(rule: &str, answer: Answer) -> (Event, Vec<(Hook, Duration)>) {
    let mut engine = engine(&format!("{OTHER_HOOKS}post_compact = {{ {rule} }}"));
    let key = SessionKey::parse("projects/p/sessions/s").unwrap();
    let hooks = Arc::new(FakeHooks {
        answer,
        calls: Mutex::default(),
    });
    engine.hook_caller = Some(Arc::clone(&hooks) as Arc<dyn HookCaller>);
    let turns = (0..20).map(|number| {
        let speaker = [Role::User, Role::Assistant][number % 2];
        let text = format!("turn {number}: {}", "words ".repeat(500));
        Arc::new(Message::new(
            engine.ids.message_id(),
            speaker,
            vec![Block::text(text)],
        ))
    });
    let messages: Vec<_> = turns.collect();
    let append = |transaction: &mut Transaction<'_>| {
        transaction.run(Command::Append(Append {
            messages: messages.clone(),
            ..Append::default()
        }))?;
        Ok(())
    };
    let create = engine.create_if_missing(&key.project);
    let appended = engine.sessions.write(&key, &create, append, |_, ()| Ok(()));
    appended.await.unwrap();
    let call = CompactionCall {
        request: CompactionRequest::new(Trigger::Manual),
        waits: true,
        view: Some(TargetOverride::default()),
    };
    let render = |_: &Session, ended: &CompactionOutcome| Ok(ended.clone());
    let ended = compact(&engine, &key, &call, render).await.unwrap();
    let (_, event) = ended.event().expect("the compaction has ended");
    let calls = hooks.calls.lock().unwrap().clone();
    (event.clone(), calls)
}

fn hook_calls(event: &Event) -> &[HookCall] {
    match event {
        Event::CompactionFinished(event) => &event.hooks,
        Event::CompactionFailed(event) => &event.hooks,
        event => panic!("{event:?}"),
    }
}

#[tokio::test]
async fn a_veto_stops_the_compaction_with_a_shortened_reason() {
    let veto = || Ok(HookDecision::Veto("é".repeat(1_000)));
    let (event, calls) = compacted("enabled = true", veto).await;
    let call = hook_calls(&event).last().unwrap();
    assert_eq!(call.result, HookResult::Vetoed);
    assert_eq!(&*call.detail, "é".repeat(256));
    assert!(matches!(calls[..], [(Hook::PostCompact, timeout)] if !timeout.is_zero()));
    let refusal = refusal(hook_calls(&event)).unwrap();
    let is_veto = matches!(&refusal, CompactionError::HookVetoed { hook: Hook::PostCompact, reason }
        if *reason == call.detail);
    assert!(is_veto, "{refusal:?}");
}

#[tokio::test]
async fn secrets_in_the_text_of_a_hook_are_redacted_before_it_is_shortened() {
    // The limit cuts the second key in two.
    let veto = || {
        let key = format!("ghp_{}", "a1B2".repeat(9));
        let filler = "words ".repeat(75);
        Ok(HookDecision::Veto(format!("{key} {filler} {key}")))
    };
    let (event, _) = compacted("enabled = true", veto).await;
    let detail = &hook_calls(&event).last().unwrap().detail;
    assert!(!detail.contains("ghp_"), "{detail}");
    let fails = || Err(format!("no answer to ghp_{}", "a1B2".repeat(9)));
    let (event, _) = compacted("on_failure = \"stop\"", fails).await;
    let detail = &hook_calls(&event).last().unwrap().detail;
    assert!(detail.starts_with("no answer to "), "{detail}");
    assert!(!detail.contains("ghp_"), "{detail}");
}

#[tokio::test]
async fn a_hook_failure_stops_the_compaction_only_if_configured() {
    let fails = || Err("no answer".to_owned());
    let (event, _) = compacted("on_failure = \"stop\"", fails).await;
    assert!(matches!(event, Event::CompactionFailed(_)), "{event:?}");
    let call = hook_calls(&event).last().unwrap();
    assert_eq!(
        (call.result, &*call.detail),
        (HookResult::FailedStopped, "no answer")
    );
    let (event, _) = compacted("on_failure = \"continue\"", fails).await;
    assert!(matches!(event, Event::CompactionFinished(_)), "{event:?}");
    let call = hook_calls(&event).last().unwrap();
    assert_eq!(call.result, HookResult::FailedContinued);
}

#[tokio::test]
async fn an_unreadable_store_is_not_reported_as_a_failed_model() {
    let engine = engine("");
    let key = SessionKey::parse("projects/p/sessions/s").unwrap();
    let messages = [(Role::User, "hello"), (Role::Assistant, "hi")].map(|(role, text)| {
        let id = engine.ids.message_id();
        Arc::new(Message::new(id, role, vec![Block::text(text)]))
    });
    let append = |transaction: &mut Transaction<'_>| {
        transaction.run(Command::Append(Append {
            messages: messages.to_vec(),
            ..Append::default()
        }))
    };
    let create = engine.create_if_missing(&key.project);
    let copy = |session: &Session, _: &_| Ok(session.snapshot());
    let snapshot = engine.sessions.write(&key, &create, append, copy).await;
    // The loaded session holds the last message only. The user input must be read from the log.
    let last = messages.last().cloned();
    let session = Arc::new(snapshot.unwrap().restore(last).unwrap());
    let task = SummaryTask {
        started: StartedCompaction {
            session,
            running: RunningCompaction {
                key: CompactionKey::new(0),
                trigger: Trigger::Manual,
                strategy: Strategy::Extractive,
                started_at: Timestamp::default(),
                deadline: Timestamp::from_millis(i64::MAX),
                part: SummaryPart::Whole,
                leaving: Vec::new(),
                pieces_at_start: 1,
                range_changed: false,
                ahead: false,
                instructions: None,
                attempt: 0,
                dropped: None,
                hooks: CompactionHooks::default(),
                request: None,
            },
        },
        strategy: Strategy::Extractive,
        model: None,
        falls_back: false,
        is_estimate: false,
    };
    engine.sessions.log().close().await.unwrap();
    let failure = summarize::summarize(&engine, &key, &task).await;
    let why = failure.unwrap_err().why;
    assert_eq!(why, CompactionFailureReason::InputUnreadable);
}

#[tokio::test]
async fn a_disabled_hook_is_not_called() {
    let veto = || Ok(HookDecision::Veto("never".to_owned()));
    let (event, calls) = compacted("enabled = false", veto).await;
    assert!(matches!(event, Event::CompactionFinished(_)), "{event:?}");
    assert!(calls.is_empty());
}
