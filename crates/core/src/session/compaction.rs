//! The compactions of a session: the running one, the finished ones, a prepared summary, and the conditions that hold
//! back automatic compaction.

use crate::event::{
    AttachmentRecord, CompactionFailed, CompactionFailureReason, CompactionHooks,
    CompactionShortened, CompactionStarted, DroppedContent, HookCall, HookCalled, RequestStamp,
    Strategy, SummaryPrepared, Trigger,
};
use crate::ids::{CompactionKey, Ordinal, Revision, Timestamp};
use crate::message::Usage;
use crate::policy::AutocompactPolicy;
use crate::summary::SummaryPart;
use crate::view::LayoutChange;

/// A compaction that has started and has no outcome yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningCompaction {
    /// The compaction's key.
    pub key: CompactionKey,
    /// The cause of the compaction.
    pub trigger: Trigger,
    /// The source of the summary.
    pub strategy: Strategy,
    /// Start time.
    pub started_at: Timestamp,
    /// The deadline. After it the compaction counts as failed.
    pub deadline: Timestamp,
    /// The part of the conversation that the summary replaces.
    pub part: SummaryPart,
    /// The messages that the summary replaces, in order.
    pub leaving: Vec<Ordinal>,
    /// Number of sealed pieces at the start.
    pub pieces_at_start: u32,
    /// True if one of these pieces or messages changed since. The summary could otherwise restore removed content.
    pub range_changed: bool,
    /// True if the summary is prepared before the compaction threshold is reached.
    pub ahead: bool,
    /// The caller's additional instructions for the summary.
    pub instructions: Option<Box<str>>,
    /// Number of times that the input was shortened.
    pub attempt: u32,
    /// The content that was removed from the input.
    pub dropped: Option<DroppedContent>,
    /// The hook calls so far and their requests for the summary.
    pub hooks: CompactionHooks,
    /// The stamp of the request that started the compaction. The outcome answers this request.
    pub request: Option<RequestStamp>,
}

impl RunningCompaction {
    /// Returns true if the caller's model writes the summary.
    pub fn is_delegated(&self) -> bool {
        self.strategy == Strategy::Delegated
    }

    /// Returns true if the deadline has passed. A deadline that is further ahead than twice the compaction's time
    /// limit also counts as passed. Such a deadline comes from a clock that was ahead.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        let takes = self.deadline.millis_since(self.started_at);
        self.deadline <= now || self.deadline.millis_since(now) > takes.saturating_mul(2)
    }
}

/// A summary that was written before the compaction threshold was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedSummary {
    /// The key of the compaction that produced it.
    pub key: CompactionKey,
    /// The messages that the summary replaces, in order.
    pub leaving: Vec<Ordinal>,
    /// Number of sealed pieces at the start. A change to one of them discards the summary.
    pub pieces: u32,
    /// The text of the summary.
    pub text: Box<str>,
    /// The source of the summary.
    pub strategy: Strategy,
    /// The model that wrote the summary.
    pub model: Box<str>,
    /// The usage that the model reported.
    pub usage: Usage,
    /// The content that was removed from the input.
    pub dropped: Option<DroppedContent>,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
    /// The hook calls so far and their requests for the summary.
    pub hooks: CompactionHooks,
}

/// The record of a finished compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionBoundary {
    /// The revision of the event `CompactionFinished`.
    pub revision: Revision,
    /// The compaction's key.
    pub key: CompactionKey,
    /// The cause of the compaction.
    pub trigger: Trigger,
    /// The source of the summary.
    pub strategy: Strategy,
    /// Completion time.
    pub created_at: Timestamp,
    /// The boundary message in the transcript.
    pub message: Ordinal,
    /// The message that contains the summary. `None` if the compaction only dropped messages.
    pub summary: Option<Ordinal>,
    /// The messages that stayed verbatim, in the order of the view.
    pub kept: Vec<Ordinal>,
    /// Number of messages that left the view.
    pub replaced_count: u32,
    /// The last message that left the view.
    pub last_replaced: Option<Ordinal>,
    /// Tokens of the view before.
    pub before_tokens: u64,
    /// Tokens of the view after.
    pub after_tokens: u64,
    /// The attachments, including those that exceeded the budget.
    pub attached: Vec<AttachmentRecord>,
    /// The tools that the model had discovered before the compaction.
    pub discovered: Vec<Box<str>>,
}

