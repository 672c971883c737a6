//! Checks the effects that follow from the state of a session. The files of decisions are checked by random histories.

use std::sync::Arc;

use palimpsest_core::command::{
    Append, Command, FailMemory, ServeView, StartMemory, effects_of_state, memory_due,
};
use palimpsest_core::effect::Effect;
use palimpsest_core::histories::SessionHarness;
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::message::{Block, Message, Role};
use palimpsest_core::policy::Policy;
use uuid::Uuid;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// Returns a session with a served view of at least this number of tokens.
fn session(policy: Policy, tokens: usize) -> SessionHarness {
    let mut world = SessionHarness::with_policy(policy);
    // Each of these words counts as 5/3 tokens.
    let words = "word ".repeat(tokens * 3 / 5 + 10);
    let id = MessageId::new(Uuid::from_u128(1 << 64));
    world.run(Command::Append(Append {
        messages: vec![Arc::new(Message::new(
            id,
            Role::User,
            vec![Block::text(words)],
        ))],
        ..Append::default()
    }));
    world.run(Command::ServeView(ServeView::default()));
    world
}

#[test]
fn session_memory_is_enqueued_and_the_worker_is_woken_if_it_is_due_now() {
    let of = |world: &SessionHarness| effects_of_state(&world.session, NOW).collect::<Vec<_>>();
    let mut policy = Policy::default();
    policy.session_memory.enabled = true;
    assert_eq!(of(&session(policy.clone(), 10)), []);
    let mut world = session(policy, 10_000);
    assert_eq!(of(&world), [Effect::MemoryDue(NOW), Effect::WakeWorker]);

    // A failed update is retried later. Workers find the session in the queue, so none is woken.
    let next = NOW.plus_millis(9);
    world.run(Command::FailMemoryUpdate(FailMemory {
        of_file: false,
        detail: "no".into(),
        next,
    }));
    assert_eq!(of(&world), [Effect::MemoryDue(next)]);

    // The outcome of a running update determines the next due time.
    world.run(Command::StartMemoryUpdate(StartMemory));
    let began = world.session.memory().running.unwrap();
    assert_eq!(memory_due(&world.session, began), None);
    assert_eq!(effects_of_state(&world.session, began).count(), 0);
}
