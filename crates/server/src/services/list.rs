//! `ListSessions`.

use palimpsest_core::session::SessionInfo;
use palimpsest_engine::listing::{self, SortPosition};
use palimpsest_proto::context::v1::{ListSessionsRequest, ListSessionsResponse, SessionOrder};

use super::Service;
use crate::convert::{self, PageCursor, SessionListEntry};
use crate::errors::ServiceError;

const DEFAULT_PAGE: u32 = 50;

pub(super) async fn list(
    service: &Service,
    request: ListSessionsRequest,
) -> Result<ListSessionsResponse, ServiceError> {
    let project = convert::project(&request.parent, "parent")?;
    let size = convert::page_size(
        request.page_size,
        DEFAULT_PAGE,
        service.limits().max_page_size,
    );
    // The digest binds a page token to the request that issued it.
    let digest = convert::body_digest(&request);
    let after = match convert::page_token(&request.page_token, digest)? {
        Some(PageCursor::Named(rank, name)) => Some(SortPosition { rank, name }),
        Some(PageCursor::Number(_) | PageCursor::Within(..) | PageCursor::Inside(..)) => {
            return Err(ServiceError::invalid_page_token());
        }
        None => None,
    };
    let order = match SessionOrder::try_from(request.order) {
        Ok(SessionOrder::Unspecified | SessionOrder::UpdatedDesc) => {
            listing::SessionOrder::UpdatedDesc
        }
        Ok(SessionOrder::CreatedDesc) => listing::SessionOrder::CreatedDesc,
        Ok(SessionOrder::CreatedAsc) => listing::SessionOrder::CreatedAsc,
        Err(_) => {
            let what = "is not an order that this server knows";
            return Err(ServiceError::invalid("order", what));
        }
    };
    let filter = convert::session_filter(request.filter, service.limits())?;
    let matches = |about: &SessionInfo| filter.matches(about);
    let page = listing::list(service, &project, (order, after), size, matches).await?;
    let next_page_token = match page.sessions.last() {
        Some(last) if page.has_more => {
            let cursor =
                PageCursor::Named(last.sort_position.rank, last.sort_position.name.clone());
            convert::page_token_text(&cursor, digest)
        }
        _ => String::new(),
    };
    let listed = page.sessions.iter().map(|listed| {
        let entry = SessionListEntry::of(&listed.key, listed.revision, &listed.about);
        convert::listed_session(entry)
    });
    Ok(ListSessionsResponse {
        sessions: listed.collect(),
        next_page_token,
        unreadable_sessions: u32::try_from(page.unreadable).unwrap_or(u32::MAX),
        unavailable_nodes: u32::try_from(page.left_out).unwrap_or(u32::MAX),
    })
}
