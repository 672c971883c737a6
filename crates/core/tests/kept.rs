//! Messages that a compaction from session memory keeps in random histories. It keeps everything that session memory
//! does not cover, enough messages before that, and at most the maximum. It never separates related messages.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::collections::BTreeSet;

use palimpsest_core::codec;
use palimpsest_core::command::{
    Command, CompactionMessages, ServeView, StartCompaction, SummarySource,
};
use palimpsest_core::event::{CompactionFinished, Event, Trigger};
use palimpsest_core::ids::{MessageId, Ordinal};
use palimpsest_core::levels::compaction::{KeepRule, partition};
use palimpsest_core::message::{Block, Role};
use palimpsest_core::policy::Policy;
use palimpsest_core::session::{CallState, Session};
use palimpsest_core::validate::validate;
use palimpsest_core::view::{PieceForm, Target};
use palimpsest_histories::{SessionHarness, operation};
use proptest::prelude::*;
use uuid::Uuid;

/// The minimum tokens, the minimum messages with text, and the maximum tokens.
type Limits = (u64, u32, u64);

/// Returns the conversation messages of the view in its order.
fn spoken(session: &Session) -> Vec<Ordinal> {
    let mut seen = BTreeSet::new();
    let shown = session.sealed().pieces().iter();
    let shown = shown
        .filter(|piece| {
            piece.form.represents_block() || matches!(piece.form, PieceForm::Placeholder(_))
        })
        .map(|piece| piece.message);
    let waiting = session.pending().iter().map(|item| item.message);
    let all: Vec<Ordinal> = shown.chain(waiting).filter(|at| seen.insert(*at)).collect();
    let is_spoken = |at: &Ordinal| !session.transcript().get(*at).unwrap().kind.is_framing();
    all.into_iter().filter(is_spoken).collect()
}

fn tokens(session: &Session, message: Ordinal) -> u64 {
    let size = session.transcript().get(message).unwrap().size.tokens;
    session.ledger().calibration.apply(size.into())
}

fn has_text(session: &Session, message: Ordinal) -> bool {
    // Only the placeholder of a collapsed message is shown, and the content is not loaded.
    let content = session.transcript().content(message);
    content.is_some_and(|content| {
        let mut blocks = content.blocks.iter();
        blocks.any(|block| matches!(block, Block::Text { .. }) && !block.is_blank())
    })
}

/// Returns the end of the conversation that must stay because of the coverage and the limits alone.
fn tail(
    session: &Session,
    mark: Option<Ordinal>,
    (least, texts, most): Limits,
) -> BTreeSet<Ordinal> {
    let mut kept = BTreeSet::new();
    let (mut sum, mut with_text) = (0, 0);
    for message in spoken(session).into_iter().rev() {
        let is_covered = mark.is_some_and(|mark| message <= mark);
        let is_enough = (sum >= least && with_text >= texts) || sum >= most;
        if is_covered && is_enough {
            break;
        }
        sum += tokens(session, message);
        with_text += u32::from(has_text(session, message));
        kept.insert(message);
    }
    kept
}

/// Returns the pairs of messages that must not be separated: calls and results, and neighbouring fragments.
fn pairs(session: &Session) -> Vec<(Ordinal, Ordinal)> {
    let calls = session.calls().iter();
    let mut pairs: Vec<_> = calls
        .filter_map(|(_, call)| Some((call.message, call.result()?.0)))
        .collect();
    // Collapsed messages have no loaded content and cannot be separated.
    let of_model = |at: &Ordinal| {
        let entry = session.transcript().get(*at).unwrap();
        entry.role == Role::Assistant && entry.content.is_some()
    };
    let said: Vec<Ordinal> = spoken(session).into_iter().filter(of_model).collect();
    let response = |at: Ordinal| {
        let content = session.transcript().content(at)?;
        content.provider_message_id.clone()
    };
    for two in said.windows(2) {
        if response(two[0]).is_some() && response(two[0]) == response(two[1]) {
            pairs.push((two[0], two[1]));
        }
    }
    pairs
}

