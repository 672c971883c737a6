//! Adopts a summary that another program wrote. Imports of transcripts use this.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::finished_event::{CompactionMessages, CompactionSpec};
use crate::codec::compaction_item;
use crate::command::append::{check_message, check_parents};
use crate::command::decision::{DecisionContext, SkipReason};
use crate::command::reject::Rejection;
use crate::event::{CompactionFinished, Strategy, Trigger};
use crate::ids::{MessageId, Ordinal};
use crate::levels::compaction::partition_where;
use crate::message::{Block, Digest, Message, MessageKind, Role};
use crate::session::Session;
use crate::summary::SummaryPart;

/// A summary of another program, with the messages that it replaced there. The view must be served before, because
/// only messages of the view are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalSummary {
    /// The summary as the other program showed it to its model.
    pub summary: Arc<Message>,
    /// The first replaced message. `None` for the first message of the transcript.
    pub first: Option<MessageId>,
    /// The last replaced message. `None` for the last message of the transcript.
    pub last: Option<MessageId>,
    /// Messages in this range that stay verbatim.
    pub kept: Vec<MessageId>,
    /// Tokens of the view before, if the other program counted them.
    pub before_tokens: Option<u64>,
    /// The id of the boundary message.
    pub mark: MessageId,
}

impl ExternalSummary {
    /// Returns true if the transcript contains the summary already.
    pub(super) fn is_known(&self, session: &Session) -> Result<bool, Rejection> {
        is_already_adopted(session, &self.stored())
    }

    /// Returns the summary message in its stored form.
    fn stored(&self) -> Message {
        // The other program wrote its summary as a user input. Here it must not begin a user turn.
        let mut summary = Message::clone(&self.summary);
        (
            summary.kind,
            summary.machine_generated,
            summary.transcript_only,
        ) = (MessageKind::Summary, true, false);
        // A view shows a summary as one block.
        let text = |block: &Block| match block {
            Block::Text { text, .. } => Some(text.to_string()),
            _ => None,
        };
        let texts: Option<Vec<String>> = summary.blocks.iter().map(text).collect();
        if let Some(texts) = texts.filter(|texts| texts.len() > 1) {
            summary.blocks = vec![Block::text(texts.join("\n"))];
        }
        summary
    }

    /// Builds the event of the compaction that the other program made.
    pub(super) fn compacted(
        &self,
        session: &Session,
        asked: Trigger,
        context: DecisionContext<'_>,
    ) -> Result<Result<CompactionFinished, SkipReason>, Rejection> {
        check_parents(session, std::slice::from_ref(&self.summary))?;
        let own = &session.policy().limits;
        check_message(0, &self.summary, &context.limits.narrowed_by(own), own)?;
        let leaving = self.leaving(session)?;
        let partition = partition_where(session, |message| leaving.contains(&message))?;
        let made = CompactionMessages {
            boundary_id: self.mark,
            summary_id: self.summary.id,
            request_message: None,
            hook_messages: Vec::new(),
            // The text of the summary is in `adopted`, so `summary` stays empty.
        };
        let what = CompactionSpec {
            key: session.compactions().next_key(),
            trigger: asked,
            strategy: Strategy::Delegated,
            summary: "",
            part: SummaryPart::Whole,
            must_keep: &[],
            partition,
            adopted: Some(Arc::new(self.stored())),
            before_tokens: self.before_tokens,
            dropped: None,
        };
        let compacted = made.build_event(session, what)?;
        // The gain of an adopted compaction is not checked. It fails only if no message of the view leaves.
        Ok(compacted.map_err(|_| SkipReason::NothingEligible))
    }

    /// Returns the messages that the summary replaces.
    fn leaving(&self, session: &Session) -> Result<BTreeSet<Ordinal>, Rejection> {
        let transcript = session.transcript();
        let place = |id: MessageId| {
            let found = transcript.find(id);
            found.ok_or(Rejection::MessageNotFound { id })
        };
        let first = self.first.map(place).transpose()?;
        let last = self.last.map(place).transpose()?;
        let kept = self.kept.iter().map(|id| place(*id));
        let kept: BTreeSet<Ordinal> = kept.collect::<Result<_, _>>()?;
        let all = transcript.entries().map(|(at, _)| at);
        let named = all.filter(|at| {
            first.is_none_or(|first| first <= *at)
                && last.is_none_or(|last| *at <= last)
                && !kept.contains(at)
        });
        Ok(named.collect())
    }
}

/// Returns true if the transcript contains the summary already.
///
/// # Errors
///
/// Returns an error if the message is not a user message with text or with the compaction item of a provider, or if its id
/// has other content.
fn is_already_adopted(session: &Session, summary: &Message) -> Result<bool, Rejection> {
    let is_summary = match &*summary.blocks {
        [text @ Block::Text { .. }] => !text.is_blank(),
        [block] => compaction_item::is_item(block),
        _ => false,
    };
    if summary.role != Role::User || !is_summary {
        return Err(Rejection::invalid(
            "messages[0]",
            "must be a message of the user's with text where adopted_compaction is set",
        ));
    }
    let transcript = session.transcript();
    let known = transcript.find(summary.id);
    let Some(known) = known.and_then(|at| transcript.get(at)) else {
        return Ok(false);
    };
    let given = Digest::of_message(summary);
    // A repeated import finds its summary under the same id.
    if known.digest == given {
        return Ok(true);
    }
    Err(Rejection::MessageConflict {
        id: summary.id,
        stored: known.digest,
        given,
    })
}
