//! Applies each kind of event to the state of a session, and replays logs.

use std::collections::HashMap;
use std::sync::Arc;

use super::cache_edits::CacheEdits;
use super::calls::{Call, Calls};
use super::compaction::{CompactionBoundary, Compactions};
use super::persist_decisions::PersistDecisions;
use super::requests::{AnsweredRequest, Requests};
use super::session_memory::SessionMemory;
use super::spans::Spans;
use super::state::prompt_excerpt;
use super::stored_results::StoredResults;
use super::transcript::{Transcript, TranscriptEntry};
use super::turns::Turns;
use super::working_state::SessionWorkingState;
use super::{AwaitedParty, LastServed, PromptCache, Session, SessionInfo, SnipGrowth};
use crate::array::{ArrayTips, CallerArray};
use crate::event::{
    AppendedMessage, CallState, CompactionFinished, ContentSnipped, ContextRestored, Event,
    MessagesAppended, Pairing, PendingMessage, PolicyChanged, RecordedEvent, ResultSize,
    SessionCreated, SessionRewound, SessionUpdated, SpansCollapsed, StoredResult, ViewServed,
    Visibility, remove_sealed,
};
use crate::ids::{CallKey, CompactionKey, Ordinal, Revision, SessionKey, Timestamp};
use crate::message::{Block, Digest, Message, MessageKind, Role};
use crate::tokens::{Calibration, TokenLedger, TokenSize};
use crate::view::{LayoutChange, PieceForm, Sealed};
use crate::working::Pins;

/// Maximum number of recent calls that are searched for the call that the last message answers.
const RECENT_CALLS: usize = 256;

/// Reasons why a log cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The log contains no event.
    #[error("the log is empty")]
    Empty,
    /// The first event is not `SessionCreated`.
    #[error("the log does not begin with the session's creation")]
    NoCreation,
    /// A later event is `SessionCreated` again.
    #[error("the log creates the session twice (revision {0})")]
    CreatedTwice(Revision),
}

impl Session {
    /// Creates the session from its first event, at revision 1.
    pub fn create(key: SessionKey, at: Timestamp, event: &SessionCreated) -> Self {
        // All other state accumulates from later events, so a replay and a live session run the same code.
        let turns = Turns::new(&key, event.forked_from.as_ref(), Vec::new());
        let mut session = Self {
            key,
            revision: Revision::new(1),
            rules_version: event.rules_version,
            policy: Arc::clone(&event.policy),
            info: SessionInfo {
                title: event.title.clone(),
                project_path: event.project_path.clone(),
                branch: event.branch.clone(),
                hold: event.hold.clone(),
                parent: event.parent.clone(),
                forked_from: event.forked_from.clone(),
                attributes: event.attributes.clone(),
                created: at,
                modified: at,
                ..SessionInfo::default()
            },
            transcript: Transcript::default(),
            turns,
            calls: Calls::default(),
            stored_results: StoredResults::default(),
            spans: Spans::default(),
            memory: SessionMemory::default(),
            compactions: Compactions::default(),
            persist_decisions: PersistDecisions::default(),
            pending: Vec::new(),
            sealed: Sealed::default(),
            cache_edits: CacheEdits::default(),
            ledger: TokenLedger::default(),
            requests: Requests::default(),
            last_served: LastServed::default(),
            last_reemitted: None,
            last_response: None,
            since_snip: SnipGrowth::default(),
            view_changes: Vec::new(),
            prompt_cache: PromptCache::default(),
            working: SessionWorkingState::default(),
            pins: Pins::default(),
            array: CallerArray::default(),
            tips: ArrayTips::new(event.scope),
        };
        if let Some(request) = &event.request {
            session.remember(request, at);
        }
        session
    }

