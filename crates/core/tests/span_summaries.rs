//! Summaries of staged spans by a model: the conditions under which they replace those of the structure.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::sync::Arc;

use palimpsest_core::command::{
    Append, Command, Decided, ServeView, SkipReason, Snip, SpanSummary, StageSpans, SummarizeSpans,
};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::MessageId;
use palimpsest_core::json::UnknownFields;
use palimpsest_core::levels::collapse::choose;
use palimpsest_core::message::{
    Block, Message, ResultContent, Role, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::policy::{Overlay, Preset};
use palimpsest_histories::SessionHarness;
use uuid::Uuid;

const ON: &str = "collapse = { enabled = true, max_risk = 1.0, summarize_with_model = true }";

fn id(number: u128) -> MessageId {
    MessageId::new(Uuid::from_u128(number))
}

fn call(number: u128) -> Message {
    let call = Block::ToolUse(ToolUse {
        id: format!("c{number}").into(),
        name: "Read".into(),
        input: ToolInput::parse(&format!(r#"{{"path":"/src/{number}.rs"}}"#)),
        extra: UnknownFields::default(),
    });
    Message::new(id(number), Role::Assistant, vec![call])
}

fn answer(number: u128, to: u128) -> Message {
    let result = Block::ToolResult(ToolResult {
        tool_use_id: format!("c{to}").into(),
        // The results are large, so that the placeholder of the span frees more than the minimum.
        content: ResultContent::Text("fn main() {} ".repeat(400).into()),
        is_error: None,
        extra: UnknownFields::default(),
    });
    Message::new(id(number), Role::User, vec![result])
}

fn said(number: u128, text: &str) -> Message {
    Message::new(id(number), Role::User, vec![Block::text(text)])
}

/// Creates a session with one staged span: messages 2 to 5.
fn staged(policy: &str) -> SessionHarness {
    let policy = Overlay::from_toml(policy).unwrap();
    let policy = policy.resolve(Preset::ClaudeCode).unwrap();
    let mut world = SessionHarness::with_policy(policy);
    let messages = vec![
        said(1, "Read both files."),
        call(2),
        answer(3, 2),
        call(4),
        answer(5, 4),
        said(6, "And now?"),
    ];
    world.run(Command::Append(Append {
        messages: messages.into_iter().map(Arc::new).collect(),
        ..Append::default()
    }));
    world.run(Command::ServeView(ServeView::default()));
    stage(&mut world);
    world
}

fn stage(world: &mut SessionHarness) {
    let spans = choose(&world.session).unwrap();
    assert_eq!(spans.len(), 1, "{spans:?}");
    world.run(Command::StageSpans(StageSpans { spans }));
}

fn summaries(world: &SessionHarness, text: &str) -> SummarizeSpans {
    SummarizeSpans {
        epoch: world.session.sealed().epoch(),
        summaries: vec![SpanSummary {
            key: world.session.spans().staged()[0].key,
            text: text.into(),
            model: "small".into(),
        }],
    }
}

#[track_caller]
fn check_skipped(world: &mut SessionHarness, summaries: SummarizeSpans, reason: SkipReason) {
    let before = world.session.spans().clone();
    let decided = world.try_run(Command::SummarizeSpans(summaries)).unwrap();
    assert!(
        matches!(decided, Decided::Skipped(skipped) if skipped == reason),
        "{decided:?}"
    );
    assert_eq!(*world.session.spans(), before);
}

fn snip(world: &mut SessionHarness) {
    world.run(Command::Snip(Snip {
        turns: Vec::new(),
        messages: Vec::new(),
        blocks: vec![(id(3), 0)],
        reason: "".into(),
        trigger: Trigger::Manual,
        expected_revision: None,
        request: None,
    }));
}

#[test]
fn a_later_pass_keeps_the_summary_and_the_time_of_the_next_pass() {
    let mut world = staged(ON);
    let pass_tokens = world.session.spans().pass_tokens();
    let structure = world.session.spans().staged()[0].clone();
    let written = summaries(&world, "Both files are empty.");
    world.run(Command::SummarizeSpans(written));
    let span = world.session.spans().staged()[0].clone();
    assert_eq!(
        (&*span.summary, &*span.model),
        ("Both files are empty.", "small")
    );
    assert_eq!(span.key, structure.key);
    assert_eq!(world.session.spans().pass_tokens(), pass_tokens);
    stage(&mut world);
    assert_eq!(world.session.spans().staged(), [span]);
}

#[test]
fn a_summary_needs_the_switch_of_the_policy_and_an_unchanged_view() {
    let mut world = staged("collapse = { enabled = true, max_risk = 1.0 }");
    let written = summaries(&world, "Both files are empty.");
    check_skipped(&mut world, written, SkipReason::Disabled);
    let mut world = staged(ON);
    let written = summaries(&world, "Both files are empty.");
    snip(&mut world);
    check_skipped(&mut world, written, SkipReason::NothingEligible);
}

#[test]
fn a_summary_that_frees_too_little_is_not_used() {
    let mut world = staged(ON);
    let written = summaries(&world, &"word ".repeat(10_000));
    check_skipped(&mut world, written, SkipReason::NothingEligible);
}

#[test]
fn a_snip_removes_a_span_whose_summary_a_model_wrote() {
    let mut world = staged(ON);
    let mut of_structure = world.session.clone();
    let written = summaries(&world, "Both files are empty.");
    world.run(Command::SummarizeSpans(written));
    snip(&mut world);
    assert!(world.session.spans().staged().is_empty());
    // The structure names no content of results, so its summary stays.
    of_structure.apply(world.log.last().unwrap()).unwrap();
    assert_eq!(of_structure.spans().staged().len(), 1);
}
