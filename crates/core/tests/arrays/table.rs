//! The cases of the plan, one test for each.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use palimpsest_core::array::{Identity, LinkSource, ResponseUse, SyncPlan};

use crate::world::{Request, World, element};

const NAMED: Identity = Identity::Named;
const INFERRED: Identity = Identity::Inferred;

/// Creates a session that has an array, and a response for which it waits.
pub(crate) fn known(lines: &[&str], response: &[&str]) -> World {
    let mut world = World::default();
    world.sync(&Request::new(lines));
    if !response.is_empty() {
        world.respond(response);
    }
    world
}

impl World {
    pub(crate) fn sync(&mut self, request: &Request) {
        match self.plan(request, NAMED) {
            SyncPlan::Change(change) => self.change(request, &change),
            other => panic!("{other:?}"),
        }
    }

    /// Plans a request, describes the plan, carries it out, and plans the request again.
    #[track_caller]
    fn check(&mut self, request: &Request, identity: Identity, expected: &Expect) {
        let plan = self.plan(request, identity);
        expected.assert_eq(&describe(&plan));
        let SyncPlan::Change(change) = plan else {
            return;
        };
        self.change(request, &change);
        match self.plan(request, identity) {
            SyncPlan::Change(again) if again.is_empty() => {}
            again => panic!("a retry changes something: {again:#?}"),
        }
    }
}

pub(crate) fn describe(plan: &SyncPlan) -> String {
    let change = match plan {
        SyncPlan::Change(change) => change,
        SyncPlan::OtherArray { abandoned: None } => return "another array".to_owned(),
        SyncPlan::OtherArray { .. } => return "another array, abandoned".to_owned(),
        other @ SyncPlan::Fork { .. } => return format!("{other:?}"),
    };
    let mut out = format!("{:?}, keep {}", change.outcome, change.keep);
    if change.rewinds {
        out.push_str(", rewind");
    }
    if let Some(adoption) = &change.adoption {
        write!(
            out,
            ", adopt {} for {:?}",
            adoption.summary, adoption.leaving
        )
        .unwrap();
    }
    match change.response {
        ResponseUse::Unused => {}
        ResponseUse::Confirmed { response } => write!(out, ", confirm {response}").unwrap(),
        ResponseUse::Replaced { response, elements } => {
            write!(out, ", {elements} replace {response}").unwrap();
        }
    }
    for link in &change.links {
        match link.source {
            LinkSource::Known(index) => write!(out, ", link {index}"),
            LinkSource::Recorded(_) => write!(out, ", recorded"),
            LinkSource::Summary => write!(out, ", summary"),
            LinkSource::Appended(index) => write!(out, ", append {index}"),
            LinkSource::Added(index) => write!(out, ", add {index}"),
            LinkSource::Part {
                element,
                from_block,
                ..
            } => {
                write!(out, ", part of {element} from {from_block}")
            }
        }
        .unwrap();
    }
    out
}

#[track_caller]
fn check(world: &World, lines: &[&str], identity: Identity, expected: Expect) {
    world
        .clone()
        .check(&Request::new(lines), identity, &expected);
}

pub(crate) const TALK: [&str; 5] = [
    "user: a", "model: ~hm|b|!1", "user: =1 out", "model: c", "user: d",
];

fn talk() -> World {
    known(&TALK, &["model: ~hm|e"])
}

#[test]
fn the_first_array_is_appended() {
    let first = ["system: s", "user: a", "model: b", "user: c"];
    for identity in [NAMED, INFERRED] {
        check(
            &World::default(),
            &first,
            identity,
            expect!["New, keep 0, append 0, append 1, append 2"],
        );
    }
}

#[test]
fn an_equal_array_is_a_retry() {
    for identity in [NAMED, INFERRED] {
        check(&talk(), &TALK, identity, expect!["Equal, keep 5"]);
    }
}

