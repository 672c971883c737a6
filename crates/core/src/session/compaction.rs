//! The compactions of a session: the one that is under way, those that left a summary, and whether more
//! may start by themselves.

use crate::event::{
    AttachmentRecord, CompactionFailed, CompactionFailureReason, CompactionHooks,
    CompactionShortened, CompactionStarted, DroppedContent, HookCall, HookCalled, RequestStamp,
    Strategy, SummaryPrepared, Trigger,
};
use crate::ids::{CompactionKey, Ordinal, Revision, Timestamp};
use crate::message::Usage;
use crate::view::LayoutChange;

/// A compaction that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningCompaction {
    /// Which.
    pub key: CompactionKey,
    /// Who asked for it.
    pub trigger: Trigger,
    /// How the summary is to be made.
    pub strategy: Strategy,
    /// When it began.
    pub at: Timestamp,
    /// When it counts as failed.
    pub expires: Timestamp,
    /// The messages that it summarises, in order.
    pub leaving: Vec<Ordinal>,
    /// How many pieces the view had then.
    pub pieces: u32,
    /// Whether one of them has changed since: a summary must not bring back what left meanwhile.
    pub touched: bool,
    /// Whether its summary is written ahead of its time.
    pub ahead: bool,
    /// What whoever asked wants of the summary.
    pub instructions: Option<Box<str>>,
    /// How often its input was made shorter.
    pub attempt: u32,
    /// What its input does not have any more.
    pub dropped: Option<DroppedContent>,
    /// What hooks did about it and want of it.
    pub hooks: CompactionHooks,
    /// The request that asked for it; its outcome will answer that.
    pub request: Option<RequestStamp>,
}

impl RunningCompaction {
    /// Whether the caller's own model writes the summary.
    pub fn is_delegated(&self) -> bool {
        self.strategy == Strategy::Delegated
    }

    /// Returns true if the deadline has passed. A deadline more than twice as far ahead as the compaction may take counts as
    /// passed: the clock that set it was ahead, and nothing waits until that time is reached.
    pub fn is_over(&self, now: Timestamp) -> bool {
        let takes = self.expires.millis_since(self.at);
        self.expires <= now || self.expires.millis_since(now) > takes.saturating_mul(2)
    }
}

/// A summary that was written ahead of its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedSummary {
    /// The compaction that it is for.
    pub key: CompactionKey,
    /// The messages that it summarises, in order.
    pub leaving: Vec<Ordinal>,
    /// How many pieces the view had when it was begun. When one of them changes, it is of no more use.
    pub pieces: u32,
    /// The summary.
    pub text: Box<str>,
    /// How it was made.
    pub strategy: Strategy,
    /// The model that wrote it.
    pub model: Box<str>,
    /// What that model reported.
    pub usage: Usage,
    /// What was not in its input.
    pub dropped: Option<DroppedContent>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What hooks did about it and want of it.
    pub hooks: CompactionHooks,
}

/// What a compaction left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// The event that made it.
    pub revision: Revision,
    /// The compaction.
    pub key: CompactionKey,
    /// Who asked for it.
    pub trigger: Trigger,
    /// How the summary was made.
    pub strategy: Strategy,
    /// When.
    pub at: Timestamp,
    /// The message that marks it.
    pub mark: Ordinal,
    /// The message that holds the summary; none where there is none.
    pub summary: Option<Ordinal>,
    /// The messages that stayed word for word, in the order of the view.
    pub kept: Vec<Ordinal>,
    /// How many messages left.
    pub left: u32,
    /// The last of them.
    pub last_left: Option<Ordinal>,
    /// The view before, in tokens.
    pub before_tokens: u64,
    /// The view after.
    pub after_tokens: u64,
    /// What was attached, or found no room.
    pub attached: Vec<AttachmentRecord>,
    /// The tools that the model had found until then.
    pub discovered: Vec<Box<str>>,
}

/// The compactions of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compactions {
    /// The one that is under way.
    pub running: Option<RunningCompaction>,
    /// Those that took effect, oldest first.
    pub boundaries: Vec<Boundary>,
    /// Automatic attempts that failed in a row.
    pub failures: u32,
    /// Whether an undo holds automatic ones back until a person speaks.
    pub held: bool,
    /// What the view had after one that could not bring it under its threshold.
    pub floor: Option<u64>,
    /// The number of the next.
    pub next: u32,
    /// A summary that waits for its time.
    pub prepared: Option<PreparedSummary>,
    /// Whether one could not be written ahead; none is tried again before the next compaction.
    pub ahead_failed: bool,
    /// Whether a hook's veto holds automatic ones back until a person speaks.
    pub vetoed: bool,
}

