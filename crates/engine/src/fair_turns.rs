//! Fair sharing of concurrent work among projects, for work that needs much memory or CPU time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use palimpsest_core::ids::ProjectId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of remembered projects above which unused entries are removed.
const MAX_PROJECTS: usize = 1_024;

/// A limited number of concurrent turns. Each project holds at most one.
#[derive(Debug)]
pub struct FairTurns {
    all: Arc<Semaphore>,
    projects: Mutex<HashMap<ProjectId, Arc<Semaphore>>>,
}

/// The turn of a project. Dropping it releases the turn.
#[derive(Debug)]
pub struct FairTurn {
    _project: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl FairTurns {
    /// Creates a limiter with at most `max` concurrent turns.
    pub fn new(max: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(max)),
            projects: Mutex::default(),
        }
    }

    /// Waits for the turn of a project. Each project has at most one call in the shared queue, so projects
    /// alternate.
    pub async fn next(&self, project: &ProjectId) -> FairTurn {
        const NEVER_CLOSED: &str = "the semaphores are never closed";
        // The project's own permit comes first. Otherwise calls of one project could fill the shared queue.
        let own = self.of(project).acquire_owned().await;
        let of_all = Arc::clone(&self.all).acquire_owned().await;
        FairTurn {
            _project: own.expect(NEVER_CLOSED),
            _of_all: of_all.expect(NEVER_CLOSED),
        }
    }

    fn of(&self, project: &ProjectId) -> Arc<Semaphore> {
        let mut projects = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
        if projects.len() >= MAX_PROJECTS {
            // Turns and waiting calls hold a reference each, so a count of one means that the entry is unused.
            projects.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        let turns = projects.entry(project.clone());
        Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn project(name: &str) -> ProjectId {
        ProjectId::new(name).unwrap()
    }

    #[tokio::test]
    async fn queued_turns_of_one_project_do_not_delay_another_project() {
        let turns = FairTurns::new(2);
        let (greedy, other) = (project("greedy"), project("other"));
        let first = turns.next(&greedy).await;
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(turns.next(&greedy))).collect();
        for next in &mut waiting {
            assert!(next.now_or_never().is_none());
        }
        assert!(turns.next(&other).now_or_never().is_some());
        drop(first);
        assert!(waiting.remove(0).now_or_never().is_some());
    }

    #[tokio::test]
    async fn projects_without_held_turns_are_evicted() {
        let turns = FairTurns::new(1);
        for number in 0..3 * MAX_PROJECTS {
            drop(turns.next(&project(&format!("p{number}"))).await);
        }
        assert!(turns.projects.lock().unwrap().len() <= MAX_PROJECTS);
    }
}