#[test]
fn a_caller_may_leave_out_elements_without_content() {
    let world = known(
        &[
            "user: a", "model: ~hm", "model: b", "user: ", "user: c", "model: ~x",
        ],
        &[],
    );
    for lines in [
        &["user: a", "model: b", "user: c"][..],
        &[
            "user: a", "model: ~other", "model: b", "user: c", "model: ~x",
        ],
    ] {
        check(&world, lines, NAMED, expect!["Equal, keep 6"]);
    }
    check(
        &world,
        &["user: a", "model: b", "user: c", "user: d"],
        NAMED,
        expect!["Extended, keep 6, append 3"],
    );
    // At the end, thinking that the session has is not appended again, and other thinking is.
    for (thinking, expected) in [
        ("model: ~x", expect!["Extended, keep 6, append 4"]),
        ("model: ~z", expect!["Extended, keep 6, append 3, append 4"]),
    ] {
        let lines = ["user: a", "model: b", "user: c", thinking, "model: !1"];
        check(&world, &lines, NAMED, expected);
    }
}

#[test]
fn an_earlier_response_without_its_thinking_is_known() {
    let lines = [
        "user: a", "model: b|!1", "user: =1 out", "model: c ", "user: d",
    ];
    check(&talk(), &lines, INFERRED, expect!["Equal, keep 5"]);
}

#[test]
fn an_array_that_continues_is_appended() {
    let world = known(&TALK, &[]);
    let longer = [&TALK[..], &["model: e", "user: f"]].concat();
    for identity in [NAMED, INFERRED] {
        check(
            &world,
            &longer,
            identity,
            expect!["Extended, keep 5, append 5, append 6"],
        );
    }
    // The caller interrupted the response.
    let interrupted = [&TALK[..], &["user: f"]].concat();
    check(
        &talk(),
        &interrupted,
        NAMED,
        expect!["Extended, keep 5, append 5"],
    );
}

#[test]
fn an_equal_response_is_confirmed() {
    let longer = [&TALK[..], &["model: ~hm|e", "user: f"]].concat();
    for identity in [NAMED, INFERRED] {
        check(
            &talk(),
            &longer,
            identity,
            expect!["Extended, keep 5, confirm 0, recorded, append 6"],
        );
    }
    let mut world = talk();
    world.respond(&["model: other"]);
    check(
        &world,
        &longer,
        NAMED,
        expect!["Extended, keep 5, confirm 0, recorded, append 6"],
    );
}

#[test]
fn the_response_as_the_caller_sends_it_replaces_the_recorded_one() {
    for echo in ["model: e", "model: ~hm|e ", "model: ~hm|e|more"] {
        let longer = [&TALK[..], &[echo, "user: f"]].concat();
        check(
            &talk(),
            &longer,
            INFERRED,
            expect!["ResponseReplaced, keep 5, 1 replace 0, append 5, append 6"],
        );
    }
    let world = known(&["user: a"], &["model: ~x", "model: b|!1"]);
    let lines = ["user: a", "model: b", "model: !1", "user: =1 out"];
    check(
        &world,
        &lines,
        NAMED,
        expect!["ResponseReplaced, keep 1, 2 replace 0, append 1, append 2, append 3"],
    );
    // The calls differ, so the elements are no form of the response.
    let lines = ["user: a", "model: b|!2", "user: =2 out"];
    check(
        &world,
        &lines,
        NAMED,
        expect!["Extended, keep 1, append 1, append 2"],
    );
}

#[test]
fn a_changed_system_message_continues_the_array_after_a_known_response() {
    let world = known(&["system: s", "user: a"], &["model: b"]);
    let lines = ["system: t", "user: a", "model: b", "user: c"];
    for identity in [NAMED, INFERRED] {
        check(
            &world,
            &lines,
            identity,
            expect!["Extended, keep 1, confirm 0, recorded, append 2"],
        );
    }
    // Without a response that both have, the array can be a side request.
    check(
        &world,
        &["system: t", "user: a"],
        NAMED,
        expect!["another array"],
    );
}

#[test]
fn an_array_without_known_elements_is_trimmed() {
    let world = known(
        &["user: a", "model: b", "user: c", "model: d", "user: e"],
        &["model: f"],
    );
    check(
        &world,
        &["user: c", "model: d", "user: e"],
        NAMED,
        expect!["Trimmed, keep 5"],
    );
    check(
        &world,
        &["user: a", "model: d", "user: e", "model: f", "user: g"],
        NAMED,
        expect!["Trimmed, keep 5, confirm 0, recorded, append 4"],
    );
    let window = ["user: c", "model: d", "user: e", "model: f", "user: g"];
    for identity in [NAMED, INFERRED] {
        check(
            &world,
            &window,
            identity,
            expect!["Trimmed, keep 5, confirm 0, recorded, append 4"],
        );
    }
    // Equal questions are no proof, and an inferred identity needs four matches.
    let asked = known(&["user: a", "model: b", "user: c", "user: d"], &[]);
    check(
        &asked,
        &["user: c", "user: d"],
        NAMED,
        expect!["another array"],
    );
    check(&world, &["user: e"], NAMED, expect!["another array"]);
    check(
        &world,
        &["model: d", "user: e"],
        INFERRED,
        expect!["another array"],
    );
}

