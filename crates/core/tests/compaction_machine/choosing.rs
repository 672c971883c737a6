//! The start: orphaned compactions, the comparison and the sources of a summary (rows 1 to 17).

use std::collections::VecDeque;
use std::sync::Arc;

use expect_test::expect;
use palimpsest_core::command::{
    Append, Command, CompactionScope, DropRule, ServeView, StartCompaction, SummarySource,
    SummarySpec,
};
use palimpsest_core::compaction::{CompactionMachine, CompactionRequest};
use palimpsest_core::event::{Event, RequestMethod, RequestStamp, Strategy, Trigger};
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::json::UnknownFields;
use palimpsest_core::message::{
    Block, Digest, Message, ResultContent, Role, ToolInput, ToolResult, ToolUse,
};
use uuid::Uuid;

use super::case::{AHEAD, Case, HOOKS, MEMORY_FIRST, MODEL_FIRST, Then, automatic, by, manual};

#[test]
fn row_1_an_orphaned_compaction_is_ended_first() {
    let mut case = Case::new(MODEL_FIRST).with_running(Strategy::Model, false);
    case.context.orphaned_before = Some(Timestamp::from_millis(1_000_000));
    case.check(
        by(Strategy::Extractive),
        [Then::Summary("said")],
        expect![[r"
        advance Failed Expired, 0 hooks: Failed Expired
        start Write Extractive: Started Extractive
        summarize Extractive: written
        load
        advance Summary Extractive, 0 hooks, 0 messages: Compacted Extractive
        end: Compacted Extractive
    "]],
    );
}

#[test]
fn row_1_a_delegated_compaction_survives_a_restart() {
    let mut case = Case::new(MODEL_FIRST).with_running(Strategy::Delegated, false);
    case.context.orphaned_before = Some(Timestamp::from_millis(1_000_000));
    case.check(
        by(Strategy::Extractive),
        [],
        expect![[r"
        start Write Extractive: Skipped(AlreadyRunning)
        end: Skipped(AlreadyRunning)
    "]],
    );
}

#[test]
fn row_2_drop_oldest_removes_rounds_without_a_summary() {
    let request = CompactionRequest::drop_oldest(Trigger::PromptTooLong, DropRule::AtLeast(None));
    Case::new(HOOKS).with_hooks().check(
        request,
        [],
        expect![[r"
        load
        start DropOldest: Compacted DropOldest
        end: Compacted DropOldest
    "]],
    );
}

/// The fragments of one response belong to one round, so messages and rounds differ in number.
#[test]
fn row_2_without_a_gap_a_share_of_the_rounds_is_dropped() {
    let mut case = Case::new("summary.retry_drop_percent = 50");
    for number in 100..108 {
        let words = "word ".repeat(4_000);
        let id = MessageId::new(Uuid::from_u128(number));
        let mut fragment = Message::new(id, Role::Assistant, vec![Block::text(words)]);
        fragment.provider_message_id = Some("one response".into());
        case.world.run(Command::Append(Append {
            messages: vec![Arc::new(fragment)],
            ..Append::default()
        }));
    }
    case.world.run(Command::ServeView(ServeView::default()));
    let source = SummarySource::DropOldest {
        rule: DropRule::AtLeast(None),
        made: case.messages(),
    };
    case.world
        .run(Command::StartCompaction(StartCompaction::new(
            Trigger::PromptTooLong,
            source,
        )));
    let Event::CompactionFinished(finished) = &case.world.log.last().unwrap().event else {
        panic!("{:?}", case.world.log.last());
    };
    let dropped = finished.dropped.as_ref().unwrap();
    // The view has nine rounds: eight messages, and the fragments.
    assert_eq!((dropped.rounds, dropped.messages), (4, 4));
}

#[test]
fn row_2_drop_oldest_skips_a_view_under_the_threshold() {
    let request = CompactionRequest::drop_oldest(Trigger::Auto, DropRule::Critical);
    Case::new("").check(
        request,
        [],
        expect![[r"
        end: Skipped(UnderThreshold)
    "]],
    );
}

#[test]
fn row_3_a_manual_request_compares_memory_and_extractive_summaries() {
    let case = Case::new(MEMORY_FIRST).with_memory();
    // Session memory leaves 1,000 tokens more, which are within the recent messages that it may keep.
    let script = [Then::Estimate(Some(9_000)), Then::Estimate(Some(8_000))];
    case.check(
        manual(),
        script,
        expect![[r"
        estimate SessionMemory: Some(9000)
        estimate Extractive: Some(8000)
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "]],
    );
}

#[test]
fn row_3_memory_above_the_maximum_of_the_request_is_not_tried() {
    let case = Case::new(MEMORY_FIRST).with_memory();
    let estimates = [Then::Estimate(Some(9_000)), Then::Estimate(Some(8_000))];
    let script = estimates.into_iter().chain([Then::Summary("said")]);
    case.check(
        CompactionRequest {
            max_memory_view_tokens: Some(8_500),
            ..manual()
        },
        script,
        expect![[r"
        estimate SessionMemory: Some(9000)
        estimate Extractive: Some(8000)
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "]],
    );
}

#[test]
fn row_4_custom_instructions_model_or_scope_require_a_new_summary() {
    for request in [
        CompactionRequest {
            instructions: Some("be short".into()),
            ..manual()
        },
        CompactionRequest {
            model: Some("small".into()),
            ..manual()
        },
        CompactionRequest {
            scope: CompactionScope::UpTo(MessageId::new(Uuid::from_u128(4))),
            ..manual()
        },
    ] {
        let case = Case::new(MEMORY_FIRST).with_memory();
        case.check(
            request,
            [Then::Summary("said")],
            expect![[r"
            start Write Model: Started Model
            summarize Model: written
            load
            advance Summary Model, 0 hooks, 0 messages: Compacted Model
            end: Compacted Model
        "]],
        );
    }
}

#[test]
fn row_4_a_delegated_summary_takes_the_place_of_the_models() {
    let delegated = CompactionRequest {
        is_delegated: true,
        ..automatic()
    };
    Case::new(MODEL_FIRST).check(
        delegated.clone(),
        [],
        expect![[r"
        load
        start Prepared: Skipped(NothingEligible)
        start Write Delegated: Started Delegated
        end: Running(compaction-0)
    "]],
    );
    // Session memory still comes first.
    Case::new(MEMORY_FIRST).with_memory().check(
        delegated,
        [],
        expect![[r"
            load
            start SessionMemory: Compacted SessionMemory
            end: Compacted SessionMemory
        "]],
    );
}

#[test]
fn row_5_a_comparison_waits_once_for_a_memory_update() {
    let case = Case::new(MEMORY_FIRST).with_memory().with_update();
    let script = [Then::Estimate(Some(9_000)), Then::Estimate(Some(8_000))];
    case.check(
        manual(),
        script,
        expect![[r"
        wait ForMemory { at_most_ms: 15000 }
        estimate SessionMemory: Some(9000)
        estimate Extractive: Some(8000)
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "]],
    );
}

#[test]
fn row_6_memory_without_an_estimate_is_not_tried() {
    let case = Case::new(MEMORY_FIRST).with_memory();
    let script = [Then::Estimate(None), Then::Summary("said")];
    case.check(
        manual(),
        script,
        expect![[r"
        estimate SessionMemory: None
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "]],
    );
}

#[test]
fn row_8_memory_is_used_without_an_extractive_estimate() {
    let case = Case::new(MEMORY_FIRST).with_memory();
    let script = [Then::Estimate(Some(90_000)), Then::Estimate(None)];
    case.check(
        manual(),
        script,
        expect![[r"
        estimate SessionMemory: Some(90000)
        estimate Extractive: None
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "]],
    );
}

#[test]
fn row_9_memory_far_larger_than_the_extractive_estimate_is_not_tried() {
    let case = Case::new(MEMORY_FIRST).with_memory();
    let script = [
        // The difference of 82,000 tokens exceeds the recent messages that session memory may keep.
        Then::Estimate(Some(90_000)),
        Then::Estimate(Some(8_000)),
        Then::Summary("said"),
    ];
    case.check(
        manual(),
        script,
        expect![[r"
        estimate SessionMemory: Some(90000)
        estimate Extractive: Some(8000)
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "]],
    );
}

#[test]
fn row_10_an_automatic_request_waits_once_for_a_memory_update() {
    let case = Case::new(MEMORY_FIRST).with_memory().with_update();
    case.check(
        automatic(),
        [],
        expect![[r"
        wait ForMemory { at_most_ms: 15000 }
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "]],
    );
}

#[test]
fn row_10_a_dry_run_does_not_wait() {
    let request = CompactionRequest {
        is_dry_run: true,
        ..automatic()
    };
    let case = Case::new(MEMORY_FIRST).with_memory().with_update();
    case.check(
        request,
        [],
        expect![[r"
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "]],
    );
}

#[test]
fn row_11_an_automatic_request_waits_for_a_summary_in_preparation() {
    let case = Case::new(&[AHEAD, MODEL_FIRST].concat()).ahead();
    let script = [Then::Over, Then::Summary("said")];
    case.check(
        automatic(),
        script,
        expect![[r"
        wait ForEnd(compaction-0)
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "]],
    );
}

#[test]
fn row_11_a_timed_out_wait_replaces_the_running_preparation() {
    let case = Case::new(&[AHEAD, MODEL_FIRST].concat()).ahead();
    case.check(
        automatic(),
        [Then::Summary("said")],
        expect![[r"
        wait ForEnd(compaction-0)
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "]],
    );
}

#[test]
fn row_11_a_manual_request_does_not_wait() {
    let case = Case::new(&[AHEAD, MODEL_FIRST].concat()).ahead();
    case.check(
        manual(),
        [Then::Summary("said")],
        expect![[r"
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "]],
    );
}

#[test]
fn rows_13_and_14_sources_without_a_summary_are_skipped() {
    let case = Case::new(MEMORY_FIRST);
    case.check(
        automatic(),
        [Then::Summary("said")],
        expect![[r"
        load
        start SessionMemory: Skipped(NothingEligible)
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "]],
    );
}

#[test]
fn row_14_explicit_session_memory_has_no_fallback() {
    Case::new(MODEL_FIRST).check(
        by(Strategy::SessionMemory),
        [],
        expect![[r"
        load
        start SessionMemory: Skipped(NothingEligible)
        end: Skipped(NothingEligible)
    "]],
    );
}

#[test]
fn row_15_a_disabled_manual_request_is_skipped() {
    let case = Case::new("autocompact.manual_enabled = false\n");
    case.check(
        manual(),
        [],
        expect![[r"
        load
        start SessionMemory: Skipped(Disabled)
        end: Skipped(Disabled)
    "]],
    );
}

#[test]
fn row_16_an_idempotent_repeat_returns_the_original_event() {
    let request = CompactionRequest {
        request: Some(RequestStamp {
            id: "once".into(),
            method: RequestMethod::Compact,
            digest: Digest::from_bytes([7; 16]),
        }),
        ..by(Strategy::Extractive)
    };
    let mut case = Case::new("");
    // This run ends at revision 12: the creation, eight messages, the serving, the start and the end.
    let mut machine = CompactionMachine::new(request.clone());
    let mut script = VecDeque::from([Then::Summary("said")]);
    while machine.outcome().is_none() {
        case.world.load_content();
        let step = machine.next(&case.world.session, &case.context).unwrap();
        let (_, result) = case.perform(step, &mut script);
        machine.happened(result);
    }
    case.check(
        request,
        [],
        expect![[r"
        start Write Extractive: Answered(Revision(12))
        end: Answered(Revision(12))
    "]],
    );
}

#[test]
fn row_17_an_existing_summary_is_committed_immediately() {
    let case = Case::new(MEMORY_FIRST).with_memory();
    case.check(
        automatic(),
        [],
        expect![[r"
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "]],
    );
    let case = Case::new(&[AHEAD, MODEL_FIRST].concat()).with_prepared();
    case.check(
        manual(),
        [],
        expect![[r"
        load
        start Prepared: Compacted Model
        end: Compacted Model
    "]],
    );
}

/// The model has not read the results after its last response, so they stay with their call.
#[test]
fn row_9_an_automatic_compaction_keeps_unread_results() {
    // The view is above the compaction threshold.
    let mut case = Case::new("tokens.default_window_tokens = 80000\n");
    let call = Block::ToolUse(ToolUse {
        id: "toolu_1".into(),
        name: "read_log".into(),
        input: ToolInput::parse("{}"),
        extra: UnknownFields::default(),
    });
    let result = Block::ToolResult(ToolResult {
        tool_use_id: "toolu_1".into(),
        content: ResultContent::Text("disk full".into()),
        is_error: None,
        extra: UnknownFields::default(),
    });
    for (number, role, block) in [(9, Role::Assistant, call), (10, Role::User, result)] {
        let id = MessageId::new(Uuid::from_u128(number));
        case.world.run(Command::Append(Append {
            messages: vec![Arc::new(Message::new(id, role, vec![block]))],
            ..Append::default()
        }));
    }
    case.world.run(Command::ServeView(ServeView::default()));
    let source = SummarySource::Write(SummarySpec::new(Strategy::Extractive));
    let start = StartCompaction::new(Trigger::Auto, source);
    case.world.run(Command::StartCompaction(start));
    let Event::CompactionStarted(started) = &case.world.log.last().unwrap().event else {
        panic!("{:?}", case.world.log.last());
    };
    // The seventh message stays too: it is the last user input.
    let leaving: Vec<u32> = started.leaving.iter().map(|at| at.get()).collect();
    assert_eq!(leaving, [0, 1, 2, 3, 4, 5, 7]);
}
