//! Recovery in random histories: all removed content is reported once and can be recovered.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::collections::{HashMap, HashSet};

use palimpsest_core::command::{Command, ServeView};
use palimpsest_core::ids::{CallKey, Ordinal, Revision};
use palimpsest_core::levels::recovery::{ContentRef, RecoveryIndex, RemovedContent};
use palimpsest_core::policy::ModelTool;
use palimpsest_core::session::{Session, Visibility};
use palimpsest_core::view::{DropReason, MarkerReason, PieceForm, Target};
use palimpsest_histories::{BlockDraft, MessageDraft, Operation, SessionHarness, operation};
use proptest::prelude::*;

/// Returns the removed content in the same way as a server does.
fn told(world: &SessionHarness, recovery: &RecoveryIndex<'_>) -> Vec<RemovedContent> {
    let changes = world.session.view_changes().iter().rev();
    let removed = changes.flat_map(|change| {
        let at = usize::try_from(change.revision.get()).unwrap();
        let event = &world.log[at - 1].event;
        recovery.removed_by(event, change.revision)
    });
    let all = removed.chain(recovery.replaced_results());
    recovery.deduplicate(all.flat_map(|departed| recovery.parts(departed, true)))
}

/// Returns the messages, results and blocks that the view does not show. Only the session state is used.
fn gone(session: &Session) -> (HashSet<Ordinal>, HashSet<CallKey>, HashSet<(Ordinal, u16)>) {
    let left = |standing| matches!(standing, Visibility::Snipped | Visibility::Rewound);
    let entries = session.transcript().entries();
    let messages = entries.filter(|(_, entry)| left(entry.visibility));
    let (mut calls, mut blocks) = (HashSet::new(), HashSet::new());
    for piece in session.sealed().pieces() {
        match piece.form {
            PieceForm::Stored(call) | PieceForm::Cleared(call) | PieceForm::SnippedResult(call) => {
                calls.insert(call);
            }
            PieceForm::Marker(MarkerReason::Snipped)
            | PieceForm::SnippedCall(_)
            | PieceForm::Dropped(DropReason::Snipped) => {
                blocks.insert((piece.message, piece.block));
            }
            _ => {}
        }
    }
    (messages.map(|(at, _)| at).collect(), calls, blocks)
}

/// Returns true if the content left the view earlier. A call with a snipped input may leave again with its result. A
/// turn that is partly restored may contain a message that left on its own.
fn gone_before(
    world: &SessionHarness,
    recovery: &RecoveryIndex<'_>,
    departed: &RemovedContent,
) -> bool {
    let changes = world.session.view_changes().iter();
    let mut earlier = changes.filter(|change| Some(change.revision) < departed.cause);
    earlier.any(|change| {
        let at = usize::try_from(change.revision.get()).unwrap();
        let removed = recovery.removed_by(&world.log[at - 1].event, change.revision);
        removed
            .iter()
            .any(|it| covers(it.content, departed.content))
    })
}

fn covers(earlier: ContentRef, later: ContentRef) -> bool {
    match (earlier, later) {
        (
            ContentRef::Turn(_, earlier) | ContentRef::Messages(earlier),
            ContentRef::Turn(_, later) | ContentRef::Messages(later),
        ) => earlier.first <= later.first && later.first <= earlier.last,
        _ => earlier == later,
    }
}

/// Returns true if a result arrived too late to be shown. It leaves with its call all the same.
fn never_shown(past: &Session, recovery: &RecoveryIndex<'_>, what: ContentRef) -> bool {
    let ContentRef::Result(call) = what else {
        return false;
    };
    let place = recovery.result_position(call);
    let mut pieces = past.sealed().pieces().iter();
    let piece = pieces.find(|piece| Some((piece.message, piece.block)) == place);
    piece.is_none_or(|piece| matches!(piece.form, PieceForm::Dropped(_)))
}

/// Returns true if the block of a result answered another call. This happens after the undo of a rewind. The block then
/// counts for the call that it answered.
fn answered_another(past: &Session, recovery: &RecoveryIndex<'_>, what: ContentRef) -> bool {
    let ContentRef::Result(call) = what else {
        return false;
    };
    let place = recovery.result_position(call);
    let mut pieces = past.sealed().pieces().iter();
    let piece = pieces.find(|piece| Some((piece.message, piece.block)) == place);
    piece.is_some_and(|piece| {
        let shown = matches!(
            piece.form,
            PieceForm::Result(_)
                | PieceForm::ResultWithoutMedia(_)
                | PieceForm::Stored(_)
                | PieceForm::Text(_)
        );
        shown && piece.form.answered_call_key() != Some(call)
    })
}

/// Checks that a result has the same size for every call that it answers.
fn check_sizes(session: &Session) {
    let mut sizes = HashMap::new();
    for (key, call) in session.calls().iter() {
        let size = (call.result_chars, call.result_tokens);
        if let Some(place) = call.result_position {
            assert_eq!(*sizes.entry(place).or_insert(size), size, "of {key}");
        }
    }
}

