//! Handling of a prompt that the provider rejected as too long. The tokens freed by the levels count against the
//! gap. If they are not sufficient, the oldest rounds leave the view without a summary.

use palimpsest_core::command::{Command, StartCompaction, SummarySource, is_truncation_due};
use palimpsest_core::event::{Event, RecordedEvent, Trigger};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;
use palimpsest_engine::sessions::{CommandOutcome, MissingSession, Transaction};

use super::Service;
use super::append::tokens;
use super::compaction::compaction_messages;
use crate::errors::ServiceError;

/// The provider's rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overflow {
    /// The number of tokens above the limit, if known.
    pub(super) gap_tokens: Option<u64>,
}

/// Removes the oldest rounds as far as still necessary. `refused_tokens` is the counted size of the rejected view.
///
/// # Errors
///
/// Returns `PromptTooLong` if nothing can be removed.
pub(super) async fn drop_oldest(
    service: &Service,
    key: &SessionKey,
    overflow: Overflow,
    refused_tokens: u64,
) -> Result<Option<(Revision, Event)>, ServiceError> {
    let made = compaction_messages(service, key).await?;
    let decide = |transaction: &mut Transaction<'_>| {
        // The need is computed inside the transaction, because other calls may have changed the view.
        let Some(need) = transaction
            .session()
            .map(|session| overflow.need(session, refused_tokens))
        else {
            return Ok(DropOutcome::Enough);
        };
        let tokens = match need {
            TokensToDrop::Nothing => return Ok(DropOutcome::Enough),
            TokensToDrop::Tokens(tokens) => Some(tokens),
            TokensToDrop::Something => None,
        };
        let made = made.clone();
        let drop = SummarySource::DropOldest { tokens, made };
        let start = StartCompaction::new(Trigger::PromptTooLong, drop);
        let outcome = transaction.run(Command::StartCompaction(start))?;
        // The last event of the transaction is the finished compaction.
        Ok(match (outcome, transaction.events().last()) {
            (CommandOutcome::Done(Some(revision)), Some(RecordedEvent { event, .. })) => {
                DropOutcome::By(revision, Box::new(event.clone()))
            }
            _ => DropOutcome::Nothing,
        })
    };
    let tell = |session: &Session, dropped: &DropOutcome| {
        Ok((dropped.clone(), Box::new(tokens(session, None))))
    };
    let (sessions, missing) = (&service.sessions, &MissingSession::Refuse);
    match sessions.write(key, missing, decide, tell).await? {
        (DropOutcome::Enough, _) => Ok(None),
        (DropOutcome::By(revision, event), _) => Ok(Some((revision, *event))),
        (DropOutcome::Nothing, tokens) => Err(ServiceError::PromptTooLong { tokens }),
    }
}

/// Removes the oldest rounds of a critical view until it is below the warning threshold. Small steps would
/// invalidate the provider's prompt cache on every call.
pub(super) async fn truncate(
    service: &Service,
    key: &SessionKey,
) -> Result<Option<(Revision, Event)>, ServiceError> {
    if !service.sessions.read(key, is_truncation_due).await? {
        return Ok(None);
    }
    let made = compaction_messages(service, key).await?;
    let decide = |transaction: &mut Transaction<'_>| {
        // Another call may have freed tokens meanwhile.
        let session = transaction.session().filter(|one| is_truncation_due(one));
        let Some(session) = session else {
            return Ok(None);
        };
        let points = session.thresholds();
        // In a small window, the warning threshold may be 0.
        let target = points.warn.max(points.critical / 2);
        let over = session.tokens().tokens.saturating_sub(target);
        let drop = SummarySource::DropOldest {
            tokens: Some(over),
            made: made.clone(),
        };
        let start = StartCompaction::new(Trigger::Auto, drop);
        let outcome = transaction.run(Command::StartCompaction(start))?;
        Ok(match (outcome, transaction.events().last()) {
            (CommandOutcome::Done(Some(revision)), Some(RecordedEvent { event, .. })) => {
                Some((revision, event.clone()))
            }
            _ => None,
        })
    };
    let (sessions, missing) = (&service.sessions, &MissingSession::Refuse);
    let dropped = sessions.write(key, missing, decide, |_, dropped| Ok(dropped.clone()));
    Ok(dropped.await?)
}

#[derive(Clone)]
enum DropOutcome {
    Enough,
    By(Revision, Box<Event>),
    Nothing,
}

/// The amount to remove.
#[derive(Debug, PartialEq, Eq)]
enum TokensToDrop {
    Nothing,
    Tokens(u64),
    /// The gap is unknown.
    Something,
}

impl Overflow {
    fn need(self, session: &Session, refused_tokens: u64) -> TokensToDrop {
        let now = session.tokens().tokens;
        match self.gap_tokens {
            // The levels may have freed enough. If not, the provider rejects the next prompt again.
            None if now < refused_tokens => TokensToDrop::Nothing,
            None => TokensToDrop::Something,
            // The difference is the part of the gap that the levels have not freed.
            Some(gap) => match (now + gap).saturating_sub(refused_tokens) {
                0 => TokensToDrop::Nothing,
                tokens => TokensToDrop::Tokens(tokens),
            },
        }
    }
}
