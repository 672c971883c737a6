//! Tests of repairs, token reports, budgets and events.

use expect_test::expect;
use palimpsest_core::command::{Command, Rewind, ServeView, UpdateSession};
use palimpsest_core::ids::{MessageId, Revision};
use palimpsest_core::policy::{Overlay, WindowHint};
use palimpsest_core::session::RequestMethod;
use palimpsest_core::tokens::PrefixTokens;
use palimpsest_core::view::{Provider, Target};
use palimpsest_histories::SessionHarness;
use palimpsest_proto::context::v1;
use v1::session_event::Event as E;

use super::{append, serve, target, world};
use crate::convert::{
    breakdown, budget, event_kind, event_kinds, events, repair_warnings, repairs, token_report,
};

const QUESTION: &str = r#"{"role":"user","content":"q"}"#;

fn call(id: &str) -> String {
    format!(
        r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"{id}","name":"Read","input":{{}}}}]}}"#
    )
}

fn result(id: &str) -> String {
    format!(
        r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"said"}}]}}"#
    )
}

fn reported(world: &SessionHarness) -> Vec<v1::Repair> {
    let view = world.session.view(&Target::default(), None).unwrap();
    repairs(&world.session, &view.repairs)
}

#[test]
fn repairs_report_their_kind_and_call() {
    // The messages contain a duplicate, an orphan, a repeated id, an illegal id and a blank text.
    let mut world = world(&[
        &call("a"),
        &result("a"),
        &result("a"),
        &result("none"),
        &call("a"),
        &result("a"),
        &call("not legal!"),
        &result("not legal!"),
        r#"{"role":"user","content":" "}"#,
    ]);
    serve(&mut world, false);
    // The ids of the harness count from 1, so their last digits are the positions of the messages.
    let said: Vec<String> = reported(&world)
        .iter()
        .map(|repair| {
            let message = repair.message_id.trim_start_matches(['0', '-']);
            let call = repair.call.as_ref().map(|call| &*call.call_key);
            format!(
                "{} {message}/{:?} {:?} {}",
                repair.kind().as_str_name(),
                repair.block_index,
                call,
                repair.view_tool_use_id
            )
        })
        .collect();
    let mut said = said;
    said.sort();
    expect![[r#"
        REPAIR_KIND_BLANK_TEXT_DROPPED 9/Some(0) None 
        REPAIR_KIND_DUPLICATE_RESULT_DROPPED 3/Some(0) Some("c0") 
        REPAIR_KIND_FIRST_USER_MESSAGE_ADDED 1/None None 
        REPAIR_KIND_ILLEGAL_TOOL_USE_ID_MAPPED 7/Some(0) Some("c2") palimpsest_c2
        REPAIR_KIND_ORPHAN_RESULT_AS_TEXT 4/Some(0) None 
        REPAIR_KIND_REPEATED_TOOL_USE_ID_MAPPED 5/Some(0) Some("c1") palimpsest_c1"#]]
    .assert_eq(&said.join("\n"));
}

#[test]
fn a_repeated_illegal_call_id_is_reported_as_illegal() {
    let id = "not legal!";
    let mut world = world(&[QUESTION, &call(id), &result(id), &call(id), &result(id)]);
    serve(&mut world, false);
    for repair in reported(&world) {
        assert_eq!(repair.kind(), v1::RepairKind::IllegalToolUseIdMapped);
        assert!(!repair.detail.contains(id));
        assert_eq!(repair.call.unwrap().tool_use_id, id);
    }
}

#[test]
fn an_interrupted_call_is_reported_at_its_call() {
    let mut world = world(&[QUESTION, &call("a"), QUESTION]);
    serve(&mut world, false);
    let [repair] = <[v1::Repair; 1]>::try_from(reported(&world)).unwrap();
    assert_eq!(repair.kind(), v1::RepairKind::CallInterrupted);
    assert_eq!(repair.message_id, uuid::Uuid::from_u128(2).to_string());
    assert_eq!(repair.block_index, Some(0));
    append(&mut world, &[&result("a")]);
    serve(&mut world, false);
    let kinds: Vec<_> = reported(&world).iter().map(v1::Repair::kind).collect();
    assert!(
        kinds.contains(&v1::RepairKind::LateResultAsText),
        "{kinds:?}"
    );
    // A late result that the view shows as text hides nothing, so it is not warned of.
    let view = world.session.view(&Target::default(), None).unwrap();
    assert!(repair_warnings(&world.session, &view.repairs).is_empty());
    let hidden = palimpsest_core::view::Repair {
        message: palimpsest_core::ids::Ordinal::new(3),
        block: 0,
        kind: palimpsest_core::view::RepairKind::LateResultHidden(
            palimpsest_core::ids::CallKey::new(0),
        ),
    };
    let warned = repair_warnings(&world.session, &[hidden]);
    assert_eq!(warned[0].code(), v1::WarningCode::LateResult);
    assert_eq!(warned[0].call.as_ref().unwrap().tool_use_id, "a");
}

#[test]
fn a_token_report_names_its_method_and_anchor() {
    let mut world = world(&[QUESTION]);
    let estimated = token_report(&world.session, None);
    assert_eq!(estimated.method(), v1::TokenMethod::Estimated);
    assert_eq!(estimated.anchor_tokens, 0);
    assert_eq!(estimated.tail_tokens, estimated.total_tokens);
    append(
        &mut world,
        &[
            r#"{"role":"assistant","content":"a","id":"m","usage":{"input_tokens":900,"cache_read_input_tokens":90,"output_tokens":10}}"#,
        ],
    );
    let report = token_report(&world.session, None);
    assert_eq!(report.method(), v1::TokenMethod::Reported);
    // 900 uncached, 90 cached and 10 output tokens: the answer is part of the next request.
    assert_eq!((report.total_tokens, report.anchor_tokens), (1_000, 1_000));
    assert_eq!(
        report.anchor_message_id,
        uuid::Uuid::from_u128(2).to_string()
    );
    append(&mut world, &[QUESTION]);
    let report = token_report(&world.session, None);
    assert_eq!(report.method(), v1::TokenMethod::ReportedAndEstimated);
    assert_eq!(report.total_tokens, 1_000 + report.tail_tokens);
    assert!((report.calibration_factor - 1.0).abs() < f64::EPSILON);
}

#[test]
fn a_token_breakdown_is_grouped_by_content_kind() {
    let words = "x".repeat(3_000);
    let mut world = world(&[
        &format!(r#"{{"role":"system","content":"{words}"}}"#),
        &format!(r#"{{"role":"user","content":"{words}"}}"#),
        &call("a"),
        &format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a","content":"{words}"}}]}}"#
        ),
    ]);
    world.run(Command::ServeView(ServeView {
        prefix: Some(PrefixTokens {
            // The served prefix and the one below have the same sum, so only its split differs.
            system: 1_500,
            tools: 0,
        }),
        ..ServeView::default()
    }));
    let prefix = PrefixTokens {
        system: 500,
        tools: 1_000,
    };
    let parts = |world: &SessionHarness| breakdown(&world.session, Some(prefix));
    let served = parts(&world);
    assert!((990..1_010).contains(&served.tools_tokens), "{served:?}");
    // 500 tokens of the prefix, and 3,000 bytes of the system message at 3 bytes per token.
    assert!((1_490..1_510).contains(&served.system_tokens), "{served:?}");
    assert!(
        (1_010..1_040).contains(&served.messages_tokens),
        "{served:?}"
    );
    // Content of tools has only 2.4 bytes per token.
    assert!(
        (1_240..1_280).contains(&served.results_tokens),
        "{served:?}"
    );
    // Pending messages count too.
    append(
        &mut world,
        &[&format!(r#"{{"role":"user","content":"{words}"}}"#)],
    );
    assert!(parts(&world).messages_tokens > 2_000);
}

#[test]
fn a_budget_reports_thresholds_and_remaining_tokens() {
    // The usage is above the warning threshold and below the compaction threshold.
    let usage = r#"{"role":"assistant","content":"a","id":"m","usage":{"input_tokens":150000,"output_tokens":300}}"#;
    let mut world = world(&[QUESTION, usage]);
    let hint = WindowHint::default();
    let auto = budget(&world.session, &target(Provider::Anthropic), hint);
    // The window of 200,000 minus 20,000 for the output is the effective one. Minus 13,000, it is the compaction
    // threshold, and minus another 20,000 the warning threshold.
    expect![[r#"
        Budget {
            state: Warning,
            model: "model-a",
            window_tokens: 200000,
            effective_window_tokens: 180000,
            used_tokens: 150300,
            warn_at_tokens: 147000,
            error_at_tokens: 147000,
            compact_at_tokens: 167000,
            block_at_tokens: 177000,
            remaining_tokens: 16700,
            remaining_percent: 10.0,
            free_tokens: 16700,
            autocompact_buffer_tokens: 33000,
            auto_enabled: true,
            consecutive_failures: 0,
            auto_paused: false,
        }
    "#]]
    .assert_debug_eq(&auto);
    let mut off = Overlay::default();
    off.set(&["autocompact", "enabled"], false.into());
    world.run(Command::UpdateSession(UpdateSession {
        policy: Some(off),
        ..UpdateSession::default()
    }));
    let by_hand = budget(&world.session, &target(Provider::Anthropic), hint);
    // Both values are measured from the end of the effective window: 180,000 - 20,000 and 180,000 - 150,300.
    assert_eq!(
        (by_hand.warn_at_tokens, by_hand.remaining_tokens),
        (160_000, 29_700)
    );
    assert_eq!(by_hand.state(), v1::BudgetState::Normal);
    let tiny = WindowHint {
        window_tokens: Some(10),
        ..hint
    };
    let full = budget(&world.session, &target(Provider::Anthropic), tiny);
    assert_eq!(full.state(), v1::BudgetState::Exhausted);
    assert_eq!((full.remaining_tokens, full.free_tokens), (0, 0));
    assert!(full.remaining_percent.abs() < f64::EPSILON);
}

fn all_events(world: &SessionHarness) -> Vec<v1::SessionEvent> {
    let numbered = world.log.iter().zip(1_u64..);
    numbered
        .flat_map(|(recorded, revision)| {
            events(recorded, Revision::new(revision), &world.session, None)
        })
        .collect()
}

#[test]
fn events_report_their_kind_and_affected_messages() {
    let mut world = world(&[QUESTION, &call("a"), QUESTION]);
    serve(&mut world, false);
    world.run(Command::UpdateSession(UpdateSession {
        title: Some("t".into()),
        ..UpdateSession::default()
    }));
    let rewind = |world: &mut SessionHarness, to: Option<u128>| {
        world.run(Command::Rewind(Rewind {
            to: to.map(|to| MessageId::new(uuid::Uuid::from_u128(to))),
            ..Rewind::default()
        }));
    };
    rewind(&mut world, Some(2));
    append(&mut world, &[QUESTION]);
    // The second rewind removes all messages, including the one after the first rewind.
    rewind(&mut world, None);
    let all = all_events(&world);
    let told: Vec<String> = all
        .iter()
        .map(|event| {
            let ids = match event.event.as_ref().unwrap() {
                E::MessagesAppended(appended) => appended.message_ids.clone(),
                E::SessionRewound(rewound) => rewound.message_ids.clone(),
                E::ViewServed(served) => vec![served.last_message_id.clone()],
                E::CallsInterrupted(calls) => calls
                    .calls
                    .iter()
                    .map(|call| call.call_key.clone())
                    .collect(),
                E::SessionUpdated(updated) => updated.paths.clone(),
                _ => Vec::new(),
            };
            let ids: Vec<&str> = ids
                .iter()
                .map(|id| id.trim_start_matches(['0', '-']))
                .collect();
            let kind = event_kind(event)
                .as_str_name()
                .trim_start_matches("EVENT_KIND_");
            format!(
                "{} {kind} {} e{}",
                event.revision,
                ids.join(","),
                event.epoch
            )
        })
        .collect();
    expect![[r"
        1 SESSION_CREATED  e0
        2 MESSAGES_APPENDED 1,2,3 e0
        3 CALLS_INTERRUPTED c0 e0
        3 VIEW_SERVED 3 e0
        4 SESSION_UPDATED title e0
        5 SESSION_REWOUND 3 e1
        6 MESSAGES_APPENDED 4 e1
        7 SESSION_REWOUND 1,2,4 e2"]]
    .assert_eq(&told.join("\n"));
    let Some(E::ViewServed(served)) = &all[3].event else {
        panic!("served")
    };
    assert!(served.tokens > 0);
    let effect = all[5].effect.as_ref().unwrap();
    assert_eq!(effect.trigger(), v1::Trigger::Manual);
    assert!(effect.freed_tokens > 0);
    let Some(E::MessagesAppended(appended)) = &all[6].event else {
        panic!("appended")
    };
    assert_eq!(appended.first_ordinal, 4);
}

#[test]
fn a_request_without_effect_is_not_listed_as_an_event() {
    let mut world = world(&[QUESTION]);
    let stamp = |id: &str, method| palimpsest_core::session::RequestStamp {
        id: id.into(),
        method,
        digest: palimpsest_core::message::Digest::default(),
    };
    world.run(Command::UpdateSession(UpdateSession {
        request: Some(stamp("u", RequestMethod::Update)),
        ..UpdateSession::default()
    }));
    world.run(Command::Append(palimpsest_core::command::Append {
        request: Some(stamp("a", RequestMethod::Append)),
        ..palimpsest_core::command::Append::default()
    }));
    // The log has both requests, because a retry must find them.
    assert_eq!(world.log.len(), 4);
    assert_eq!(all_events(&world).len(), 2);
    world.run(Command::UpdateSession(UpdateSession {
        title: Some("t".into()),
        request: Some(stamp("v", RequestMethod::Update)),
        ..UpdateSession::default()
    }));
    assert_eq!(all_events(&world).last().unwrap().request_id, "v");
}

#[test]
fn unknown_event_kinds_in_a_filter_are_rejected() {
    let kind = i32::from(v1::EventKind::ViewServed);
    assert_eq!(event_kinds(&[kind]), Ok(vec![v1::EventKind::ViewServed]));
    assert_eq!(event_kinds(&[kind, 0]).unwrap_err().path, "kinds[1]");
    assert_eq!(event_kinds(&[999]).unwrap_err().path, "kinds[0]");
}
