//! Lists of the sessions of a project.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};
use palimpsest_core::session::SessionInfo;
use palimpsest_store::{MAX_LIST, SessionHead};
use tokio::time::sleep;

use crate::call::{CurrentCall, Deadline};
use crate::{Engine, EngineError};

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionOrder {
    /// The session that was changed last comes first.
    UpdatedDesc,
    /// The newest session comes first.
    CreatedDesc,
    /// The oldest session comes first.
    CreatedAsc,
}

impl SessionOrder {
    fn rank(self, about: &SessionInfo) -> i64 {
        let millis = Timestamp::as_millis;
        match self {
            Self::UpdatedDesc => -millis(about.modified),
            Self::CreatedDesc => -millis(about.created),
            Self::CreatedAsc => millis(about.created),
        }
    }
}

/// The sort key of a session in the requested order. The name makes equal times unique.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SortPosition {
    /// A larger rank sorts later.
    pub rank: i64,
    /// The resource name of the session.
    pub name: String,
}

/// A listed session. Ordered by its sort key only.
#[derive(Debug)]
pub struct ListedSession {
    /// The sort key.
    pub sort_position: SortPosition,
    /// The session.
    pub key: SessionKey,
    /// The session's revision.
    pub revision: Revision,
    /// The data of the session's row.
    pub about: SessionInfo,
}

impl PartialEq for ListedSession {
    fn eq(&self, other: &Self) -> bool {
        self.sort_position == other.sort_position
    }
}

impl Eq for ListedSession {}

impl PartialOrd for ListedSession {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ListedSession {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sort_position.cmp(&other.sort_position)
    }
}

/// A page of a list.
#[derive(Debug)]
pub struct ListedPage {
    /// The sessions, in order.
    pub sessions: Vec<ListedSession>,
    /// True if another page follows.
    pub has_more: bool,
    /// The number of rows of the project that cannot be read.
    pub unreadable: u64,
    /// The number of parts of the store that did not answer. Their sessions are missing.
    pub left_out: usize,
}

/// Returns the page of at most `size` sessions after a sort key.
///
/// The store orders sessions by name only, so every row of the project is read. At most one page is kept in memory.
pub async fn list(
    engine: &Engine,
    project: &ProjectId,
    (order, after): (SessionOrder, Option<SortPosition>),
    size: usize,
    matches: impl Fn(&SessionInfo) -> bool,
) -> Result<ListedPage, EngineError> {
    let mut page: BinaryHeap<ListedSession> = BinaryHeap::new();
    let mut steps = ListSteps::of(engine, Some(project));
    while let Some(rows) = steps.next().await? {
        for (key, head, about) in rows {
            let sort_position = SortPosition {
                rank: order.rank(&about),
                name: key.to_string(),
            };
            let is_later = after.as_ref().is_none_or(|after| sort_position > *after);
            // The heap has the last entry of the page on top, so a better candidate replaces it in O(log n).
            let is_full = page.len() > size;
            let fits = !is_full
                || page
                    .peek()
                    .is_some_and(|last| sort_position < last.sort_position);
            if is_later && fits && matches(&about) {
                page.push(ListedSession {
                    sort_position,
                    key,
                    revision: head.revision,
                    about,
                });
                // One more session than the page holds shows that another page follows.
                if page.len() > size + 1 {
                    page.pop();
                }
            }
        }
    }
    let mut sessions = page.into_sorted_vec();
    let has_more = sessions.len() > size;
    sessions.truncate(size);
    Ok(ListedPage {
        sessions,
        has_more,
        unreadable: steps.unreadable,
        left_out: steps.left_out.len(),
    })
}

/// The stored row of a session.
pub(crate) type SessionRow = (SessionKey, SessionHead, SessionInfo);

/// Reads the rows of a project, or of all projects, in steps.
///
/// Only one list per process reads a step at a time. While changes are in flight, it pauses after each step for as
/// long as the step took. All lists together therefore take at most half a core from commits.
pub(crate) struct ListSteps<'a> {
    engine: &'a Engine,
    project: Option<&'a ProjectId>,
    from: Option<SessionKey>,
    is_done: bool,
    unreadable: u64,
    /// The parts of the store that did not answer. Of several steps, those of the step with the most.
    left_out: Vec<Box<str>>,
}

/// The maximum pause after a step: 50 ms.
const MAX_STEP_PAUSE: Duration = Duration::from_millis(50);

impl<'a> ListSteps<'a> {
    pub(crate) fn of(engine: &'a Engine, project: Option<&'a ProjectId>) -> Self {
        Self {
            engine,
            project,
            from: None,
            is_done: false,
            unreadable: 0,
            left_out: Vec::new(),
        }
    }

    /// Returns the rows of the next step, possibly none. Returns `None` after the last step.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<SessionRow>>, EngineError> {
        if self.is_done {
            return Ok(None);
        }
        let engine = self.engine;
        let turn = CurrentCall::pause_while(engine.lists.acquire()).await;
        // The caller has timed out, so the remaining rows are not read.
        if Deadline::current().is_some_and(|deadline| deadline.remaining().is_zero()) {
            return Err(EngineError::DeadlineExceeded);
        }
        let clock = engine.sessions.clock();
        let began = clock.monotonic();
        let step = engine
            .sessions
            .list_step(self.project, self.from.as_ref(), MAX_LIST)
            .await?;
        self.is_done = step.next.is_none();
        self.from = step.next;
        self.unreadable += step.unreadable;
        if step.left_out.len() >= self.left_out.len() {
            self.left_out = step.left_out;
        }
        // Calls that change sessions run as background tasks, so the count shows whether commits compete for the cores.
        if !self.is_done && engine.background.count() > 0 {
            let took = clock.monotonic().saturating_sub(began);
            CurrentCall::pause_while(sleep(took.min(MAX_STEP_PAUSE))).await;
        }
        // The turn is held during the pause. Otherwise another list would use the time that is left to commits.
        drop(turn);
        Ok(Some(step.sessions))
    }
}
