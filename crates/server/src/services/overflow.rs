//! A prompt that the provider refused as too long: what the levels freed is counted against the gap, and
//! where it is not enough the oldest rounds leave without a summary.

use palimpsest_core::command::{Command, StartCompaction, SummarySource};
use palimpsest_core::event::{Asked, Event, Recorded};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::policy::BudgetState;
use palimpsest_core::session::Session;
use palimpsest_engine::sessions::{Missing, Outcome, Transaction};

use super::Service;
use super::append::tokens;
use super::compaction::made;
use crate::errors::ServiceError;

/// What is known of the refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overflow {
    /// By how many tokens the prompt was too long, where that is known.
    pub(super) gap_tokens: Option<u64>,
}

/// Lets the oldest rounds leave, as far as that is still necessary: `refused_tokens` are what the refused
/// view had, as it was counted here. Refused when nothing can leave.
pub(super) async fn drop_oldest(
    service: &Service,
    key: &SessionKey,
    overflow: Overflow,
    refused_tokens: u64,
) -> Result<Option<(Revision, Event)>, ServiceError> {
    let made = made(service, key).await?;
    let decide = |transaction: &mut Transaction<'_>| {
        let Some(need) = transaction
            .session()
            .map(|session| overflow.need(session, refused_tokens))
        else {
            return Ok(Dropped::Enough);
        };
        let tokens = match need {
            Need::Nothing => return Ok(Dropped::Enough),
            Need::Tokens(tokens) => Some(tokens),
            Need::Something => None,
        };
        let made = made.clone();
        let drop = SummarySource::DropOldest { tokens, made };
        let start = StartCompaction::new(Asked::Provider, drop);
        let outcome = transaction.run(Command::StartCompaction(start))?;
        Ok(match (outcome, transaction.events().last()) {
            (Outcome::Done(Some(revision)), Some(Recorded { event, .. })) => {
                Dropped::By(revision, Box::new(event.clone()))
            }
            _ => Dropped::Nothing,
        })
    };
    let tell = |session: &Session, dropped: &Dropped| {
        Ok((dropped.clone(), Box::new(tokens(session, None))))
    };
    let (sessions, missing) = (&service.sessions, &Missing::Refuse);
    match sessions.write(key, missing, decide, tell).await? {
        (Dropped::Enough, _) => Ok(None),
        (Dropped::By(revision, event), _) => Ok(Some((revision, *event))),
        (Dropped::Nothing, tokens) => Err(ServiceError::PromptTooLong { tokens }),
    }
}

/// Returns true if the policy lets the oldest rounds of a view leave without a summary, and the view is so
/// full that they should.
pub(super) fn is_to_be_truncated(session: &Session) -> bool {
    let policy = &session.policy().autocompact;
    let is_on = policy.enabled && policy.truncate_when_critical;
    is_on && session.budget_state() >= BudgetState::Critical
}

/// Lets the oldest rounds of a critical view leave, until it is below the warning threshold: cutting it a
/// little every time would rewrite the provider's cache every time.
pub(super) async fn truncate(
    service: &Service,
    key: &SessionKey,
) -> Result<Option<(Revision, Event)>, ServiceError> {
    if !service.sessions.read(key, is_to_be_truncated).await? {
        return Ok(None);
    }
    let made = made(service, key).await?;
    let decide = |transaction: &mut Transaction<'_>| {
        let session = transaction.session().filter(|one| is_to_be_truncated(one));
        let Some(session) = session else {
            return Ok(None);
        };
        let points = session.thresholds();
        // In a small window the warning threshold may be at nothing.
        let target = points.warn.max(points.critical / 2);
        let over = session.tokens().tokens.saturating_sub(target);
        let drop = SummarySource::DropOldest {
            tokens: Some(over),
            made: made.clone(),
        };
        let start = StartCompaction::new(Asked::Auto, drop);
        let outcome = transaction.run(Command::StartCompaction(start))?;
        Ok(match (outcome, transaction.events().last()) {
            (Outcome::Done(Some(revision)), Some(Recorded { event, .. })) => {
                Some((revision, event.clone()))
            }
            _ => None,
        })
    };
    let (sessions, missing) = (&service.sessions, &Missing::Refuse);
    let dropped = sessions.write(key, missing, decide, |_, dropped| Ok(dropped.clone()));
    Ok(dropped.await?)
}

#[derive(Clone)]
enum Dropped {
    Enough,
    By(Revision, Box<Event>),
    Nothing,
}

/// How much has to leave.
#[derive(Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    Tokens(u64),
    /// Nobody knows how much.
    Something,
}

impl Overflow {
    fn need(self, session: &Session, refused_tokens: u64) -> Need {
        let now = session.tokens().tokens;
        match self.gap_tokens {
            // What a level freed may be enough; the provider says so when it is not.
            None if now < refused_tokens => Need::Nothing,
            None => Need::Something,
            Some(gap) => match (now + gap).saturating_sub(refused_tokens) {
                0 => Need::Nothing,
                tokens => Need::Tokens(tokens),
            },
        }
    }
}
