//! Tests of a turn without transport.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_core::array::CallerArray;
use palimpsest_core::command::{Append, AppendSource, Command, Rewind, SyncArray};
use palimpsest_core::compaction::HookRequest;
use palimpsest_core::event::{Hook, RequestMethod, RequestStamp};
use palimpsest_core::ids::Revision;
use palimpsest_core::message::{Block, CANONICAL_VERSION, Digest, Message, Role};
use palimpsest_core::policy::HookPolicy;
use palimpsest_core::session::Visibility;

use super::*;
use crate::compaction::{HookCaller, HookDecision};
use crate::test_engine::engine;

fn session() -> SessionKey {
    SessionKey::parse("projects/p/sessions/s").unwrap()
}

/// Returns an append of messages that alternate between the user and the model.
fn input(engine: &Engine, texts: &[&str]) -> AppendInput {
    let speakers = [Role::User, Role::Assistant].into_iter().cycle();
    let messages = texts.iter().zip(speakers).map(|(text, speaker)| {
        Arc::new(Message::new(
            engine.ids.message_id(),
            speaker,
            vec![Block::text(*text)],
        ))
    });
    AppendInput {
        content: AppendContent::Messages(messages.collect()),
        expected_revision: None,
        request: None,
    }
}

/// Runs a turn that succeeds. The reply is the number of messages in the view, and the revision.
async fn run(
    engine: &Engine,
    call: &TurnCall,
    intake: impl Fn(&mut Transaction<'_>) -> Result<AppendStatus, Rejection>,
) -> Turn<(u32, u64)> {
    try_run(engine, call, intake).await.unwrap()
}

async fn try_run(
    engine: &Engine,
    call: &TurnCall,
    intake: impl Fn(&mut Transaction<'_>) -> Result<AppendStatus, Rejection>,
) -> Result<Turn<(u32, u64)>, CompactionError> {
    let key = session();
    let missing = engine.create_if_missing(&key.project);
    let finish = |session: &Session, _: &TurnOutcome| {
        let view = session.view(&call.target(session).0, call.known_etag)?;
        Ok((view.length, session.revision().get()))
    };
    turn(engine, &key, &missing, call, intake, finish).await
}

#[tokio::test]
async fn a_repeat_returns_the_original_append_and_changes_nothing() {
    let engine = engine("");
    let call = TurnCall::default();
    let stamped = AppendInput {
        request: Some(RequestStamp {
            id: "r".into(),
            method: RequestMethod::Prepare,
            digest: Digest::of_bytes(b"body"),
        }),
        ..input(&engine, &["one"])
    };
    let first = run(&engine, &call, |transaction| stamped.run(transaction)).await;
    assert!(first.original.is_none());
    let later = input(&engine, &["two", "three", "four"]);
    let later = run(&engine, &call, |transaction| later.run(transaction)).await;
    let again = run(&engine, &call, |transaction| stamped.run(transaction)).await;
    assert_eq!(again.answer, later.answer);
    let original = again.original.unwrap();
    assert!(original.created);
    assert_eq!(original.event.messages.len(), 1);
}

#[tokio::test]
async fn an_intake_can_run_other_commands_in_the_same_append() {
    let engine = engine("");
    let call = TurnCall::default();
    let first = input(&engine, &["one", "two", "three"]);
    run(&engine, &call, |transaction| first.run(transaction)).await;
    let AppendContent::Messages(messages) = &first.content else {
        panic!("{first:?}");
    };
    let other = input(&engine, &["another question"]);
    let turn = run(&engine, &call, |transaction| {
        transaction.run(Command::Rewind(Rewind {
            to: Some(messages[1].id),
            expected_revision: None,
            request: None,
        }))?;
        other.run(transaction)
    });
    let (length, revision) = turn.await.answer;
    assert_eq!(length, 3, "the third message is replaced");
    let watched = engine.sessions.position(&session()).await.unwrap();
    assert_eq!(watched.revision.get(), revision);
}

#[tokio::test]
async fn a_rejected_prompt_without_removable_content_is_reported() {
    let engine = engine("");
    let only = input(&engine, &["one question"]);
    let call = TurnCall {
        overflow: Some(Overflow {
            gap_tokens: Some(1),
        }),
        ..TurnCall::default()
    };
    let turn = run(&engine, &call, |transaction| only.run(transaction)).await;
    assert_eq!(turn.omitted, Some(OmittedCompaction::NothingLeft));
}

/// A caller whose hooks veto every compaction.
#[derive(Debug)]
struct VetoingHooks;

#[async_trait]
impl HookCaller for VetoingHooks {
    fn has_endpoint(&self, _: &HookPolicy) -> bool {
        true
    }

    async fn call(&self, _: &HookRequest, _: Duration) -> Result<HookDecision, String> {
        Ok(HookDecision::Veto("not now".to_owned()))
    }
}

#[tokio::test]
async fn a_veto_keeps_the_view_of_a_rejected_prompt() {
    let mut engine = engine("");
    engine.hook_caller = Some(Arc::new(VetoingHooks));
    let long = "words ".repeat(2_000);
    let first = input(&engine, &[&*long; 20]);
    let call = TurnCall::default();
    run(&engine, &call, |transaction| first.run(transaction)).await;
    let rejected = TurnCall {
        overflow: Some(Overflow {
            gap_tokens: Some(5_000),
        }),
        ..TurnCall::default()
    };
    let next = input(&engine, &["is it short now?"]);
    let refused = try_run(&engine, &rejected, |transaction| next.run(transaction)).await;
    let refused = refused.map(|turn| turn.answer).unwrap_err();
    let is_veto = matches!(&refused, CompactionError::HookVetoed { hook: Hook::PreCompact, reason }
        if &**reason == "not now");
    assert!(is_veto, "{refused:?}");
    let nothing = input(&engine, &[]);
    let after = run(&engine, &call, |transaction| nothing.run(transaction)).await;
    assert_eq!(after.answer.0, 21, "the message stays appended");
}

#[tokio::test]
async fn a_veto_keeps_the_oldest_rounds_of_a_critical_view() {
    let mut engine = engine("autocompact.truncate_when_critical = true");
    engine.hook_caller = Some(Arc::new(VetoingHooks));
    let long = "words ".repeat(2_000);
    let first = input(&engine, &[&*long; 21]);
    let window = WindowHint {
        window_tokens: Some(40_000),
        ..WindowHint::default()
    };
    let call = TurnCall {
        target: TargetOverride {
            window: Some(window),
            ..TargetOverride::default()
        },
        ..TurnCall::default()
    };
    let vetoed = run(&engine, &call, |transaction| first.run(transaction)).await;
    assert_eq!(vetoed.answer.0, 21);
    // Later turns without user input do not call the hook again.
    let nothing = input(&engine, &[]);
    let held = run(&engine, &call, |transaction| nothing.run(transaction)).await;
    assert_eq!(held.answer.0, 21);
}

#[tokio::test]
async fn the_mode_of_a_call_decides_about_a_due_compaction() {
    let long = "words ".repeat(2_000);
    let texts: Vec<&str> = (0..21).map(|_| &*long).collect();
    let modes = [
        (CompactionMode::Wait, None),
        (CompactionMode::Never, Some(OmittedCompaction::NotPermitted)),
        (CompactionMode::Background, Some(OmittedCompaction::Running)),
    ];
    for (compaction_mode, omitted) in modes {
        let engine = engine("");
        let all = input(&engine, &texts);
        let window = WindowHint {
            window_tokens: Some(40_000),
            ..WindowHint::default()
        };
        let call = TurnCall {
            target: TargetOverride {
                window: Some(window),
                ..TargetOverride::default()
            },
            compaction_mode,
            ..TurnCall::default()
        };
        let turn = run(&engine, &call, |transaction| all.run(transaction)).await;
        assert_eq!(turn.omitted, omitted, "{compaction_mode:?}");
        let is_whole = turn.answer.0 == 21;
        assert_eq!(is_whole, omitted.is_some(), "{compaction_mode:?}");
    }
}

/// Records a response to the array of a session.
async fn record(engine: &Engine) {
    let recorded = input(engine, &["question", "answer"]);
    let AppendContent::Messages(messages) = &recorded.content else {
        panic!("{recorded:?}");
    };
    let decide = |transaction: &mut Transaction<'_>| {
        let array = CallerArray {
            version: CANONICAL_VERSION.into(),
            ..CallerArray::default()
        };
        let after = array.head();
        transaction.run(Command::SyncArray(SyncArray { array, tip: None }))?;
        transaction.run(Command::Append(Append {
            messages: messages[1..].to_vec(),
            source: AppendSource::Response { after },
            ..Append::default()
        }))
    };
    let (key, reject) = (session(), MissingSession::Reject);
    let written = engine.sessions.write(&key, &reject, decide, |_, _| Ok(()));
    written.await.unwrap();
}

#[tokio::test]
async fn an_append_without_an_array_confirms_the_recorded_response() {
    let engine = engine("");
    let call = TurnCall::default();
    let first = input(&engine, &["one"]);
    run(&engine, &call, |transaction| first.run(transaction)).await;
    record(&engine).await;
    let revision = engine.sessions.position(&session()).await.unwrap().revision;
    // A rejected append and one for the record only leave the response as it is.
    let stale = AppendInput {
        expected_revision: Some(Revision::new(1)),
        ..input(&engine, &["two"])
    };
    let missing = &MissingSession::Reject;
    let rejected = append(&engine, &session(), missing, &stale, |_, _| Ok(())).await;
    assert!(rejected.is_err());
    let mut note = input(&engine, &["note"]);
    if let AppendContent::Messages(messages) = &mut note.content {
        Arc::make_mut(&mut messages[0]).transcript_only = true;
    }
    let seen = |session: &Session, _: &AppendStatus| {
        let entries = session.transcript().entries();
        Ok(entries
            .map(|(_, entry)| entry.visibility)
            .collect::<Vec<_>>())
    };
    let noted = append(&engine, &session(), missing, &note, seen)
        .await
        .unwrap();
    assert_eq!(noted.0[1], Visibility::Unconfirmed);
    let next = AppendInput {
        expected_revision: Some(revision.plus(1)),
        ..input(&engine, &["two"])
    };
    let (length, _) = run(&engine, &call, |transaction| next.run(transaction))
        .await
        .answer;
    assert_eq!(length, 3, "question, answer, question");
}
