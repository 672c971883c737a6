//! What a change of the view does to the provider's prompt cache, as replies tell it.

use palimpsest_core::session::{NotHeld, Session};
use palimpsest_core::view::Target;
use palimpsest_proto::context::v1;

use super::Service;
use crate::convert;

/// The ledger for a target, which is the one used last when the call does not say.
pub(super) fn ledger(
    service: &Service,
    session: &Session,
    target: Option<&v1::Target>,
) -> Result<v1::CacheLedger, NotHeld> {
    of_target(service, session, &target_of(session, target), None)
}

/// The target of a call, which is the one used last when it does not say.
pub(super) fn target_of(session: &Session, target: Option<&v1::Target>) -> Target {
    let last = session.last_served();
    convert::target(target.cloned(), last)
        .map_or_else(|_| last.target.clone(), |(target, _)| target)
}

/// The ledger in the reply to a caller that keeps so many messages of the array and gets others: they
/// are what was sent, and need not be counted once more.
pub(super) fn prepared(
    service: &Service,
    session: &Session,
    target: &Target,
    response: &v1::PrepareContextResponse,
) -> Result<v1::CacheLedger, NotHeld> {
    let keep = response.keep_messages;
    let kept = (keep > 0 && keep < response.view_messages).then_some(keep);
    of_target(service, session, target, kept)
}

fn of_target(
    service: &Service,
    session: &Session,
    target: &Target,
    kept: Option<u32>,
) -> Result<v1::CacheLedger, NotHeld> {
    let now = service.sessions.clock().now();
    let report = session.cache_report(target, now);
    let messages = match (report.reused_pieces, kept) {
        (0, _) => 0,
        (_, Some(kept)) => kept,
        (pieces, None) => session.messages_of(pieces, target)?,
    };
    Ok(convert::cache_ledger(&report, messages, &service.prices))
}
