//! The state of a session, and the methods that read it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::cache_edits::CacheEdits;
use super::calls::{Call, Calls};
use super::compaction::Compactions;
use super::persist_decisions::PersistDecisions;
use super::prompt_cache::{PromptCache, ViewChange};
use super::requests::Requests;
use super::session_memory::SessionMemory;
use super::spans::Spans;
use super::stored::StoredResults;
use super::transcript::{ContentNotLoaded, Transcript};
use super::turns::Turns;
use super::working::SessionWorkingState;
use crate::event::{PendingMessage, Placeholder, Visibility};
use crate::ids::{
    Attributes, CallKey, Epoch, MessageId, Ordinal, Revision, SessionKey, Timestamp, TurnNumber,
};
use crate::message::{Block, Message, Role, ToolResult};
use crate::policy::{BudgetState, Policy, Thresholds, WindowHint};
use crate::tokens::{Counter, TokenCount, TokenLedger};
use crate::view::{Sealed, Target};
use crate::working::Pins;

/// How much of the first prompt a list shows.
const FIRST_PROMPT_CHARS: usize = 200;

/// The state of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub(super) key: SessionKey,
    pub(super) revision: Revision,
    pub(super) rules: u32,
    pub(super) policy: Arc<Policy>,
    pub(super) about: About,
    pub(super) transcript: Transcript,
    pub(super) turns: Turns,
    pub(super) calls: Calls,
    pub(super) stored: StoredResults,
    pub(super) spans: Spans,
    pub(super) memory: SessionMemory,
    pub(super) compactions: Compactions,
    pub(super) persist_decisions: PersistDecisions,
    pub(super) pending: Vec<PendingMessage>,
    pub(super) sealed: Sealed,
    pub(super) cache_edits: CacheEdits,
    pub(super) ledger: TokenLedger,
    pub(super) requests: Requests,
    pub(super) last_served: LastServed,
    pub(super) last_reemitted: Option<Ordinal>,
    pub(super) last_response: Option<Timestamp>,
    pub(super) since_snip: SnipGrowth,
    pub(super) view_changes: Vec<ViewChange>,
    pub(super) prompt_cache: PromptCache,
    pub(super) working: SessionWorkingState,
    pub(super) pins: Pins,
}

/// What a list of sessions shows of one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// A name for people.
    pub title: Box<str>,
    /// The beginning of the first thing that a person said.
    pub first_prompt: Box<str>,
    /// The session that this one is a subagent of.
    pub parent: Option<SessionKey>,
    /// The caller's own notes.
    pub attributes: Attributes,
    /// When it began.
    pub created: Timestamp,
    /// When the last event happened.
    pub modified: Timestamp,
    /// The folder that the work is in, as the messages say.
    pub project_path: Box<str>,
    /// The branch that the work is on, as the messages say.
    pub branch: Box<str>,
    /// Why it must be kept: while this says something, nothing deletes it.
    pub hold: Box<str>,
    /// How many messages there are that a person or the model wrote.
    pub user_messages: u32,
    /// How many messages the model wrote.
    pub assistant_messages: u32,
    /// What providers reported in all: for the model's messages, and for summaries.
    pub reported_tokens: u64,
    /// How many view-changing events there were.
    pub epoch: Epoch,
    /// The model of the last response.
    pub last_model: Box<str>,
    /// Whom it waits for.
    pub waits_for: WaitsFor,
}

/// Whom a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WaitsFor {
    /// It has no message yet.
    #[default]
    Anything,
    /// The last word is the model's, and no call is open.
    User,
    /// Calls of the last response have no result yet.
    Tools,
    /// The last word is a user's or a tool's.
    Model,
}

/// For whom the view was served last, and in what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LastServed {
    /// For whom.
    pub target: Target,
    /// What the caller said about its model.
    pub window: WindowHint,
    /// What the caller said its system prompt and its tools have.
    pub overhead_tokens: u64,
}

/// What came since something was snipped, or since the model was reminded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnipGrowth {
    /// Messages.
    pub messages: u32,
    /// Their estimated tokens.
    pub tokens: u64,
}

impl Session {
    /// Its name.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// How many events it has had.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The rules by which its decisions are taken.
    pub fn rules(&self) -> u32 {
        self.rules
    }

    /// What it may do.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What a list shows of it.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Its messages.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Its user turns.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// The user turn that is going on.
    pub fn current_turn(&self) -> Option<TurnNumber> {
        let visible = |start: &Ordinal| self.transcript.is_visible(*start);
        let index = self.turns.starts().iter().rposition(visible)?;
        TurnNumber::new(crate::view::count(index + 1))
    }

