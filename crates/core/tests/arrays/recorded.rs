//! Responses that are recorded for an array, and their confirmation.

use std::sync::Arc;

use palimpsest_core::array::{CallerArray, Link, LinkKind, MAX_RESPONSES};
use palimpsest_core::codec;
use palimpsest_core::command::{
    Append, AppendSource, Command, ConfirmResponse, ExternalSummary, Rejection, ReplacedResponse,
    Rewind, ServeView, StartCompaction, SummarySource, SyncArray,
};
use palimpsest_core::event::{Trigger, Visibility};
use palimpsest_core::ids::{MessageId, Ordinal};
use palimpsest_core::message::{CANONICAL_VERSION, CanonicalDigests, Message, Usage};
use palimpsest_core::policy::Preset;
use palimpsest_core::session::{PromptCache, Session};
use palimpsest_histories::SessionHarness;
use uuid::Uuid;

use crate::world::element;

const INPUT: u64 = 1_000;

/// Creates a message from a line, as for elements. A response has an id of the provider, and usage.
pub(crate) fn message(line: &str, id: u128) -> Arc<Message> {
    let mut message = Message::clone(&element(line).message);
    message.id = MessageId::new(Uuid::from_u128(id));
    if line.starts_with("model") {
        message.provider_message_id = Some("msg".into());
        message.model = Some("m".into());
        message.usage = Some(Usage {
            input_tokens: INPUT,
            output_tokens: 20,
            ..Usage::default()
        });
    }
    Arc::new(message)
}

fn append(world: &mut SessionHarness, messages: Vec<Arc<Message>>, source: AppendSource) {
    world.run(Command::Append(Append {
        messages,
        source,
        ..Append::default()
    }));
}

pub(crate) fn serve(world: &mut SessionHarness) {
    world.run(Command::ServeView(ServeView::default()));
}

/// Creates a session that was served and has an array of one question.
pub(crate) fn synced() -> SessionHarness {
    let mut world = SessionHarness::with_policy(Preset::ClaudeCode.policy());
    let question = message("user: question", 1);
    let digests = CanonicalDigests::of(&question);
    append(&mut world, vec![question], AppendSource::Messages);
    let array = CallerArray {
        version: CANONICAL_VERSION.into(),
        links: vec![Link {
            digest: digests.key(),
            role: palimpsest_core::message::Role::User,
            message: Ordinal::new(0),
            kind: LinkKind::Content,
        }],
        ..CallerArray::default()
    };
    world.run(Command::SyncArray(SyncArray { array, tip: None }));
    serve(&mut world);
    world
}

fn record(world: &mut SessionHarness, message: Arc<Message>) {
    let after = world.session.array().head();
    append(world, vec![message], AppendSource::Response { after });
}

pub(crate) fn view(world: &mut SessionHarness) -> String {
    world.load_content();
    let target = world.session.last_served().target.clone();
    let view = world.session.view(&target, None).unwrap();
    let mut out = Vec::new();
    for message in &view.messages {
        codec::write(target.provider, message, &mut out);
        out.push(b'\n');
    }
    String::from_utf8(out).unwrap()
}

fn visibility(world: &SessionHarness, message: u32) -> Visibility {
    let entry = world.session.transcript().get(Ordinal::new(message));
    entry.unwrap().visibility
}

#[test]
fn a_confirmed_response_equals_an_appended_one() {
    let answer = "model: ~hm|text|!1";
    let mut recorded = synced();
    record(&mut recorded, message(answer, 2));
    assert_eq!(visibility(&recorded, 1), Visibility::Unconfirmed);
    assert!(recorded.session.pending().is_empty());
    // An unconfirmed response may never enter the view, so its calls are not registered yet.
    assert_eq!(recorded.session.calls().iter().len(), 0);
    assert_eq!(recorded.session.info().reported_tokens, INPUT + 20);
    // A retry of the request gets the same view, and the response can be confirmed after a restart.
    let before = view(&mut synced());
    serve(&mut recorded);
    assert_eq!(view(&mut recorded), before);
    recorded.session = recorded.loaded();
    recorded.run(Command::ConfirmResponse(ConfirmResponse {
        response: Some(0),
    }));
    let mut appended = synced();
    append(
        &mut appended,
        vec![message(answer, 2)],
        AppendSource::Messages,
    );
    for world in [&mut recorded, &mut appended] {
        append(
            world,
            vec![message("user: =1 out", 3)],
            AppendSource::Messages,
        );
        serve(world);
    }
    assert_eq!(view(&mut recorded), view(&mut appended));
    let (one, other) = (&recorded.session, &appended.session);
    assert_eq!(one.ledger(), other.ledger());
    assert_eq!(one.calls(), other.calls());
    assert_eq!(one.sealed(), other.sealed());
    // The two worlds serve at different times.
    let cache_of = |session: &Session| PromptCache {
        served_at: None,
        ..session.prompt_cache().clone()
    };
    assert_eq!(cache_of(one), cache_of(other));
    assert_eq!(one.info().reported_tokens, other.info().reported_tokens);
    assert_eq!(one.array().links, other.array().links);
}

