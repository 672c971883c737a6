//! The parts of a reply that report on the view: tokens, budget, removed content and the provider's prompt cache.

use palimpsest_core::event::Event;
use palimpsest_core::ids::Revision;
use palimpsest_core::levels::recovery::RecoveryIndex;
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::tokens::PrefixTokens;
use palimpsest_core::view::{Target, TargetOverride};
use palimpsest_proto::context::v1;

use super::Service;
use crate::convert;

/// Returns the token report of a view, by category. `prefix` holds the tokens of the prompt prefix, if known.
pub(super) fn tokens(session: &Session, prefix: Option<PrefixTokens>) -> v1::TokenReport {
    convert::token_report(session, Some(convert::breakdown(session, prefix)))
}

/// Returns the warnings about the window of a call, and about attempts to free space.
pub(super) fn budget_warnings(
    session: &Session,
    target: &TargetOverride,
    result: convert::CompactionResult,
) -> Vec<v1::Warning> {
    let (target, window) = session.target_of(target);
    convert::budget_warnings(session, (&target, window), result)
}

/// Returns the budget for a target. The default is the target of the last call that served the view.
pub(super) fn budget(session: &Session, target: &TargetOverride) -> v1::Budget {
    let (target, window) = session.target_of(target);
    convert::budget(session, &target, window)
}

/// Returns the content that the events of one call removed from the view, or `None` if they removed nothing.
pub(super) fn removed<'e>(
    session: &Session,
    target: &TargetOverride,
    events: impl IntoIterator<Item = (Revision, &'e Event)>,
) -> Option<v1::RecoveryReport> {
    let mut events = events.into_iter().peekable();
    // A call without events needs no index of the session.
    events.peek()?;
    let (target, _) = session.target_of(target);
    let recovery = RecoveryIndex::new(session, &target);
    let removed = |(revision, event): (Revision, &Event)| recovery.removed_by(event, revision);
    let departed: Vec<_> = events.flat_map(removed).collect();
    (!departed.is_empty()).then(|| convert::recovery_report(session, &recovery, &departed))
}

/// Returns the cache ledger for a target. The default is the target of the last call that served the view.
pub(super) fn cache_ledger(
    service: &Service,
    session: &Session,
    target: &TargetOverride,
) -> Result<v1::CacheLedger, ContentNotLoaded> {
    let (target, _) = session.target_of(target);
    ledger_of(service, session, &target, |pieces| {
        session.message_count_of(pieces, &target)
    })
}

/// Returns the ledger for a reply with a view.
///
/// The messages that the caller keeps were counted when they were sent. In all other cases the count starts at the
/// end of the view. The part after the cached prefix is short, and it needs no content that the view itself did not
/// load.
pub(super) fn prepared_cache_ledger(
    service: &Service,
    session: &Session,
    target: &Target,
    response: &v1::PrepareContextResponse,
) -> Result<v1::CacheLedger, ContentNotLoaded> {
    let (keep, length) = (response.keep_messages, response.view_messages);
    ledger_of(service, session, target, |pieces| {
        if keep > 0 && keep < length {
            return Ok(keep);
        }
        session.message_count_before(pieces, target, length)
    })
}

fn ledger_of(
    service: &Service,
    session: &Session,
    target: &Target,
    count: impl FnOnce(usize) -> Result<u32, ContentNotLoaded>,
) -> Result<v1::CacheLedger, ContentNotLoaded> {
    let now = service.sessions.clock().now();
    let report = session.cache_report(target, now);
    // Without reused pieces no content has to be loaded.
    let messages = match report.reused_pieces {
        0 => 0,
        pieces => count(pieces)?,
    };
    Ok(convert::cache_ledger(&report, messages, &service.prices))
}
