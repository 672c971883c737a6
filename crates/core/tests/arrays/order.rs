//! Results of parallel calls in another order.

use expect_test::{Expect, expect};
use palimpsest_core::array::{Identity, Incoming};

use crate::table::{describe, known};
use crate::world::{Request, World, element};

const SEPARATE: [&str; 6] = [
    "user: a", "model: !1|!2|!3", "user: =3 c", "user: =1 a", "user: =2 b", "model: d",
];
const TOGETHER: [&str; 4] = [
    "user: a",
    "model: !1|!2|!3",
    "user: =3 c|and|=1 a|=2 b",
    "model: d",
];

/// Sends an array to a named session and to one that was found by content.
#[track_caller]
fn check(world: &World, lines: &[&str], expected: Expect) {
    let request = Request::new(lines);
    let planned = [Identity::Named, Identity::Inferred].map(|one| world.plan(&request, one));
    assert_eq!(planned[0], planned[1]);
    expected.assert_eq(&describe(&planned[0]));
}

#[test]
fn an_array_with_its_results_in_another_order_is_known() {
    let separate = [
        "user: a", "model: !1|!2|!3", "user: =1 a", "user: =2 b", "user: =3 c", "model: d",
    ];
    let together = [
        "user: a",
        "model: !1|!2|!3",
        "user: =1 a|and|=2 b|=3 c",
        "model: d",
    ];
    check(&known(&SEPARATE, &[]), &separate, expect!["Equal, keep 6"]);
    check(&known(&TOGETHER, &[]), &together, expect!["Equal, keep 4"]);
    let longer = [&separate[..], &["user: e"]].concat();
    check(
        &known(&SEPARATE, &[]),
        &longer,
        expect!["Extended, keep 6, append 6"],
    );
    let longer = [&together[..], &["user: e"]].concat();
    check(
        &known(&TOGETHER, &[]),
        &longer,
        expect!["Extended, keep 4, append 4"],
    );
}

#[test]
fn the_order_can_differ_in_several_turns() {
    let known = known(
        &[
            "system: s", "user: a", "model: !1|!2", "user: =2 b", "user: =1 a", "model: !3|!4",
            "user: =4 d|=3 c", "model: ~hm", "model: !5|!6", "user: =5 e", "user: =6 f", "user: g",
        ],
        &["model: h"],
    );
    let lines = [
        "system: s", "user: a", "model: !1|!2", "user: =1 a", "user: =2 b", "model: !3|!4",
        "user: =3 c|=4 d", "model: !5|!6", "user: =6 f", "user: =5 e", "user: g", "model: h",
        "user: i",
    ];
    check(
        &known,
        &lines,
        expect!["Extended, keep 11, confirm 0, recorded, append 11"],
    );
}

#[test]
fn a_new_result_follows_the_known_ones() {
    let known = known(&SEPARATE[..4], &[]);
    let lines = [
        "user: a", "model: !1|!2|!3", "user: =1 a", "user: =2 b", "user: =3 c",
    ];
    check(&known, &lines, expect!["Extended, keep 4, append 4"]);
    let mut world = known;
    world.sync(&Request::new(&lines));
    assert!(
        world.has_exactly(&Incoming::new(
            &SEPARATE[..5]
                .iter()
                .map(|line| element(line))
                .collect::<Vec<_>>(),
            true
        ))
    );
}

#[test]
fn another_result_is_another_array() {
    let lines = [
        "user: a", "model: !1|!2|!3", "user: =1 a", "user: =2 other", "user: =3 c", "model: d",
    ];
    let plan = known(&SEPARATE, &[]).plan(&Request::new(&lines), Identity::Named);
    expect!["Rewound, keep 4, rewind, append 4, append 5"].assert_eq(&describe(&plan));
    let lines = [
        "user: a",
        "model: !1|!2|!3",
        "user: =1 a|and|=2 other|=3 c",
        "model: d",
    ];
    let plan = known(&TOGETHER, &[]).plan(&Request::new(&lines), Identity::Named);
    expect!["Rewound, keep 2, rewind, append 2, append 3"].assert_eq(&describe(&plan));
    // Inputs of the user have an order.
    let plan = known(&["user: a", "model: b", "user: c", "user: d"], &[]).plan(
        &Request::new(&["user: a", "model: b", "user: d", "user: c"]),
        Identity::Named,
    );
    expect!["Rewound, keep 2, rewind, append 2, append 3"].assert_eq(&describe(&plan));
}

/// A conversation without a name is found by the digests of its arrays.
#[test]
fn the_digests_of_an_array_do_not_depend_on_the_order() {
    let digests = |lines: &[&str]| {
        let elements: Vec<_> = lines.iter().map(|line| element(line)).collect();
        Incoming::new(&elements, true).beginnings()
    };
    let separate = [
        "user: a", "model: !1|!2|!3", "user: =1 a", "user: =2 b", "user: =3 c", "model: d",
    ];
    assert_eq!(digests(&SEPARATE), digests(&separate));
    let together = [
        "user: a",
        "model: !1|!2|!3",
        "user: =1 a|and|=2 b|=3 c",
        "model: d",
    ];
    assert_eq!(digests(&TOGETHER), digests(&together));
    // Each call can be an element.
    let calls = |results: [&'static str; 2]| {
        let [first, second] = results;
        digests(&[
            "user: a", "model: !1", "model: !2", first, second, "model: d",
        ])
    };
    assert_eq!(
        calls(["user: =1 a", "user: =2 b"]),
        calls(["user: =2 b", "user: =1 a"])
    );
    assert_ne!(
        calls(["user: =1 a", "user: =2 b"]),
        calls(["user: =1 b", "user: =2 a"])
    );
    assert_ne!(
        digests(&["user: a", "user: b"]),
        digests(&["user: b", "user: a"])
    );
}