    /// What a person said last, of what still holds. It is not in the view when the user took back all that
    /// came after a compaction which had left it to a summary.
    pub fn latest_request(&self) -> Option<Ordinal> {
        let holds = |start: &&Ordinal| {
            let entry = self.transcript.get(**start);
            entry.is_some_and(|entry| entry.standing.holds())
        };
        self.turns.starts().iter().rev().find(holds).copied()
    }

    /// The same where no message of the view says it: a compaction keeps it beside its summary.
    pub fn request_out_of_view(&self) -> Option<Ordinal> {
        let latest = self.latest_request();
        latest.filter(|latest| !self.transcript.is_visible(*latest))
    }

    /// Its spans: those that a summary may stand for, and those that one stands for.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// Its compactions.
    pub fn compactions(&self) -> &Compactions {
        &self.compactions
    }

    /// Whether a message was made by a compaction: no turn has it, and it stays with its summary.
    pub fn is_framing(&self, message: Ordinal) -> bool {
        let entry = self.transcript.get(message);
        entry.is_some_and(|entry| self.compactions.made_by(entry.revision).is_some())
    }

    /// Its working state.
    pub fn working(&self) -> &SessionWorkingState {
        &self.working
    }

    /// What of it is pinned.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Its running summary.
    pub fn memory(&self) -> &SessionMemory {
        &self.memory
    }

    /// What stands in the places of spans in the view as it is now, in order.
    pub fn folds(&self) -> impl Iterator<Item = &Placeholder> {
        let pieces = self.sealed.pieces().iter();
        pieces.filter_map(|piece| match piece.form {
            crate::view::PieceForm::Placeholder(span) => self.spans.placeholder(span),
            _ => None,
        })
    }

    /// The messages for which a placeholder stands now: an undo may have brought others of its span back.
    pub fn folded<'a>(&'a self, fold: &'a Placeholder) -> impl Iterator<Item = Ordinal> + 'a {
        let messages = fold.span.messages.iter().copied();
        messages.filter(|message| {
            let entry = self.transcript.get(*message);
            entry.is_some_and(|entry| entry.standing == Visibility::Collapsed)
        })
    }

    /// Adds to some messages those for which the same placeholders stand: they leave together.
    pub(crate) fn add_folded(&self, messages: &mut BTreeSet<Ordinal>) {
        for fold in self.folds() {
            if self.folded(fold).any(|one| messages.contains(&one)) {
                messages.extend(self.folded(fold));
            }
        }
    }

    /// What stands in the place of a message in the view as it is now.
    pub fn fold_of(&self, message: Ordinal) -> Option<&Placeholder> {
        self.folds()
            .find(|fold| self.folded(fold).any(|one| one == message))
    }

    /// The messages that came after one and that a summary in the view tells of: one from which only the
    /// end was compacted.
    pub(crate) fn told_after(&self, message: Ordinal) -> impl Iterator<Item = Ordinal> {
        let entries = self.transcript.entries().rev();
        let later = entries.take_while(move |(at, _)| *at > message);
        let told = later
            .filter(|(at, entry)| entry.standing == Visibility::Compacted && !self.is_framing(*at));
        told.map(|(at, _)| at)
    }

    /// The revision whose view shows a message, and all that came after it, where something else stands for
    /// them now.
    pub fn shown_until(&self, message: MessageId) -> Option<Revision> {
        let message = self.transcript.find(message)?;
        let hidden = self.told_after(message).chain([message]);
        hidden.filter_map(|at| self.hidden_since(at)).min()
    }

    /// The last revision whose view shows a message for which something else stands now.
    fn hidden_since(&self, ordinal: Ordinal) -> Option<Revision> {
        let event = match self.transcript.get(ordinal)?.standing {
            Visibility::Collapsed => {
                let fold = self.fold_of(ordinal)?;
                self.spans.folded_at(fold.span.key)?
            }
            Visibility::Compacted => {
                let boundaries = self.compactions.boundaries.iter();
                let mut after = boundaries.filter(|one| one.mark > ordinal);
                after.find(|one| !one.kept.contains(&ordinal))?.revision
            }
            _ => return None,
        };
        event.get().checked_sub(1).map(Revision::new)
    }

    /// Puts in contents of its messages that were read from the log.
    pub fn load_content(&mut self, contents: impl IntoIterator<Item = Arc<Message>>) {
        self.transcript.load_content(contents);
    }

    /// Its tool calls.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The results that were stored, and what stands in their place.
    pub fn stored(&self) -> &StoredResults {
        &self.stored
    }

