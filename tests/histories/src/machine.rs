//! The compaction machine in random histories. A script of bytes chooses the request, the results of the steps and the
//! changes that other calls make between two steps.

use std::sync::Arc;

use crate::{Operation, SessionHarness, serving};
use palimpsest_core::command::{
    Command, CompactionInput, CompactionScope, Decided, DecisionContext, DropRule, Rejection,
    SkipReason, WrittenSummary, decide,
};
use palimpsest_core::compaction::{
    CompactionContext, CompactionMachine, CompactionOutcome, CompactionRequest, HookAnswer,
    HookRequest, Preview, Purpose, Step, StepResult, SummaryFailure,
};
use palimpsest_core::event::{
    CompactionFailureReason, Event, Hook, HookCall, HookResult, RecordedEvent, Strategy, Trigger,
};
use palimpsest_core::ids::{CompactionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::Usage;

/// The maximum number of steps of one run.
const MAX_STEPS: usize = 64;

/// The observations of one run.
#[derive(Default)]
struct Observed {
    /// The compaction that the run started.
    key: Option<CompactionKey>,
    /// The hooks that were called.
    hooks: Vec<Hook>,
    /// The events of the run itself, without those of other calls.
    events: Vec<Event>,
}

impl SessionHarness {
    /// Drives a machine to its end and checks its steps and events.
    pub(super) fn drive(&mut self, script: &[u8]) {
        self.run(Command::ServeView(serving()));
        let mut bytes = script.iter().copied().cycle();
        let mut byte = || bytes.next().unwrap_or_default();
        let request = self.request([byte(), byte(), byte()]);
        let facts = byte();
        let mut machine = CompactionMachine::new(request.clone());
        let mut observed = Observed::default();
        for _ in 0..MAX_STEPS {
            let context = CompactionContext {
                now: Timestamp::from_millis(self.now),
                has_model: facts & 0b1 == 0,
                calls_hooks: facts & 0b10 == 0,
                // In a quarter of the scripts, each running compaction counts as orphaned.
                orphaned_before: (facts & 0b1100 == 0).then_some(Timestamp::from_millis(self.now)),
            };
            let next = machine.next(&self.session, &context);
            let step = match next {
                Ok(step) => step,
                Err(rejection) => return self.check_rejected(&rejection, &observed),
            };
            if let Step::End(outcome) = step {
                // An end is final: a machine that is asked again must not start over.
                let again = machine.next(&self.session, &context);
                assert!(matches!(again, Ok(Step::End(end)) if end == outcome));
                return Self::check_end(&request, &outcome, &observed);
            }
            Self::check_step(&step, &mut observed);
            match self.perform(step, byte(), &mut observed) {
                Ok(result) => machine.happened(result),
                Err(rejection) => return self.check_rejected(&rejection, &observed),
            }
            self.interfere(byte());
        }
        panic!("the machine does not end: {request:?}");
    }

    fn request(&self, [how, strategy, place]: [u8; 3]) -> CompactionRequest {
        let visible = self.visible();
        let message = visible.get(usize::from(place) % visible.len().max(1));
        let trigger =
            [Trigger::Manual, Trigger::Auto, Trigger::PromptTooLong][usize::from(how % 3)];
        if strategy.is_multiple_of(16) {
            let rule = DropRule::AtLeast(Some(u64::from(place)));
            return CompactionRequest::drop_oldest(trigger, rule);
        }
        CompactionRequest {
            strategy: match strategy % 6 {
                0 => Some(Strategy::SessionMemory),
                1 => Some(Strategy::Model),
                2 => Some(Strategy::Delegated),
                _ => None,
            },
            scope: match (how % 5, message) {
                (1, Some(id)) => CompactionScope::UpTo(*id),
                (2, Some(id)) => CompactionScope::From(*id),
                _ => CompactionScope::Whole,
            },
            instructions: how.is_multiple_of(7).then(|| "be short".into()),
            ..CompactionRequest::new(trigger)
        }
    }

    fn check_step(step: &Step, observed: &mut Observed) {
        match step {
            Step::Start(_) => assert_eq!(observed.key, None, "the compaction started twice"),
            Step::Advance(advance) => {
                // Before the start, only an orphaned compaction is ended.
                let is_failure = matches!(advance.input, CompactionInput::Failed { .. });
                assert!(observed.key.map_or(is_failure, |key| key == advance.key));
            }
            Step::Preview(advance) => assert_eq!(observed.key, Some(advance.key)),
            Step::CallHook(request) => {
                let hook = hook_of(request);
                assert!(!observed.hooks.contains(&hook), "{hook:?} is called twice");
                observed.hooks.push(hook);
            }
            _ => {}
        }
    }

    /// Performs a step with a random result.
    fn perform(
        &mut self,
        step: Step,
        byte: u8,
        observed: &mut Observed,
    ) -> Result<StepResult, Rejection> {
        Ok(match step {
            Step::Wait(_) => StepResult::Waited,
            Step::Estimate(_) => {
                let tokens = u64::from(byte) * 1_000;
                StepResult::Estimated((!byte.is_multiple_of(4)).then_some(tokens))
            }
            Step::Load => StepResult::Loaded(self.made(byte)),
            Step::Start(start) => self.commit(Command::StartCompaction(start), observed)?,
            Step::Advance(advance) => self.commit(Command::AdvanceCompaction(advance), observed)?,
            Step::Summarize(request) => StepResult::Summarized(if byte.is_multiple_of(8) {
                Err(SummaryFailure {
                    why: CompactionFailureReason::Empty,
                    detail: "said nothing".into(),
                })
            } else {
                Ok(WrittenSummary {
                    text: "what was said".into(),
                    strategy: request.strategy,
                    model: "".into(),
                    usage: Usage::default(),
                    dropped: None,
                })
            }),
            Step::Preview(advance) => {
                let at = Timestamp::from_millis(self.now);
                self.load_content();
                let events = self.events_of(Command::AdvanceCompaction(advance))?;
                let mut session = self.session.clone();
                for event in &events {
                    let event = event.clone();
                    session
                        .apply(&RecordedEvent {
                            at,
                            by: None,
                            event,
                        })
                        .unwrap();
                }
                let compacted = |event: &Event| matches!(event, Event::CompactionFinished(_));
                // The command can also end the compaction in another way, such as a failure. No view exists to preview
                // then.
                let last = events.into_iter().next_back().filter(compacted);
                StepResult::Previewed(last.map(|event| Preview {
                    session: Arc::new(session),
                    event: Box::new(event),
                }))
            }
            Step::CallHook(request) => {
                StepResult::HookAnswered((!byte.is_multiple_of(4)).then(|| {
                    let result = match byte % 16 {
                        1 => HookResult::Vetoed,
                        2 => HookResult::FailedStopped,
                        3 => HookResult::FailedContinued,
                        _ => HookResult::Continued,
                    };
                    let call = HookCall {
                        hook: hook_of(&request),
                        result,
                        detail: "".into(),
                        duration_ms: 2,
                        messages: Vec::new(),
                    };
                    HookAnswer {
                        instructions: byte.is_multiple_of(5).then(|| "name the lamp".into()),
                        ..HookAnswer::of(call)
                    }
                }))
            }
            Step::End(_) => panic!("an end is no step to perform"),
        })
    }

    fn commit(
        &mut self,
        command: Command,
        observed: &mut Observed,
    ) -> Result<StepResult, Rejection> {
        let before = self.log.len();
        let skipped = match self.try_run(command)? {
            Decided::Skipped(skip) => Some(skip),
            _ => None,
        };
        let events = self.log[before..]
            .iter()
            .map(|recorded| recorded.event.clone());
        observed.events.extend(events);
        let last = self.log[before..]
            .last()
            .map(|recorded| recorded.event.clone());
        let outcome = match (skipped, last) {
            (Some(skip), _) => CompactionOutcome::Skipped(skip),
            (None, None) => CompactionOutcome::Skipped(SkipReason::NothingEligible),
            (None, Some(event)) => {
                if let Event::CompactionStarted(started) = &event {
                    observed.key = Some(started.key);
                }
                CompactionOutcome::Event(Box::new(event), self.session.revision())
            }
        };
        self.load_content();
        let session = Some(Arc::new(self.session.clone()));
        Ok(StepResult::Committed { outcome, session })
    }

    /// Returns the events of a command without applying them.
    fn events_of(&self, command: Command) -> Result<Vec<Event>, Rejection> {
        let limits = Limits::default();
        let context = DecisionContext {
            now: Timestamp::from_millis(self.now),
            limits: &limits,
            can_store: true,
            file_salt: 0,
        };
        Ok(match decide(&self.session, command, context)? {
            Decided::Now(decision) => decision.events,
            _ => Vec::new(),
        })
    }

    /// Makes a change between two steps, as another call does.
    fn interfere(&mut self, byte: u8) {
        let running = self.session.compactions().running.clone();
        // Most bytes change nothing, so that most runs reach an end of their own.
        match (byte % 16, running) {
            (0, Some(running)) => self.fail(&running),
            (1, Some(running)) => self.expire(&running),
            (2, Some(running)) => self.answer_hook(&running, byte / 16),
            (3, _) => self.step(&Operation::Note(byte / 16)),
            // A snip within the summarized messages voids the summary.
            (4, _) => self.step(&Operation::Snip {
                turn: byte,
                message: byte / 16,
                block: 0,
                what: 1,
            }),
            (5, _) => self.step(&Operation::Clear(0)),
            (6, _) => self.drop_oldest(byte / 16),
            _ => {}
        }
    }

    /// Checks that only a change of another call explains a rejection.
    fn check_rejected(&self, rejection: &Rejection, observed: &Observed) {
        match rejection {
            Rejection::CompactionNotFound { key } => {
                assert_eq!(observed.key, Some(*key));
                let running = self.session.compactions().running.as_ref();
                assert!(running.is_none_or(|running| running.key != *key));
            }
            Rejection::MessageNotFound { .. } | Rejection::MessageNotVisible { .. } => {
                assert_eq!(observed.key, None, "the scope is checked at the start");
            }
            other => panic!("{other:?}"),
        }
    }

    /// Checks that the events of a run are those of a path in decision 0010.
    fn check_end(request: &CompactionRequest, outcome: &CompactionOutcome, observed: &Observed) {
        let kinds: String = observed.events.iter().map(kind).collect();
        // An end of another compaction precedes the events of this one.
        let own = kinds.trim_start_matches('F');
        let expected: &[&str] = match outcome {
            CompactionOutcome::Event(event, _) => match kind(event) {
                // Alone if the summary existed and no hook is awaited.
                'C' => &["C", "SC", "SHC", "SHHC", "SHHHC"],
                'P' => &["SP", "SHP"],
                'F' => &["", "SF", "SHF", "SHHF", "SHHHF"],
                other => panic!("{other} is no outcome"),
            },
            CompactionOutcome::Skipped(_) => &["", "S", "SH", "SHH"],
            CompactionOutcome::Running(key) => {
                assert_eq!(observed.key, Some(*key));
                &["S", "SH"]
            }
            CompactionOutcome::Answered(_) => panic!("no request was stamped"),
        };
        assert!(expected.contains(&own), "{kinds}: {outcome:?}");
        if let Purpose::DropOldest(_) = request.purpose {
            assert!(observed.hooks.is_empty() && !own.contains('S'), "{kinds}");
        }
    }
}

fn hook_of(request: &HookRequest) -> Hook {
    match request {
        HookRequest::PreCompact(_) => Hook::PreCompact,
        HookRequest::PostCompact(..) => Hook::PostCompact,
        HookRequest::SessionStart(_) => Hook::SessionStart,
    }
}

/// Returns a letter for the kind of an event.
fn kind(event: &Event) -> char {
    match event {
        Event::CompactionStarted(_) => 'S',
        Event::HookCalled(_) => 'H',
        Event::CompactionFinished(_) => 'C',
        Event::SummaryPrepared(_) => 'P',
        Event::CompactionFailed(_) => 'F',
        other => panic!("{other:?} is no event of a compaction"),
    }
}
