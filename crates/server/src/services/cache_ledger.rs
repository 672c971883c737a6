//! What a change of the view does to the provider's prompt cache, as replies tell it.

use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::Target;
use palimpsest_proto::context::v1;

use super::Service;
use crate::convert;

/// The ledger for a target, which is the one used last when the call does not say.
pub(super) fn ledger(
    service: &Service,
    session: &Session,
    target: Option<&v1::Target>,
) -> Result<v1::CacheLedger, ContentNotLoaded> {
    let target = target_of(session, target);
    of_target(service, session, &target, |pieces| {
        session.messages_of(pieces, &target)
    })
}

/// The target of a call, which is the one used last when it does not say.
pub(super) fn target_of(session: &Session, target: Option<&v1::Target>) -> Target {
    let last = session.last_served();
    convert::target(target.cloned(), last)
        .map_or_else(|_| last.target.clone(), |(target, _)| target)
}

/// The ledger in the reply with a view. What the caller keeps beside what is new was sent, and need not
/// be counted once more; otherwise the count goes by what follows, which is little, and of which nothing
/// has to be read from the log that the view itself did not need.
pub(super) fn prepared(
    service: &Service,
    session: &Session,
    target: &Target,
    response: &v1::PrepareContextResponse,
) -> Result<v1::CacheLedger, ContentNotLoaded> {
    let (keep, length) = (response.keep_messages, response.view_messages);
    of_target(service, session, target, |pieces| {
        if keep > 0 && keep < length {
            return Ok(keep);
        }
        session.messages_before(pieces, target, length)
    })
}

fn of_target(
    service: &Service,
    session: &Session,
    target: &Target,
    count: impl FnOnce(usize) -> Result<u32, ContentNotLoaded>,
) -> Result<v1::CacheLedger, ContentNotLoaded> {
    let now = service.sessions.clock().now();
    let report = session.cache_report(target, now);
    let messages = match report.reused_pieces {
        0 => 0,
        pieces => count(pieces)?,
    };
    Ok(convert::cache_ledger(&report, messages, &service.prices))
}