fn check(
    session: &Session,
    mark: Option<Ordinal>,
    limits: Limits,
    kept: &[Ordinal],
    leaving: &[Ordinal],
) {
    let all = spoken(session);
    let kept: BTreeSet<Ordinal> = kept.iter().copied().collect();
    let leaving: BTreeSet<Ordinal> = leaving.iter().copied().collect();
    assert!(
        kept.is_disjoint(&leaving),
        "a message is both kept and removed"
    );
    for message in &all {
        assert!(
            kept.contains(message) != leaving.contains(message),
            "{message:?} is neither"
        );
    }
    let tail = tail(session, mark, limits);
    assert!(
        tail.is_subset(&kept),
        "messages after the coverage or below the minimum were removed"
    );
    let start = session
        .current_turn()
        .and_then(|turn| session.turns().start(turn));
    let open = session
        .calls()
        .iter()
        .filter(|(_, call)| call.state == CallState::Open);
    let mut must: BTreeSet<Ordinal> = open.map(|(_, call)| call.message).collect();
    must.extend(start);
    must.retain(|at| all.contains(at));
    assert!(
        must.is_subset(&kept),
        "the latest user input or an open call was removed"
    );
    let pairs = pairs(session);
    let there: BTreeSet<Ordinal> = all.iter().copied().collect();
    for (one, other) in &pairs {
        if there.contains(one) && there.contains(other) {
            assert_eq!(
                kept.contains(one),
                kept.contains(other),
                "only one of {one:?} and {other:?} is kept"
            );
        }
    }
    // All other kept messages are related to a message that must stay, so the limits are not exceeded without reason.
    let mut reached = tail;
    reached.extend(must);
    let pending = session.pending().iter().map(|item| item.message);
    reached.extend(pending);
    let is_fixed = |at: &&Ordinal| {
        let entry = session.transcript().get(**at).unwrap();
        entry.role.is_system() || session.pins().pin_of_message(**at).is_some()
    };
    reached.extend(all.iter().filter(is_fixed));
    loop {
        let before = reached.len();
        for (one, other) in &pairs {
            if reached.contains(one) || reached.contains(other) {
                reached.extend([*one, *other]);
            }
        }
        if reached.len() == before {
            break;
        }
    }
    for message in all.iter().filter(|at| kept.contains(at)) {
        assert!(
            reached.contains(message),
            "{message:?} is kept beyond the limits"
        );
    }
}

fn with_limits((least, texts, most): Limits) -> SessionHarness {
    let mut policy = Policy::default();
    policy.session_memory.keep_min_tokens = u32::try_from(least).unwrap();
    policy.session_memory.keep_min_messages = texts;
    policy.session_memory.keep_max_tokens = u32::try_from(most).unwrap();
    policy.autocompact.min_input_tokens = 1;
    SessionHarness::with_policy(policy)
}

/// Compacts from session memory, if it exists.
fn compact(world: &mut SessionHarness) -> Option<CompactionFinished> {
    let id = |number: u128| MessageId::new(Uuid::from_u128(u128::MAX - number));
    let before = world.session.revision();
    let made = CompactionMessages {
        boundary_id: id(0),
        summary_id: id(1),
        request_message: None,
        hook_messages: Vec::new(),
    };
    world.run(Command::StartCompaction(StartCompaction::new(
        Trigger::Manual,
        SummarySource::SessionMemory(made),
    )));
    let events = world
        .log
        .iter()
        .skip(usize::try_from(before.get()).unwrap());
    let mut events = events.map(|recorded| &recorded.event);
    events.find_map(|event| match event {
        Event::CompactionFinished(event) => Some(event.clone()),
        _ => None,
    })
}

fn check_view(world: &mut SessionHarness) {
    world.run(Command::ServeView(ServeView::default()));
    world.load_content();
    let target = Target::default();
    let view = world.session.view(&target, None).unwrap();
    if view.not_sendable.is_some() {
        return;
    }
    let array: Vec<Vec<u8>> = view
        .messages
        .iter()
        .map(|message| {
            let mut out = Vec::new();
            codec::write(target.provider, message, &mut out);
            out
        })
        .collect();
    assert_eq!(validate(&target, &array), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn p01_kept_messages_are_complete_bounded_and_valid_in_any_history(
        operations in prop::collection::vec(operation(), 1..40),
        limits in (0..80_u64, 0..8_u32, 0..300_u64),
        mark in any::<u8>(),
    ) {
        let mut world = with_limits(limits);
        for operation in &operations {
            world.step(operation);
        }
        world.run(Command::ServeView(ServeView::default()));
        world.load_content();
        let session = &world.session;
        // An arbitrary message serves as the end of the coverage.
        let all = spoken(session);
        let mark = all.get(usize::from(mark) % (all.len() + 1)).copied();
        let (min_tokens, min_messages, max_tokens) = limits;
        let recent = KeepRule::Recent { after: mark, min_tokens, min_messages, max_tokens };
        let found = partition(session, recent).unwrap();
        check(session, mark, limits, &found.kept, &found.leaving);
        // The actual coverage of session memory is tested too.
        let before = world.session.clone();
        let covers = before.memory().latest_written().and_then(|version| version.covered_through);
        if let Some(compacted) = compact(&mut world) {
            prop_assert!(covers.is_some());
            check(&before, covers, limits, &compacted.kept, &compacted.leaving);
            let there = |at: &Ordinal| before.transcript().get(*at).unwrap().visibility.is_in_view();
            let no_floor_is_crossed = compacted.kept.iter().all(there);
            prop_assert!(no_floor_is_crossed, "a message that an earlier compaction removed is kept");
            check_view(&mut world);
        }
    }
}