    /// Rebuilds a session from its complete log.
    ///
    /// # Errors
    ///
    /// Returns an error if the log is empty, does not begin with `SessionCreated`, or contains it twice.
    pub fn replay(
        key: SessionKey,
        log: impl IntoIterator<Item = RecordedEvent>,
    ) -> Result<Self, ReplayError> {
        let mut log = log.into_iter();
        let first = log.next().ok_or(ReplayError::Empty)?;
        let Event::SessionCreated(created) = &first.event else {
            return Err(ReplayError::NoCreation);
        };
        let mut session = Self::create(key, first.at, created);
        for recorded in log {
            session.apply(&recorded)?;
        }
        Ok(session)
    }

    /// Applies one event and increments the revision by 1.
    ///
    /// # Errors
    ///
    /// Returns an error if the event is `SessionCreated`, which can only be the first event of a log.
    pub fn apply(&mut self, recorded: &RecordedEvent) -> Result<(), ReplayError> {
        self.revision = self.revision.plus(1);
        self.info.modified = recorded.at;
        // The prompt-cache ledger compares the layout before and after a view-changing event, so the old layout is
        // captured before the event is applied.
        let change = recorded.event.change_kind();
        let change = change.map(|kind| (kind, self.cache_baseline()));
        match &recorded.event {
            Event::SessionCreated(_) => return Err(ReplayError::CreatedTwice(self.revision)),
            Event::SessionUpdated(event) => self.updated(event),
            Event::MessagesAppended(event) => self.appended(event),
            Event::ArraySynced(event) => self.array_synced(event),
            Event::ViewServed(event) => self.served(event),
            Event::ResultsPersisted(event) => {
                self.add_stored_results(&event.results);
                self.update_sizes(&event.sizes);
            }
            Event::ContentSnipped(event) => {
                self.snipped(event);
                // A placeholder must not quote a block that was removed from a message of its span.
                let is_cut = |message| event.blocks.iter().any(|(at, _)| *at == message);
                self.spans.forget_written(is_cut);
            }
            Event::ResultsCleared(event) => {
                self.add_stored_results(&event.stored);
                self.update_sizes(&event.sizes);
                self.sealed.change(&event.change, &self.transcript);
            }
            Event::CacheEditsIssued(event) => self.cache_edits.issue(event),
            Event::SpansStaged(event) => {
                self.spans
                    .stage(&event.spans, event.armed, event.pass_tokens);
            }
            Event::SpansCollapsed(event) => self.collapsed(event),
            Event::CompactionStarted(event) => {
                // A later change to one of these pieces invalidates the summary.
                let pieces = crate::view::count(self.sealed.pieces().len());
                self.compactions.started(recorded.at, event, pieces);
            }
            Event::CompactionFailed(event) => {
                // The request is looked up first, because `failed` ends the running compaction that holds its stamp.
                self.answer_compaction_request(event.key, recorded.at);
                self.compactions.failed(event);
            }
            Event::CompactionShortened(event) => self.compactions.shortened(event),
            Event::HookCalled(event) => self.compactions.hook_called(event),
            Event::SummaryPrepared(event) => {
                self.answer_compaction_request(event.key, recorded.at);
                self.compactions.prepared(event);
            }
            Event::CompactionFinished(event) => {
                self.answer_compaction_request(event.key, recorded.at);
                self.compacted(event);
            }
            Event::MemoryUpdateStarted(_) => self.memory.started(recorded.at),
            Event::MemoryUpdated(event) => {
                self.memory.updated(recorded.at, event);
                // Growth counts from the last message that was read, which can be later than the coverage.
                self.memory
                    .reset_growth(self.memory_growth(event.read_through));
            }
            Event::MemoryUpdateFailed(event) => self.memory.failed(recorded.at, event),
            Event::MemoryFileWritten(_) => self.memory.record_file_written(),
            Event::WorkingStateUpdated(event) => {
                self.working.updated(self.revision, &event.change);
                // Pins depend on the working state and on the positions of messages, so they are computed anew.
                self.pins = Pins::of(&self.working.state, &self.transcript);
                // A pin protects its content from every level, so a cache edit that removes this content is withdrawn.
                self.keep_pinned_in_cache();
            }
            Event::ContextRestored(event) => self.restored(event),
            Event::SessionRewound(event) => self.rewound(event),
            Event::PolicyChanged(event) => self.policy_changed(event),
            Event::PersistDecided(event) => {
                self.persist_decisions
                    .insert(event.decision.clone(), event.evicted);
            }
            Event::PersistDecisionsConsumed(event) => {
                self.persist_decisions.remove_consumed(&event.decisions);
            }
        }
        // These fields are derived from several parts of the state, so they are recomputed after every event.
        self.info.epoch = self.sealed.epoch();
        self.info.awaits = self.awaited_party();
        self.derive_totals();
        // The coverage depends on `awaits`, so it is computed after it.
        self.advance_memory_coverage();
        if let Some((kind, before)) = change {
            self.record_cache_change(&recorded.event, kind, &before);
            self.compactions
                .view_changed(recorded.event.layout_change());
            // A running or prepared summary must not bring back a message that this event removed from the view.
            let transcript = &self.transcript;
            self.compactions.invalidate_if_removed(|message| {
                let entry = transcript.get(message);
                entry.is_none_or(|entry| !entry.visibility.is_in_view())
            });
            // An edit whose target left the view would name content that the next request no longer contains.
            let live = |call| self.sealed.shows_result(call);
            let stands = |message| self.transcript.is_in_view(message);
            self.cache_edits.retain(live, stands);
            // A policy change has no layout change. The messages keep their positions, so the positions of cache edits
            // stay valid.
            if recorded.event.layout_change().is_some() {
                self.cache_edits.invalidate_positions();
            }
            // Growth until the next selection of spans counts from the smaller view.
            self.spans.lower_pass_tokens(self.tokens().tokens);
        }
        // A retry of one of these requests is answered from this event's revision.
        let stamps = [recorded.event.request(), recorded.event.commit()];
        for request in stamps.into_iter().flatten() {
            self.remember(request, recorded.at);
        }
        Ok(())
    }

