//! The effect of a view change on the provider's prompt cache, as reported in replies.

use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::{Target, TargetOverride};
use palimpsest_proto::context::v1;

use super::Service;
use crate::convert;

/// Returns the cache ledger for a target. The default is the target of the last call that served the view.
pub(super) fn ledger(
    service: &Service,
    session: &Session,
    target: &TargetOverride,
) -> Result<v1::CacheLedger, ContentNotLoaded> {
    let (target, _) = session.last_served().overridden(target);
    of_target(service, session, &target, |pieces| {
        session.message_count_of(pieces, &target)
    })
}

/// Returns the ledger for a reply with a view.
///
/// The messages that the caller keeps were counted when they were sent. In all other cases the count starts at the
/// end of the view. The part after the cached prefix is short, and it needs no content that the view itself did not
/// load.
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
        session.message_count_before(pieces, target, length)
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
    // Without reused pieces no content has to be loaded.
    let messages = match report.reused_pieces {
        0 => 0,
        pieces => count(pieces)?,
    };
    Ok(convert::cache_ledger(&report, messages, &service.prices))
}
