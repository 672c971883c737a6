//! A machine with its session. A script gives the results of waits, estimates, summaries and hooks. The harness commits
//! the commands.

use std::collections::VecDeque;
use std::sync::Arc;

use expect_test::Expect;
use palimpsest_core::command::{
    AdvanceCompaction, Append, Command, CompactionInput, CompactionMessages, Decided, Decision,
    DecisionContext, RecordMemoryVersion, ServeView, StartCompaction, StartMemoryUpdate,
    SummarySource, SummarySpec, WrittenSummary, decide,
};
use palimpsest_core::compaction::{
    CompactionContext, CompactionMachine, CompactionOutcome, CompactionRequest, HookAnswer,
    HookRequest, Preview, StartedCompaction, Step, StepResult, SummaryFailure,
};
use palimpsest_core::event::{
    CompactionFailureReason, Event, Hook, HookCall, HookResult, RecordedEvent, Strategy, Trigger,
};
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::memory::{MemoryContent, MemoryDocument};
use palimpsest_core::message::{Block, Message, Role, Usage};
use palimpsest_core::policy::{Overlay, Preset};
use palimpsest_core::session::Author;
use palimpsest_histories::SessionHarness;
use uuid::Uuid;

/// A result in a script.
pub(super) enum Then {
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
pub(super) struct Case {
    pub(super) world: SessionHarness,
    pub(super) context: CompactionContext,
    next_id: u128,
}

impl Case {
    /// Creates a session of eight long messages with this policy.
    pub(super) fn new(policy: &str) -> Self {
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
    pub(super) fn with_memory(mut self) -> Self {
        let text = "# Task specification\nMake the lights blink.\n# Current State\nThey do.\n";
        self.world
            .run(Command::RecordMemoryVersion(RecordMemoryVersion {
                content: MemoryContent::verbatim(&MemoryDocument::parse(text)),
                author: Author::Extractive,
                base_version: 0,
                source: self.world.session.revision(),
                read_through: self.world.session.memory_readable_through(),
                edited_file: None,
                duration_ms: 0,
            }));
        self
    }

    /// Starts an update of session memory.
    pub(super) fn with_update(mut self) -> Self {
        self.world
            .run(Command::StartMemoryUpdate(StartMemoryUpdate));
        self
    }

    pub(super) fn with_hooks(mut self) -> Self {
        self.context.calls_hooks = true;
        self
    }

    pub(super) fn without_model(mut self) -> Self {
        self.context.has_model = false;
        self
    }

    /// Starts a compaction outside of the machine.
    pub(super) fn with_running(mut self, strategy: Strategy, ahead: bool) -> Self {
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
    pub(super) fn with_prepared(mut self) -> Self {
        self = self.ahead();
        let made = self.messages();
        let summary = written("what was said", Strategy::Model);
        self.advance(CompactionInput::Summary { summary, made });
        assert!(self.world.session.compactions().prepared.is_some());
        self
    }

    /// Starts the preparation of a summary between the warning and the compaction threshold.
    pub(super) fn ahead(mut self) -> Self {
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

    pub(super) fn advance(&mut self, input: CompactionInput) {
        let running = self.world.session.compactions().running.as_ref().unwrap();
        let advance = AdvanceCompaction::new(running.key, input);
        self.world.run(Command::AdvanceCompaction(advance));
    }

    pub(super) fn messages(&mut self) -> CompactionMessages {
        let mut id = || {
            self.next_id += 1;
            MessageId::new(Uuid::from_u128(self.next_id))
        };
        CompactionMessages {
            boundary_id: id(),
            summary_id: id(),
            request_message: None,
            hook_messages: Vec::new(),
        }
    }

    /// Returns the running compaction as a machine takes it over.
    pub(super) fn running(&mut self) -> StartedCompaction {
        self.world.load_content();
        StartedCompaction::of(Arc::new(self.world.session.clone())).unwrap()
    }

    /// Runs a request and compares the steps.
    #[track_caller]
    pub(super) fn check(
        self,
        request: CompactionRequest,
        script: impl IntoIterator<Item = Then>,
        expected: Expect,
    ) {
        self.check_machine(CompactionMachine::new(request), script, expected);
    }

    #[track_caller]
    pub(super) fn check_machine(
        mut self,
        mut machine: CompactionMachine,
        script: impl IntoIterator<Item = Then>,
        expected: Expect,
    ) {
        let mut script: VecDeque<Then> = script.into_iter().collect();
        let mut lines = String::new();
        // The bound turns a run without an end into a failed comparison.
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

    pub(super) fn perform(
        &mut self,
        step: Step,
        script: &mut VecDeque<Then>,
    ) -> (String, StepResult) {
        match step {
            Step::Wait(_) => {
                // Without `Over` in the script, the wait times out and the other work continues.
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
                let id = self.messages().boundary_id;
                let note = Message::new(id, Role::User, vec![Block::text("a note")]);
                let adds = hook == Hook::SessionStart && !result.stops();
                let answer = HookAnswer {
                    call: HookCall {
                        hook,
                        result,
                        detail: "".into(),
                        duration_ms: 7,
                        messages: Vec::new(),
                    },
                    instructions: instructions.map(Into::into),
                    must_keep: Vec::new(),
                    files: Vec::new(),
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
    pub(super) fn commit(&mut self, command: Command) -> (String, StepResult) {
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

    pub(super) fn preview(&self, advance: AdvanceCompaction) -> Option<Preview> {
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
            session
                .apply(&RecordedEvent {
                    at,
                    by: None,
                    event,
                })
                .unwrap();
        }
        // Hooks get only the preview of a compaction that takes effect.
        let last = events.into_iter().next_back();
        let event = last.filter(|event| matches!(event, Event::CompactionFinished(_)))?;
        Some(Preview {
            session: Arc::new(session),
            event: Box::new(event),
        })
    }
}

pub(super) fn written(text: &str, strategy: Strategy) -> WrittenSummary {
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
                made.hook_messages.len()
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
            Event::CompactionFinished(event) => format!("Compacted {:?}", event.strategy),
            Event::CompactionStarted(event) => format!("Started {:?}", event.strategy),
            Event::CompactionFailed(event) => format!("Failed {:?}", event.reason),
            Event::SummaryPrepared(_) => "Prepared".to_owned(),
            Event::HookCalled(_) => "HookCalled".to_owned(),
            other => panic!("{other:?}"),
        },
        other => format!("{other:?}"),
    }
}

pub(super) fn manual() -> CompactionRequest {
    CompactionRequest::new(Trigger::Manual)
}

/// An automatic request. A rejected prompt needs no threshold.
pub(super) fn automatic() -> CompactionRequest {
    CompactionRequest::new(Trigger::PromptTooLong)
}

pub(super) fn by(strategy: Strategy) -> CompactionRequest {
    CompactionRequest {
        strategy: Some(strategy),
        ..manual()
    }
}

pub(super) const HOOKS: &str = "hooks.pre_compact.enabled = true\nhooks.post_compact.enabled = true\n\
                     hooks.session_start.enabled = true\n";
pub(super) const MEMORY_FIRST: &str = "autocompact.session_memory_first = true\n";
/// The view is between the warning and the compaction threshold.
pub(super) const AHEAD: &str =
    "tokens.default_window_tokens = 100000\nautocompact.prepare_ahead = true\n";
pub(super) const MODEL_FIRST: &str = "autocompact.session_memory_first = false\n";