    fn remember(&mut self, request: &crate::event::RequestStamp, at: Timestamp) {
        let answered = AnsweredRequest {
            digest: request.digest,
            revision: self.revision,
            at,
        };
        self.requests.record(request.method, &request.id, answered);
    }

    /// Records the request that started a compaction as answered by the compaction's outcome.
    fn answer_compaction_request(&mut self, key: CompactionKey, at: Timestamp) {
        if let Some(request) = self.compactions.request_of(key) {
            self.remember(&request, at);
        }
    }

    fn updated(&mut self, event: &SessionUpdated) {
        if let Some(title) = &event.title {
            self.info.title.clone_from(title);
        }
        if let Some(path) = &event.project_path {
            self.info.project_path.clone_from(path);
        }
        if let Some(branch) = &event.branch {
            self.info.branch.clone_from(branch);
        }
        if let Some(hold) = &event.hold {
            self.info.hold.clone_from(hold);
        }
        if let Some(attributes) = &event.attributes {
            self.info.attributes.clone_from(attributes);
        }
    }

    fn appended(&mut self, event: &MessagesAppended) {
        let first = self.transcript.next();
        for appended in &event.messages {
            self.append(appended, event.keeps_ids);
        }
        self.record_unconfirmed(first, &event.messages);
    }

    fn append(&mut self, appended: &AppendedMessage, keeps_ids: bool) {
        // Content stays in memory only for visible messages. All other content can be read back from the log by
        // revision.
        let message = &appended.message;
        let visible = appended.visibility == Visibility::Visible;
        let keeps_content = appended.visibility.keeps_content();
        let entry = TranscriptEntry {
            id: message.id,
            revision: self.revision,
            digest: Digest::of_message(message),
            role: message.role,
            kind: message.kind,
            visibility: appended.visibility,
            size: appended.size,
            counted_by: self.policy.tokens.estimator,
            content: keeps_content.then(|| Arc::clone(message)),
        };
        let at = message.at.unwrap_or(self.info.modified);
        // The response is handled before its own message is added: the prompt cache holds the view that was sent,
        // which does not contain the response. A recorded response is not handled again in the caller's version.
        let responds = message.role == Role::Assistant && appended.replaces.is_none();
        if responds && keeps_content {
            self.count_request();
            self.record_response(at);
            self.last_response = Some(at);
        }
        let ordinal = self.transcript.push(entry, message);
        self.update_info(message);
        self.last_reemitted = match appended.visibility {
            Visibility::Reemission(of) => Some(of),
            _ => None,
        };
        if visible && message.is_real_user_input() {
            // New user input allows automatic compaction again after an undo or a veto.
            (
                self.compactions.held_after_restore,
                self.compactions.held_after_veto,
            ) = (false, false);
            self.turns.begin(ordinal);
        }
        if visible {
            // A message at the known end leaves the recorded responses behind.
            self.drop_responses();
            self.array.appended(message, ordinal);
            self.register_calls(ordinal, message, keeps_ids);
            let reported = self.show(ordinal, message, appended.size, &appended.results);
            if appended.replaces.is_none() {
                self.add_reported_tokens(reported);
            }
        }
    }

