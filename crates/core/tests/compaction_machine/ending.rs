//! A started compaction: hooks, summaries and the end (rows 18 to 32).

use std::collections::VecDeque;

use expect_test::expect;
use palimpsest_core::command::CompactionInput;
use palimpsest_core::compaction::{
    CompactionMachine, CompactionOutcome, CompactionRequest, Step, StepResult, SummaryFailure,
};
use palimpsest_core::event::{
    CompactionFailureReason, Event, Hook, HookCall, HookResult, Strategy,
};
use palimpsest_core::ids::CompactionKey;

use super::case::{
    AHEAD, Case, HOOKS, MEMORY_FIRST, MODEL_FIRST, Then, automatic, by, manual, written,
};

#[test]
fn row_18_hooks_run_before_an_existing_summary_is_committed() {
    let case = Case::new(&[MEMORY_FIRST, HOOKS].concat());
    let case = case.with_memory().with_hooks();
    let script = [Then::NoHook, Then::NoHook, Then::NoHook];
    case.check(
        automatic(),
        script,
        expect![[r"
        load
        start SessionMemory, then hooks: Started SessionMemory
        call PreCompact: disabled
        load
        preview: takes effect
        call PostCompact: disabled
        call SessionStart: disabled
        advance Summary SessionMemory, 0 hooks, 0 messages: Compacted SessionMemory
        end: Compacted SessionMemory
    "]],
    );
}

#[test]
fn rows_19_and_20_the_hook_is_called_and_its_answer_recorded() {
    let case = Case::new(&[MODEL_FIRST, HOOKS].concat()).with_hooks();
    let script = [
        Then::Hook(Some("name the lamp")),
        Then::Summary("said"),
        Then::Hook(None),
        Then::Hook(None),
    ];
    case.check(
        manual(),
        script,
        expect![[r"
        load
        start Prepared, then hooks: Skipped(NothingEligible)
        start Write Model: Started Model
        call PreCompact: Continued
        advance HookAnswered: HookCalled
        summarize Model: written
        load
        preview: takes effect
        call PostCompact: Continued
        call SessionStart: Continued
        advance Summary Model, 2 hooks, 1 messages: Compacted Model
        end: Compacted Model
    "]],
    );
}

#[test]
fn row_19_the_hook_of_a_prepared_summary_is_not_called_again() {
    let mut case = Case::new(&[AHEAD, MODEL_FIRST, HOOKS].concat()).ahead();
    let call = HookCall {
        hook: Hook::PreCompact,
        result: HookResult::Continued,
        detail: "".into(),
        duration_ms: 0,
        messages: Vec::new(),
    };
    // The hook was called when the summary was prepared, and its answer is in the log.
    case.advance(CompactionInput::HookAnswered {
        call,
        instructions: None,
        must_keep: Vec::new(),
        files: Vec::new(),
    });
    let made = case.messages();
    let summary = written("what was said", Strategy::Model);
    case.advance(CompactionInput::Summary { summary, made });
    let script = [Then::Hook(None), Then::Hook(None)];
    case.with_hooks().check(
        manual(),
        script,
        expect![[r"
        load
        start Prepared, then hooks: Started Model
        load
        preview: takes effect
        call PostCompact: Continued
        call SessionStart: Continued
        advance Summary Model, 2 hooks, 1 messages: Compacted Model
        end: Compacted Model
    "]],
    );
}

#[test]
fn row_20_instructions_replace_a_summary_that_exists() {
    for case in [
        Case::new(&[MEMORY_FIRST, HOOKS].concat()),
        Case::new(&[MEMORY_FIRST, HOOKS].concat()).without_model(),
    ] {
        let script = [
            Then::Hook(Some("name the lamp")),
            Then::Summary("said"),
            Then::NoHook,
            Then::NoHook,
        ];
        let case = case.with_memory().with_hooks();
        // A server without a model writes the new summary from the messages.
        let of_model = case.context.has_model;
        let expected = if of_model {
            expect![[r"
                load
                start SessionMemory, then hooks: Started SessionMemory
                call PreCompact: Continued
                advance HookAnswered: HookCalled
                summarize Model: written
                load
                preview: takes effect
                call PostCompact: disabled
                call SessionStart: disabled
                advance Summary Model, 0 hooks, 0 messages: Compacted Model
                end: Compacted Model
            "]]
        } else {
            expect![[r"
                load
                start SessionMemory, then hooks: Started SessionMemory
                call PreCompact: Continued
                advance HookAnswered: HookCalled
                summarize Extractive: written
                load
                preview: takes effect
                call PostCompact: disabled
                call SessionStart: disabled
                advance Summary Extractive, 0 hooks, 0 messages: Compacted Extractive
                end: Compacted Extractive
            "]]
        };
        case.check(automatic(), script, expected);
    }
}

#[test]
fn row_20_a_compaction_that_ended_meanwhile_is_rejected() {
    let mut case = Case::new(&[MODEL_FIRST, HOOKS].concat()).with_running(Strategy::Model, false);
    let mut machine = CompactionMachine::resume(case.running());
    case.context.calls_hooks = true;
    let mut script = VecDeque::from([Then::Hook(None)]);
    for _ in 0..2 {
        let step = machine.next(&case.world.session, &case.context).unwrap();
        let (_, result) = case.perform(step, &mut script);
        machine.happened(result);
    }
    case.advance(CompactionInput::Failed {
        why: CompactionFailureReason::Empty,
        detail: "".into(),
    });
    case.check_machine(
        machine,
        [],
        expect![[r"
        rejected: the compaction is not running: it has finished, has failed, or never started
    "]],
    );
}

#[test]
fn row_21_a_hook_stops_the_compaction() {
    for (result, expected) in [
        (
            HookResult::Vetoed,
            expect![[r"
            load
            start Prepared, then hooks: Skipped(NothingEligible)
            start Write Model: Started Model
            call PreCompact: Vetoed
            advance Failed HookVetoed, 1 hooks: Failed HookVetoed
            end: Failed HookVetoed
        "]],
        ),
        (
            HookResult::FailedStopped,
            expect![[r"
            load
            start Prepared, then hooks: Skipped(NothingEligible)
            start Write Model: Started Model
            call PreCompact: FailedStopped
            advance Failed HookFailed, 1 hooks: Failed HookFailed
            end: Failed HookFailed
        "]],
        ),
    ] {
        let case = Case::new(&[MODEL_FIRST, HOOKS].concat()).with_hooks();
        case.check(manual(), [Then::Stop(result)], expected);
    }
}

#[test]
fn row_22_a_delegated_compaction_keeps_running_for_the_caller() {
    let case = Case::new(HOOKS).with_hooks();
    case.check(
        by(Strategy::Delegated),
        [Then::Hook(None)],
        expect![[r"
        start Write Delegated: Started Delegated
        call PreCompact: Continued
        advance HookAnswered: HookCalled
        end: Running(compaction-0)
    "]],
    );
}

#[test]
fn row_22_a_dry_run_of_a_delegated_compaction_estimates_the_summary() {
    let request = CompactionRequest {
        is_dry_run: true,
        ..by(Strategy::Delegated)
    };
    let case = Case::new(HOOKS).with_hooks();
    case.check(
        request,
        [Then::Summary("said")],
        expect![[r"
        start Write Delegated: Started Delegated
        summarize Delegated as an estimate: written
        load
        advance Summary Delegated, 0 hooks, 0 messages: Compacted Delegated
        end: Compacted Delegated
    "]],
    );
}

#[test]
fn row_24_a_model_by_name_has_no_fallback() {
    let case = Case::new("");
    case.check(
        by(Strategy::Model),
        [Then::Summary("said")],
        expect![[r"
        start Write Model: Started Model
        summarize Model alone: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "]],
    );
}

#[test]
fn row_25_a_summary_that_failed_ends_the_compaction() {
    let case = Case::new(HOOKS).with_hooks();
    let script = [Then::NoHook, Then::Failure];
    case.check(
        by(Strategy::Model),
        script,
        expect![[r"
        start Write Model: Started Model
        call PreCompact: disabled
        summarize Model alone: failed
        advance Failed ModelUnavailable, 0 hooks: Failed ModelUnavailable
        end: Failed ModelUnavailable
    "]],
    );
}

#[test]
fn row_26_a_summary_without_effect_skips_the_later_hooks() {
    let case = Case::new(HOOKS).with_hooks();
    // A script has static texts. This summary is larger than the messages that it replaces.
    let long: &'static str = Box::leak("word ".repeat(100_000).into_boxed_str());
    let script = [Then::NoHook, Then::Summary(long)];
    case.check(
        by(Strategy::Model),
        script,
        expect![[r"
        start Write Model: Started Model
        call PreCompact: disabled
        summarize Model alone: written
        load
        preview: no effect
        advance Summary Model, 0 hooks, 0 messages: Failed NotSmaller
        end: Failed NotSmaller
    "]],
    );
}

#[test]
fn row_26_a_prepared_summary_skips_the_later_hooks() {
    let case = Case::new(&[AHEAD, HOOKS].concat()).with_hooks();
    let script = [Then::Hook(None), Then::Summary("said")];
    case.check(
        CompactionRequest::prepare_ahead(),
        script,
        expect![[r"
        start Write Model: Started Model
        call PreCompact: Continued
        advance HookAnswered: HookCalled
        summarize Model alone: written
        load
        advance Summary Model, 0 hooks, 0 messages: Prepared
        end: Prepared
    "]],
    );
}

#[test]
fn row_27_the_hook_after_the_summary_may_stop_the_compaction() {
    let case = Case::new(HOOKS).with_hooks();
    let script = [
        Then::NoHook,
        Then::Summary("said"),
        Then::Stop(HookResult::Vetoed),
    ];
    case.check(
        by(Strategy::Extractive),
        script,
        expect![[r"
        start Write Extractive: Started Extractive
        call PreCompact: disabled
        summarize Extractive: written
        load
        preview: takes effect
        call PostCompact: Vetoed
        advance Failed HookVetoed, 1 hooks: Failed HookVetoed
        end: Failed HookVetoed
    "]],
    );
}

#[test]
fn row_28_the_last_hook_adds_messages_or_stops_the_compaction() {
    let start = |last| [Then::NoHook, Then::Summary("said"), Then::Hook(None), last];
    let case = Case::new(HOOKS).with_hooks();
    let script = start(Then::Hook(None));
    case.check(
        by(Strategy::Extractive),
        script,
        expect![[r"
        start Write Extractive: Started Extractive
        call PreCompact: disabled
        summarize Extractive: written
        load
        preview: takes effect
        call PostCompact: Continued
        call SessionStart: Continued
        advance Summary Extractive, 2 hooks, 1 messages: Compacted Extractive
        end: Compacted Extractive
    "]],
    );
    let case = Case::new(HOOKS).with_hooks();
    let script = start(Then::Stop(HookResult::FailedStopped));
    case.check(
        by(Strategy::Extractive),
        script,
        expect![[r"
        start Write Extractive: Started Extractive
        call PreCompact: disabled
        summarize Extractive: written
        load
        preview: takes effect
        call PostCompact: Continued
        call SessionStart: FailedStopped
        advance Failed HookFailed, 2 hooks: Failed HookFailed
        end: Failed HookFailed
    "]],
    );
}

#[test]
fn row_29_a_delegated_summary_compacts_or_is_skipped_if_too_long() {
    let long = "word ".repeat(100_000);
    for (text, expected) in [
        (
            "said",
            expect![[r"
        load
        advance Summary Delegated, 0 hooks, 0 messages: Compacted Delegated
        end: Compacted Delegated
    "]],
        ),
        (
            long.as_str(),
            expect![[r"
        load
        advance Summary Delegated, 0 hooks, 0 messages: Skipped(TooLittleGain)
        end: Skipped(TooLittleGain)
    "]],
        ),
    ] {
        let mut case = Case::new("").with_running(Strategy::Delegated, false);
        let summary = written(text, Strategy::Delegated);
        let machine = CompactionMachine::deliver(case.running(), Ok(summary), None, None);
        case.check_machine(machine, [], expected);
    }
}

#[test]
fn row_29_a_delegated_failure_ends_the_compaction() {
    let mut case = Case::new("").with_running(Strategy::Delegated, false);
    let failure = SummaryFailure {
        why: CompactionFailureReason::DelegateFailed,
        detail: "it is away".into(),
    };
    let machine = CompactionMachine::deliver(case.running(), Err(failure), None, None);
    case.check_machine(
        machine,
        [],
        expect![[r"
        advance Failed DelegateFailed, 0 hooks: Failed DelegateFailed
        end: Failed DelegateFailed
    "]],
    );
}

#[test]
fn row_32_a_machine_that_has_ended_returns_its_outcome_again() {
    let mut case = Case::new("autocompact.manual_enabled = false\n");
    let mut machine = CompactionMachine::new(by(Strategy::Extractive));
    let step = machine.next(&case.world.session, &case.context).unwrap();
    let (_, result) = case.perform(step, &mut VecDeque::new());
    machine.happened(result);
    for _ in 0..2 {
        let step = machine.next(&case.world.session, &case.context).unwrap();
        assert!(matches!(step, Step::End(_)));
        // A result after the end must change nothing.
        machine.happened(StepResult::Waited);
    }
}

#[test]
fn only_a_delegated_compaction_needs_its_caller() {
    for (strategy, expected) in [
        (Strategy::Model, Some(CompactionKey::new(0))),
        (Strategy::Delegated, None),
    ] {
        let mut case = Case::new("");
        let mut machine = CompactionMachine::new(by(strategy));
        assert_eq!(machine.needs_no_caller(), None);
        let step = machine.next(&case.world.session, &case.context).unwrap();
        let (_, result) = case.perform(step, &mut VecDeque::new());
        machine.happened(result);
        assert_eq!(machine.needs_no_caller(), expected, "{strategy:?}");
    }
}

#[test]
fn only_a_limited_undelegated_request_gets_another_round() {
    let limit = "autocompact.max_input_tokens = 10000\n";
    for (policy, request, has_next) in [
        (limit, by(Strategy::Extractive), true),
        ("", by(Strategy::Extractive), false),
        (limit, by(Strategy::Delegated), false),
        // The view is under its threshold.
        (limit, automatic(), false),
    ] {
        let mut case = Case::new(policy).with_running(Strategy::Model, false);
        let made = case.messages();
        let summary = written("said", Strategy::Model);
        case.advance(CompactionInput::Summary { summary, made });
        let event = case.world.log.last().unwrap().event.clone();
        assert!(matches!(event, Event::CompactionFinished(_)));
        let last = CompactionOutcome::Event(Box::new(event), case.world.session.revision());
        let next = request.next_round(&case.world.session, &last);
        assert_eq!(next.is_some(), has_next, "{request:?}");
    }
}
