//! Cache edits in random histories. An edit removes only content of an earlier request, and every later request repeats
//! the edit at the same position.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::collections::HashSet;

use palimpsest_core::command::{ClearResults, ClearTrigger, Command, ServeView};
use palimpsest_core::event::Event;
use palimpsest_core::ids::CallKey;
use palimpsest_core::message::Role;
use palimpsest_core::session::{CacheEditBatch, Call, Session, Visibility};
use palimpsest_core::view::{Piece, PieceForm};
use palimpsest_histories::{BlockDraft, MessageDraft, Operation, SessionHarness, operation};
use proptest::prelude::*;

/// A caller whose requests support cache edits.
#[derive(Default)]
struct Stage {
    world: SessionHarness,
    /// The pieces of the last answered request.
    sent: Vec<Piece>,
    seen: usize,
}

/// Returns the calls whose results are still in the provider's cache: those of the last request, up to the first later
/// change of the view.
fn cached(sent: &[Piece], now: &[Piece]) -> HashSet<CallKey> {
    let same = sent.iter().zip(now).take_while(|(sent, now)| sent == now);
    same.filter_map(|(piece, _)| piece.form.answered_call_key())
        .collect()
}

fn is_live(session: &Session, call: CallKey) -> bool {
    let mut pieces = session.sealed().pieces().iter();
    pieces.any(|piece| {
        matches!(piece.form, PieceForm::Result(shown) | PieceForm::ResultWithoutMedia(shown) if shown == call)
    })
}

impl Stage {
    /// Checks the events since the last check.
    fn check(&mut self, before: &[CacheEditBatch]) {
        let session = &self.world.session;
        let new = &self.world.log[self.seen..];
        self.seen = self.world.log.len();
        for recorded in new {
            let Event::CacheEditsIssued(event) = &recorded.event else {
                continue;
            };
            let cached = cached(&self.sent, session.sealed().pieces());
            for call in &event.calls {
                assert!(cached.contains(call), "{call} is new to the provider");
            }
            let mut shown = session.sealed().pieces().iter();
            let last = shown.rfind(|piece| piece.form.is_shown());
            assert_eq!(last.unwrap().message, event.message, "not at the end");
        }
        let pins = session.cache_edits().batches();
        // A pin restores a result that an edit removed, so an update of the working state may drop edits.
        let may_drop = |event: &Event| {
            event.change_kind().is_some() || matches!(event, Event::WorkingStateUpdated(_))
        };
        if !new.iter().any(|one| may_drop(&one.event)) {
            assert!(pins.starts_with(before), "{before:?} became {pins:?}");
        }
        let mut seen = HashSet::new();
        for pin in pins {
            assert!(session.transcript().is_in_view(pin.message), "{pin:?}");
            for call in &pin.calls {
                assert!(seen.insert(*call), "{call} twice");
                assert!(is_live(session, *call), "{call} left the view");
                let result = session.calls().get(*call).and_then(Call::result);
                let (message, block) = result.unwrap();
                assert_eq!(
                    session.pins().pin_of_block(message, block),
                    None,
                    "{call} is pinned"
                );
            }
        }
    }

    fn step(&mut self, operation: &Operation) {
        let session = &self.world.session;
        let before = session.cache_edits().batches().to_vec();
        let can_be_sent = session.not_sendable_reason().is_none() && session.pending().is_empty();
        let (view, from) = (session.sealed().pieces().to_vec(), self.world.log.len());
        self.world.step(operation);
        let answered = self.world.log[from..].iter().any(|one| match &one.event {
            Event::MessagesAppended(event) => event.messages.iter().any(|appended| {
                let visible = appended.visibility == Visibility::Visible;
                visible && appended.message.role == Role::Assistant
            }),
            _ => false,
        });
        if answered && can_be_sent {
            self.sent = view;
        }
        self.check(&before);
    }

    fn serve(&mut self, interrupt: bool) {
        let before = self.world.session.cache_edits().batches().to_vec();
        self.world.run(Command::ServeView(ServeView {
            interrupt_open_calls: interrupt,
            ..ServeView::default()
        }));
        self.check(&before);
        let epoch = self.world.session.sealed().epoch();
        self.world.run(Command::ClearResults(ClearResults {
            trigger: ClearTrigger::Auto {
                cache_edits: true,
                last: None,
            },
            expected_revision: None,
            request: None,
        }));
        self.check(&before);
        let of_last = self.world.log.last().map(|last| &last.event);
        if let Some(Event::CacheEditsIssued(_)) = of_last {
            // A cache edit leaves the view as it is, so it begins no epoch.
            assert_eq!(self.world.session.sealed().epoch(), epoch);
        }
        self.check_again();
    }

    /// Checks that a reloaded session has the same edits at the same positions of the array.
    fn check_again(&mut self) {
        let places = |session: &Session| -> Vec<(CacheEditBatch, Option<u32>)> {
            let pins = session.cache_edits().batches().iter();
            let target = &session.last_served().target;
            let length = session.view(target, None).unwrap().length;
            let places = session.edit_positions(target, length).unwrap();
            pins.cloned().zip(places).collect()
        };
        self.world.load_content();
        let before = places(&self.world.session);
        self.world.session = self.world.loaded();
        self.world.load_content();
        assert_eq!(places(&self.world.session), before);
        assert!(
            before.iter().all(|(_, place)| place.is_some()),
            "{before:?}"
        );
    }
}

fn run(operations: &[Operation]) {
    let mut stage = Stage::default();
    for operation in operations {
        stage.step(operation);
        if let Operation::Serve { interrupt, .. } = operation {
            stage.serve(*interrupt);
        }
    }
}

fn calls(ids: &[u8]) -> MessageDraft {
    MessageDraft::Assistant {
        response: 0,
        parts: ids.iter().map(|id| BlockDraft::Call(*id)).collect(),
    }
}

fn user(parts: Vec<BlockDraft>) -> MessageDraft {
    MessageDraft::User { meta: false, parts }
}

fn answers(ids: &[u8]) -> MessageDraft {
    let answer = |call: &u8| BlockDraft::Result {
        call: *call,
        error: false,
        shape: 1,
    };
    user(ids.iter().map(answer).collect())
}

const SERVE: Operation = Operation::Serve {
    target: 0,
    interrupt: false,
};

/// Snips a message by its index among the visible messages.
fn snip(message: u8) -> Operation {
    Operation::Snip {
        turn: 0,
        message,
        block: 0,
        what: 1,
    }
}

#[test]
fn content_restored_by_an_undo_counts_as_uncached() {
    run(&[
        Operation::Append(vec![user(vec![])]),
        snip(0),
        Operation::Append(vec![calls(&[5, 5])]),
        Operation::Append(vec![answers(&[5, 5])]),
        Operation::Restore(0),
        SERVE,
    ]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn p09_p10_cache_edits_name_cached_content_and_keep_their_position(
        operations in prop::collection::vec(operation(), 1..24)
    ) {
        run(&operations);
    }
}
