//! The tool results that the input of a summary leaves out.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::sync::Arc;

use palimpsest_core::command::{Append, Command, ServeView, cleared_for_summary};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::json::UnknownFields;
use palimpsest_core::levels::compaction::summary_input;
use palimpsest_core::message::{
    Block, Message, ResultContent, Role, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::policy::{Overlay, Preset};
use palimpsest_histories::SessionHarness;
use uuid::Uuid;

const HOUR_MS: u64 = 3_600_000;
const SIZE: &str = "microcompact.size = { enabled = true, target_tokens = 0, keep_results = 1 }";

/// Creates a session with six reads, each with a result of its own.
fn session(policy: &str) -> SessionHarness {
    let policy = Overlay::from_toml(policy).unwrap();
    let policy = policy.resolve(Preset::ClaudeCode).unwrap();
    let mut world = SessionHarness::with_policy(policy);
    let message = |number: u128, role, block| {
        let id = MessageId::new(Uuid::from_u128(number));
        Arc::new(Message::new(id, role, vec![block]))
    };
    let mut messages = vec![message(1, Role::User, Block::text("Read six files."))];
    for number in 0..6_u128 {
        let id: Box<str> = format!("c{number}").into();
        let call = Block::ToolUse(ToolUse {
            id: id.clone(),
            name: "Read".into(),
            input: ToolInput::parse("{}"),
            extra: UnknownFields::default(),
        });
        let result = Block::ToolResult(ToolResult {
            tool_use_id: id,
            // Each result is larger than a marker, and its number identifies it in the input.
            content: ResultContent::Text(format!("content {number} ").repeat(100).into()),
            is_error: None,
            extra: UnknownFields::default(),
        });
        messages.push(message(10 + 2 * number, Role::Assistant, call));
        messages.push(message(11 + 2 * number, Role::User, result));
    }
    world.run(Command::Append(Append {
        messages,
        ..Append::default()
    }));
    world.run(Command::ServeView(ServeView::default()));
    world
}

/// Checks the results that stay in the input of a summary, `idle_ms` after the last response.
#[track_caller]
fn check(policy: &str, trigger: Trigger, idle_ms: u64, stay: &[usize]) {
    let world = session(policy);
    let session = &world.session;
    let last = session.last_response().unwrap();
    let now = last.plus_millis(idle_ms);
    let cleared = cleared_for_summary(session, trigger, now);
    let all: Vec<_> = session.transcript().entries().map(|(at, _)| at).collect();
    let input = summary_input(session, &all, &cleared).unwrap();
    let text: String = input.into_iter().map(|message| message.text).collect();
    let found: Vec<usize> = (0..6)
        .filter(|number| text.contains(&format!("content {number} ")))
        .collect();
    assert_eq!(found, stay, "{policy}");
    assert_eq!(
        text.matches("[Old tool result content cleared]").count(),
        6 - stay.len()
    );
}

#[test]
fn a_manual_summary_leaves_out_what_the_enabled_modes_would_clear() {
    let all = [0, 1, 2, 3, 4, 5];
    check("", Trigger::Manual, 0, &all);
    // By time: the session was idle.
    check("", Trigger::Manual, HOUR_MS + 1, &[1, 2, 3, 4, 5]);
    // By size, also below the threshold of the view and the minimum saving.
    check(SIZE, Trigger::Manual, 0, &[5]);
    check(SIZE, Trigger::Model, 0, &[5]);
    let off = format!("{SIZE}\nmicrocompact.enabled = false");
    check(&off, Trigger::Manual, HOUR_MS + 1, &all);
    // Before an automatic compaction, level 3 has run on the view.
    check(SIZE, Trigger::Auto, HOUR_MS + 1, &all);
}

#[test]
fn the_current_turn_is_protected_from_pruning() {
    let pruned = "microcompact.time.enabled = false\n\
                  microcompact.prune = { enabled = true, keep_turns = 0, keep_tokens = 0 }";
    check(pruned, Trigger::Manual, 0, &[0, 1, 2, 3, 4, 5]);
}

#[test]
fn the_time_of_the_start_decides() {
    let world = session("");
    let early = Timestamp::from_millis(0);
    assert!(cleared_for_summary(&world.session, Trigger::Manual, early).is_empty());
}