    /// Adds a message to the parts of the state that depend on visible messages. Returns the tokens that the provider
    /// reported.
    pub(super) fn show(
        &mut self,
        ordinal: Ordinal,
        message: &Message,
        size: TokenSize,
        results: &[ResultSize],
    ) -> u64 {
        let calls = message.blocks.iter().filter(|block| block.is_call());
        let calls = crate::view::count(calls.count());
        self.memory.add_growth(size.tokens, calls);
        self.since_snip.messages += 1;
        self.since_snip.tokens += u64::from(size.tokens);
        self.answer(ordinal, message);
        self.set_result_sizes(ordinal, results);
        // Reported usage measures one view, so the ledger uses it as an anchor only within its epoch.
        let (epoch, window) = (self.sealed.epoch(), self.thresholds().window);
        let calibration = self.ledger.calibration;
        self.count_usage(message);
        let reported = self.ledger.add(message, ordinal, size, epoch, window);
        // The ledger learns from reported usage. With `tokens.calibrate` off, the earlier factor is restored.
        if !self.policy.tokens.calibrate {
            self.ledger.calibration = calibration;
        }
        reported
    }

    pub(super) fn add_reported_tokens(&mut self, reported: u64) {
        self.info.reported_tokens = self.info.reported_tokens.saturating_add(reported);
    }

    /// Registers the calls of a message.
    pub(super) fn register_calls(&mut self, ordinal: Ordinal, message: &Message, keeps_ids: bool) {
        for (block, content) in (0_u16..).zip(&message.blocks) {
            if let (Role::Assistant, Block::ToolUse(call)) = (message.role, content) {
                let key = self.calls.push(ordinal, block, call, keeps_ids);
                // A caller may have asked about a result before its call was appended. The call key is known from
                // here on.
                self.persist_decisions.bind(&call.id, key);
            }
        }
    }

    /// Sets the sizes of the results in a message whose results were paired with their calls just now.
    fn set_result_sizes(&mut self, ordinal: Ordinal, sizes: &[ResultSize]) {
        for size in sizes {
            let of_message = |item: &&PendingMessage| item.message == ordinal;
            // `answer` has just pushed the entry of this message, so it is the last one.
            let answered = self.pending.last().filter(of_message).and_then(|item| {
                let of_block = |(block, _): &&(u16, Option<Pairing>)| *block == size.block;
                item.blocks.iter().find(of_block)?.1
            });
            if let Some(Pairing::Answer(call) | Pairing::Late(call)) = answered {
                self.calls.set_result_size(call, size.chars, size.tokens);
            }
        }
    }