#[test]
fn a_summary_is_adopted() {
    let adopted = |request: &Request, expected: Expect| {
        talk().check(request, NAMED, &expected);
        assert_eq!(talk().plan(request, INFERRED), SyncPlan::Fork { links: 5 });
    };
    // The caller states the summary, with a known head.
    let mut stated = Request::new(&["user: a", "user: so far", "user: next"]);
    stated.caller_compacted = true;
    adopted(
        &stated,
        expect!["Adopted, keep 1, adopt 1 for 1..5, summary, append 2"],
    );
    // The provider made the summary.
    let item = Request::new(&["user: ?compaction", "user: next"]);
    adopted(
        &item,
        expect!["Adopted, keep 0, adopt 0 for 0..5, summary, append 1"],
    );
    // The end of the known array follows.
    let tail = Request::new(&["user: so far", "model: c", "user: d", "user: next"]);
    adopted(
        &tail,
        expect!["Adopted, keep 0, adopt 0 for 0..3, summary, link 3, link 4, append 3"],
    );
    // The recorded response follows.
    let response = Request::new(&["user: so far", "model: ~hm|e", "user: next"]);
    adopted(
        &response,
        expect!["Adopted, keep 0, adopt 0 for 0..5, confirm 0, summary, recorded, append 2"],
    );
    // The text begins as an agent's summaries do.
    let frame = "user: This session is being continued from a previous conversation that ran out of context. So far";
    let frame = Request::new(&[frame, "system: x", "user: next"]);
    adopted(
        &frame,
        expect!["Adopted, keep 0, adopt 0 for 0..5, summary, append 1, append 2"],
    );
    // The end that pi keeps begins with a response.
    let frame = "user: The conversation history before this point was compacted into the following summary: So far";
    let frame = Request::new(&[frame, "model: c", "user: d", "user: next"]);
    adopted(
        &frame,
        expect!["Adopted, keep 0, adopt 0 for 0..3, summary, link 3, link 4, append 3"],
    );
    let answer = Request::new(&["user: What did we do so far?", "model: this", "user: next"]);
    adopted(
        &answer,
        expect!["Adopted, keep 0, adopt 0 for 0..5, summary, append 1, append 2"],
    );
}

#[test]
fn a_quoted_response_is_a_summary() {
    let text = "x".repeat(64);
    let world = known(
        &["user: a", "model: b", "user: sum up"],
        &[format!("model: ~hm|{text}").as_str()],
    );
    let quote = format!("user: Summary of another model: {text}");
    let lines = ["system: s", &quote];
    check(
        &world,
        &lines[1..],
        NAMED,
        expect!["Adopted, keep 0, adopt 0 for 0..3, summary"],
    );
    check(
        &world,
        &["user: a", &quote],
        NAMED,
        expect!["Adopted, keep 1, adopt 1 for 1..3, summary"],
    );
    // A response to a side request can be the model's answer in the next array.
    let mut request = Request::new(&["user: go on", "model: done so far", "user: next"]);
    request.side_responses = vec![element("model: ~hm|done so far").message];
    world.clone().check(
        &request,
        NAMED,
        &expect!["Adopted, keep 0, adopt 0 for 0..3, summary, append 1, append 2"],
    );
    let short = known(&["user: a", "model: b", "user: c"], &["model: yes"]);
    check(
        &short,
        &["user: a", "model: b", "user: yes"],
        NAMED,
        expect!["Rewound, keep 2, rewind, append 2"],
    );
}

#[test]
fn a_result_is_no_summary() {
    let mut request = Request::new(&["user: a", "model: b|!1", "user: =1 other"]);
    request.caller_compacted = true;
    talk().check(
        &request,
        NAMED,
        &expect!["Rewound, keep 2, rewind, append 2"],
    );
}