/// The compactions of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compactions {
    /// The running compaction.
    pub running: Option<RunningCompaction>,
    /// The finished compactions, oldest first.
    pub boundaries: Vec<CompactionBoundary>,
    /// Number of consecutive failed attempts that were not manual.
    pub consecutive_failures: u32,
    /// True if an undo suspends automatic compaction until the next user input.
    pub held_after_restore: bool,
    /// Tokens of the view after the last compaction, if they were still at or above the threshold.
    pub irreducible_tokens: Option<u64>,
    /// The number of the next compaction.
    pub next_number: u32,
    /// The prepared summary.
    pub prepared: Option<PreparedSummary>,
    /// True if preparing a summary failed. No further attempt is made before the next compaction.
    pub prepare_failed: bool,
    /// True if a veto by a hook suspends automatic compaction until the next user input.
    pub held_after_veto: bool,
}

impl Compactions {
    /// Returns the key of the next compaction.
    pub fn next_key(&self) -> CompactionKey {
        CompactionKey::new(self.next_number)
    }

    /// Returns the compaction that finished at a revision.
    pub fn made_by(&self, revision: Revision) -> Option<&CompactionBoundary> {
        let found = self
            .boundaries
            .binary_search_by_key(&revision, |boundary| boundary.revision);
        found.ok().map(|at| &self.boundaries[at])
    }

    pub(super) fn started(
        &mut self,
        started_at: Timestamp,
        event: &CompactionStarted,
        pieces_at_start: u32,
    ) {
        // Keys are never reused, so the counter only grows.
        self.next_number = self.next_number.max(event.key.get() + 1);
        // A compaction that uses a prepared summary has its key. The hooks were called when that summary was prepared.
        let prepared = self.prepared.as_ref();
        let asked = prepared.filter(|prepared| prepared.key == event.key);
        let hooks = asked.map(|prepared| prepared.hooks.clone());
        self.running = Some(RunningCompaction {
            key: event.key,
            trigger: event.trigger,
            strategy: event.strategy,
            started_at,
            deadline: event.deadline,
            part: event.part,
            leaving: event.leaving.clone(),
            pieces_at_start,
            range_changed: false,
            ahead: event.ahead,
            instructions: event.instructions.clone(),
            attempt: 0,
            dropped: None,
            hooks: hooks.unwrap_or_default(),
            request: event.request.clone(),
        });
    }

    pub(super) fn failed(&mut self, event: &CompactionFailed) {
        let ahead = self.end(event.key).is_some_and(|ended| ended.ahead);
        let vetoed = event.hooks.last().is_some_and(HookCall::is_veto);
        // Without this hold, every later `PrepareContext` would start the compaction and call the hook again.
        self.held_after_veto |= vetoed && event.trigger == Trigger::Auto;
        // The failed compaction used this summary, for example one that `PostCompact` rejected. It is not tried again.
        self.prepared.take_if(|prepared| prepared.key == event.key);
        if ahead {
            // No caller waits for a prepared summary, so its failure is not counted as a failed attempt. A veto or a
            // changed range does not block a later attempt either.
            self.prepare_failed |= event.reason != CompactionFailureReason::RangeChanged && !vetoed;
        } else if event.trigger != Trigger::Manual && !vetoed {
            self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        }
    }

    /// Returns true if automatic compaction is paused after too many failures.
    pub fn is_paused(&self, policy: &AutocompactPolicy) -> bool {
        // A limit of 0 would pause sessions that never failed.
        self.consecutive_failures >= policy.max_failures.max(1)
    }

