//! The compaction machine, one test for each row of the transition table in decision 0010. A script gives the results
//! of waits, estimates, summaries and hooks. The harness commits the commands.

use std::collections::VecDeque;
use std::sync::Arc;

use expect_test::{Expect, expect};
use palimpsest_core::command::{
    AdvanceCompaction, Append, Command, CompactionInput, CompactionMessages, CompactionScope,
    Decided, Decision, DecisionContext, DropRule, ServeView, StartCompaction, StartMemory,
    SummarySource, SummarySpec, UpdateMemory, WrittenSummary, decide,
};
use palimpsest_core::compaction::{
    CompactionContext, CompactionMachine, CompactionOutcome, CompactionRequest, HookAnswer,
    HookRequest, Preview, StartedCompaction, Step, StepResult, SummaryFailure,
};
use palimpsest_core::event::{
    CompactionFailureReason, Event, Hook, HookCall, HookResult, RecordedEvent, RequestMethod,
    RequestStamp, Strategy, Trigger,
};
use palimpsest_core::histories::SessionHarness;
use palimpsest_core::ids::{CompactionKey, MessageId, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Block, Digest, Message, Role, Usage};
use palimpsest_core::policy::{Overlay, Preset};
use palimpsest_core::session::Author;
use uuid::Uuid;

