//! Arrays with the summary of a compaction that the session itself has made.

use expect_test::{Expect, expect};
use palimpsest_core::array::{
    Identity, Incoming, LinkSource, NewLink, OwnCompaction, PlacedMessages, PlannedChange,
    ShownMessage, SyncPlan,
};
use palimpsest_core::ids::Ordinal;
use palimpsest_core::message::Role;

use crate::table::describe;
use crate::world::{Request, World, element};

const TALK: [&str; 7] = [
    "user: a", "model: b|!1", "user: =1 out", "model: c", "user: d", "model: e", "user: f",
];
const SUMMARY: &str = "user: the summary";

/// Returns a session whose view is a summary and the last three messages.
fn compacted() -> (World, OwnCompaction) {
    let mut world = World::default();
    let request = Request::new(&TALK);
    let SyncPlan::Change(change) = world.plan(&request, Identity::Named) else {
        panic!("the first array is new");
    };
    world.change(&request, &change);
    let summary = element(SUMMARY);
    world.messages.push(summary.message);
    let after = world.array.links[4..].iter().map(|link| ShownMessage {
        digest: link.digest,
        message: link.message,
        // Callers always send inputs of the user, and can leave out responses.
        is_optional: link.role == Role::Assistant,
    });
    let own = OwnCompaction {
        digest: summary.digests.key(),
        summary: Ordinal::new(7),
        after: after.collect(),
    };
    (world, own)
}

/// Checks the plan for an array, carries it out, and checks that the array continues afterwards.
#[track_caller]
fn check_in((mut world, own): (World, OwnCompaction), lines: &[&str], expected: &Expect) {
    let request = Request {
        own_compaction: Some(own.clone()),
        ..Request::new(lines)
    };
    let plan = world.plan(&request, Identity::Named);
    // The session itself made the compaction, so a session that was found by content takes the array too.
    assert_eq!(world.plan(&request, Identity::Inferred), plan);
    expected.assert_eq(&describe(&plan));
    let SyncPlan::Change(change) = plan else {
        panic!("the session takes the array");
    };
    let elements: Vec<_> = lines.iter().map(|line| element(line)).collect();
    let incoming = Incoming::new(&elements, true);
    let appended = Ordinal::new(u32::try_from(world.messages.len()).unwrap());
    let placed = PlacedMessages {
        summary: appended,
        appended,
    };
    let messages = change.messages(&world.array, &incoming, &world).unwrap();
    // Such as the instructions of the caller's program: no request of the user begins with them.
    let added = messages.iter().filter(|message| message.machine_generated);
    assert_eq!(added.count(), count_added(&change));
    world.messages.extend(messages);
    world.array = change.apply(&world.array, &incoming, &placed);
    let mut known = world.array.links.iter();
    assert!(known.any(|link| link.message == own.summary));
    assert!(world.has_exactly(&incoming));
    // The known array has the summary from here on.
    let retry = Request::new(lines);
    for identity in [Identity::Named, Identity::Inferred] {
        let SyncPlan::Change(again) = world.plan(&retry, identity) else {
            panic!("a retry is known");
        };
        assert!(again.is_empty(), "{again:#?}");
    }
}

fn count_added(change: &PlannedChange) -> usize {
    let added = |link: &&NewLink| matches!(link.source, LinkSource::Added(_));
    change.links.iter().filter(added).count()
}

#[track_caller]
fn check(lines: &[&str], expected: Expect) {
    check_in(compacted(), lines, &expected);
}

#[test]
fn the_view_is_taken_over() {
    check(
        &[SUMMARY, "user: d", "model: e", "user: f"],
        expect!["Adopted, keep 0, recorded, link 4, link 5, link 6"],
    );
    check(
        &[SUMMARY, "user: d", "model: e", "user: f", "user: g"],
        expect!["Adopted, keep 0, recorded, link 4, link 5, link 6, append 4"],
    );
    let with_response = [
        SUMMARY, "user: d", "model: e", "user: f", "model: h", "user: i",
    ];
    let (mut world, own) = compacted();
    world.respond(&["model: h"]);
    let expected =
        expect!["Adopted, keep 0, confirm 0, recorded, link 4, link 5, link 6, recorded, append 5"];
    check_in((world, own), &with_response, &expected);
}

#[test]
fn a_caller_can_leave_out_shown_messages() {
    check(
        &[SUMMARY, "user: g"],
        expect!["Adopted, keep 0, recorded, append 1"],
    );
    check(
        &[SUMMARY, "user: d", "user: f", "user: g"],
        expect!["Adopted, keep 0, recorded, link 4, link 6, append 3"],
    );
    // An input that no message before it repeats is new, even if a later one equals it.
    check(
        &[SUMMARY, "user: f"],
        expect!["Adopted, keep 0, recorded, append 1"],
    );
}

#[test]
fn a_caller_can_keep_and_add_messages() {
    // Codex sends the inputs of the user before the summary, and its instructions beside them.
    check(
        &[
            "user: a", "user: d", "user: f", SUMMARY, "user: context", "user: g",
        ],
        expect!["Adopted, keep 0, link 0, link 4, link 6, recorded, append 4, append 5"],
    );
    check(
        &[SUMMARY, "user: d", "model: e", "user: context", "user: f"],
        expect!["Adopted, keep 0, recorded, link 4, link 5, add 3, link 6"],
    );
    // All known elements, and the summary after them.
    check(
        &[&TALK[..], &[SUMMARY, "user: g"]].concat(),
        expect![
            "Adopted, keep 0, link 0, link 1, link 2, link 3, link 4, link 5, link 6, recorded, append 8"
        ],
    );
    check(
        &["user: context", SUMMARY, "user: f", "user: g"],
        expect!["Adopted, keep 0, add 0, recorded, append 2, append 3"],
    );
}

#[test]
fn an_array_without_the_summary_is_compared_as_before() {
    let (world, own) = compacted();
    let longer = [&TALK[..], &["user: g"]].concat();
    let request = Request {
        own_compaction: Some(own),
        ..Request::new(&longer)
    };
    let plan = world.plan(&request, Identity::Named);
    expect!["Extended, keep 7, append 7"].assert_eq(&describe(&plan));
}