    /// Pairs the results of a message with calls and adds its blocks to the pending ones. The message's own calls
    /// must be registered already.
    pub(super) fn answer(&mut self, ordinal: Ordinal, message: &Message) {
        let mut blocks = Vec::with_capacity(message.blocks.len());
        for (block, content) in (0_u16..).zip(&message.blocks) {
            let pairing = match (message.role, content) {
                (Role::User, Block::ToolResult(result)) => {
                    let pairing = self.calls.pair(&result.tool_use_id);
                    let message = ordinal;
                    match pairing {
                        Pairing::Answer(call) => {
                            self.calls.set(call, CallState::Answered { message, block });
                        }
                        Pairing::Late(call) => {
                            self.calls.set(call, CallState::Late { message, block });
                        }
                        // These results answer no call. The layout drops a duplicate, and shows an orphan as text.
                        Pairing::Duplicate(_) | Pairing::Orphan => {}
                    }
                    Some(pairing)
                }
                _ => None,
            };
            blocks.push((block, pairing));
        }
        if !blocks.is_empty() {
            self.pending.push(PendingMessage {
                message: ordinal,
                blocks,
            });
        }
    }

    /// Returns the party that the session waits for, derived from the last visible message of the conversation.
    /// Operator messages and framing messages are ignored.
    fn awaited_party(&self) -> AwaitedParty {
        let mut latest = self.transcript.entries().rev().filter(|(_, entry)| {
            entry.visibility == Visibility::Visible
                && !entry.role.is_system()
                && !entry.kind.is_framing()
        });
        let is_open = |message: Ordinal| {
            let mut calls = self.calls.of(message);
            calls.any(|(_, call)| call.state == CallState::Open)
        };
        let Some((last, entry)) = latest.next() else {
            return if self.transcript.is_empty() {
                AwaitedParty::Anything
            } else {
                AwaitedParty::User
            };
        };
        if entry.role == Role::Assistant {
            // One response may consist of several consecutive assistant messages.
            let said = latest.take_while(|(_, entry)| entry.role == Role::Assistant);
            let mut said = std::iter::once(last).chain(said.map(|(ordinal, _)| ordinal));
            return if said.any(is_open) {
                AwaitedParty::Tools
            } else {
                AwaitedParty::User
            };
        }
        // A result answers a call, and the same response may have further open calls. A user input that begins a
        // turn goes to the model even if calls are open.
        let answers = |call: &Call| call.result().is_some_and(|(message, _)| message == last);
        // This runs after every event, so the search is bounded and does not grow with the session.
        let recent = self.calls.iter().rev().take(RECENT_CALLS);
        let waits = recent
            .filter(|(_, call)| answers(call))
            .any(|(_, call)| is_open(call.message));
        if waits && self.turns.beginning_at(last).is_none() {
            AwaitedParty::Tools
        } else {
            AwaitedParty::Model
        }
    }

    fn update_info(&mut self, message: &Message) {
        self.info.count(message.role);
        if let (Role::Assistant, Some(model)) = (message.role, &message.model) {
            self.info.last_model.clone_from(model);
        }
        if self.info.first_prompt.is_empty()
            && message.is_real_user_input()
            && let Some(Block::Text { text, .. }) =
                message.blocks.iter().find(|block| !block.is_blank())
        {
            self.info.first_prompt = prompt_excerpt(text);
        }
        // Attributes that Claude Code writes on its messages. An explicit project path is never overwritten.
        for (name, value) in &message.attributes {
            match &**name {
                "cwd" if self.info.project_path.is_empty() => {
                    self.info.project_path.clone_from(value);
                }
                "gitBranch" => self.info.branch.clone_from(value),
                _ => {}
            }
        }
    }

    fn served(&mut self, event: &ViewServed) {
        // The first serving starts the cache statistics. An interruption becomes final once it was served.
        self.prompt_cache.since.get_or_insert(self.info.modified);
        self.prompt_cache.served_at = Some(self.info.modified);
        self.prompt_cache.open_request_tokens = Some(event.tokens);
        for piece in &event.pieces {
            if let PieceForm::Interrupted(call) = piece.form {
                self.calls.set(call, CallState::Interrupted);
            }
        }
        if event
            .pieces
            .iter()
            .any(|piece| piece.form == PieceForm::Nudge)
        {
            self.since_snip = SnipGrowth::default();
        }
        remove_sealed(&mut self.pending, &event.pieces);
        self.sealed.extend(&event.pieces, &self.transcript);
        self.last_served = LastServed {
            target: event.target.clone(),
            window: event.window,
            overhead_tokens: event.overhead_tokens,
        };
    }

