//! The choice of the summary's source: session memory, a prepared summary, or one that has to be written.

use std::collections::VecDeque;
use std::sync::Arc;

use super::request::{CompactionRequest, Purpose};
use super::started::{Started, ready};
use super::step::{
    CompactionContext, CompactionOutcome, StartedCompaction, Step, StepResult, Wait,
};
use crate::command::{
    CompactionMessages, DropRule, SkipReason, StartCompaction, SummarySource, SummarySpec,
    is_compaction_due, is_memory_update_running,
};
use crate::event::{Event, Strategy, Trigger};
use crate::session::Session;

/// A source of the summary, before its messages exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    SessionMemory,
    Prepared,
    Write(Strategy),
    DropOldest(DropRule),
}

/// The sources that are tried in order, until one starts the compaction.
#[derive(Debug, Clone)]
pub(super) struct Choosing {
    sources: VecDeque<Source>,
    waited_for_memory: bool,
    waited_for_end: bool,
    messages: Option<CompactionMessages>,
}

/// Returns true if the view is below the threshold, so that only its cost can justify the compaction.
fn is_for_cost(request: &CompactionRequest, session: &Session) -> bool {
    request.trigger == Trigger::Auto
        && request.purpose == Purpose::Replace
        && !is_compaction_due(session)
}

/// The end of the choice.
pub(super) enum Chosen {
    Started(Box<Started>),
    Ended(CompactionOutcome),
}

impl Choosing {
    pub(super) fn new(
        request: &CompactionRequest,
        session: &Session,
        context: &CompactionContext,
    ) -> Self {
        let sources = match (request.purpose, request.strategy) {
            (Purpose::DropOldest(rule), _) => VecDeque::from([Source::DropOldest(rule)]),
            // Session memory exists already, so the caller of the machine rejects instructions for it.
            (_, Some(Strategy::SessionMemory)) => VecDeque::from([Source::SessionMemory]),
            (_, Some(strategy)) => VecDeque::from([Source::Write(strategy)]),
            // Other summaries have a price or a lower quality, which a lower cost does not justify.
            (_, None) if is_for_cost(request, session) => {
                let memory = request.takes_any().then_some(Source::SessionMemory);
                memory.into_iter().collect()
            }
            (_, None) if !request.takes_any() => {
                VecDeque::from([Source::Write(request.writer(context))])
            }
            (_, None) => {
                let first = session.policy().autocompact.session_memory_first;
                let memory = first.then_some(Source::SessionMemory);
                memory
                    .into_iter()
                    .chain([Source::Prepared, Source::Write(request.writer(context))])
                    .collect()
            }
        };
        Self {
            sources,
            waited_for_memory: false,
            waited_for_end: false,
            messages: None,
        }
    }

    /// Returns true if a manual request can use session memory or another summary.
    pub(super) fn has_choice(&self, request: &CompactionRequest, session: &Session) -> bool {
        request.trigger == Trigger::Manual
            && self.sources.len() > 1
            && self.sources.front() == Some(&Source::SessionMemory)
            && session.memory().latest_written().is_some()
    }

    pub(super) fn next(
        &self,
        request: &CompactionRequest,
        session: &Session,
        context: &CompactionContext,
    ) -> Step {
        let Some(source) = self.sources.front() else {
            return Step::End(CompactionOutcome::Skipped(SkipReason::NothingEligible));
        };
        if let Some(wait) = self.wait(*source, request, session, context) {
            return Step::Wait(wait);
        }
        let source = match (*source, &self.messages) {
            (Source::Write(strategy), _) => SummarySource::Write(SummarySpec {
                strategy,
                scope: request.scope,
                ahead: request.purpose == Purpose::PrepareAhead,
                instructions: request.instructions.clone(),
            }),
            (_, None) => return Step::Load,
            (Source::SessionMemory, Some(made)) => SummarySource::SessionMemory(made.clone()),
            (Source::Prepared, Some(made)) => SummarySource::Prepared(made.clone()),
            (Source::DropOldest(rule), Some(made)) => SummarySource::DropOldest {
                rule,
                made: made.clone(),
            },
        };
        // With hooks, a summary that exists still takes two steps, because the hooks are called between them.
        let is_ready = matches!(
            source,
            SummarySource::SessionMemory(_) | SummarySource::Prepared(_)
        );
        Step::Start(StartCompaction {
            awaits_hooks: is_ready && context.calls_hooks && !request.is_dry_run,
            expected_revision: request.expected_revision,
            request: request.request.clone(),
            ..StartCompaction::new(request.trigger, source)
        })
    }