    /// Records a hook call of the running compaction.
    pub(super) fn hook_called(&mut self, event: &HookCalled) {
        let running = self.running.as_mut();
        if let Some(running) = running.filter(|running| running.key == event.key) {
            let hooks = &mut running.hooks;
            hooks.calls.push(event.call.clone());
            if let Some(instructions) = &event.instructions {
                hooks.instructions = Some(instructions.clone());
            }
            hooks.must_keep.extend_from_slice(&event.must_keep);
        }
    }

    /// Records that the input of the running compaction was shortened.
    pub(super) fn shortened(&mut self, event: &CompactionShortened) {
        if let Some(running) = &mut self.running
            && running.key == event.key
        {
            (running.attempt, running.dropped) = (event.attempt, Some(event.dropped));
        }
    }

    /// Ends the running compaction with a prepared summary.
    pub(super) fn prepared(&mut self, event: &SummaryPrepared) {
        if let Some(ended) = self.end(event.key) {
            self.prepared = Some(PreparedSummary {
                key: event.key,
                leaving: ended.leaving,
                pieces: ended.pieces_at_start,
                text: event.text.clone(),
                strategy: event.strategy,
                model: event.model.clone(),
                usage: event.usage,
                dropped: event.dropped,
                duration_ms: event.duration_ms,
                hooks: ended.hooks,
            });
        }
    }

    /// Returns the stamp of the request that started the running compaction.
    pub(super) fn request_of(&self, key: CompactionKey) -> Option<RequestStamp> {
        let running = self.running.as_ref().filter(|running| running.key == key)?;
        running.request.clone()
    }

    /// Records a finished compaction and resets the conditions that held automatic compaction back.
    pub(super) fn finished(&mut self, boundary: CompactionBoundary, threshold: u64) {
        self.next_number = self.next_number.max(boundary.key.get() + 1);
        self.end(boundary.key);
        (self.prepared, self.prepare_failed) = (None, false);
        // Dropping messages is a fallback without a summary, so the count of failures stays.
        if boundary.strategy != Strategy::DropOldest {
            (
                self.consecutive_failures,
                self.held_after_restore,
                self.held_after_veto,
            ) = (0, false, false);
        }
        // A view that stays at its threshold is due at once, so another attempt waits for growth (`Irreducible`).
        self.irreducible_tokens =
            (boundary.after_tokens >= threshold).then_some(boundary.after_tokens);
        self.boundaries.push(boundary);
    }

    fn end(&mut self, key: CompactionKey) -> Option<RunningCompaction> {
        // A late outcome of an earlier compaction must not end the running one.
        self.running.take_if(|running| running.key == key)
    }

    /// Invalidates the running compaction and the prepared summary if a change touches their pieces.
    pub(super) fn view_changed(&mut self, change: Option<&LayoutChange>) {
        let Some(first) = change.and_then(LayoutChange::first).map(crate::view::count) else {
            return;
        };
        if let Some(running) = &mut self.running {
            running.range_changed |= first < running.pieces_at_start;
        }
        self.prepared.take_if(|prepared| first < prepared.pieces);
    }

    /// Invalidates the running compaction and the prepared summary if one of their messages left the view. This
    /// covers messages that have no piece to change.
    pub(super) fn invalidate_if_removed(&mut self, has_left: impl Fn(Ordinal) -> bool) {
        let has_removed = |leaving: &[Ordinal]| leaving.iter().any(|at| has_left(*at));
        if let Some(running) = &mut self.running {
            running.range_changed |= has_removed(&running.leaving);
        }
        self.prepared
            .take_if(|prepared| has_removed(&prepared.leaving));
    }

    /// Suspends automatic compaction until the next user input, because an undo restored the view.
    pub(super) fn restored(&mut self) {
        (
            self.consecutive_failures,
            self.held_after_restore,
            self.irreducible_tokens,
        ) = (0, true, None);
    }
}