    fn add_stored_results(&mut self, results: &[StoredResult]) {
        for stored in results {
            let call = self.calls.get(stored.call);
            // A call that left the view still has the position of its last result.
            if let Some(position) = call.and_then(|call| call.result().or(call.result_position)) {
                self.stored_results.insert(position, stored.clone());
            }
        }
    }

    /// Sets the new sizes of messages that stay in the view with changed content.
    fn update_sizes(&mut self, sizes: &[(Ordinal, TokenSize)]) {
        for (ordinal, size) in sizes {
            if self.transcript.recount(&mut self.ledger, *ordinal, *size) {
                self.transcript.resize(*ordinal, *size);
            }
        }
    }

    fn snipped(&mut self, event: &ContentSnipped) {
        self.since_snip = SnipGrowth::default();
        self.update_sizes(&event.sizes);
        self.sealed.change(&event.change, &self.transcript);
        // A snipped message frees all its tokens, but its transcript entry keeps the original size.
        for ordinal in &event.messages {
            let nothing = TokenSize::default();
            if self.transcript.recount(&mut self.ledger, *ordinal, nothing) {
                self.transcript
                    .set_visibility(*ordinal, Visibility::Snipped);
            }
        }
        for call in &event.removed_calls {
            self.calls.set(*call, CallState::Gone);
        }
        let stays = |item: &PendingMessage| !event.messages.contains(&item.message);
        self.pending.retain(stays);
        self.last_reemitted = None;
    }

    fn collapsed(&mut self, event: &SpansCollapsed) {
        self.sealed.change(&event.change, &self.transcript);
        // The first message of a span carries the placeholder's size, the other messages carry size 0. The tokens
        // count as a summary, not under the role of the replaced message.
        let mut sizes: HashMap<Ordinal, TokenSize> = HashMap::new();
        for placeholder in &event.placeholders {
            sizes.insert(placeholder.span.first(), placeholder.size());
        }
        for ordinal in &event.messages {
            let Some(entry) = self.transcript.get(*ordinal) else {
                continue;
            };
            // Read before the visibility changes, because `counts_as` depends on it.
            let before = (entry.counts_as(), entry.size);
            self.transcript
                .set_visibility(*ordinal, Visibility::Collapsed);
            let after = sizes.remove(ordinal).unwrap_or_default();
            let counts_as = (MessageKind::Summary, Role::User);
            self.ledger
                .replace_message(*ordinal, before, (counts_as, after));
            self.transcript.resize(*ordinal, after);
        }
        for call in &event.removed_calls {
            self.calls.set(*call, CallState::Gone);
        }
        self.spans.collapse(self.revision, &event.placeholders);
        self.last_reemitted = None;
    }

    fn compacted(&mut self, event: &CompactionFinished) {
        let reported = event.usage.total_tokens();
        self.info.reported_tokens = self.info.reported_tokens.saturating_add(reported);
        // The boundary message is the first that this event appends, so its ordinal is the next free one.
        let mark = self.transcript.next();
        let mut summary = None;
        for appended in &event.messages {
            let message = &appended.message;
            let visible = appended.visibility == Visibility::Visible;
            let entry = TranscriptEntry {
                id: message.id,
                revision: self.revision,
                digest: Digest::of_message(message),
                role: message.role,
                kind: message.kind,
                visibility: appended.visibility,
                size: appended.size,
                counted_by: self.policy.tokens.estimator,
                content: visible.then(|| Arc::clone(message)),
            };
            let ordinal = self.transcript.push(entry, message);
            if message.kind == MessageKind::Summary {
                // The summary's piece is already part of `event.change`. The other visible messages are served as
                // pending messages.
                summary = Some(ordinal);
            } else if visible {
                self.answer(ordinal, message);
            }
        }
        for message in &event.leaving {
            self.transcript
                .set_visibility(*message, Visibility::Compacted);
        }
        for call in &event.removed_calls {
            self.calls.set(*call, CallState::Gone);
        }
        let stays = |item: &PendingMessage| event.leaving.binary_search(&item.message).is_err();
        self.pending.retain(stays);
        self.sealed.change(&event.change, &self.transcript);
        // The ledger was computed at decision time and is stored in the event, so that a replay counts nothing again.
        self.ledger = event.ledger.clone();
        self.since_snip = SnipGrowth::default();
        self.last_reemitted = None;
        let boundary = CompactionBoundary {
            revision: self.revision,
            key: event.key,
            trigger: event.trigger,
            strategy: event.strategy,
            created_at: self.info.modified,
            message: mark,
            summary,
            kept: event.kept.clone(),
            replaced_count: crate::view::count(event.leaving.len()),
            last_replaced: event.leaving.last().copied(),
            before_tokens: event.before_tokens,
            after_tokens: event.after_tokens,
            attached: event.attachments.clone(),
            discovered: self.working.discovered(),
        };
        let threshold = self.thresholds().compact;
        self.compactions.finished(boundary, threshold);
    }

