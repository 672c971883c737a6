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
use super::stored_results::StoredResults;
use super::totals::SessionTotals;
use super::transcript::{ContentNotLoaded, Transcript};
use super::turns::Turns;
use super::working_state::SessionWorkingState;
use crate::array::{ArrayTips, CallerArray, Link};
use crate::event::{ForkPoint, PendingMessage, Placeholder, Visibility};
use crate::ids::{
    Attributes, CallKey, Epoch, Ordinal, Revision, SessionKey, Timestamp, TurnNumber,
};
use crate::message::{Block, Message, Role, ToolResult};
use crate::policy::{BudgetState, KeptTokens, Policy, Thresholds, WindowHint};
use crate::tokens::{TokenCount, TokenCounter, TokenLedger};
use crate::view::{Provider, Sealed, Target, TargetOverride};
use crate::working::Pins;

/// Maximum length of [`SessionInfo::first_prompt`], in characters.
const FIRST_PROMPT_CHARS: usize = 200;

/// The state of a session: the result of applying all events of its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub(super) key: SessionKey,
    pub(super) revision: Revision,
    pub(super) rules_version: u32,
    pub(super) policy: Arc<Policy>,
    pub(super) info: SessionInfo,
    pub(super) transcript: Transcript,
    pub(super) turns: Turns,
    pub(super) calls: Calls,
    pub(super) stored_results: StoredResults,
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
    pub(super) array: CallerArray,
    pub(super) tips: ArrayTips,
}

/// Summary fields of a session, as shown in lists of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionInfo {
    /// The display title. May be empty.
    pub title: Box<str>,
    /// The beginning of the first user input, at most 200 characters.
    pub first_prompt: Box<str>,
    /// The parent session, if this is a subagent session.
    pub parent: Option<SessionKey>,
    /// The origin, if this session is a fork of another one.
    pub forked_from: Option<ForkPoint>,
    /// Name and value pairs that the caller stores with the session.
    pub attributes: Attributes,
    /// Time of the first event.
    pub created: Timestamp,
    /// Time of the last event.
    pub modified: Timestamp,
    /// The project folder, as set by the caller or taken from message attributes.
    pub project_path: Box<str>,
    /// The version-control branch, as set by the caller or taken from message attributes.
    pub branch: Box<str>,
    /// The reason that prevents deletion. Empty if the session may be deleted.
    pub hold: Box<str>,
    /// Number of appended messages with the role user, hidden ones included. Messages of compactions are not counted.
    pub user_messages: u32,
    /// Number of appended messages with the role assistant, hidden ones included.
    pub assistant_messages: u32,
    /// Total tokens that providers reported, for responses and for summaries.
    pub reported_tokens: u64,
    /// Number of view-changing events.
    pub epoch: Epoch,
    /// The model of the last response. Empty before the first.
    pub last_model: Box<str>,
    /// The party that the session waits for.
    pub awaits: AwaitedParty,
    /// Totals over the model requests.
    pub totals: SessionTotals,
}

/// The party that a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AwaitedParty {
    /// No message was appended yet.
    #[default]
    Anything,
    /// The last message is a response without open calls, or no message of the conversation is visible.
    User,
    /// The last response has open calls.
    Tools,
    /// The last message is a user input, or a tool result after which no call is open.
    Model,
}

/// The target and the sizes of the last serving.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LastServed {
    /// The target that the view was rendered for.
    pub target: Target,
    /// The model's context window, as far as the caller or the table of models states it.
    pub window: WindowHint,
    /// Tokens of the prompt prefix (system prompt and tool definitions), as stated by the caller.
    pub overhead_tokens: u64,
}

impl LastServed {
    /// Returns the target and the window of a call. Parts that the call does not state are those of the last serving.
    pub fn overridden(&self, call: &TargetOverride, policy: &Policy) -> (Target, WindowHint) {
        let target = Target {
            provider: call
                .provider
                .unwrap_or_else(|| self.provider_of(call.format)),
            model: call.model.as_ref().unwrap_or(&self.target.model).clone(),
            thinking: call.thinking.unwrap_or(self.target.thinking),
            system_messages: call.system_messages.unwrap_or(self.target.system_messages),
        };
        (target, self.window_of(call, policy))
    }

