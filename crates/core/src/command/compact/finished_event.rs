//! Builds the final event of a compaction: the framed summary, the attachments and the layout change.

use super::range::estimated_tokens_of;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::{
    AppendedMessage, AttachmentRecord, CompactionFailureReason, CompactionFinished, DroppedContent,
    Strategy, Trigger, Visibility,
};
use crate::ids::{CallKey, CompactionKey, MessageId, Ordinal};
use crate::levels::attachments::{
    AttachmentBudget, attachment_id, candidates, is_attachment, omit_to_fit, shared_message,
};
use crate::levels::clearing::hidden_paths;
use crate::levels::compaction::MessagePartition;
use crate::levels::repair::{PieceAction, repair_layout_with};
use crate::message::{Block, Message, MessageKind, Role, Usage};
use crate::policy::ModelTool;
use crate::session::{ContentNotLoaded, Session};
use crate::summary::{SummaryFrame, SummaryPart, dropped_notice, frame};
use crate::tokens::{TokenCounter, TokenLedger};
use crate::view::{Piece, PieceForm, Speaker, speaker};

/// The ids and messages that the caller supplies for a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionMessages {
    /// The id of the boundary message.
    pub boundary_id: MessageId,
    /// The id of the summary message.
    pub summary_id: MessageId,
    /// The content of the message that [`Session::hidden_latest_request`] returns.
    pub request_message: Option<Arc<Message>>,
    /// Messages of hooks, in order. They follow the attachments.
    pub hook_messages: Vec<Arc<Message>>,
}

/// The parameters of one compaction.
pub(super) struct CompactionSpec<'a> {
    pub(super) key: CompactionKey,
    pub(super) trigger: Trigger,
    pub(super) strategy: Strategy,
    pub(super) summary: &'a str,
    /// The part of the conversation that the summary replaces.
    pub(super) part: SummaryPart,
    /// Texts that stay verbatim next to the summary.
    pub(super) must_keep: &'a [Box<str>],
    pub(super) partition: MessagePartition,
    /// The summary message of another program. The message is stored unchanged and even if the view does not become
    /// smaller.
    pub(super) adopted: Option<Arc<Message>>,
    /// Tokens of the view before, if another program counted them.
    pub(super) before_tokens: Option<u64>,
    /// The messages that the summary's input did not contain, or that have no summary.
    pub(super) dropped: Option<DroppedContent>,
}

impl CompactionMessages {
    /// Builds the event, or returns the reason why the compaction fails.
    pub(super) fn build_event(
        &self,
        session: &Session,
        what: CompactionSpec<'_>,
    ) -> Result<Result<CompactionFinished, CompactionFailureReason>, ContentNotLoaded> {
        let leaving: BTreeSet<Ordinal> = what.partition.leaving.iter().copied().collect();
        // The event appends the boundary first and the summary second, so their ordinals are known.
        let mark = session.transcript().next();
        let summary_at = Ordinal::new(mark.get() + 1);
        let removed_calls: BTreeSet<CallKey> = session.calls().of_all(&leaving).collect();
        // A synthetic answer leaves together with its call.
        let leaves = |piece: &Piece| match piece.form.answered_call_key() {
            Some(call) if !piece.form.represents_block() => removed_calls.contains(&call),
            _ => leaving.contains(&piece.message),
        };
        // Attachments of an earlier compaction also leave, but they do not determine the position of the summary.
        let begins = |piece: &Piece| leaves(piece) && !is_attachment(session, piece.message);
        let Some(at) =
            summary_position(session, begins).or_else(|| summary_position(session, leaves))
        else {
            return Ok(Err(CompactionFailureReason::NotSmaller));
        };
        let others = MessagesAround::of(session, at, leaves);
        let mut messages = self.messages(session, &what, others);
        let summary = Piece {
            message: summary_at,
            block: 0,
            form: PieceForm::Summary,
        };
        let change = repair_layout_with(session, Some((at, summary)), |_, piece| {
            if leaves(piece) {
                PieceAction::Remove
            } else {
                PieceAction::Keep
            }
        })?;
        // Checked before attachments are added: a summary that is larger than its messages is useless.
        let overhead = session.last_served().overhead_tokens;
        let (freed, added) = (total_tokens(session, &leaving), added_tokens(&messages));
        let before = what
            .before_tokens
            .unwrap_or_else(|| session.tokens().tokens);
        // An adopted compaction has happened in the other program already, so its gain is not checked.
        if added >= freed && what.adopted.is_none() {
            return Ok(Err(CompactionFailureReason::NotSmaller));
        }
        // An adopted compaction brings its own attachments. Without a summary, earlier attachments stay in the view.
        let attachments = if what.adopted.is_some() || what.strategy == Strategy::DropOldest {
            Vec::new()
        } else {
            let budget = AttachmentBudget {
                freed: freed - added,
                tokens: ledger_after(session, before, &leaving, &messages)
                    .count(overhead)
                    .tokens,
            };
            self.attach(session, &leaving, &mut messages, budget)?
        };
        let ledger = ledger_after(session, before, &leaving, &messages);
        let after = ledger.count(overhead).tokens;
        // Message sizes are rounded individually and in total, so the totals are compared as well.
        if after >= before && what.adopted.is_none() {
            return Ok(Err(CompactionFailureReason::NotSmaller));
        }
        let mut hidden_paths = hidden_paths(session, |call| removed_calls.contains(&call))?;
        hidden_paths.retain(|path| !attachments.iter().any(|it| it.shows_file(path)));
        Ok(Ok(CompactionFinished {
            key: what.key,
            trigger: what.trigger,
            strategy: what.strategy,
            messages,
            removed_calls: removed_calls.into_iter().collect(),
            hidden_paths,
            before_tokens: before,
            after_tokens: after,
            ledger,
            leaving: what.partition.leaving,
            kept: what.partition.kept,
            change,
            model: "".into(),
            usage: Usage::default(),
            duration_ms: 0,
            dropped: what.dropped,
            hooks: Vec::new(),
            request: None,
            attachments,
            commit: None,
        }))
    }

