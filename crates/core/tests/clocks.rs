//! Clocks that were set back. Work that started or was postponed under the faster clock does not block until that time.

use std::sync::Arc;

use palimpsest_core::command::{
    Append, Command, FailMemoryUpdate, RecordMemoryVersion, ServeView, StartCompaction,
    StartMemoryUpdate, SummarySource, SummarySpec, is_memory_update_running, memory_due_at,
};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::{MessageId, Revision, Timestamp};
use palimpsest_core::memory::{MemoryContent, MemoryDocument};
use palimpsest_core::message::{Block, Message, Role};
use palimpsest_core::policy::Policy;
use palimpsest_core::session::{Author, Strategy};
use palimpsest_histories::SessionHarness;
use uuid::Uuid;

const HOUR_MS: i64 = 60 * 60 * 1000;
const NOTES: &str = "# Task specification\nMake the lights blink.\n# Current State\nThey do.\n";

/// Returns a session that is long enough for session memory and for a compaction.
fn long() -> SessionHarness {
    let mut world = SessionHarness::with_policy(Policy::default());
    for number in 0..8_u128 {
        let role = [Role::User, Role::Assistant][usize::from(number % 2 == 1)];
        // A word counts as 5/3 tokens, so each of the eight messages has about 6,700.
        let words = "word ".repeat(4_000);
        let id = MessageId::new(Uuid::from_u128(number + 1));
        let message = Message::new(id, role, vec![Block::text(words)]);
        world.run(Command::Append(Append {
            messages: vec![Arc::new(message)],
            ..Append::default()
        }));
    }
    world
}

/// Returns the time of a clock that was set back by `by_ms` milliseconds.
fn before(time: Timestamp, by_ms: i64) -> Timestamp {
    Timestamp::from_millis(time.as_millis() - by_ms)
}

#[test]
fn an_update_started_by_a_fast_clock_is_orphaned() {
    let mut world = long();
    world.run(Command::StartMemoryUpdate(StartMemoryUpdate));
    let began = world.session.memory().running.unwrap();
    let session = &world.session;
    // A small difference between two clocks is tolerated.
    assert!(is_memory_update_running(session, before(began, 500)));
    let now = before(began, HOUR_MS);
    assert!(!is_memory_update_running(session, now));
    assert_eq!(memory_due_at(session, now), Some(now));
}

#[test]
fn a_failure_recorded_by_a_fast_clock_is_retried_immediately() {
    for is_file_failure in [false, true] {
        let mut world = long();
        let retry_at = Timestamp::from_millis(10_000);
        world.run(Command::FailMemoryUpdate(FailMemoryUpdate {
            is_file_failure,
            detail: "no".into(),
            retry_at,
        }));
        let session = &world.session;
        assert!(memory_due_at(session, before(retry_at, 9_000)).is_some_and(|due| due <= retry_at));
        let now = before(retry_at, HOUR_MS);
        assert_eq!(
            memory_due_at(session, now),
            Some(now),
            "of the file: {is_file_failure}"
        );
    }
}

#[test]
fn a_text_written_by_a_fast_clock_does_not_delay_the_next_update() {
    let mut world = long();
    world.run(Command::RecordMemoryVersion(RecordMemoryVersion {
        content: MemoryContent::verbatim(&MemoryDocument::parse(NOTES)),
        author: Author::Extractive,
        base_version: 0,
        source: Revision::new(1),
        read_through: None,
        edited_file: None,
        duration_ms: 0,
    }));
    let written = world.session.memory().version.as_ref().unwrap().at;
    let due = |now: Timestamp| memory_due_at(&world.session, now).unwrap();
    assert!(due(written) > written, "the next update must wait");
    let now = before(written, HOUR_MS);
    assert_eq!(due(now), now);
}

#[test]
fn a_compaction_started_by_a_fast_clock_is_over() {
    let mut world = long();
    world.run(Command::ServeView(ServeView::default()));
    let spec = SummarySpec::new(Strategy::Model);
    world.run(Command::StartCompaction(StartCompaction::new(
        Trigger::Manual,
        SummarySource::Write(spec),
    )));
    let running = world.session.compactions().running.clone().unwrap();
    assert!(!running.is_expired(running.started_at));
    assert!(!running.is_expired(before(running.started_at, 500)));
    assert!(running.is_expired(running.deadline));
    let takes = running.deadline.as_millis() - running.started_at.as_millis();
    // The deadline is then further ahead than twice the time limit.
    assert!(running.is_expired(before(running.started_at, takes + 1)));
}
