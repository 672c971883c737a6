//! The event of a compaction: the summary in its frame, what goes with it, and what becomes of the view.

use super::range::estimated;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::{
    AppendedMessage, AttachmentRecord, CompactionFailureReason, CompactionFinished, DroppedContent,
    Strategy, Trigger, Visibility,
};
use crate::ids::{CallKey, CompactionKey, MessageId, Ordinal};
use crate::levels::attachments::{Room, candidates, fit, id, is_attachment, shared};
use crate::levels::compaction::MessagePartition;
use crate::levels::repair::{PieceAction, mend_with};
use crate::message::{Block, Message, MessageKind, Role, Usage};
use crate::policy::ModelTool;
use crate::session::{ContentNotLoaded, Session};
use crate::summary::{Framing, frame, left_out};
use crate::tokens::{Counter, TokenLedger};
use crate::view::{Piece, PieceForm, Speaker, side};

/// What is made for a compaction outside of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionMessages {
    /// The id of the message that marks it.
    pub mark: MessageId,
    /// The id of the message with the summary.
    pub summary: MessageId,
    /// The message that [`Session::request_out_of_view`] tells of.
    pub request: Option<Arc<Message>>,
    /// What others add after what is attached, in order.
    pub attached: Vec<Arc<Message>>,
}

/// What a compaction is.
pub(super) struct CompactionSpec<'a> {
    pub(super) key: CompactionKey,
    pub(super) trigger: Trigger,
    pub(super) strategy: Strategy,
    pub(super) summary: &'a str,
    /// What stands beside it word for word.
    pub(super) must_keep: &'a [Box<str>],
    pub(super) kept: MessagePartition,
    /// The summary's message where it came from outside: it stays as it is, and was put in its place there
    /// already, whatever it freed.
    pub(super) adopted: Option<Arc<Message>>,
    /// The view before, in tokens, where somebody else has counted it.
    pub(super) before: Option<u64>,
    /// What was not in the summary's input, or has none.
    pub(super) dropped: Option<DroppedContent>,
}

impl CompactionMessages {
    /// The event, or why there is none.
    pub(super) fn compacted(
        &self,
        session: &Session,
        what: CompactionSpec<'_>,
    ) -> Result<Result<CompactionFinished, CompactionFailureReason>, ContentNotLoaded> {
        let leaving: BTreeSet<Ordinal> = what.kept.leaving.iter().copied().collect();
        let mark = session.transcript().next();
        let summary_at = Ordinal::new(mark.get() + 1);
        let mut messages = self.messages(session, &what);
        let gone: BTreeSet<CallKey> = session.calls().of_all(&leaving).collect();
        // What stands for an answer goes with its call, whatever made it necessary.
        let leaves = |piece: &Piece| match piece.form.answers() {
            Some(call) if !piece.form.is_of_a_block() => gone.contains(&call),
            _ => leaving.contains(&piece.message),
        };
        // What an earlier one attached leaves too, wherever it stands.
        let begins = |piece: &Piece| leaves(piece) && !is_attachment(session, piece.message);
        let Some(at) = place(session, begins).or_else(|| place(session, leaves)) else {
            return Ok(Err(CompactionFailureReason::NotSmaller));
        };
        let summary = Piece {
            message: summary_at,
            block: 0,
            form: PieceForm::Summary,
        };
        let change = mend_with(session, Some((at, summary)), |_, piece| {
            if leaves(piece) {
                PieceAction::Leave
            } else {
                PieceAction::Stay
            }
        })?;
        let overhead = session.last_served().overhead_tokens;
        let (freed, added) = (size(session, &leaving), added(&messages));
        let before = what.before.unwrap_or_else(|| session.tokens().tokens);
        if added >= freed && what.adopted.is_none() {
            return Ok(Err(CompactionFailureReason::NotSmaller));
        }
        // One that was made elsewhere has its own attachments behind it, and where the oldest rounds just
        // leave, what was attached before stays.
        let attached = if what.adopted.is_some() || what.strategy == Strategy::DropOldest {
            Vec::new()
        } else {
            let room = Room {
                freed: freed - added,
                tokens: ledger(session, before, &leaving, &messages)
                    .count(overhead)
                    .tokens,
            };
            self.attach(session, &leaving, &mut messages, room)?
        };
        let ledger = ledger(session, before, &leaving, &messages);
        let after = ledger.count(overhead).tokens;
        // Sizes of single messages are rounded, and so is their sum.
        if after >= before && what.adopted.is_none() {
            return Ok(Err(CompactionFailureReason::NotSmaller));
        }
        Ok(Ok(CompactionFinished {
            key: what.key,
            trigger: what.trigger,
            strategy: what.strategy,
            messages,
            gone: gone.into_iter().collect(),
            before_tokens: before,
            after_tokens: after,
            ledger,
            leaving: what.kept.leaving,
            kept: what.kept.kept,
            change,
            model: "".into(),
            usage: Usage::default(),
            took_ms: 0,
            dropped: what.dropped,
            hooks: Vec::new(),
            request: None,
            attached,
            commit: None,
        }))
    }

    /// Attaches what finds room, before what others add.
    fn attach(
        &self,
        session: &Session,
        leaving: &BTreeSet<Ordinal>,
        messages: &mut Vec<AppendedMessage>,
        room: Room,
    ) -> Result<Vec<AttachmentRecord>, ContentNotLoaded> {
        let mut candidates = candidates(session, leaving)?;
        fit(session, &mut candidates, room);
        let others = messages.split_off(messages.len() - self.attached.len());
        let first = session.transcript().next().get();
        let mut told = Vec::with_capacity(candidates.len());
        for (index, candidate) in candidates.iter().enumerate() {
            if candidate.omitted {
                told.push(candidate.told(None));
                continue;
            }
            let place = Ordinal::new(first + crate::view::count(messages.len()));
            told.push(candidate.told(Some(place)));
            let message = shared(candidate, id(self.mark, index));
            messages.push(appended(session.counter(), message, Visibility::Visible));
        }
        messages.extend(others);
        Ok(told)
    }