    /// Adds the attachments that fit into the budget, before the messages of hooks.
    fn attach(
        &self,
        session: &Session,
        leaving: &BTreeSet<Ordinal>,
        messages: &mut Vec<AppendedMessage>,
        room: AttachmentBudget,
    ) -> Result<Vec<AttachmentRecord>, ContentNotLoaded> {
        let mut candidates = candidates(session, leaving)?;
        omit_to_fit(session, &mut candidates, room);
        // The list ends with all messages of hooks, so the difference is not negative. Attachments precede them.
        let others = messages.split_off(messages.len() - self.hook_messages.len());
        let first = session.transcript().next().get();
        let mut records = Vec::with_capacity(candidates.len());
        for (index, candidate) in candidates.iter().enumerate() {
            if candidate.omitted {
                records.push(candidate.to_record(None));
                continue;
            }
            // The event appends its messages in order, so the length of the list is the place of the next one.
            let position = Ordinal::new(first + crate::view::count(messages.len()));
            records.push(candidate.to_record(Some(position)));
            let message = shared_message(candidate, attachment_id(self.boundary_id, index));
            messages.push(measured_message(
                session.counter(),
                message,
                Visibility::Visible,
            ));
        }
        messages.extend(others);
        Ok(records)
    }

    /// Builds the boundary message, the summary and the messages of hooks.
    fn messages(
        &self,
        session: &Session,
        what: &CompactionSpec<'_>,
        others: MessagesAround,
    ) -> Vec<AppendedMessage> {
        let mut mark = Message::new(
            self.boundary_id,
            Role::User,
            vec![Block::text(format!(
                "[{}: {} {} messages]",
                what.key,
                if what.strategy == Strategy::DropOldest {
                    "no summary replaces"
                } else {
                    "a summary replaces"
                },
                what.partition.leaving.len(),
            ))],
        );
        // The boundary exists only in the transcript. No view shows it.
        mark.kind = MessageKind::Boundary;
        mark.transcript_only = true;
        mark.machine_generated = true;
        let tools = &session.policy().model_tools;
        let read_tool = tools.name_of(ModelTool::ReadTranscript);
        let search_tool = tools.name_of(ModelTool::SearchTranscript);
        // Models see ordinals that start at 1.
        let number = |at: &Ordinal| u64::from(at.get()) + 1;
        let (first, last) = (
            what.partition.leaving.first(),
            what.partition.leaving.last(),
        );
        let request = self.restated_request(session);
        let text = if what.strategy == Strategy::DropOldest {
            dropped_notice(read_tool.as_deref())
        } else {
            frame(
                what.summary,
                SummaryFrame {
                    // A part that nothing stays beside is the whole conversation.
                    part: match what.part {
                        SummaryPart::Beginning if !others.has_later => SummaryPart::Whole,
                        SummaryPart::End if !others.has_earlier => SummaryPart::Whole,
                        part => part,
                    },
                    automatic: what.trigger != Trigger::Manual,
                    has_recent_messages: match what.part {
                        SummaryPart::Whole => !what.partition.kept.is_empty(),
                        SummaryPart::Beginning | SummaryPart::End => others.has_later,
                    },
                    read_tool: read_tool.as_deref(),
                    search_tool: search_tool.as_deref(),
                    replaced_range: first.map(number).zip(last.map(number)),
                    latest_request: request.as_deref(),
                    must_keep: what.must_keep,
                },
            )
        };
        let mut summary = Message::new(self.summary_id, Role::User, vec![Block::text(text)]);
        summary.kind = MessageKind::Summary;
        summary.machine_generated = true;
        let counter = session.counter();
        let mut messages = vec![
            measured_message(counter, Arc::new(mark), Visibility::TranscriptOnly),
            measured_message(
                counter,
                what.adopted.clone().unwrap_or_else(|| Arc::new(summary)),
                Visibility::Visible,
            ),
        ];
        let attached = self.hook_messages.iter().map(Arc::clone);
        messages.extend(
            attached.map(|message| measured_message(counter, message, Visibility::Visible)),
        );
        messages
    }