    /// Returns the provider of a call that states none.
    fn provider_of(&self, format: Option<Provider>) -> Provider {
        let last = self.target.provider;
        format
            // An array in Anthropic's format can also be for Bedrock, so the last provider stays if it has this format.
            .filter(|format| !format.has_format_of(last))
            .unwrap_or(last)
    }

    /// Returns the window of a call: as the call states it, or else the policy, or else the table of models.
    fn window_of(&self, call: &TargetOverride, policy: &Policy) -> WindowHint {
        let Some(stated) = call.window else {
            // A call without a target can name another model in the body of its request.
            let is_other = call
                .model
                .as_ref()
                .is_some_and(|model| *model != self.target.model);
            return match (is_other, policy.tokens.default_window_tokens) {
                (false, _) => self.window,
                (true, Some(_)) => WindowHint::default(),
                (true, None) => call.known.unwrap_or_default(),
            };
        };
        // Without a window, the thresholds use that of the policy.
        if stated.window_tokens.is_some() || policy.tokens.default_window_tokens.is_some() {
            return stated;
        }
        let known = match call.model {
            Some(_) => call.known.unwrap_or_default(),
            // A call without a model is for the model of the last serving, whose window is known as far as it was then.
            None => self.window,
        };
        WindowHint {
            window_tokens: known.window_tokens,
            max_output_tokens: stated.max_output_tokens.or(known.max_output_tokens),
            input_limit_tokens: stated.input_limit_tokens.or(known.input_limit_tokens),
        }
    }
}

/// The growth of the transcript since the last snip or snip reminder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnipGrowth {
    /// Number of visible messages that were appended.
    pub messages: u32,
    /// Estimated tokens of these messages, before calibration.
    pub tokens: u64,
}

impl Session {
    /// Returns the session's key: project and session id.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Returns the revision: the number of events in the log.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the version of the rules by which commands on this session are decided.
    pub fn rules_version(&self) -> u32 {
        self.rules_version
    }

    /// Returns the resolved policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the summary fields that lists of sessions show.
    pub fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// Returns the index of all messages.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Returns the user turns.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Returns the latest user turn whose first message is visible.
    pub fn current_turn(&self) -> Option<TurnNumber> {
        let visible = |start: &Ordinal| self.transcript.is_in_view(*start);
        let index = self.turns.starts().iter().rposition(visible)?;
        TurnNumber::new(crate::view::count(index + 1))
    }

    /// Returns the latest user input that was not rewound or snipped. The message is outside the view if a
    /// compaction replaced it and all later user inputs were taken back.
    pub fn latest_request(&self) -> Option<Ordinal> {
        let holds = |start: &&Ordinal| {
            let entry = self.transcript.get(**start);
            entry.is_some_and(|entry| entry.visibility.is_in_effect())
        };
        self.turns.starts().iter().rev().find(holds).copied()
    }

    /// Returns the latest user input if the view does not show it. A compaction keeps this message next to its summary.
    pub fn hidden_latest_request(&self) -> Option<Ordinal> {
        let latest = self.latest_request();
        latest.filter(|latest| !self.transcript.is_in_view(*latest))
    }

    /// Returns the staged spans and the placeholders of collapsed spans.
    pub fn spans(&self) -> &Spans {
        &self.spans
    }

    /// Returns the state of all compactions.
    pub fn compactions(&self) -> &Compactions {
        &self.compactions
    }

    /// Returns true if a compaction appended this message. Such a message belongs to no user turn and leaves the
    /// view together with its summary.
    pub fn is_framing(&self, message: Ordinal) -> bool {
        let entry = self.transcript.get(message);
        entry.is_some_and(|entry| self.compactions.made_by(entry.revision).is_some())
    }

    /// Returns the working state.
    pub fn working(&self) -> &SessionWorkingState {
        &self.working
    }

    /// Returns the pinned content.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Returns the tips by which the session is found.
    pub fn tips(&self) -> &ArrayTips {
        &self.tips
    }