    /// The mark, the summary, and what others add.
    fn messages(&self, session: &Session, what: &CompactionSpec<'_>) -> Vec<AppendedMessage> {
        let mut mark = Message::new(
            self.mark,
            Role::User,
            vec![Block::text(format!(
                "[{}: {} {} messages]",
                what.key,
                if what.strategy == Strategy::DropOldest {
                    "no summary stands for"
                } else {
                    "a summary stands for"
                },
                what.kept.leaving.len(),
            ))],
        );
        mark.kind = MessageKind::Boundary;
        mark.transcript_only = true;
        mark.machine_generated = true;
        let tools = &session.policy().model_tools;
        let read_tool = tools.name_of(ModelTool::ReadTranscript);
        let search_tool = tools.name_of(ModelTool::SearchTranscript);
        let number = |at: &Ordinal| u64::from(at.get()) + 1;
        let (first, last) = (what.kept.leaving.first(), what.kept.leaving.last());
        let request = self.request(session);
        let text = if what.strategy == Strategy::DropOldest {
            left_out(read_tool.as_deref())
        } else {
            frame(
                what.summary,
                Framing {
                    automatic: what.trigger != Trigger::Manual,
                    recent_follow: !what.kept.kept.is_empty(),
                    read_tool: read_tool.as_deref(),
                    search_tool: search_tool.as_deref(),
                    stands_for: first.map(number).zip(last.map(number)),
                    latest_request: request.as_deref(),
                    must_keep: what.must_keep,
                },
            )
        };
        let mut summary = Message::new(self.summary, Role::User, vec![Block::text(text)]);
        summary.kind = MessageKind::Summary;
        summary.machine_generated = true;
        let counter = session.counter();
        let mut messages = vec![
            appended(counter, Arc::new(mark), Visibility::TranscriptOnly),
            appended(
                counter,
                what.adopted.clone().unwrap_or_else(|| Arc::new(summary)),
                Visibility::Visible,
            ),
        ];
        let attached = self.attached.iter().map(Arc::clone);
        messages.extend(attached.map(|message| appended(counter, message, Visibility::Visible)));
        messages
    }

    /// The words that the user said last, where they are not in the view any more.
    fn request(&self, session: &Session) -> Option<String> {
        let latest = session.transcript().get(session.request_out_of_view()?)?;
        let message = self.request.as_ref().filter(|one| one.id == latest.id)?;
        let texts = message.blocks.iter().filter_map(|block| match block {
            Block::Text { text, .. } if !block.is_blank() => Some(&**text),
            _ => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n\n");
        (!text.is_empty()).then_some(text)
    }
}

/// Where the summary stands: before the first piece that leaves, and not between a call that stays and
/// its answer. None when nothing leaves.
fn place(session: &Session, leaves: impl Fn(&Piece) -> bool) -> Option<usize> {
    let pieces = session.sealed().pieces();
    let speaks = |piece: &Piece| {
        piece.form.is_shown() && side(piece, session.transcript()) != Speaker::System
    };
    // What the operator says before anyone else leads.
    let lead = pieces.iter().position(speaks).unwrap_or(pieces.len());
    let mut at = pieces.iter().position(&leaves)?.max(lead);
    loop {
        let mut open: BTreeMap<CallKey, usize> = BTreeMap::new();
        for (index, piece) in pieces[..at].iter().enumerate() {
            if let Some(call) = piece.form.calls() {
                open.insert(call, index);
            }
            if let Some(call) = piece.form.answers() {
                open.remove(&call);
            }
        }
        let Some(first) = open.into_values().min() else {
            return Some(at);
        };
        // Before the response that made the call.
        let of_user = |piece: &Piece| {
            piece.form.is_shown() && side(piece, session.transcript()) != Speaker::Assistant
        };
        at = pieces[..first]
            .iter()
            .rposition(of_user)
            .map_or(0, |last| last + 1);
    }
}

fn appended(counter: Counter, message: Arc<Message>, standing: Visibility) -> AppendedMessage {
    AppendedMessage {
        size: counter.message(&message),
        message,
        standing,
        results: Vec::new(),
    }
}

/// The ledger of the messages that stay and of those that are added; no provider has measured them yet.
/// `before` is the current count of the view.
fn ledger(
    session: &Session,
    before: u64,
    leaving: &BTreeSet<Ordinal>,
    added: &[AppendedMessage],
) -> TokenLedger {
    let overhead = session.last_served().overhead_tokens;
    let mut ledger = session.ledger().rebased(before, overhead);
    for (ordinal, entry) in session.transcript().entries() {
        if entry.standing.takes_part() && !leaving.contains(&ordinal) {
            ledger.follow(entry.counts_as(), entry.size);
        }
    }
    for one in added
        .iter()
        .filter(|one| one.standing == Visibility::Visible)
    {
        ledger.follow((one.message.kind, one.message.role), one.size);
    }
    ledger
}

fn size(session: &Session, messages: &BTreeSet<Ordinal>) -> u64 {
    messages.iter().map(|at| estimated(session, *at)).sum()
}

fn added(messages: &[AppendedMessage]) -> u64 {
    let visible = messages
        .iter()
        .filter(|one| one.standing == Visibility::Visible);
    visible.map(|one| u64::from(one.size.tokens)).sum()
}
