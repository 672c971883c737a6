//! The order of due sessions: projects take turns, and each project keeps its own order.

use std::collections::{BTreeMap, VecDeque};

use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_store::DueSession;

/// The due sessions of the last list.
#[derive(Debug, Default)]
pub(crate) struct ProjectQueue {
    waiting: BTreeMap<ProjectId, VecDeque<SessionKey>>,
    last: Option<ProjectId>,
}

impl ProjectQueue {
    /// Replaces the list. The turn of the projects is kept.
    pub(crate) fn replace(&mut self, due: Vec<DueSession>) {
        self.waiting.clear();
        for due in due {
            let project = self.waiting.entry(due.key.project.clone());
            project.or_default().push_back(due.key);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes and returns the next session, from the project after the one that was served last.
    pub(crate) fn next(&mut self) -> Option<SessionKey> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.last.clone().map_or(Unbounded, Excluded);
        // Round robin: the next project by name, and the first one after the last.
        let later = self.waiting.range((after, Unbounded)).next();
        let project = later.or_else(|| self.waiting.iter().next())?.0.clone();
        let sessions = self.waiting.get_mut(&project)?;
        let key = sessions.pop_front();
        if sessions.is_empty() {
            self.waiting.remove(&project);
        }
        self.last = Some(project);
        key
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::{Revision, Timestamp};

    use super::*;

    #[test]
    fn projects_take_turns_across_new_lists() {
        let due = |names: &[&str]| {
            let of = |name: &&str| {
                let (project, session) = name.split_once('/').unwrap();
                let name = format!("projects/{project}/sessions/{session}");
                DueSession {
                    key: SessionKey::parse(&name).unwrap(),
                    at: Timestamp::default(),
                    revision: Revision::ZERO,
                }
            };
            names.iter().map(of).collect::<Vec<_>>()
        };
        let mut queue = ProjectQueue::default();
        let next = |queue: &mut ProjectQueue| {
            let key = queue.next()?;
            Some(format!("{}/{}", key.project, key.session))
        };
        queue.replace(due(&["a/1", "a/2", "a/3", "b/1", "c/1", "c/2"]));
        let order: Vec<_> = std::iter::from_fn(|| next(&mut queue)).take(4).collect();
        assert_eq!(order, ["a/1", "b/1", "c/1", "a/2"]);
        queue.replace(due(&["a/3", "a/4", "b/2"]));
        let order: Vec<_> = std::iter::from_fn(|| next(&mut queue)).collect();
        assert_eq!(order, ["b/2", "a/3", "a/4"], "project b is next in turn");
        assert!(queue.is_empty());
    }
}
