//! Ids of calls on the wire after a rewind, when a caller sends the same calls again.

use palimpsest_core::command::{Append, Command, RestoreContext, Rewind, ServeView};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{MessageId, Revision};
use palimpsest_core::policy::Preset;
use palimpsest_core::session::Session;
use palimpsest_histories::SessionHarness;
use uuid::Uuid;

use crate::recorded::{message, view};

/// Appends messages, and serves the view.
fn append(world: &mut SessionHarness, lines: &[&str], first_id: u128) {
    let messages = lines.iter().zip(first_id..);
    let messages = messages.map(|(line, id)| message(line, id)).collect();
    world.run(Command::Append(Append {
        messages,
        ..Append::default()
    }));
    world.run(Command::ServeView(ServeView::default()));
}

/// Creates a session whose caller has rewound a call and sent the call again.
fn repeated() -> (SessionHarness, Revision) {
    let mut world = SessionHarness::with_policy(Preset::ClaudeCode.policy());
    append(
        &mut world,
        &["user: a", "model: b|!1", "user: =1 out", "model: c"],
        1,
    );
    let before = world.session.revision();
    world.run(Command::Rewind(Rewind {
        to: Some(MessageId::new(Uuid::from_u128(1))),
        ..Rewind::default()
    }));
    append(&mut world, &["model: d|!1", "user: =1 other", "user: e"], 5);
    (world, before)
}

#[test]
fn calls_that_are_sent_again_after_a_rewind_keep_their_ids() {
    let (mut world, _) = repeated();
    let view = view(&mut world);
    // The rewound call frees its id, so the repeated one needs no id of the service.
    assert!(!view.contains("palimpsest_c"), "{view}");
    assert_eq!(view.matches(r#""id":"1""#).count(), 1, "{view}");
}

fn restore(world: &mut SessionHarness, to: Revision) {
    let past = Box::new(world.at(to));
    world.run(Command::Restore(RestoreContext {
        past,
        later: Vec::new(),
        force: true,
        expected_revision: None,
        request: None,
    }));
}

#[test]
fn an_undo_maps_the_later_call_of_two_with_one_id() {
    let (mut world, before) = repeated();
    restore(&mut world, before);
    let view = view(&mut world);
    assert_eq!(view.matches(r#""id":"1""#).count(), 1, "{view}");
    // The undo shows the first call under its id again, so the later call gets an id of the service.
    assert_eq!(view.matches(r#""id":"palimpsest_c1""#).count(), 1, "{view}");
    assert_eq!(
        view.matches(r#""tool_use_id":"palimpsest_c1""#).count(),
        1,
        "{view}"
    );
}

#[test]
fn a_log_of_an_earlier_release_renders_the_same() {
    let (mut world, _) = repeated();
    for recorded in &mut world.log {
        if let Event::MessagesAppended(event) = &mut recorded.event {
            // Logs of earlier releases lack this flag: there, a call that left the view still occupies its id.
            event.keeps_ids = false;
        }
    }
    let log = world.log.iter().cloned();
    world.session = Session::replay(world.session.key().clone(), log).unwrap();
    let view = view(&mut world);
    assert_eq!(view.matches(r#""id":"palimpsest_c1""#).count(), 1, "{view}");
}

#[test]
fn an_undo_of_an_undo_brings_back_the_ids_of_the_view() {
    let (mut world, before) = repeated();
    let (between, shown) = (world.session.revision(), view(&mut world));
    restore(&mut world, before);
    restore(&mut world, between);
    assert_eq!(view(&mut world), shown);
}
