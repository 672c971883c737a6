//! `ListSessions` and the search for subagent sessions.

use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use palimpsest_core::ids::{ProjectId, SessionKey, Timestamp};
use palimpsest_core::session::About;
use palimpsest_engine::call::{CurrentCall, Deadline};
use palimpsest_proto::context::v1::{
    ListSessionsRequest, ListSessionsResponse, Session, SessionOrder,
};
use palimpsest_store::{MAX_LIST, SessionHead};
use tokio::time::sleep;

use super::Service;
use crate::convert::{self, PageCursor};
use crate::errors::ServiceError;

const DEFAULT_PAGE: u32 = 50;

/// The sort key of a session in the requested order. The name makes equal times unique.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SortPosition {
    /// A larger rank sorts later.
    rank: i64,
    name: String,
}

/// A session that may be part of the page. Ordered by its sort key only.
struct ListCandidate {
    place: SortPosition,
    session: Session,
}

impl PartialEq for ListCandidate {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for ListCandidate {}

impl PartialOrd for ListCandidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ListCandidate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place.cmp(&other.place)
    }
}

pub(super) async fn list(
    service: &Service,
    request: ListSessionsRequest,
) -> Result<ListSessionsResponse, ServiceError> {
    let project = convert::project(&request.parent, "parent")?;
    let size = convert::page_size(
        request.page_size,
        DEFAULT_PAGE,
        service.limits().max_page_size,
    )?;
    // The digest binds a page token to the request that issued it.
    let digest = convert::body_digest(&request);
    let after = match convert::page_token(&request.page_token, digest)? {
        Some(PageCursor::Named(rank, name)) => Some(SortPosition { rank, name }),
        Some(PageCursor::Number(_) | PageCursor::Within(..)) => {
            return Err(ServiceError::invalid_page_token());
        }
        None => None,
    };
    let order = SessionOrder::try_from(request.order)
        .map_err(|_| ServiceError::invalid("order", "is not an order that this server knows"))?;
    let filter = convert::session_filter(request.filter, service.limits())?;
    let (page, unreadable_sessions) = scan(service, &project, order, &filter, after, size).await?;
    // `scan` returns one entry more than the page if another page follows.
    let more = page.len() > size;
    let mut page = page;
    page.truncate(size);
    let next_page_token = match page.last() {
        Some(last) if more => {
            let cursor = PageCursor::Named(last.place.rank, last.place.name.clone());
            convert::page_token_text(&cursor, digest)
        }
        _ => String::new(),
    };
    Ok(ListSessionsResponse {
        sessions: page
            .into_iter()
            .map(|candidate| candidate.session)
            .collect(),
        next_page_token,
        unreadable_sessions,
    })
}

/// Reads the rows of a project in steps.
///
/// Only one list per process reads a step at a time. While changes are in flight, it pauses after each step for as
/// long as the step took. All lists together therefore take at most half a core from commits.
struct Steps<'a> {
    service: &'a Service,
    project: &'a ProjectId,
    from: Option<SessionKey>,
    is_done: bool,
    unreadable: u64,
}

/// The maximum pause after a step: 50 ms.
const REST: Duration = Duration::from_millis(50);

impl<'a> Steps<'a> {
    fn of(service: &'a Service, project: &'a ProjectId) -> Self {
        Self {
            service,
            project,
            from: None,
            is_done: false,
            unreadable: 0,
        }
    }

    /// Returns the rows of the next step, possibly none. Returns `None` after the last step.
    async fn next(&mut self) -> Result<Option<Vec<SessionRow>>, ServiceError> {
        if self.is_done {
            return Ok(None);
        }
        let service = self.service;
        let turn = CurrentCall::wait(service.lists.acquire()).await;
        // The caller has timed out, so the remaining rows are not read.
        if Deadline::current().is_some_and(|deadline| deadline.remaining().is_zero()) {
            return Err(ServiceError::deadline_exceeded());
        }
        let clock = service.sessions.clock();
        let began = clock.monotonic();
        let step = service
            .sessions
            .list_step(Some(self.project), self.from.as_ref(), MAX_LIST)
            .await?;
        self.is_done = step.next.is_none();
        self.from = step.next;
        self.unreadable += step.unreadable;
        if !self.is_done && service.mutations.count() > 0 {
            let took = clock.monotonic().saturating_sub(began);
            CurrentCall::wait(sleep(took.min(REST))).await;
        }
        drop(turn);
        Ok(Some(step.sessions))
    }

    /// Returns the number of rows skipped so far because they cannot be read.
    fn unreadable(&self) -> u32 {
        u32::try_from(self.unreadable).unwrap_or(u32::MAX)
    }
}

/// The stored row of a session.
type SessionRow = (SessionKey, SessionHead, About);

/// Returns the page after a sort key, and one more entry if more follow. Also returns the number of unreadable
/// rows.
///
/// The store orders sessions by name only, so every row of the project is read. At most one page is kept in memory.
async fn scan(
    service: &Service,
    project: &ProjectId,
    order: SessionOrder,
    filter: &convert::SessionFilter,
    after: Option<SortPosition>,
    size: usize,
) -> Result<(Vec<ListCandidate>, u32), ServiceError> {
    let mut page: BinaryHeap<ListCandidate> = BinaryHeap::new();
    let mut steps = Steps::of(service, project);
    while let Some(rows) = steps.next().await? {
        for (key, head, about) in &rows {
            let place = SortPosition {
                rank: rank(order, about),
                name: key.to_string(),
            };
            let is_later = after.as_ref().is_none_or(|after| place > *after);
            // The heap has the last entry of the page on top, so a better candidate replaces it in O(log n).
            let is_full = page.len() > size;
            let fits = !is_full || page.peek().is_some_and(|last| place < last.place);
            if is_later && fits && filter.matches(about) {
                page.push(ListCandidate {
                    place,
                    session: row(key, head, about),
                });
                if page.len() > size + 1 {
                    page.pop();
                }
            }
        }
    }
    Ok((page.into_sorted_vec(), steps.unreadable()))
}

fn rank(order: SessionOrder, about: &About) -> i64 {
    let millis = Timestamp::as_millis;
    match order {
        SessionOrder::Unspecified | SessionOrder::UpdatedDesc => -millis(about.modified),
        SessionOrder::CreatedDesc => -millis(about.created),
        SessionOrder::CreatedAsc => millis(about.created),
    }
}

fn row(key: &SessionKey, head: &SessionHead, about: &About) -> Session {
    convert::listed_session(convert::SessionListEntry::of(key, head.revision, about))
}

/// Returns the subagent sessions of a session on all levels, the deepest first.
pub(super) async fn descendants(
    service: &Service,
    ancestor: &SessionKey,
) -> Result<Vec<SessionKey>, ServiceError> {
    let mut children: HashMap<SessionKey, Vec<SessionKey>> = HashMap::new();
    let mut steps = Steps::of(service, &ancestor.project);
    while let Some(rows) = steps.next().await? {
        for (key, _, about) in rows {
            if let Some(parent) = about.parent {
                children.entry(parent).or_default().push(key);
            }
        }
    }
    let mut found = Vec::new();
    let mut level = vec![ancestor.clone()];
    // Each parent is removed from the map when found, so a cycle of parents ends.
    while !level.is_empty() {
        let below = level.iter().filter_map(|key| children.remove(key));
        level = below.flatten().collect();
        // A cycle can lead back to the session, which is not its own descendant.
        level.retain(|key| key != ancestor);
        found.extend(level.iter().cloned());
    }
    found.reverse();
    Ok(found)
}