    /// Returns the text of the latest user input, if no message of the view contains it.
    fn restated_request(&self, session: &Session) -> Option<String> {
        let latest = session.transcript().get(session.hidden_latest_request()?)?;
        let message = self
            .request_message
            .as_ref()
            .filter(|one| one.id == latest.id)?;
        let texts = message.blocks.iter().filter_map(|block| match block {
            Block::Text { text, .. } if !block.is_blank() => Some(&**text),
            _ => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n\n");
        (!text.is_empty()).then_some(text)
    }
}

/// The messages of the conversation that stay around a summary.
#[derive(Debug, Clone, Copy)]
struct MessagesAround {
    has_earlier: bool,
    has_later: bool,
}

impl MessagesAround {
    /// Finds the messages that stay before and after the position of the summary.
    fn of(session: &Session, at: usize, leaves: impl Fn(&Piece) -> bool) -> Self {
        let stays = |piece: &Piece| {
            piece.form.is_shown()
                && !leaves(piece)
                && speaker(piece, session.transcript()) != Speaker::System
        };
        let (earlier, later) = session.sealed().pieces().split_at(at);
        Self {
            has_earlier: earlier.iter().any(stays),
            has_later: later.iter().any(stays),
        }
    }
}

/// Returns the index at which the summary is inserted: before the first piece that leaves, and not between a call and
/// its result. Returns `None` if nothing leaves.
fn summary_position(session: &Session, leaves: impl Fn(&Piece) -> bool) -> Option<usize> {
    let pieces = session.sealed().pieces();
    let speaks = |piece: &Piece| {
        piece.form.is_shown() && speaker(piece, session.transcript()) != Speaker::System
    };
    // Operator messages before the conversation stay in front.
    let lead = pieces.iter().position(speaks).unwrap_or(pieces.len());
    let mut at = pieces.iter().position(&leaves)?.max(lead);
    // Moving the position back can open another call, so the search repeats until no call is open.
    loop {
        let mut open: BTreeMap<CallKey, usize> = BTreeMap::new();
        for (index, piece) in pieces[..at].iter().enumerate() {
            if let Some(call) = piece.form.call_key() {
                open.insert(call, index);
            }
            if let Some(call) = piece.form.answered_call_key() {
                open.remove(&call);
            }
        }
        let Some(first) = open.into_values().min() else {
            return Some(at);
        };
        // The summary is inserted before the response that contains the call.
        let of_user = |piece: &Piece| {
            piece.form.is_shown() && speaker(piece, session.transcript()) != Speaker::Assistant
        };
        at = pieces[..first]
            .iter()
            .rposition(of_user)
            .map_or(0, |last| last + 1);
    }
}

fn measured_message(
    counter: TokenCounter,
    message: Arc<Message>,
    visibility: Visibility,
) -> AppendedMessage {
    AppendedMessage {
        size: counter.message(&message),
        message,
        visibility,
        results: Vec::new(),
        replaces: None,
    }
}

/// Returns the ledger of the remaining and the added messages. All sizes are estimates, because no provider has
/// measured the new view. `before` is the current token count of the view.
fn ledger_after(
    session: &Session,
    before: u64,
    leaving: &BTreeSet<Ordinal>,
    added: &[AppendedMessage],
) -> TokenLedger {
    let overhead = session.last_served().overhead_tokens;
    let mut ledger = session.ledger().reset_for_view(before, overhead);
    for (ordinal, entry) in session.transcript().entries() {
        if entry.visibility.is_in_view() && !leaving.contains(&ordinal) {
            ledger.add_estimated(entry.counts_as(), entry.size);
        }
    }
    for one in added
        .iter()
        .filter(|one| one.visibility == Visibility::Visible)
    {
        ledger.add_estimated((one.message.kind, one.message.role), one.size);
    }
    ledger
}

fn total_tokens(session: &Session, messages: &BTreeSet<Ordinal>) -> u64 {
    messages
        .iter()
        .map(|at| estimated_tokens_of(session, *at))
        .sum()
}

fn added_tokens(messages: &[AppendedMessage]) -> u64 {
    let visible = messages
        .iter()
        .filter(|one| one.visibility == Visibility::Visible);
    visible.map(|one| u64::from(one.size.tokens)).sum()
}