    fn restored(&mut self, event: &ContextRestored) {
        // Messages that a rewind removed can be visible again, and their contents may not be in memory.
        self.drop_responses();
        self.array = CallerArray::default();
        self.compactions.restored();
        // The decision computed the complete restored state. Nothing is recomputed here, so a newer version of the
        // rules replays an old undo unchanged.
        for (ordinal, visibility) in &event.visibilities {
            self.transcript.set_visibility(*ordinal, *visibility);
        }
        for (ordinal, size) in &event.sizes {
            self.transcript.resize(*ordinal, *size);
        }
        self.calls.restore_states(event.calls.iter().copied());
        self.calls.remap(&event.remapped);
        self.sealed.change(&event.change, &self.transcript);
        self.pending.clone_from(&event.pending);
        self.ledger = event.ledger.clone();
        self.last_reemitted = None;
    }

    fn policy_changed(&mut self, event: &PolicyChanged) {
        let (before, now) = (&self.policy.tokens, &event.policy.tokens);
        if before.estimator != now.estimator || !now.calibrate {
            // A calibration factor is valid only for the estimator that it was learned with.
            self.ledger.calibration = Calibration::default();
        }
        self.policy = Arc::clone(&event.policy);
        // An empty layout change begins a new epoch without moving a piece.
        self.sealed
            .change(&LayoutChange::default(), &self.transcript);
    }

    fn rewound(&mut self, event: &SessionRewound) {
        self.sealed.change(&event.change, &self.transcript);
        self.drop_responses();
        self.array.rewound(&event.removed);
        for left in &event.removed {
            self.transcript.set_visibility(*left, Visibility::Rewound);
        }
        // The interruption texts that remain in the layout were served. Their calls must stay interrupted.
        let interrupted: Vec<CallKey> = self
            .sealed
            .pieces()
            .iter()
            .filter_map(|piece| match piece.form {
                PieceForm::Interrupted(call) => Some(call),
                _ => None,
            })
            .collect();
        // Messages after a summary can be earlier than it in the transcript.
        let mut left = event.removed.iter().filter(|at| !self.is_framing(**at));
        let last = match (event.to, left.next()) {
            (Some(to), Some(first)) if *first <= to => first.get().checked_sub(1).map(Ordinal::new),
            (to, _) => to,
        };
        self.calls.rewind(last, &interrupted);
        let stays = |item: &PendingMessage| event.removed.binary_search(&item.message).is_err();
        self.pending.retain(stays);
        self.last_reemitted = None;
        self.ledger = event.ledger.clone();
    }

    /// Removes cache edits of results that are pinned now.
    fn keep_pinned_in_cache(&mut self) {
        if self.pins.is_empty() {
            return;
        }
        let (calls, pins) = (&self.calls, &self.pins);
        let is_pinned = |call| {
            let position = calls.get(call).and_then(Call::result);
            position.is_some_and(|(message, block)| pins.pin_of_block(message, block).is_some())
        };
        self.cache_edits.retain(|call| !is_pinned(call), |_| true);
    }
}
