//! Removal of the oldest rounds, after a prompt that the provider rejected as too long and in a critical view. The
//! tokens that the levels freed count against the gap.

use palimpsest_core::command::{DropRule, SkipReason};
use palimpsest_core::compaction::{CompactionOutcome, CompactionRequest};
use palimpsest_core::event::{Event, Trigger};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;

use super::Service;
use super::append::tokens;
use super::compaction::{CompactionCall, compact};
use crate::errors::ServiceError;

/// The provider's rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overflow {
    /// The number of tokens above the limit, if known.
    pub(super) gap_tokens: Option<u64>,
}

/// Removes the oldest rounds as far as still necessary. `view_tokens` is the counted size of the rejected view.
///
/// # Errors
///
/// Returns `PromptTooLong` if nothing can be removed.
pub(super) async fn drop_oldest(
    service: &Service,
    key: &SessionKey,
    overflow: Overflow,
    view_tokens: u64,
) -> Result<Option<(Revision, Event)>, ServiceError> {
    let rule = DropRule::Rejected {
        view_tokens,
        gap_tokens: overflow.gap_tokens,
    };
    let request = CompactionRequest::drop_oldest(Trigger::PromptTooLong, rule);
    let render = |session: &Session, ended: &CompactionOutcome| {
        Ok((ended.clone(), Box::new(tokens(session, None))))
    };
    let call = CompactionCall::waiting(request);
    match Box::pin(compact(service, key, &call, render)).await? {
        (CompactionOutcome::Event(event, revision), _) => Ok(Some((revision, *event))),
        (CompactionOutcome::Skipped(SkipReason::UnderThreshold), _) => Ok(None),
        (_, tokens) => Err(ServiceError::PromptTooLong { tokens }),
    }
}

/// Removes the oldest rounds of a critical view if the policy permits it.
pub(super) async fn truncate(
    service: &Service,
    key: &SessionKey,
) -> Result<Option<(Revision, Event)>, ServiceError> {
    let request = CompactionRequest::drop_oldest(Trigger::Auto, DropRule::Critical);
    let render = |_: &Session, ended: &CompactionOutcome| Ok(ended.clone());
    let call = CompactionCall::waiting(request);
    Ok(
        match Box::pin(compact(service, key, &call, render)).await? {
            CompactionOutcome::Event(event, revision) => Some((revision, *event)),
            _ => None,
        },
    )
}
