//! Level 5 in a replay. Session memory is updated as a worker would. At the threshold it replaces
//! the messages that it covers, and otherwise an extractive summary does.

use std::sync::Arc;

use palimpsest_core::command::{
    Command, CompactionMessages, FailMemoryUpdate, RecordMemoryVersion, SkipReason,
    StartMemoryUpdate, WrittenSummary, is_compaction_due, memory_due_at,
};
use palimpsest_core::compaction::{
    CompactionContext, CompactionMachine, CompactionOutcome, CompactionRequest, StartedCompaction,
    Step, StepResult, SummaryFailure, SummaryTask,
};
use palimpsest_core::event::{CompactionFailureReason, CompactionFinished, Event, Trigger};
use palimpsest_core::ids::{MessageId, Ordinal};
use palimpsest_core::memory::MemoryContent;
use palimpsest_core::message::{Block, Message, Usage};
use palimpsest_core::session::{Author, Strategy};
use palimpsest_core::session_summary::{summary_inputs, summary_of};
use palimpsest_core::view::{Piece, PieceForm, WireBlock, wire};
use palimpsest_facts::memory::update;
use palimpsest_facts::{Facts, user_text};
use uuid::Uuid;

use super::compaction::ReplayCompaction;
use super::driver::Driver;
use super::survival::survival;

/// The wait of a worker after a failed attempt, in milliseconds.
const RETRY_MS: u64 = 30_000;

impl Driver {
    /// Updates session memory if an update is due.
    pub(super) fn update_memory(&mut self) {
        if memory_due_at(&self.session, self.now).is_none_or(|due| due > self.now) {
            return;
        }
        let Some(reach) = self.session.memory_readable_through() else {
            return;
        };
        self.run(Command::StartMemoryUpdate(StartMemoryUpdate));
        let version = self.session.memory().version.as_ref();
        // A text that describes rewound messages is rewritten from the start.
        let version = version.filter(|_| !self.session.is_memory_invalidated());
        let (previous, read) = version.map_or_else(
            || (MemoryContent::default(), None),
            |version| (version.content.clone(), version.read_through),
        );
        let begin = read.map_or(0, |read| read.index() + 1);
        let entries = self.session.transcript().entries();
        let shown: Vec<Ordinal> = entries
            .filter(|(at, entry)| *at <= reach && entry.visibility.is_in_effect())
            .map(|(at, _)| at)
            .filter(|at| at.index() >= begin)
            .collect();
        let messages = shown.iter().map(|at| &*self.log[at.index()].1);
        let facts = Facts::of(messages);
        let policy = &self.session.policy().session_memory;
        let next = update(&previous, &facts).fit(policy.max_section_tokens, policy.max_tokens);
        if !next.text().is_ready() {
            self.run(Command::FailMemoryUpdate(FailMemoryUpdate {
                is_file_failure: false,
                detail: "session memory has no facts yet".into(),
                retry_at: self.now.plus_millis(RETRY_MS),
            }));
            return;
        }
        let latest = self.session.memory().version.as_ref();
        self.run(Command::RecordMemoryVersion(RecordMemoryVersion {
            content: next,
            author: Author::Extractive,
            base_version: latest.map_or(0, |version| version.number),
            source: self.session.revision(),
            read_through: Some(reach),
            edited_file: None,
            duration_ms: 0,
        }));
    }

    /// Compacts the view if it exceeds the threshold. Returns true if it did.
    pub(super) fn compact(&mut self) -> bool {
        let is_due = is_compaction_due(&self.session);
        (is_due || self.session.compaction_reduces_cost(self.now))
            && self.compact_now(Trigger::Auto)
    }

    /// Compacts the view if the policy permits it. Returns true if it did.
    pub(super) fn compact_now(&mut self, trigger: Trigger) -> bool {
        let before = self.counters.compactions.len();
        let context = CompactionContext {
            now: self.now,
            has_model: false,
            calls_hooks: false,
            orphaned_before: None,
        };
        let mut machine = CompactionMachine::new(CompactionRequest::new(trigger));
        // Without hooks, models and other work, the machine needs only these steps.
        while let Ok(step) = machine.next(&self.session, &context) {
            machine.happened(match step {
                Step::Load => StepResult::Loaded(self.compaction_messages()),
                Step::Start(start) => self.commit(Command::StartCompaction(start)),
                Step::Advance(advance) => self.commit(Command::AdvanceCompaction(advance)),
                Step::Summarize(task) => StepResult::Summarized(self.summarize(&task)),
                _ => break,
            });
        }
        self.counters.compactions.len() > before
    }

