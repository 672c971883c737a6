//! Removes later messages from the view.

use palimpsest_core::command::{Command, Rejection, RestoreContext, Rewind};
use palimpsest_core::ids::{MessageId, Revision, SessionKey};
use palimpsest_core::session::{ContentNotLoaded, RequestStamp, Session, Visibility};

use super::{ChangeCall, ChangeOutcome};
use crate::EngineError;
use crate::sessions::{CommandOutcome, PastSession, Sessions, Transaction};

/// The point to which a rewind goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindTarget {
    /// The last message that stays.
    To(MessageId),
    /// The first message that leaves.
    Before(MessageId),
}

/// The validated options of a rewind.
#[derive(Debug, Clone)]
pub struct RewindInput {
    /// The point to which the rewind goes.
    pub target: RewindTarget,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

impl ChangeCall<'_> {
    /// Removes the messages after a message.
    pub async fn rewind<T>(
        &self,
        input: &RewindInput,
        answer: impl Fn(&Session, &ChangeOutcome, bool) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, EngineError> {
        // The earlier layout is replayed before the transaction, because it reads the log.
        let past = input
            .before_collapse(&self.engine.sessions, self.key)
            .await?;
        let decide = |transaction: &mut Transaction<'_>| input.run(transaction, past.as_ref());
        self.run(decide, answer).await
    }
}

impl RewindInput {
    /// Returns the session from before the collapse of the last message that stays, if it was collapsed.
    pub async fn before_collapse(
        &self,
        sessions: &Sessions,
        key: &SessionKey,
    ) -> Result<Option<PastSession>, EngineError> {
        // Compacted messages after the target count as well. Otherwise the view would keep the summary of messages that
        // the rewind removes.
        let collapsed =
            |session: &Session| session.last_revision_showing(self.target.kept(session).ok()??);
        let Some(mut shown) = sessions.read(key, collapsed).await? else {
            return Ok(None);
        };
        loop {
            let past = sessions.session_at(key, shown).await?;
            // A collapsed message can have been compacted later. Before the compaction it was still collapsed.
            let earlier = past.as_ref().and_then(|past| {
                let kept = self.target.kept(&past.session).ok()??;
                past.session.last_revision_showing(kept)
            });
            match earlier.filter(|earlier| *earlier < shown) {
                Some(earlier) => shown = earlier,
                None => return Ok(past),
            }
        }
    }

    /// Runs the rewind in a transaction. `past` is the session from before the collapse, if there is one.
    pub fn run(
        &self,
        transaction: &mut Transaction<'_>,
        past: Option<&PastSession>,
    ) -> Result<CommandOutcome, Rejection> {
        let Some(session) = transaction.session() else {
            return Err(Rejection::MessageNotFound {
                id: self.target.id(),
            });
        };
        let to = self.target.kept(session)?;
        // A repeat changes nothing, although the view may have collapsed the target again since the first call.
        let is_repeat = self.request.as_ref().is_some_and(|stamp| {
            let answered = session.requests().find(stamp, transaction.now());
            answered.is_some()
        });
        let past = past.filter(|_| !is_repeat);
        let mut expected_revision = self.expected_revision;
        // The last message is hidden in a collapsed span, so the layout from before the collapse is restored first.
        if let Some(past) = past {
            transaction.run(Command::Restore(RestoreContext {
                past: Box::new(past.session.clone()),
                later: past.later.clone(),
                // The intermediate view is never sent, so it may be invalid for the provider.
                force: true,
                // The restore advances the revision, so only the first of the two commands can compare it.
                expected_revision: expected_revision.take(),
                request: None,
            }))?;
            // The restored layout shows messages whose contents may not be in memory. The past session holds all of
            // them.
            let entries = past.session.transcript().entries();
            transaction.load_content(entries.filter_map(|(_, entry)| entry.content.clone()));
            transaction.load_content(past.later.iter().cloned());
        }
        transaction.run(Command::Rewind(Rewind {
            to,
            expected_revision,
            request: self.request.clone(),
        }))
    }
}

impl RewindTarget {
    const fn id(self) -> MessageId {
        match self {
            Self::To(id) | Self::Before(id) => id,
        }
    }

    /// Returns the last message that stays in the view. `None` removes all messages.
    fn kept(self, session: &Session) -> Result<Option<MessageId>, Rejection> {
        let id = match self {
            Self::To(id) => return Ok(Some(id)),
            Self::Before(id) => id,
        };
        let transcript = session.transcript();
        let ordinal = transcript
            .find(id)
            .ok_or(Rejection::MessageNotFound { id })?;
        // A summary was added after the messages that follow it in the view, so the order of the view decides.
        let is_shown = transcript.is_in_view(ordinal);
        if is_shown && session.is_framing(ordinal) {
            let pieces = session.sealed().pieces().iter();
            let before = pieces.take_while(|piece| piece.message != ordinal);
            let spoken = before.map(|piece| piece.message);
            let kept = spoken.filter(|message| !session.is_framing(*message)).max();
            return Ok(kept.and_then(|kept| Some(transcript.get(kept)?.id)));
        }
        let mut earlier = transcript
            .entries()
            .rev()
            .skip_while(|(at, _)| *at >= ordinal);
        // These messages are not in the view, so none of them can be the last one that stays. An undone compaction
        // leaves withdrawn messages between those of the conversation.
        let is_gone = |visibility| {
            matches!(
                visibility,
                Visibility::Rewound | Visibility::Withdrawn | Visibility::Unconfirmed
            )
        };
        let kept = earlier.find(|(_, entry)| !is_gone(entry.visibility));
        Ok(kept.map(|(_, entry)| entry.id))
    }
}