    /// Returns the array as the caller has it. Its version is 0 if the session received no whole array.
    pub fn array(&self) -> &CallerArray {
        &self.array
    }

    /// Returns the state of the session memory.
    pub fn memory(&self) -> &SessionMemory {
        &self.memory
    }

    /// Returns the placeholders of the current sealed view, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        let pieces = self.sealed.pieces().iter();
        pieces.filter_map(|piece| match piece.form {
            crate::view::PieceForm::Placeholder(span) => self.spans.placeholder(span),
            _ => None,
        })
    }

    /// Returns the messages that a placeholder replaces now. An undo may have restored other messages of its span.
    pub fn collapsed_messages<'a>(
        &'a self,
        placeholder: &'a Placeholder,
    ) -> impl Iterator<Item = Ordinal> + 'a {
        let messages = placeholder.span.messages.iter().copied();
        messages.filter(|message| {
            let entry = self.transcript.get(*message);
            entry.is_some_and(|entry| entry.visibility == Visibility::Collapsed)
        })
    }

    /// Extends a set of messages by all messages that share a placeholder with one of them. Such messages leave the
    /// view together.
    pub(crate) fn extend_with_collapsed(&self, messages: &mut BTreeSet<Ordinal>) {
        for placeholder in self.placeholders() {
            if self
                .collapsed_messages(placeholder)
                .any(|one| messages.contains(&one))
            {
                messages.extend(self.collapsed_messages(placeholder));
            }
        }
    }

    /// Returns the placeholder that replaces a message in the current sealed view.
    pub fn placeholder_of(&self, message: Ordinal) -> Option<&Placeholder> {
        self.placeholders().find(|placeholder| {
            self.collapsed_messages(placeholder)
                .any(|one| one == message)
        })
    }

    /// Adds message contents that were read from the log.
    pub fn load_content(&mut self, contents: impl IntoIterator<Item = Arc<Message>>) {
        self.transcript.load_content(contents);
    }

    /// Returns the tool calls.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Returns the stored results and their replacement texts.
    pub fn stored_results(&self) -> &StoredResults {
        &self.stored_results
    }

    /// Returns the stored result of a call. The lookup goes by the block that answers the call now, because a
    /// rewind can reopen a call that had another result before.
    pub fn stored_result(&self, call: CallKey) -> Option<&crate::event::StoredResult> {
        let (message, block) = self.calls.get(call)?.result_position?;
        self.stored_results.at(message, block)
    }

    /// Returns the persist decisions about results whose messages were not appended yet.
    pub fn persist_decisions(&self) -> &PersistDecisions {
        &self.persist_decisions
    }

    /// Returns true if a text is the replacement of a result, in the transcript or in a persist decision.
    pub fn is_replacement(&self, text: &str) -> bool {
        self.stored_results.is_replacement(text) || self.persist_decisions.is_replacement(text)
    }

    /// Returns the result of a call as the transcript holds it.
    ///
    /// # Errors
    ///
    /// Returns an error if the call has no result in the view, or if its content is not in memory.
    pub fn result(&self, call: CallKey) -> Result<&ToolResult, ContentNotLoaded> {
        let position = self
            .calls
            .get(call)
            .and_then(Call::result)
            .ok_or(ContentNotLoaded)?;
        let message = self.transcript.require_content(position.0)?;
        match message.blocks.get(usize::from(position.1)) {
            Some(Block::ToolResult(result)) => Ok(result),
            _ => Err(ContentNotLoaded),
        }
    }

    /// Returns the messages that were appended and not served yet.
    pub fn pending(&self) -> &[PendingMessage] {
        &self.pending
    }

    /// Returns the sealed layout: all pieces that were served.
    pub fn sealed(&self) -> &Sealed {
        &self.sealed
    }

    /// Returns the cache edits that are in effect.
    pub fn cache_edits(&self) -> &CacheEdits {
        &self.cache_edits
    }

    /// Returns the answered requests, by which retries are recognized.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Returns the target and the sizes of the last serving.
    pub fn last_served(&self) -> &LastServed {
        &self.last_served
    }

    /// Returns the target and the window of a call. Parts that the call does not state are those of the last serving.
    pub fn target_of(&self, call: &TargetOverride) -> (Target, WindowHint) {
        self.last_served.overridden(call, &self.policy)
    }

    /// Returns the view-changing events, oldest first.
    pub fn view_changes(&self) -> &[ViewChange] {
        &self.view_changes
    }

    /// Returns the epoch of the view at a revision.
    pub fn epoch_at(&self, revision: Revision) -> Epoch {
        let earlier = |change: &ViewChange| change.revision <= revision;
        // Every view-changing event begins an epoch, so their number is the epoch.
        let changes = self.view_changes.partition_point(earlier);
        Epoch::new(crate::view::count(changes))
    }

    /// Estimates the memory use of this session, in bytes.
    pub fn weight_bytes(&self) -> usize {
        const BASE_BYTES: usize = 16 * 1024;
        // Measured averages: a message with one block, its index entries and its pending blocks.
        const BYTES_PER_MESSAGE: usize = 480;
        const BYTES_PER_CALL: usize = 288;
        const BYTES_PER_PERSIST_DECISION: usize = 3 * 1024;
        let version = self.memory.version.as_ref();
        BASE_BYTES
            + self.transcript.content_bytes()
            + self.transcript.len() * BYTES_PER_MESSAGE
            + self.calls.iter().len() * BYTES_PER_CALL
            + self.persist_decisions.iter().len() * BYTES_PER_PERSIST_DECISION
            + size_of_val(self.sealed.pieces())
            + self.array.links.len() * size_of::<Link>()
            + usize::try_from(self.working.bytes()).unwrap_or(usize::MAX)
            + version.map_or(0, |version| version.content.weight_bytes())
    }

    /// Returns the re-emitted message if the last append was a re-emission.
    pub(crate) fn last_reemitted(&self) -> Option<Ordinal> {
        self.last_reemitted
    }

    /// Returns the time of the last response.
    pub fn last_response(&self) -> Option<Timestamp> {
        self.last_response
    }

    /// Returns the growth since the last snip or snip reminder.
    pub fn since_snip(&self) -> SnipGrowth {
        self.since_snip
    }

    /// Returns the token ledger.
    pub fn ledger(&self) -> &TokenLedger {
        &self.ledger
    }

    /// Returns the estimator for new messages.
    pub fn counter(&self) -> TokenCounter {
        self.policy.counter()
    }

    /// Returns the estimator that a message was counted with, so that a part of the message is measured like the whole.
    pub(crate) fn counter_of(&self, message: Ordinal) -> TokenCounter {
        let entry = self.transcript.get(message);
        entry.map_or(self.counter(), |entry| self.counter().by(entry.counted_by))
    }

    /// Returns the tokens of the view, including the overhead of the prompt prefix.
    pub fn tokens(&self) -> TokenCount {
        self.ledger.count(self.last_served.overhead_tokens)
    }

    /// Returns the token thresholds for the context window of the last serving.
    pub fn thresholds(&self) -> Thresholds {
        self.policy.thresholds(self.last_served.window)
    }

    /// Returns the tokens of recent messages that a compaction keeps beside session memory.
    pub fn kept_tokens(&self) -> KeptTokens {
        let threshold = self.thresholds().compact;
        self.policy.session_memory.kept_tokens(threshold)
    }

    /// Returns the fill state of the context window.
    pub fn budget_state(&self) -> BudgetState {
        self.thresholds().state(self.tokens().tokens)
    }
}

/// Joins the words of a text by single spaces and cuts the result to the length of [`SessionInfo::first_prompt`].
pub(super) fn prompt_excerpt(text: &str) -> Box<str> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(FIRST_PROMPT_CHARS) {
        Some((end, _)) => line[..end].into(),
        None => line.into(),
    }
}

impl SessionInfo {
    pub(super) fn count(&mut self, role: Role) {
        match role {
            Role::User => self.user_messages += 1,
            Role::Assistant => self.assistant_messages += 1,
            Role::System | Role::Developer => {}
        }
    }
}