/// A result in a script.
enum Then {
    /// The tokens of an estimate.
    Estimate(Option<u64>),
    /// The text of a summary.
    Summary(&'static str),
    /// A model that fails.
    Failure,
    /// A disabled hook.
    NoHook,
    /// A hook that continues, with these instructions for the summary.
    Hook(Option<&'static str>),
    /// A hook that stops the compaction.
    Stop(HookResult),
    /// The end of a wait. Before it, the compaction that is running fails.
    Over,
}

/// A machine with its session.
struct Case {
    world: SessionHarness,
    context: CompactionContext,
    next_id: u128,
}

impl Case {
    /// Creates a session of eight long messages with this policy.
    fn new(policy: &str) -> Self {
        let overlay = Overlay::from_toml(&format!("autocompact.min_input_tokens = 0\n{policy}"));
        let policy = overlay.unwrap().resolve(Preset::ClaudeCode).unwrap();
        let mut case = Self {
            world: SessionHarness::with_policy(policy),
            context: CompactionContext {
                now: Timestamp::from_millis(0),
                has_model: true,
                calls_hooks: false,
                orphaned_before: None,
            },
            next_id: 1_000,
        };
        for number in 0..8_u128 {
            let role = [Role::User, Role::Assistant][usize::from(number % 2 == 1)];
            let words = "word ".repeat(4_000);
            let id = MessageId::new(Uuid::from_u128(number + 1));
            let message = Message::new(id, role, vec![Block::text(words)]);
            case.world.run(Command::Append(Append {
                messages: vec![Arc::new(message)],
                ..Append::default()
            }));
        }
        case.world.run(Command::ServeView(ServeView::default()));
        case
    }

    /// Writes session memory of all messages.
    fn with_memory(mut self) -> Self {
        self.world.run(Command::RecordMemoryVersion(UpdateMemory {
            text: "# Task specification\nMake the lights blink.\n# Current State\nThey do.\n"
                .into(),
            author: Author::Extractive,
            upon: 0,
            source: self.world.session.revision(),
            read_to: self.world.session.memory_reach(),
            file: None,
            took_ms: 0,
        }));
        self
    }

    /// Starts an update of session memory.
    fn with_update(mut self) -> Self {
        self.world.run(Command::StartMemoryUpdate(StartMemory));
        self
    }

    fn with_hooks(mut self) -> Self {
        self.context.calls_hooks = true;
        self
    }

    fn without_model(mut self) -> Self {
        self.context.has_model = false;
        self
    }

    /// Starts a compaction outside of the machine.
    fn with_running(mut self, strategy: Strategy, ahead: bool) -> Self {
        let spec = SummarySpec {
            ahead,
            ..SummarySpec::new(strategy)
        };
        let start = StartCompaction::new(Trigger::Manual, SummarySource::Write(spec));
        self.world.run(Command::StartCompaction(start));
        assert!(self.world.session.compactions().running.is_some());
        self
    }

    /// Prepares a summary.
    fn with_prepared(mut self) -> Self {
        self = self.ahead();
        let made = self.messages();
        let summary = written("what was said", Strategy::Model);
        self.advance(CompactionInput::Summary { summary, made });
        assert!(self.world.session.compactions().prepared.is_some());
        self
    }

    /// Starts the preparation of a summary between the warning and the compaction threshold.
    fn ahead(mut self) -> Self {
        let spec = SummarySpec {
            ahead: true,
            ..SummarySpec::new(Strategy::Model)
        };
        let start = StartCompaction::new(Trigger::Auto, SummarySource::Write(spec));
        self.world.run(Command::StartCompaction(start));
        let running = self.world.session.compactions().running.as_ref();
        let sizes = (self.world.session.tokens(), self.world.session.thresholds());
        assert!(running.is_some_and(|running| running.ahead), "{sizes:?}");
        self
    }

    fn advance(&mut self, input: CompactionInput) {
        let running = self.world.session.compactions().running.as_ref().unwrap();
        let advance = AdvanceCompaction::new(running.key, input);
        self.world.run(Command::AdvanceCompaction(advance));
    }

    fn messages(&mut self) -> CompactionMessages {
        let mut id = || {
            self.next_id += 1;
            MessageId::new(Uuid::from_u128(self.next_id))
        };
        CompactionMessages {
            mark: id(),
            summary: id(),
            request: None,
            attached: Vec::new(),
        }
    }

    /// Returns the running compaction as a machine takes it over.
    fn running(&mut self) -> StartedCompaction {
        self.world.load_content();
        StartedCompaction::of(Arc::new(self.world.session.clone())).unwrap()
    }

    /// Runs a request and compares the steps.
    #[track_caller]
    fn check(
        self,
        request: CompactionRequest,
        script: impl IntoIterator<Item = Then>,
        expected: Expect,
    ) {
        self.check_machine(CompactionMachine::new(request), script, expected);
    }

    #[track_caller]
    fn check_machine(
        mut self,
        mut machine: CompactionMachine,
        script: impl IntoIterator<Item = Then>,
        expected: Expect,
    ) {
        let mut script: VecDeque<Then> = script.into_iter().collect();
        let mut lines = String::new();
        for _ in 0..32 {
            self.world.load_content();
            self.context.now = Timestamp::from_millis(self.context.now.as_millis() + 1);
            let step = match machine.next(&self.world.session, &self.context) {
                Ok(step) => step,
                Err(rejection) => {
                    lines += &format!("rejected: {rejection}\n");
                    break;
                }
            };
            lines += &describe(&step);
            if let Step::End(_) = step {
                lines.push('\n');
                break;
            }
            let (told, result) = self.perform(step, &mut script);
            lines += &format!("{told}\n");
            machine.happened(result);
        }
        assert!(script.is_empty(), "{} results are left", script.len());
        expected.assert_eq(&lines);
    }

    fn perform(&mut self, step: Step, script: &mut VecDeque<Then>) -> (String, StepResult) {
        match step {
            Step::Wait(_) => {
                if let Some(Then::Over) = script.front() {
                    script.pop_front();
                    self.advance(CompactionInput::Failed {
                        why: CompactionFailureReason::Empty,
                        detail: "".into(),
                    });
                }
                (String::new(), StepResult::Waited)
            }
            Step::Estimate(_) => match script.pop_front() {
                Some(Then::Estimate(tokens)) => {
                    (format!(": {tokens:?}"), StepResult::Estimated(tokens))
                }
                _ => panic!("no estimate in the script"),
            },
            Step::Load => (String::new(), StepResult::Loaded(self.messages())),
            Step::Start(start) => self.commit(Command::StartCompaction(start)),
            Step::Advance(advance) => self.commit(Command::AdvanceCompaction(advance)),
            Step::Summarize(request) => {
                let summary = match script.pop_front() {
                    Some(Then::Summary(text)) => Ok(written(text, request.strategy)),
                    Some(Then::Failure) => Err(SummaryFailure {
                        why: CompactionFailureReason::ModelUnavailable,
                        detail: "it is away".into(),
                    }),
                    _ => panic!("no summary in the script"),
                };
                let told = if summary.is_ok() { "written" } else { "failed" };
                (format!(": {told}"), StepResult::Summarized(summary))
            }
            Step::Preview(advance) => {
                let preview = self.preview(advance);
                let told = if preview.is_some() {
                    "takes effect"
                } else {
                    "no effect"
                };
                (format!(": {told}"), StepResult::Previewed(preview))
            }
            Step::CallHook(request) => {
                let hook = match request {
                    HookRequest::PreCompact(_) => Hook::PreCompact,
                    HookRequest::PostCompact(..) => Hook::PostCompact,
                    HookRequest::SessionStart(_) => Hook::SessionStart,
                };
                let (result, instructions) = match script.pop_front() {
                    Some(Then::NoHook) => {
                        return (": disabled".to_owned(), StepResult::HookAnswered(None));
                    }
                    Some(Then::Hook(instructions)) => (HookResult::Continued, instructions),
                    Some(Then::Stop(result)) => (result, None),
                    _ => panic!("no answer of a hook in the script"),
                };
                let id = self.messages().mark;
                let note = Message::new(id, Role::User, vec![Block::text("a note")]);
                let adds = hook == Hook::SessionStart && !result.stops();
                let answer = HookAnswer {
                    call: HookCall {
                        hook,
                        result,
                        detail: "".into(),
                        took_ms: 7,
                        messages: Vec::new(),
                    },
                    instructions: instructions.map(Into::into),
                    must_keep: Vec::new(),
                    messages: adds.then(|| Arc::new(note)).into_iter().collect(),
                };
                (
                    format!(": {result:?}"),
                    StepResult::HookAnswered(Some(answer)),
                )
            }
            Step::End(_) => panic!("an end is no step to perform"),
        }
    }

    /// Runs a command and returns its outcome.
    fn commit(&mut self, command: Command) -> (String, StepResult) {
        let outcome = match self.world.try_run(command) {
            Ok(Decided::Now(decision)) => match decision.events.last() {
                Some(event) => {
                    let revision = self.world.session.revision();
                    CompactionOutcome::Event(Box::new(event.clone()), revision)
                }
                None => CompactionOutcome::Skipped(
                    palimpsest_core::command::SkipReason::NothingEligible,
                ),
            },
            Ok(Decided::Answered(revision)) => CompactionOutcome::Answered(revision),
            Ok(Decided::Skipped(skip)) => CompactionOutcome::Skipped(skip),
            Err(rejection) => panic!("{rejection:?}"),
        };
        self.world.load_content();
        let result = StepResult::Committed {
            session: Some(Arc::new(self.world.session.clone())),
            outcome: outcome.clone(),
        };
        (format!(": {}", tell(&outcome)), result)
    }

    fn preview(&self, advance: AdvanceCompaction) -> Option<Preview> {
        let limits = Limits::default();
        let context = DecisionContext {
            now: self.context.now,
            limits: &limits,
            can_store: true,
            file_salt: 0,
        };
        let mut session = self.world.session.clone();
        let decided = decide(&session, Command::AdvanceCompaction(advance), context);
        let Ok(Decided::Now(Decision { events, .. })) = decided else {
            return None;
        };
        for event in &events {
            let event = event.clone();
            let at = context.now;
            session.apply(&RecordedEvent { at, event }).unwrap();
        }
        let last = events.into_iter().next_back();
        let event = last.filter(|event| matches!(event, Event::Compacted(_)))?;
        Some(Preview {
            session: Arc::new(session),
            event: Box::new(event),
        })
    }
}

fn written(text: &str, strategy: Strategy) -> WrittenSummary {
    WrittenSummary {
        text: text.into(),
        strategy,
        model: "".into(),
        usage: Usage::default(),
        dropped: None,
    }
}

fn describe(step: &Step) -> String {
    match step {
        Step::Wait(wait) => format!("wait {wait:?}"),
        Step::Estimate(strategy) => format!("estimate {strategy:?}"),
        Step::Load => "load".to_owned(),
        Step::Start(start) => {
            let source = match &start.source {
                SummarySource::SessionMemory(_) => "SessionMemory".to_owned(),
                SummarySource::Prepared(_) => "Prepared".to_owned(),
                SummarySource::Write(spec) => format!("Write {:?}", spec.strategy),
                SummarySource::External(_) => "External".to_owned(),
                SummarySource::DropOldest { .. } => "DropOldest".to_owned(),
            };
            let hooks = if start.awaits_hooks {
                ", then hooks"
            } else {
                ""
            };
            format!("start {source}{hooks}")
        }
        Step::Summarize(request) => format!(
            "summarize {:?}{}{}",
            request.strategy,
            if request.falls_back { "" } else { " alone" },
            if request.is_estimate {
                " as an estimate"
            } else {
                ""
            },
        ),
        Step::Preview(_) => "preview".to_owned(),
        Step::CallHook(HookRequest::PreCompact(_)) => "call PreCompact".to_owned(),
        Step::CallHook(HookRequest::PostCompact(..)) => "call PostCompact".to_owned(),
        Step::CallHook(HookRequest::SessionStart(_)) => "call SessionStart".to_owned(),
        Step::Advance(advance) => match &advance.input {
            CompactionInput::HookAnswered { .. } => "advance HookAnswered".to_owned(),
            CompactionInput::Summary { summary, made } => format!(
                "advance Summary {:?}, {} hooks, {} messages",
                summary.strategy,
                advance.hooks.len(),
                made.attached.len()
            ),
            CompactionInput::Failed { why, .. } => {
                format!("advance Failed {why:?}, {} hooks", advance.hooks.len())
            }
            CompactionInput::Shortened(_) => "advance Shortened".to_owned(),
        },
        Step::End(outcome) => format!("end: {}", tell(outcome)),
    }
}

fn tell(outcome: &CompactionOutcome) -> String {
    match outcome {
        CompactionOutcome::Event(event, _) => match &**event {
            Event::Compacted(event) => format!("Compacted {:?}", event.strategy),
            Event::CompactionStarted(event) => format!("Started {:?}", event.strategy),
            Event::CompactionFailed(event) => format!("Failed {:?}", event.why),
            Event::SummaryPrepared(_) => "Prepared".to_owned(),
            Event::HookCalled(_) => "HookCalled".to_owned(),
            other => panic!("{other:?}"),
        },
        other => format!("{other:?}"),
    }
}

fn manual() -> CompactionRequest {
    CompactionRequest::new(Trigger::Manual)
}

/// An automatic request. A rejected prompt needs no threshold.
fn automatic() -> CompactionRequest {
    CompactionRequest::new(Trigger::PromptTooLong)
}

fn by(strategy: Strategy) -> CompactionRequest {
    CompactionRequest {
        strategy: Some(strategy),
        ..manual()
    }
}

const HOOKS: &str = "hooks.pre_compact.enabled = true\nhooks.post_compact.enabled = true\n\
                     hooks.session_start.enabled = true\n";
const MEMORY_FIRST: &str = "autocompact.session_memory_first = true\n";
/// The view is between the warning and the compaction threshold.
const AHEAD: &str = "tokens.default_window_tokens = 100000\nautocompact.prepare_ahead = true\n";
const MODEL_FIRST: &str = "autocompact.session_memory_first = false\n";

#[test]
fn row_1_an_orphaned_compaction_is_ended_first() {
    let mut case = Case::new(MODEL_FIRST).with_running(Strategy::Model, false);
    case.context.orphaned_before = Some(Timestamp::from_millis(1_000_000));
    case.check(
        by(Strategy::Extractive),
        [Then::Summary("said")],
        expect![[r#"
        advance Failed Expired, 0 hooks: Failed Expired
        start Write Extractive: Started Extractive
        summarize Extractive: written
        load
        advance Summary Extractive, 0 hooks, 0 messages: Compacted Extractive
        end: Compacted Extractive
    "#]],
    );
}

#[test]
fn row_1_a_delegated_compaction_survives_a_restart() {
    let mut case = Case::new(MODEL_FIRST).with_running(Strategy::Delegated, false);
    case.context.orphaned_before = Some(Timestamp::from_millis(1_000_000));
    case.check(
        by(Strategy::Extractive),
        [],
        expect![[r#"
        start Write Extractive: Skipped(AlreadyRunning)
        end: Skipped(AlreadyRunning)
    "#]],
    );
}

#[test]
fn row_2_the_oldest_rounds_leave_without_a_summary() {
    let request = CompactionRequest::drop_oldest(Trigger::PromptTooLong, DropRule::AtLeast(None));
    Case::new(HOOKS).with_hooks().check(
        request,
        [],
        expect![[r#"
        load
        start DropOldest: Compacted DropOldest
        end: Compacted DropOldest
    "#]],
    );
}

#[test]
fn row_2_nothing_is_dropped_from_a_view_that_is_small_enough() {
    let request = CompactionRequest::drop_oldest(Trigger::Auto, DropRule::Critical);
    Case::new("").check(
        request,
        [],
        expect![[r#"
        end: Skipped(UnderThreshold)
    "#]],
    );
}

#[test]
fn row_3_a_manual_request_compares_session_memory_with_structure() {
    let case = Case::new(MEMORY_FIRST).with_memory();
    let script = [Then::Estimate(Some(9_000)), Then::Estimate(Some(8_000))];
    case.check(
        manual(),
        script,
        expect![[r#"
        estimate SessionMemory: Some(9000)
        estimate Extractive: Some(8000)
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "#]],
    );
}

#[test]
fn row_4_a_request_that_takes_no_summary_as_is_writes_one() {
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
            expect![[r#"
            start Write Model: Started Model
            summarize Model: written
            load
            advance Summary Model, 0 hooks, 0 messages: Compacted Model
            end: Compacted Model
        "#]],
        );
    }
}

#[test]
fn row_4_session_memory_by_name_with_instructions_is_announced_and_written() {
    let request = CompactionRequest {
        instructions: Some("be short".into()),
        ..by(Strategy::SessionMemory)
    };
    let case = Case::new(MEMORY_FIRST).with_memory();
    case.check(
        request,
        [Then::Summary("said")],
        expect![[r#"
        start Write SessionMemory: Started SessionMemory
        summarize SessionMemory: written
        load
        advance Summary SessionMemory, 0 hooks, 0 messages: Compacted SessionMemory
        end: Compacted SessionMemory
    "#]],
    );
}

#[test]
fn row_5_a_comparison_waits_for_memory_once() {
    let case = Case::new(MEMORY_FIRST).with_memory().with_update();
    let script = [Then::Estimate(Some(9_000)), Then::Estimate(Some(8_000))];
    case.check(
        manual(),
        script,
        expect![[r#"
        wait ForMemory { at_most_ms: 15000 }
        estimate SessionMemory: Some(9000)
        estimate Extractive: Some(8000)
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "#]],
    );
}

#[test]
fn row_6_memory_that_would_be_skipped_is_left_out() {
    let case = Case::new(MEMORY_FIRST).with_memory();
    let script = [Then::Estimate(None), Then::Summary("said")];
    case.check(
        manual(),
        script,
        expect![[r#"
        estimate SessionMemory: None
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "#]],
    );
}

#[test]
fn row_8_memory_is_used_if_structure_would_be_skipped() {
    let case = Case::new(MEMORY_FIRST).with_memory();
    let script = [Then::Estimate(Some(90_000)), Then::Estimate(None)];
    case.check(
        manual(),
        script,
        expect![[r#"
        estimate SessionMemory: Some(90000)
        estimate Extractive: None
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "#]],
    );
}

#[test]
fn row_9_memory_that_is_far_behind_is_left_out() {
    let case = Case::new(MEMORY_FIRST).with_memory();
    let script = [
        Then::Estimate(Some(90_000)),
        Then::Estimate(Some(8_000)),
        Then::Summary("said"),
    ];
    case.check(
        manual(),
        script,
        expect![[r#"
        estimate SessionMemory: Some(90000)
        estimate Extractive: Some(8000)
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "#]],
    );
}

#[test]
fn row_10_an_automatic_request_waits_for_memory_once() {
    let case = Case::new(MEMORY_FIRST).with_memory().with_update();
    case.check(
        automatic(),
        [],
        expect![[r#"
        wait ForMemory { at_most_ms: 15000 }
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "#]],
    );
}

#[test]
fn row_10_a_dry_run_waits_for_nothing() {
    let request = CompactionRequest {
        is_dry_run: true,
        ..automatic()
    };
    let case = Case::new(MEMORY_FIRST).with_memory().with_update();
    case.check(
        request,
        [],
        expect![[r#"
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "#]],
    );
}

#[test]
fn row_11_an_automatic_request_waits_for_a_summary_that_is_being_prepared() {
    let case = Case::new(&[AHEAD, MODEL_FIRST].concat()).ahead();
    let script = [Then::Over, Then::Summary("said")];
    case.check(
        automatic(),
        script,
        expect![[r#"
        wait ForEnd(compaction-0)
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "#]],
    );
}

#[test]
fn row_11_a_wait_that_is_given_up_goes_on_and_displaces_the_other_compaction() {
    let case = Case::new(&[AHEAD, MODEL_FIRST].concat()).ahead();
    case.check(
        automatic(),
        [Then::Summary("said")],
        expect![[r#"
        wait ForEnd(compaction-0)
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "#]],
    );
}

#[test]
fn row_11_a_manual_request_does_not_wait() {
    let case = Case::new(&[AHEAD, MODEL_FIRST].concat()).ahead();
    case.check(
        manual(),
        [Then::Summary("said")],
        expect![[r#"
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "#]],
    );
}

#[test]
fn rows_13_and_14_sources_without_a_summary_are_passed_over() {
    let case = Case::new(MEMORY_FIRST);
    case.check(
        automatic(),
        [Then::Summary("said")],
        expect![[r#"
        load
        start SessionMemory: Skipped(NothingEligible)
        load
        start Prepared: Skipped(NothingEligible)
        start Write Model: Started Model
        summarize Model: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "#]],
    );
}

#[test]
fn row_14_session_memory_by_name_has_no_other_source() {
    Case::new(MODEL_FIRST).check(
        by(Strategy::SessionMemory),
        [],
        expect![[r#"
        load
        start SessionMemory: Skipped(NothingEligible)
        end: Skipped(NothingEligible)
    "#]],
    );
}

#[test]
fn row_15_a_request_that_may_not_start_ends() {
    let case = Case::new("autocompact.manual_enabled = false\n");
    case.check(
        manual(),
        [],
        expect![[r#"
        load
        start SessionMemory: Skipped(Disabled)
        end: Skipped(Disabled)
    "#]],
    );
}

#[test]
fn row_16_a_repeat_ends_with_the_event_of_the_original() {
    let request = CompactionRequest {
        request: Some(RequestStamp {
            id: "once".into(),
            method: RequestMethod::Compact,
            digest: Digest::from_bytes([7; 16]),
        }),
        ..by(Strategy::Extractive)
    };
    let mut case = Case::new("");
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
        expect![[r#"
        start Write Extractive: Answered(Revision(12))
        end: Answered(Revision(12))
    "#]],
    );
}

#[test]
fn row_17_a_summary_that_exists_is_committed_at_once() {
    let case = Case::new(MEMORY_FIRST).with_memory();
    case.check(
        automatic(),
        [],
        expect![[r#"
        load
        start SessionMemory: Compacted SessionMemory
        end: Compacted SessionMemory
    "#]],
    );
    let case = Case::new(&[AHEAD, MODEL_FIRST].concat()).with_prepared();
    case.check(
        manual(),
        [],
        expect![[r#"
        load
        start Prepared: Compacted Model
        end: Compacted Model
    "#]],
    );
}

#[test]
fn row_18_with_hooks_a_summary_that_exists_takes_two_steps() {
    let case = Case::new(&[MEMORY_FIRST, HOOKS].concat());
    let case = case.with_memory().with_hooks();
    let script = [Then::NoHook, Then::NoHook, Then::NoHook];
    case.check(
        automatic(),
        script,
        expect![[r#"
        load
        start SessionMemory, then hooks: Started SessionMemory
        call PreCompact: disabled
        load
        preview: takes effect
        call PostCompact: disabled
        call SessionStart: disabled
        advance Summary SessionMemory, 0 hooks, 0 messages: Compacted SessionMemory
        end: Compacted SessionMemory
    "#]],
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
        expect![[r#"
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
    "#]],
    );
}

#[test]
fn row_19_the_hook_of_a_prepared_summary_is_not_called_again() {
    let mut case = Case::new(&[AHEAD, MODEL_FIRST, HOOKS].concat()).ahead();
    let call = HookCall {
        hook: Hook::PreCompact,
        result: HookResult::Continued,
        detail: "".into(),
        took_ms: 0,
        messages: Vec::new(),
    };
    case.advance(CompactionInput::HookAnswered {
        call,
        instructions: None,
        must_keep: Vec::new(),
    });
    let made = case.messages();
    let summary = written("what was said", Strategy::Model);
    case.advance(CompactionInput::Summary { summary, made });
    let script = [Then::Hook(None), Then::Hook(None)];
    case.with_hooks().check(
        manual(),
        script,
        expect![[r#"
        load
        start Prepared, then hooks: Started Model
        load
        preview: takes effect
        call PostCompact: Continued
        call SessionStart: Continued
        advance Summary Model, 2 hooks, 1 messages: Compacted Model
        end: Compacted Model
    "#]],
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
        let of_model = case.context.has_model;
        let expected = if of_model {
            expect![[r#"
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
            "#]]
        } else {
            expect![[r#"
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
            "#]]
        };
        case.check(automatic(), script, expected);
    }
}

#[test]
fn row_20_the_first_answer_holds_and_a_compaction_that_ended_is_not_found() {
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
        expect![[r#"
        rejected: compaction-0 is not under way: it has finished, has failed, or never began
    "#]],
    );
}

#[test]
fn row_21_a_hook_stops_the_compaction() {
    for (result, expected) in [
        (
            HookResult::Vetoed,
            expect![[r#"
            load
            start Prepared, then hooks: Skipped(NothingEligible)
            start Write Model: Started Model
            call PreCompact: Vetoed
            advance Failed HookVetoed, 1 hooks: Failed HookVetoed
            end: Failed HookVetoed
        "#]],
        ),
        (
            HookResult::FailedStopped,
            expect![[r#"
            load
            start Prepared, then hooks: Skipped(NothingEligible)
            start Write Model: Started Model
            call PreCompact: FailedStopped
            advance Failed HookFailed, 1 hooks: Failed HookFailed
            end: Failed HookFailed
        "#]],
        ),
    ] {
        let case = Case::new(&[MODEL_FIRST, HOOKS].concat()).with_hooks();
        case.check(manual(), [Then::Stop(result)], expected);
    }
}

#[test]
fn row_22_a_delegated_compaction_leaves_the_summary_to_the_caller() {
    let case = Case::new(HOOKS).with_hooks();
    case.check(
        by(Strategy::Delegated),
        [Then::Hook(None)],
        expect![[r#"
        start Write Delegated: Started Delegated
        call PreCompact: Continued
        advance HookAnswered: HookCalled
        end: Running(compaction-0)
    "#]],
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
        expect![[r#"
        start Write Delegated: Started Delegated
        summarize Delegated as an estimate: written
        load
        advance Summary Delegated, 0 hooks, 0 messages: Compacted Delegated
        end: Compacted Delegated
    "#]],
    );
}

#[test]
fn row_24_a_model_by_name_has_no_fallback() {
    let case = Case::new("");
    case.check(
        by(Strategy::Model),
        [Then::Summary("said")],
        expect![[r#"
        start Write Model: Started Model
        summarize Model alone: written
        load
        advance Summary Model, 0 hooks, 0 messages: Compacted Model
        end: Compacted Model
    "#]],
    );
}

#[test]
fn row_25_a_summary_that_failed_ends_the_compaction() {
    let case = Case::new(HOOKS).with_hooks();
    let script = [Then::NoHook, Then::Failure];
    case.check(
        by(Strategy::Model),
        script,
        expect![[r#"
        start Write Model: Started Model
        call PreCompact: disabled
        summarize Model alone: failed
        advance Failed ModelUnavailable, 0 hooks: Failed ModelUnavailable
        end: Failed ModelUnavailable
    "#]],
    );
}

#[test]
fn row_26_a_result_that_takes_no_effect_is_shown_to_no_hook() {
    let case = Case::new(HOOKS).with_hooks();
    let long: &'static str = Box::leak("word ".repeat(100_000).into_boxed_str());
    let script = [Then::NoHook, Then::Summary(long)];
    case.check(
        by(Strategy::Model),
        script,
        expect![[r#"
        start Write Model: Started Model
        call PreCompact: disabled
        summarize Model alone: written
        load
        preview: no effect
        advance Summary Model, 0 hooks, 0 messages: Failed NotSmaller
        end: Failed NotSmaller
    "#]],
    );
}

#[test]
fn row_26_a_summary_that_is_prepared_ahead_is_shown_to_no_hook() {
    let case = Case::new(&[AHEAD, HOOKS].concat()).with_hooks();
    let script = [Then::Hook(None), Then::Summary("said")];
    case.check(
        CompactionRequest::prepare_ahead(),
        script,
        expect![[r#"
        start Write Model: Started Model
        call PreCompact: Continued
        advance HookAnswered: HookCalled
        summarize Model alone: written
        load
        advance Summary Model, 0 hooks, 0 messages: Prepared
        end: Prepared
    "#]],
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
        expect![[r#"
        start Write Extractive: Started Extractive
        call PreCompact: disabled
        summarize Extractive: written
        load
        preview: takes effect
        call PostCompact: Vetoed
        advance Failed HookVetoed, 1 hooks: Failed HookVetoed
        end: Failed HookVetoed
    "#]],
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
        expect![[r#"
        start Write Extractive: Started Extractive
        call PreCompact: disabled
        summarize Extractive: written
        load
        preview: takes effect
        call PostCompact: Continued
        call SessionStart: Continued
        advance Summary Extractive, 2 hooks, 1 messages: Compacted Extractive
        end: Compacted Extractive
    "#]],
    );
    let case = Case::new(HOOKS).with_hooks();
    let script = start(Then::Stop(HookResult::FailedStopped));
    case.check(
        by(Strategy::Extractive),
        script,
        expect![[r#"
        start Write Extractive: Started Extractive
        call PreCompact: disabled
        summarize Extractive: written
        load
        preview: takes effect
        call PostCompact: Continued
        call SessionStart: FailedStopped
        advance Failed HookFailed, 2 hooks: Failed HookFailed
        end: Failed HookFailed
    "#]],
    );
}

#[test]
fn row_29_a_delegated_summary_ends_the_compaction_or_may_be_followed_by_a_shorter_one() {
    let long = "word ".repeat(100_000);
    for (text, expected) in [
        (
            "said",
            expect![[r#"
        load
        advance Summary Delegated, 0 hooks, 0 messages: Compacted Delegated
        end: Compacted Delegated
    "#]],
        ),
        (
            long.as_str(),
            expect![[r#"
        load
        advance Summary Delegated, 0 hooks, 0 messages: Skipped(TooLittleGain)
        end: Skipped(TooLittleGain)
    "#]],
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
        expect![[r#"
        advance Failed DelegateFailed, 0 hooks: Failed DelegateFailed
        end: Failed DelegateFailed
    "#]],
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
        machine.happened(StepResult::Waited);
    }
}

#[test]
fn a_started_compaction_needs_no_caller_unless_it_is_delegated() {
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
fn a_limited_request_has_rounds_until_nothing_is_left() {
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
        assert!(matches!(event, Event::Compacted(_)));
        let last = CompactionOutcome::Event(Box::new(event), case.world.session.revision());
        let next = request.next_round(&case.world.session, &last);
        assert_eq!(next.is_some(), has_next, "{request:?}");
    }
}
