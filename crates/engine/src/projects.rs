//! Totals over the sessions of projects, counted from the rows of the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::ids::{ProjectId, Timestamp};
use palimpsest_core::session::{SessionInfo, SessionTotals};
use tokio::sync::Mutex;

use crate::call::CurrentCall;
use crate::listing::ListSteps;
use crate::{Engine, EngineError};

/// The time for which a count is answered again: 10 s.
const COUNT_LIFETIME: Duration = Duration::from_secs(10);
/// A session counts as recent for this time after its last change: 1 hour.
const RECENT_MILLIS: u64 = 60 * 60 * 1_000;

/// The sessions of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectTotals {
    /// The project.
    pub project: ProjectId,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of sessions that changed in the last hour.
    pub recent: u64,
    /// Number of sessions whose view is at or above the threshold at which a compaction is due.
    pub over_threshold: u64,
    /// Time of the last change of a session.
    pub modified: Timestamp,
    /// The sums over all sessions. The tokens of the view are those of the largest view.
    pub totals: SessionTotals,
}

/// The counts of some projects, ordered by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectCounts {
    /// The time of the count.
    pub at: Timestamp,
    /// The projects that have sessions.
    pub projects: Vec<ProjectTotals>,
}

/// The latest counts, by project. `None` counts all projects.
#[derive(Debug, Default)]
pub(crate) struct CountCache(Mutex<HashMap<Option<ProjectId>, TimedCounts>>);

/// Counts, with the monotonic time of the count.
type TimedCounts = (Duration, Arc<ProjectCounts>);

impl Engine {
    /// Counts the sessions of a project, or of all projects. The result can be up to 10 s old.
    pub async fn count_sessions(
        &self,
        project: Option<&ProjectId>,
    ) -> Result<Arc<ProjectCounts>, EngineError> {
        // One count runs at a time. The calls that wait get its result.
        let mut cache = CurrentCall::pause_while(self.project_counts.0.lock()).await;
        let now = self.sessions.clock().monotonic();
        cache.retain(|_, (counted, _)| now.saturating_sub(*counted) < COUNT_LIFETIME);
        let key = project.cloned();
        if let Some((_, counts)) = cache.get(&key) {
            return Ok(Arc::clone(counts));
        }
        let counts = Arc::new(self.count(project).await?);
        cache.insert(key, (now, Arc::clone(&counts)));
        Ok(counts)
    }

    async fn count(&self, project: Option<&ProjectId>) -> Result<ProjectCounts, EngineError> {
        let at = self.sessions.clock().now();
        let mut projects = BTreeMap::<ProjectId, ProjectTotals>::new();
        let mut steps = ListSteps::of(self, project);
        while let Some(rows) = steps.next().await? {
            for (key, _, about) in rows {
                let of_project = projects
                    .entry(key.project)
                    .or_insert_with_key(|project| ProjectTotals::of(project.clone()));
                of_project.add(&about, at);
            }
        }
        Ok(ProjectCounts {
            at,
            projects: projects.into_values().collect(),
        })
    }
}

impl ProjectTotals {
    fn of(project: ProjectId) -> Self {
        Self {
            project,
            sessions: 0,
            recent: 0,
            over_threshold: 0,
            modified: Timestamp::default(),
            totals: SessionTotals::default(),
        }
    }

    fn add(&mut self, about: &SessionInfo, now: Timestamp) {
        let one = &about.totals;
        self.sessions += 1;
        self.recent += u64::from(now.millis_since(about.modified) < RECENT_MILLIS);
        self.over_threshold += u64::from(one.is_over_threshold());
        self.modified = self.modified.max(about.modified);
        self.totals.add(one);
    }
}