impl Compactions {
    /// The key that the next will have.
    pub fn next_key(&self) -> CompactionKey {
        CompactionKey::new(self.next)
    }

    /// The compaction that an event made.
    pub fn made_by(&self, revision: Revision) -> Option<&Boundary> {
        let found = self
            .boundaries
            .binary_search_by_key(&revision, |boundary| boundary.revision);
        found.ok().map(|at| &self.boundaries[at])
    }

    pub(super) fn started(&mut self, at: Timestamp, event: &CompactionStarted, pieces: u32) {
        self.next = self.next.max(event.key.get() + 1);
        // Of a summary that was written ahead the hooks were asked then.
        let prepared = self.prepared.as_ref();
        let asked = prepared.filter(|prepared| prepared.key == event.key);
        let hooks = asked.map(|prepared| prepared.hooks.clone());
        self.running = Some(RunningCompaction {
            key: event.key,
            trigger: event.trigger,
            strategy: event.strategy,
            at,
            expires: event.expires,
            leaving: event.leaving.clone(),
            pieces,
            touched: false,
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
        self.vetoed |= vetoed && event.trigger == Trigger::Auto;
        self.prepared.take_if(|prepared| prepared.key == event.key);
        if ahead {
            // Nobody waits for it, and it may still be made when its time has come.
            self.ahead_failed |= event.why != CompactionFailureReason::RangeChanged && !vetoed;
        } else if event.trigger != Trigger::Manual && !vetoed {
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// A hook was called about the one that is under way.
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

    /// The input of the one that is under way was made shorter.
    pub(super) fn shortened(&mut self, event: &CompactionShortened) {
        if let Some(running) = &mut self.running
            && running.key == event.key
        {
            (running.attempt, running.dropped) = (event.attempt, Some(event.dropped));
        }
    }

    /// The one that is under way has its summary, ahead of its time.
    pub(super) fn prepared(&mut self, event: &SummaryPrepared) {
        if let Some(ended) = self.end(event.key) {
            self.prepared = Some(PreparedSummary {
                key: event.key,
                leaving: ended.leaving,
                pieces: ended.pieces,
                text: event.text.clone(),
                strategy: event.strategy,
                model: event.model.clone(),
                usage: event.usage,
                dropped: event.dropped,
                took_ms: event.took_ms,
                hooks: ended.hooks,
            });
        }
    }

    /// The request that asked for a compaction that is under way.
    pub(super) fn request_of(&self, key: CompactionKey) -> Option<RequestStamp> {
        let running = self.running.as_ref().filter(|running| running.key == key)?;
        running.request.clone()
    }

    /// One took effect.
    pub(super) fn finished(&mut self, boundary: Boundary, threshold: u64) {
        self.next = self.next.max(boundary.key.get() + 1);
        self.end(boundary.key);
        (self.prepared, self.ahead_failed) = (None, false);
        // What was only dropped was not summarised: that may fail again.
        if boundary.strategy != Strategy::DropOldest {
            (self.failures, self.held, self.vetoed) = (0, false, false);
        }
        self.floor = (boundary.after_tokens >= threshold).then_some(boundary.after_tokens);
        self.boundaries.push(boundary);
    }

    fn end(&mut self, key: CompactionKey) -> Option<RunningCompaction> {
        self.running.take_if(|running| running.key == key)
    }

    /// The view changed in another way.
    pub(super) fn view_changed(&mut self, change: Option<&LayoutChange>) {
        let Some(first) = change.and_then(LayoutChange::first).map(crate::view::count) else {
            return;
        };
        if let Some(running) = &mut self.running {
            running.touched |= first < running.pieces;
        }
        self.prepared.take_if(|prepared| first < prepared.pieces);
    }

    /// Messages have left, and some of them may have shown nothing in the view: what tells of them is of no
    /// more use either.
    pub(super) fn forget_what_left(&mut self, has_left: impl Fn(Ordinal) -> bool) {
        let tells = |leaving: &[Ordinal]| leaving.iter().any(|at| has_left(*at));
        if let Some(running) = &mut self.running {
            running.touched |= tells(&running.leaving);
        }
        self.prepared.take_if(|prepared| tells(&prepared.leaving));
    }

    /// Changes were taken back: automatic compaction waits until a person speaks.
    pub(super) fn restored(&mut self) {
        (self.failures, self.held, self.floor) = (0, true, None);
    }
}