    /// Returns the work that makes the source better. A summary that is almost written costs no further request to a
    /// model.
    fn wait(
        &self,
        source: Source,
        request: &CompactionRequest,
        session: &Session,
        context: &CompactionContext,
    ) -> Option<Wait> {
        if request.is_dry_run {
            return None;
        }
        match source {
            Source::SessionMemory => {
                let may_help = session.policy().autocompact.session_memory_first;
                // A compaction that only reduces the cost can take place before a later request.
                let is_urgent = !is_for_cost(request, session);
                let waits = may_help && is_urgent && !self.waited_for_memory;
                let at_most_ms = session.policy().session_memory.wait.get();
                (waits && is_memory_update_running(session, context.now))
                    .then_some(Wait::ForMemory { at_most_ms })
            }
            Source::Prepared if request.trigger != Trigger::Manual && !self.waited_for_end => {
                let running = session.compactions().running.as_ref();
                let ahead = running.filter(|running| running.ahead);
                ahead.map(|running| Wait::ForEnd(running.key))
            }
            Source::Prepared | Source::Write(_) | Source::DropOldest(_) => None,
        }
    }

    pub(super) fn happened(&mut self, result: StepResult) -> Option<Chosen> {
        match result {
            StepResult::Waited => {
                // Each wait happens once. An update that outlives its wait would otherwise be awaited again and again.
                let is_memory = self.sources.front() == Some(&Source::SessionMemory);
                self.waited_for_memory |= is_memory;
                self.waited_for_end |= !is_memory;
                None
            }
            StepResult::Loaded(messages) => {
                self.messages = Some(messages);
                None
            }
            StepResult::Committed { outcome, session } => self.committed(outcome, session),
            _ => None,
        }
    }

    fn committed(
        &mut self,
        outcome: CompactionOutcome,
        session: Option<Arc<Session>>,
    ) -> Option<Chosen> {
        let is_useless = matches!(
            outcome,
            CompactionOutcome::Skipped(SkipReason::NothingEligible | SkipReason::TooLittleGain)
        );
        // The reason of the last source is the outcome, because no other source follows.
        if is_useless && self.sources.len() > 1 {
            self.sources.pop_front();
            self.messages = None;
            return None;
        }
        let is_started = matches!(outcome.event(), Some((_, Event::CompactionStarted(_))));
        if !is_started {
            return Some(Chosen::Ended(outcome));
        }
        let started = StartedCompaction::of(session?)?;
        let ready = match self.sources.front() {
            Some(Source::SessionMemory | Source::Prepared) => {
                ready(&started.session, &started.running)
            }
            _ => None,
        };
        Some(Chosen::Started(Box::new(Started::new(started, ready))))
    }
}

/// The comparison of session memory with another summary, for a manual request. Session memory that is behind keeps
/// all later messages word for word, so it may free little space.
#[derive(Debug, Clone)]
pub(super) struct Comparing {
    choosing: Choosing,
    /// The recent messages that session memory may keep word for word, in tokens.
    word_for_word: u64,
    /// The maximum size of the view with session memory, in tokens.
    most: u64,
    /// The size of the view with session memory, in tokens.
    memory: Option<u64>,
}

impl Comparing {
    pub(super) fn new(choosing: Choosing, request: &CompactionRequest, session: &Session) -> Self {
        Self {
            choosing,
            word_for_word: session.kept_tokens().max,
            most: request.max_memory_view_tokens.unwrap_or(u64::MAX),
            memory: None,
        }
    }

    pub(super) fn next(
        &self,
        request: &CompactionRequest,
        session: &Session,
        context: &CompactionContext,
    ) -> Step {
        let wait = self
            .choosing
            .wait(Source::SessionMemory, request, session, context);
        // A model's summary is about as long as an extractive one, so the comparison needs no model.
        match (wait, self.memory) {
            (Some(wait), _) => Step::Wait(wait),
            (None, None) => Step::Estimate(Strategy::SessionMemory),
            (None, Some(_)) => Step::Estimate(Strategy::Extractive),
        }
    }

    /// Returns the choice that follows, without session memory if another summary leaves a much smaller view.
    pub(super) fn happened(&mut self, result: StepResult) -> Option<Choosing> {
        let StepResult::Estimated(tokens) = result else {
            self.choosing.happened(result);
            return None;
        };
        let uses_memory = match (self.memory, tokens) {
            (None, Some(_)) => {
                self.memory = tokens;
                return None;
            }
            (None, None) => false,
            (Some(memory), Some(structure)) => {
                // Session memory may leave a larger view, because it keeps recent messages word for word.
                let is_small = memory <= self.most || memory <= structure;
                is_small && structure.saturating_add(self.word_for_word) >= memory
            }
            // Without another summary to compare, session memory is used.
            (Some(_), None) => true,
        };
        let mut choosing = self.choosing.clone();
        if !uses_memory {
            choosing.sources.pop_front();
        }
        Some(choosing)
    }
}