    fn commit(&mut self, command: Command) -> StepResult {
        let before = self.events.len();
        let skipped = self.run(command);
        let last = self.events[before..].last();
        let outcome = match (skipped, last) {
            (Some(skip), _) => CompactionOutcome::Skipped(skip),
            // The rejection of a command is recorded as a defect.
            (None, None) => CompactionOutcome::Skipped(SkipReason::NothingEligible),
            (None, Some(recorded)) => {
                let event = Box::new(recorded.event.clone());
                CompactionOutcome::Event(event, self.session.revision())
            }
        };
        let is_started = matches!(outcome.event(), Some((_, Event::CompactionStarted(_))));
        StepResult::Committed {
            session: is_started.then(|| Arc::new(self.session.clone())),
            outcome,
        }
    }

    /// Writes a summary from the structure of the messages.
    fn summarize(&self, task: &SummaryTask) -> Result<WrittenSummary, SummaryFailure> {
        let StartedCompaction { session, running } = &task.started;
        let inputs = summary_inputs(session, running.part, &running.leaving);
        let said: Vec<String> = inputs
            .iter()
            .filter_map(|at| user_text(&self.log.get(at.index())?.1))
            .collect();
        let summary = summary_of(session, running.part, &running.leaving, &said, None).render();
        if summary.trim().is_empty() {
            return Err(SummaryFailure {
                why: CompactionFailureReason::Empty,
                detail: "the summary is empty".into(),
            });
        }
        Ok(WrittenSummary {
            text: summary.into(),
            strategy: Strategy::Extractive,
            model: "".into(),
            usage: Usage::default(),
            dropped: None,
        })
    }

    /// Creates the messages of a compaction with ids that no recorded message has.
    fn compaction_messages(&self) -> CompactionMessages {
        // A compaction adds its messages to the log, so the next one has another number.
        let number = self.log.len() as u128;
        // Ids count down from the maximum, because messages without an id were numbered upwards from 1.
        let id = |what: u128| MessageId::new(Uuid::from_u128(u128::MAX - number * 2 - what));
        CompactionMessages {
            boundary_id: id(0),
            summary_id: id(1),
            request_message: self
                .session
                .hidden_latest_request()
                .map(|at| Arc::clone(&self.log[at.index()].1)),
            hook_messages: Vec::new(),
        }
    }

    /// Records a compaction after its event was applied.
    pub(super) fn record_compaction(&mut self, event: &CompactionFinished) {
        let added: Vec<&Message> = event
            .messages
            .iter()
            .filter(|one| one.visibility.is_in_view())
            .map(|one| &*one.message)
            .collect();
        let left = event.leaving.iter();
        let left = left.filter_map(|at| Some(&*self.log.get(at.index())?.1));
        let compaction = ReplayCompaction {
            line: self.line,
            strategy: event.strategy,
            before_tokens: event.before_tokens,
            after_tokens: event.after_tokens,
            summary: added.first().map_or("", |summary| text_of(summary)).into(),
            survival: survival(left, &added, self.root()),
            keeps_latest: self.shows_latest(),
        };
        self.counters.compactions.push(compaction);
    }

    /// Returns true if the view contains the latest user input verbatim.
    fn shows_latest(&self) -> bool {
        let Some(begin) = self.session.latest_request() else {
            return true;
        };
        let Some((_, message)) = self.log.get(begin.index()) else {
            return false;
        };
        let pieces = self.session.sealed().pieces();
        let is_its = |piece: &&Piece| piece.message == begin;
        let mut shown: Vec<Piece> = pieces.iter().filter(is_its).copied().collect();
        if shown.is_empty() {
            // A pending message will be served unchanged.
            if self.session.pending().iter().any(|it| it.message == begin) {
                return true;
            }
            // The message left the view, so only a summary can still contain its words.
            let is_summary = |piece: &&Piece| piece.form == PieceForm::Summary;
            shown = pieces.iter().filter(is_summary).copied().collect();
        }
        let shown = wire(&self.session, &shown, self.caller.target()).unwrap_or_default();
        let shown: Vec<&str> = shown
            .iter()
            .flat_map(|message| &message.blocks)
            .filter_map(|block| match block {
                WireBlock::Text { text, .. } => Some(&**text),
                _ => None,
            })
            .collect();
        let mut said = message.blocks.iter().filter_map(|block| match block {
            Block::Text { text, .. } if !block.is_blank() => Some(&**text),
            _ => None,
        });
        said.all(|said| shown.iter().any(|shown| shown.contains(said)))
    }
}

fn text_of(message: &Message) -> &str {
    let mut texts = message.blocks.iter().filter_map(|block| match block {
        Block::Text { text, .. } => Some(&**text),
        _ => None,
    });
    texts.next().unwrap_or_default()
}