#[test]
fn the_callers_version_replaces_the_response_and_its_usage_counts_once() {
    let mut world = synced();
    record(&mut world, message("model: ~hm|text", 2));
    let replaced = ReplacedResponse {
        recorded: Ordinal::new(1),
        messages: 1,
    };
    let messages = vec![message("model: text", 3), message("user: next", 4)];
    let replaced = Some(replaced);
    append(&mut world, messages, AppendSource::Array { replaced });
    assert_eq!(visibility(&world, 1), Visibility::TranscriptOnly);
    assert_eq!(visibility(&world, 2), Visibility::Visible);
    assert_eq!(world.session.info().reported_tokens, INPUT + 20);
    // The caller's version takes over the usage of the record, so it is the anchor.
    let anchor = world.session.ledger().anchor.as_ref().unwrap();
    assert_eq!(anchor.message, Ordinal::new(2));
    assert!(!view(&mut world).contains("hm"));
}

#[test]
fn a_response_to_an_earlier_end_is_recorded_for_the_transcript_only() {
    let mut world = synced();
    let after = world.session.array().head();
    append(
        &mut world,
        vec![message("user: more", 2)],
        AppendSource::Messages,
    );
    let late = vec![message("model: late", 3)];
    append(&mut world, late, AppendSource::Response { after });
    assert_eq!(visibility(&world, 2), Visibility::TranscriptOnly);
    assert!(world.session.array().responses.is_empty());
}

#[test]
fn the_oldest_of_too_many_responses_is_dropped() {
    let mut world = synced();
    let responses = u32::try_from(MAX_RESPONSES).unwrap() + 1;
    for id in 0..responses {
        record(
            &mut world,
            message(&format!("model: {id}"), u128::from(id) + 2),
        );
    }
    assert_eq!(world.session.array().responses.len(), MAX_RESPONSES);
    assert_eq!(visibility(&world, 1), Visibility::TranscriptOnly);
    // Without an index, the newest response is confirmed, and the others are dropped.
    world.run(Command::ConfirmResponse(ConfirmResponse::default()));
    assert_eq!(
        visibility(&world, responses - 1),
        Visibility::TranscriptOnly
    );
    assert_eq!(visibility(&world, responses), Visibility::Visible);
}

#[test]
fn a_repeated_record_writes_nothing() {
    let mut world = synced();
    record(&mut world, message("model: text", 2));
    let before = world.session.revision();
    record(&mut world, message("model: text", 2));
    assert_eq!(world.session.revision(), before);
}

#[test]
fn a_recorded_response_is_no_target_of_a_rewind_and_holds_no_message_of_the_user() {
    let mut world = synced();
    record(&mut world, message("model: text", 2));
    let rewind = world.try_run(Command::Rewind(Rewind {
        to: Some(MessageId::new(Uuid::from_u128(2))),
        ..Rewind::default()
    }));
    let rejected = Rejection::MessageNotVisible {
        id: MessageId::new(Uuid::from_u128(2)),
        visibility: Visibility::Unconfirmed,
    };
    assert_eq!(rewind, Err(rejected));
    let after = world.session.array().head();
    let words = world.try_run(Command::Append(Append {
        messages: vec![message("user: text", 3)],
        source: AppendSource::Response { after },
        ..Append::default()
    }));
    assert!(matches!(words, Err(Rejection::Invalid { .. })), "{words:?}");
}

#[test]
fn session_memory_reads_a_response_after_its_confirmation() {
    let mut world = synced();
    record(&mut world, message("model: text", 2));
    assert_eq!(
        world.session.memory_readable_through(),
        Some(Ordinal::new(0))
    );
    world.run(Command::ConfirmResponse(ConfirmResponse::default()));
    assert_eq!(
        world.session.memory_readable_through(),
        Some(Ordinal::new(1))
    );
}

#[test]
fn a_response_before_a_compaction_is_loaded_and_confirmed_after_it() {
    let mut world = synced();
    record(&mut world, message("model: text|!1", 2));
    let summary = ExternalSummary {
        summary: message("user: summary", 3),
        first: None,
        last: None,
        kept: Vec::new(),
        before_tokens: None,
        mark: MessageId::new(Uuid::from_u128(4)),
    };
    let source = SummarySource::External(Box::new(summary));
    world.run(Command::StartCompaction(StartCompaction::new(
        Trigger::Manual,
        source,
    )));
    assert_eq!(visibility(&world, 0), Visibility::Compacted);
    // A load reads the contents from the first needed revision on. The response precedes the visible messages.
    world.session = world.loaded();
    assert!(
        world
            .session
            .transcript()
            .content(Ordinal::new(1))
            .is_some()
    );
    world.run(Command::ConfirmResponse(ConfirmResponse::default()));
    append(
        &mut world,
        vec![message("user: =1 out", 5)],
        AppendSource::Messages,
    );
    serve(&mut world);
    let view = view(&mut world);
    assert!(view.contains("summary") && view.contains("text") && view.contains("out"));
}
