//! Rewinds after a compaction that an undo withdrew.

use Visibility::{Compacted, Rewound, TranscriptOnly, Visible, Withdrawn};
use palimpsest_core::event::Visibility;
use palimpsest_histories::{BlockDraft, MessageDraft, Operation, SessionHarness};

/// Returns a user message that is longer than a summary.
fn user() -> MessageDraft {
    MessageDraft::User {
        meta: false,
        parts: (0..100).map(BlockDraft::Words).collect(),
    }
}

fn run(harness: &mut SessionHarness, operations: &[Operation]) {
    for operation in operations {
        harness.step(operation);
    }
}

fn visibilities(harness: &SessionHarness) -> Vec<Visibility> {
    let entries = harness.session.transcript().entries();
    entries.map(|(_, entry)| entry.visibility).collect()
}

#[test]
fn a_rewind_ignores_a_compaction_that_an_undo_withdrew() {
    let mut harness = SessionHarness::new();
    run(
        &mut harness,
        &[
            Operation::Append(vec![user(), user(), user()]),
            Operation::Rewind(1),
            Operation::Append(vec![user(), user()]),
            Operation::Compact { how: 4, place: 1 },
        ],
    );

    let hidden = [
        Compacted, Rewound, Rewound, Compacted, Visible, TranscriptOnly, Visible,
    ];
    assert_eq!(visibilities(&harness), hidden);

    // The undo withdraws the compaction and the rewind before it.
    run(&mut harness, &[Operation::Restore(1)]);
    let shown = [
        Visible, Visible, Visible, Visible, Visible, TranscriptOnly, Withdrawn,
    ];
    assert_eq!(visibilities(&harness), shown);

    // Another compaction hides the third message. The last view with the third message is the one before this
    // compaction. In the view before the withdrawn compaction, the second message was removed.
    run(&mut harness, &[Operation::Compact { how: 38, place: 2 }]);
    assert_eq!(
        visibilities(&harness)[..4],
        [Visible, Visible, Compacted, Compacted]
    );
    run(&mut harness, &[Operation::Rewind(2)]);
    assert_eq!(
        visibilities(&harness)[..5],
        [Visible, Visible, Rewound, Rewound, Rewound]
    );
}