    /// The result of a call, when it was stored. It goes by the block that answers the call now: a call
    /// that a rewind opened again may have had another result before.
    pub fn stored_of(&self, call: CallKey) -> Option<&crate::event::StoredResult> {
        let (message, block) = self.calls.get(call)?.original?;
        self.stored.at(message, block)
    }

    /// The results about which a caller has asked, and whose messages have not come yet.
    pub fn persist_decisions(&self) -> &PersistDecisions {
        &self.persist_decisions
    }

    /// Whether a text stands in the place of a result, or was given to a caller to stand there.
    pub fn is_replacement(&self, text: &str) -> bool {
        self.stored.is_replacement(text) || self.persist_decisions.is_replacement(text)
    }

    /// The result of a call as it came.
    pub fn result(&self, call: CallKey) -> Result<&ToolResult, ContentNotLoaded> {
        let place = self
            .calls
            .get(call)
            .and_then(Call::result)
            .ok_or(ContentNotLoaded)?;
        let message = self.transcript.held(place.0)?;
        match message.blocks.get(usize::from(place.1)) {
            Some(Block::ToolResult(result)) => Ok(result),
            _ => Err(ContentNotLoaded),
        }
    }

    /// What was appended and not served yet.
    pub fn pending(&self) -> &[PendingMessage] {
        &self.pending
    }

    /// What was served.
    pub fn sealed(&self) -> &Sealed {
        &self.sealed
    }

    /// The edits that the provider applies to its cache.
    pub fn cache_edits(&self) -> &CacheEdits {
        &self.cache_edits
    }

    /// The requests that it has answered.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// For whom it was served last.
    pub fn last_served(&self) -> &LastServed {
        &self.last_served
    }

    /// The view-changing events, oldest first.
    pub fn view_changes(&self) -> &[ViewChange] {
        &self.view_changes
    }

    /// The epoch of the view after an event.
    pub fn epoch_at(&self, revision: Revision) -> Epoch {
        let earlier = |change: &ViewChange| change.revision <= revision;
        let changes = self.view_changes.partition_point(earlier);
        Epoch::new(crate::view::count(changes))
    }

    /// Roughly how much memory it takes.
    pub fn weight_bytes(&self) -> usize {
        const BASE: usize = 16 * 1024;
        // As counted: a message with one block, its places in the indexes, and what waits to be served.
        const PER_MESSAGE: usize = 480;
        const PER_CALL: usize = 288;
        const BYTES_PER_PERSIST_DECISION: usize = 3 * 1024;
        BASE + self.transcript.content_bytes()
            + self.transcript.len() * PER_MESSAGE
            + self.calls.iter().len() * PER_CALL
            + self.persist_decisions.iter().len() * BYTES_PER_PERSIST_DECISION
            + size_of_val(self.sealed.pieces())
            + usize::try_from(self.working.bytes()).unwrap_or(usize::MAX)
    }

    /// The message that was re-emitted last, when nothing came since.
    pub(crate) fn last_reemitted(&self) -> Option<Ordinal> {
        self.last_reemitted
    }

    /// When the model said something last.
    pub fn last_response(&self) -> Option<Timestamp> {
        self.last_response
    }

    /// What came since something was snipped, or since the model was reminded to.
    pub fn since_snip(&self) -> SnipGrowth {
        self.since_snip
    }

    /// The running count of tokens.
    pub fn ledger(&self) -> &TokenLedger {
        &self.ledger
    }

    /// How what comes in now is counted.
    pub fn counter(&self) -> Counter {
        self.policy.counter()
    }

    /// How a message was counted when it came, so that a part of it is measured as the whole was.
    pub(crate) fn counter_of(&self, message: Ordinal) -> Counter {
        let entry = self.transcript.get(message);
        entry.map_or(self.counter(), |entry| self.counter().by(entry.counted_by))
    }

    /// The tokens of its view.
    pub fn tokens(&self) -> TokenCount {
        self.ledger.count(self.last_served.overhead_tokens)
    }

    /// The points on the way to a full window.
    pub fn thresholds(&self) -> Thresholds {
        self.policy.thresholds(self.last_served.window)
    }

    /// How full the window is.
    pub fn budget_state(&self) -> BudgetState {
        self.thresholds().state(self.tokens().tokens)
    }
}

/// The beginning of what a person said.
pub(super) fn first_words(text: &str) -> Box<str> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(FIRST_PROMPT_CHARS) {
        Some((end, _)) => line[..end].into(),
        None => line.into(),
    }
}

impl About {
    pub(super) fn count(&mut self, role: Role) {
        match role {
            Role::User => self.user_messages += 1,
            Role::Assistant => self.assistant_messages += 1,
            Role::System | Role::Developer => {}
        }
    }
}