fn check(world: &mut SessionHarness) {
    world.load_content();
    let session = &world.session;
    let target = Target::default();
    let recovery = RecoveryIndex::new(session, &target);
    let (mut messages, mut calls, mut blocks) = gone(session);
    let mut last = Revision::new(u64::MAX);
    let mut seen = HashSet::new();
    for departed in told(world, &recovery) {
        let cause = departed.cause.unwrap_or(Revision::ZERO);
        assert!(
            cause <= last,
            "removed content is not ordered from the latest change"
        );
        last = cause;
        let tool = recovery.tool_call(departed.content).unwrap();
        let input = tool.input.as_object().unwrap();
        match departed.content {
            ContentRef::Turn(_, row) | ContentRef::Messages(row) => {
                assert_eq!(tool.tool, ModelTool::ReadTranscript);
                for number in row.first.get()..=row.last.get() {
                    messages.remove(&Ordinal::new(number));
                }
                let first = u64::from(row.first.get()) + 1;
                if row.first == row.last {
                    let entry = session.transcript().get(row.first).unwrap();
                    assert_eq!(input["message_id"], entry.id.to_string());
                } else {
                    assert_eq!(input["first"], first);
                }
            }
            ContentRef::Span(span, _) => {
                assert_eq!(tool.tool, ModelTool::ReadTranscript);
                assert_eq!(input["collapse_id"], span.to_string());
                for message in &session.spans().placeholder(span).unwrap().span.messages {
                    messages.remove(message);
                }
            }
            ContentRef::Block(message, block) => {
                blocks.remove(&(message, block));
            }
            ContentRef::Result(call) => {
                assert_eq!(tool.tool, ModelTool::ReadToolResult);
                assert!(seen.insert(call), "{call} is reported twice");
                calls.remove(&call);
                let place = recovery.result_position(call).unwrap();
                blocks.remove(&place);
                if let Some(id) = input.get("tool_use_id").and_then(|id| id.as_str()) {
                    let found = session
                        .calls()
                        .find_by_service_id(id)
                        .map_or_else(|| session.calls().with_id(id).to_vec(), |call| vec![call]);
                    assert_eq!(found, [call], "{id} resolves to another call");
                } else {
                    let reference = input["reference"].as_str().unwrap();
                    let file = reference.rsplit('/').next().unwrap();
                    // Replacements of two calls may share a file if their content is the same.
                    let stored = session.stored_results();
                    let found = stored.find_by_file(file).unwrap();
                    let own = stored.at(place.0, place.1).unwrap();
                    assert_eq!(found.sha256, own.sha256);
                }
            }
        }
        if let Some(to) = recovery.restore_revision(&departed) {
            let past = world.at(to);
            let before = RecoveryIndex::new(&past, &target);
            // A result that level 1 replaced is restored in its replaced form.
            let replaced = before.replaced_results();
            let was_there = !before.parts(departed.clone(), false).is_empty()
                || replaced.iter().any(|it| it.content == departed.content)
                || never_shown(&past, &recovery, departed.content)
                || answered_another(&past, &recovery, departed.content)
                || gone_before(world, &recovery, &departed);
            assert!(was_there, "{departed:?} at {to:?}");
        }
    }
    check_sizes(session);
    assert!(messages.is_empty(), "{messages:?} are not reported");
    assert!(calls.is_empty(), "{calls:?} are not reported");
    assert!(blocks.is_empty(), "{blocks:?} are not reported");
}

fn run(operations: &[Operation]) {
    let mut world = SessionHarness::new();
    for operation in operations {
        world.step(operation);
        if let Operation::Serve { interrupt, .. } = operation {
            world.run(Command::ServeView(ServeView {
                interrupt_open_calls: *interrupt,
                ..ServeView::default()
            }));
        }
    }
    check(&mut world);
}

fn says() -> MessageDraft {
    let parts = vec![];
    MessageDraft::User { meta: false, parts }
}

fn calls(id: u8) -> MessageDraft {
    MessageDraft::Assistant {
        response: 0,
        parts: vec![BlockDraft::Call(id)],
    }
}

/// Returns a result that is stored when it is appended.
fn answers(call: u8) -> MessageDraft {
    let (error, shape) = (false, 3);
    MessageDraft::User {
        meta: false,
        parts: vec![BlockDraft::Result { call, error, shape }],
    }
}

#[test]
fn a_snipped_result_that_an_undo_pairs_with_another_call_is_reported() {
    run(&[
        Operation::Append(vec![says(), calls(4)]),
        Operation::Rewind(1),
        Operation::Append(vec![calls(4), answers(4)]),
        Operation::Snip {
            turn: 0,
            message: 1,
            block: 0,
            what: 1,
        },
        Operation::Restore(1),
    ]);
}

#[test]
fn a_stored_result_that_an_undo_pairs_with_another_call_is_reported() {
    run(&[
        Operation::Append(vec![calls(0), says()]),
        Operation::Append(vec![says(), MessageDraft::Again(0)]),
        Operation::Rewind(1),
        Operation::Append(vec![answers(0)]),
        Operation::Restore(0),
    ]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn all_removed_content_is_reported_with_a_recovery_handle(
        operations in prop::collection::vec(operation(), 1..24)
    ) {
        run(&operations);
    }
}