#[test]
fn further_blocks_of_the_last_message_are_appended() {
    let lines = [
        "user: a", "model: b|!1", "user: =1 out", "model: c", "user: d|sum up", "model: e",
    ];
    for identity in [NAMED, INFERRED] {
        check(
            &talk(),
            &lines,
            identity,
            expect!["Extended, keep 4, link 4, part of 4 from 1, append 5"],
        );
    }
    // Twice, with a response between both.
    let mut world = talk();
    world.sync(&Request::new(&lines[..5]));
    world.respond(&["model: summary"]);
    check(
        &world,
        &[
            "user: a",
            "model: b|!1",
            "user: =1 out",
            "model: c",
            "user: d|sum up| |now",
        ],
        NAMED,
        expect!["Extended, keep 4, link 4, link 5, part of 4 from 3"],
    );
    // Without a known response, the array can be another one.
    check(
        &known(&["user: a"], &[]),
        &["user: a|title?"],
        NAMED,
        expect!["another array"],
    );
}

#[test]
fn shortened_elements_are_trimmed() {
    let lines = [
        "user: a", "model: b|!1", "user: =1 .", "model: c", "user: d", "model: e",
    ];
    for identity in [NAMED, INFERRED] {
        check(
            &talk(),
            &lines,
            identity,
            expect!["Trimmed, keep 2, 1 replace 0, link 2, link 3, link 4, append 5"],
        );
    }
    let world = known(&["user: a|b|c", "model: d", "user: e"], &[]);
    check(
        &world,
        &["user: a|c", "model: d", "user: e"],
        NAMED,
        expect!["Trimmed, keep 0, link 0, link 1, link 2"],
    );
    check(
        &world,
        &["user: a|x", "user: e"],
        NAMED,
        expect!["another array"],
    );
    // A longer result is another message.
    let lines = [
        "user: a", "model: b|!1", "user: =1 output", "model: c", "user: d",
    ];
    check(
        &talk(),
        &lines,
        NAMED,
        expect!["Rewound, keep 2, rewind, append 2, append 3, append 4"],
    );
}

#[test]
fn a_side_request_that_came_first_is_displaced() {
    let mut title = Request::new(&["user: title?"]);
    title.has_tools = false;
    let mut world = World::default();
    world.sync(&title);
    let main = Request::new(&["user: a"]);
    world.check(
        &main,
        NAMED,
        &expect!["Displaced, keep 0, rewind, append 0"],
    );
    // The second array is not provisional, and neither is a first one with tools.
    world.check(
        &Request::new(&["user: b"]),
        NAMED,
        &expect!["another array"],
    );
    title.side_requests = true;
    World::default().check(&title, NAMED, &expect!["another array"]);
}

#[test]
fn an_array_without_known_start_is_another_array() {
    for identity in [NAMED, INFERRED] {
        check(
            &talk(),
            &["user: x", "model: y"],
            identity,
            expect!["another array"],
        );
    }
}

#[test]
fn a_changed_message_rewinds_a_named_session() {
    let lines = [
        "user: a", "model: b|!1", "user: =1 out", "model: other", "user: f",
    ];
    check(
        &talk(),
        &lines,
        NAMED,
        expect!["Rewound, keep 3, rewind, append 3, append 4"],
    );
    check(
        &talk(),
        &lines[..3],
        NAMED,
        expect!["Rewound, keep 3, rewind"],
    );
    check(&talk(), &lines, INFERRED, expect!["Fork { links: 3 }"]);
}

#[test]
fn a_branch_that_was_left_is_another_array() {
    let mut world = talk();
    let other = ["user: a", "model: b|!1", "user: =1 out", "model: other"];
    world.sync(&Request::new(&other));
    check(&world, &TALK, NAMED, expect!["another array, abandoned"]);
    // The model repeats the text that was left, so both branches are one.
    let mut world = talk();
    world.sync(&Request::new(&TALK[..3]));
    world.respond(&["model: c"]);
    world.sync(&Request::new(&TALK));
    let changed = [&TALK[..], &["user: x"]].concat();
    world.sync(&Request::new(&changed));
    let changed = [&TALK[..], &["user: y"]].concat();
    check(
        &world,
        &changed,
        NAMED,
        expect!["Rewound, keep 5, rewind, append 5"],
    );
}
