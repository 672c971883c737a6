//! Arrays in which a summary of the service replaces the elements before it.

use expect_test::{Expect, expect};
use palimpsest_core::array::{Element, Hints, Identity, Incoming, ReturnedSummary, plan};
use palimpsest_core::ids::Ordinal;

use crate::table::{TALK, describe, known};
use crate::world::{Request, World, element};

/// The message of the session with the summary.
const WRITTEN_AT: Option<u32> = Some(5);

/// Returns a session that wrote a summary after five messages, and waits for a response.
fn summarized() -> World {
    let mut world = known(&TALK, &[]);
    world.messages.push(element("user: framed").message);
    world.respond(&["model: ~hm|e"]);
    world
}

fn returned(at: usize) -> ReturnedSummary {
    ReturnedSummary {
        text: "the summary".into(),
        at,
        message: element("user: framed"),
    }
}

/// Plans an array with a summary before the element `at`.
#[track_caller]
fn check(
    world: &World,
    (lines, at): (&[&str], usize),
    written_at: Option<u32>,
    identity: Identity,
    expected: Expect,
) {
    let elements: Vec<Element> = lines.iter().map(|line| element(line)).collect();
    let written_at = written_at.map(Ordinal::new);
    let complete = returned(at).complete(&elements, &world.array, written_at);
    let incoming = Incoming::new(&complete, true);
    let planned = plan(&world.array, &incoming, identity, &Hints::default(), world);
    expected.assert_eq(&describe(&planned.unwrap()));
}

const BOTH: [Identity; 2] = [Identity::Named, Identity::Inferred];

#[test]
fn a_response_after_the_summary_continues_the_array() {
    for identity in BOTH {
        let expected = expect!["Extended, keep 5, confirm 0, recorded, append 6"];
        let lines = ["model: ~hm|e", "user: f"];
        check(&summarized(), (&lines, 0), WRITTEN_AT, identity, expected);
        let expected = expect!["Extended, keep 5, confirm 0, recorded, append 6"];
        let with_head = [&TALK[..], &lines].concat();
        check(
            &summarized(),
            (&with_head, 5),
            WRITTEN_AT,
            identity,
            expected,
        );
        let expected = expect!["ResponseReplaced, keep 5, 1 replace 0, append 5, append 6"];
        let lines = ["model: e", "user: f"];
        check(&summarized(), (&lines, 0), WRITTEN_AT, identity, expected);
    }
}

#[test]
fn messages_that_are_repeated_after_the_summary_are_known() {
    for identity in BOTH {
        for lines in [&TALK[3..], &TALK[4..], &TALK[..0]] {
            let expected = expect!["Equal, keep 5"];
            check(&summarized(), (lines, 0), WRITTEN_AT, identity, expected);
        }
        let expected = expect!["Extended, keep 5, append 5"];
        check(
            &summarized(),
            (&["user: g"], 0),
            WRITTEN_AT,
            identity,
            expected,
        );
    }
}

#[test]
fn an_edit_after_the_summary_is_a_rewind_or_a_fork() {
    let mut world = summarized();
    let all = [&TALK[..], &["model: ~hm|e", "user: f"]].concat();
    world.sync(&Request::new(&all));
    world.respond(&["model: g"]);
    world.sync(&Request::new(
        &[&all[..], &["model: g", "user: h"]].concat(),
    ));
    let lines = ["model: ~hm|e", "user: another"];
    let expected = expect!["Rewound, keep 6, rewind, append 6"];
    check(&world, (&lines, 0), WRITTEN_AT, Identity::Named, expected);
    let expected = expect!["Fork { links: 6 }"];
    check(
        &world,
        (&lines, 0),
        WRITTEN_AT,
        Identity::Inferred,
        expected,
    );
}

#[test]
fn another_system_prompt_is_no_other_conversation_after_a_response() {
    let lines = ["system: s", "model: ~hm|e", "user: f"];
    for identity in BOTH {
        let expected = expect!["Extended, keep 5, confirm 0, recorded, append 6"];
        check(&summarized(), (&lines, 1), WRITTEN_AT, identity, expected);
    }
}

#[test]
fn an_unknown_summary_is_the_first_message() {
    let lines = ["user: x", "model: y", "user: z"];
    for identity in BOTH {
        let expected = expect!["New, keep 0, append 0, append 1, append 2"];
        check(&World::default(), (&lines, 1), None, identity, expected);
        // The array of another conversation.
        let expected = expect!["another array"];
        check(&summarized(), (&lines, 1), None, identity, expected);
        // A session that has the elements before the summary needs no summary.
        let expected = expect!["Extended, keep 5, confirm 0, recorded, append 6"];
        let with_head = [&TALK[..], &["model: ~hm|e", "user: f"]].concat();
        check(&summarized(), (&with_head, 5), None, identity, expected);
    }
}

#[test]
fn a_tip_after_a_summary_equals_no_other_tip() {
    let tips = |lines: &[&str], at| {
        let elements: Vec<Element> = lines.iter().map(|line| element(line)).collect();
        let incoming = Incoming::new(&elements, true);
        (
            returned(at).tip(&elements),
            returned(at).beginnings(&elements),
            incoming.tip(),
        )
    };
    let (first, beginnings, plain) = tips(&["model: a", "user: b"], 0);
    assert_ne!(Some(first), plain);
    assert_eq!(beginnings.first(), Some(&first));
    let (_, next, _) = tips(&["model: a", "user: b", "model: c", "user: d"], 0);
    assert!(next.contains(&first), "a later array begins with this one");
    // The summary itself is the last beginning.
    assert_eq!(next.last(), beginnings.last());
    // A caller may leave out the elements before the summary, so they are no part of the tip.
    let (with_head, beginnings, _) = tips(&["user: x", "model: a", "user: b"], 1);
    assert_eq!(with_head, first);
    assert!(
        beginnings.len() > 3,
        "both forms of the array are looked up"
    );
}
