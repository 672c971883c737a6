//! Searches that can be stopped, on threads of their own.
//!
//! A regular expression takes time in proportion to the text for one match, and a search looks for many. So
//! a text is searched in steps of a bounded length: between two of them a search sees that its call was
//! cancelled, that its deadline has passed, or that it has done as much as one call may. A step runs on
//! one of a few threads, and a project has one of them at a time, so that no pattern starves other calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use palimpsest_core::ids::ProjectId;
use palimpsest_engine::call::Deadline;
use regex::Regex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::turns::FairTurns;
use crate::errors::ServiceError;

/// Bytes of a text that one step searches for the beginning of a match.
const STEP_BYTES: usize = 256 * 1024;
/// The longest match that is found whole. A longer one may be cut, or missed.
pub(super) const MAX_MATCH_BYTES: usize = 64 * 1024;
/// The most bytes that one call searches, each counted as often as a step begins before it. A message of
/// the largest size with the most hits takes less, so that every call gets past one message.
const MAX_SEARCHED_BYTES: u64 = 512 * 1024 * 1024;

/// The threads of searches.
#[derive(Debug)]
pub(super) struct Searches {
    threads: FairTurns,
}

impl Default for Searches {
    fn default() -> Self {
        // Half of the cores at most: the others answer calls.
        let threads = available_parallelism().map_or(1, usize::from) / 2;
        Self {
            threads: FairTurns::new(threads.clamp(1, 4)),
        }
    }
}

impl Searches {
    /// Runs a part of a search when it is the project's turn. The part gets the work that the call has done
    /// so far and gives it back. Dropping the future stops the part at its next step.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        project: &ProjectId,
        mut work: SearchBudget,
        part: impl FnOnce(&mut SearchBudget) -> T + Send + 'static,
    ) -> Result<(T, SearchBudget), ServiceError> {
        let turn = self.threads.next(project).await;
        let mut guard = StopOnDrop(Some(Arc::clone(&work.stopped)));
        let task = spawn_blocking(move || {
            let found = part(&mut work);
            // The turn ends with the thread's work, whatever became of the call.
            drop(turn);
            (found, work)
        });
        let done = task.await;
        // The call goes on: its next part is not stopped.
        guard.0 = None;
        done.map_err(|error| ServiceError::internal("search", error))
    }
}

struct StopOnDrop(Option<Arc<AtomicBool>>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(stopped) = &self.0 {
            stopped.store(true, Ordering::Relaxed);
        }
    }
}

/// The reason why a search ended before the end of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchEnd {
    /// The caller is gone.
    Cancelled,
    /// The deadline has passed.
    Late,
    /// One call may not do more.
    TooMuch,
}

/// The work of one call: what it has searched, and when it must end.
#[derive(Debug, Default)]
pub(super) struct SearchBudget {
    stopped: Arc<AtomicBool>,
    until: Option<Instant>,
    steps: u64,
    bytes: u64,
}

impl SearchBudget {
    /// The work of the call that the current task answers.
    pub(super) fn of_call() -> Self {
        Self {
            until: Deadline::current().map(Deadline::instant),
            ..Self::default()
        }
    }

    /// True if a call has searched as much as it may, so that it answers with what it has.
    pub(super) fn is_spent(&self) -> bool {
        self.bytes >= MAX_SEARCHED_BYTES / 2
    }

    /// Counts a step over some bytes before it is made.
    fn step(&mut self, bytes: usize) -> Result<(), SearchEnd> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(SearchEnd::Cancelled);
        }
        if self.until.is_some_and(|until| until <= Instant::now()) {
            return Err(SearchEnd::Late);
        }
        if self.bytes > MAX_SEARCHED_BYTES {
            return Err(SearchEnd::TooMuch);
        }
        self.steps += 1;
        self.bytes += bytes as u64;
        Ok(())
    }

    /// The next match at or after `from` that is not empty: its beginning and its end.
    pub(super) fn find(
        &mut self,
        pattern: &Regex,
        text: &str,
        from: usize,
    ) -> Result<Option<(usize, usize)>, SearchEnd> {
        self.next(pattern, text, from, false)
    }

    /// The next match, an empty one only where `empty` says so.
    fn next(
        &mut self,
        pattern: &Regex,
        text: &str,
        from: usize,
        empty: bool,
    ) -> Result<Option<(usize, usize)>, SearchEnd> {
        let mut at = from;
        while at < text.len() {
            let begins_before = text.floor_char_boundary(at + STEP_BYTES);
            let end = text.floor_char_boundary(begins_before + MAX_MATCH_BYTES);
            self.step(end - at)?;
            let found = pattern.find_at(&text[..end], at);
            match found.filter(|found| found.start() < begins_before || end == text.len()) {
                Some(found) if found.is_empty() && !empty => {
                    at = text.ceil_char_boundary(found.start() + 1);
                }
                Some(found) => return Ok(Some((found.start(), found.end()))),
                None if end == text.len() => return Ok(None),
                None => at = begins_before,
            }
        }
        Ok(None)
    }

    /// True if a line matches. Lines are searched in the same steps.
    pub(super) fn is_match(&mut self, pattern: &Regex, line: &str) -> Result<bool, SearchEnd> {
        if line.len() <= STEP_BYTES + MAX_MATCH_BYTES {
            self.step(line.len())?;
            return Ok(pattern.is_match(line));
        }
        Ok(self.next(pattern, line, 0, true)?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn all(work: &mut SearchBudget, pattern: &str, text: &str, most: usize) -> Vec<(usize, usize)> {
        let pattern = Regex::new(pattern).unwrap();
        let mut found = Vec::new();
        let mut at = 0;
        while let Some((start, end)) = work.find(&pattern, text, at).unwrap() {
            found.push((start, end));
            at = end;
            if found.len() == most {
                break;
            }
        }
        found
    }

    #[test]
    fn matches_are_found_wherever_steps_end() {
        let mut text = "a".repeat(STEP_BYTES - 3);
        text.push_str("needle");
        text.push_str(&"é".repeat(STEP_BYTES));
        text.push_str("needle");
        let mut work = SearchBudget::default();
        let found = all(&mut work, "needle", &text, 10);
        let last = text.len() - 6;
        assert_eq!(found, [(STEP_BYTES - 3, STEP_BYTES + 3), (last, last + 6)]);
        assert_eq!(all(&mut work, "^a|e$", &text, 10).len(), 2);
    }

    #[test]
    fn a_pattern_that_looks_far_ahead_takes_steps_of_a_bounded_length() {
        let text = "a".repeat(1024 * 1024);
        let mut work = SearchBudget::default();
        // Each match looks to the end of what it is given before it gives up.
        let found = all(&mut work, r"(?s).*[~\x00-\x08]|a", &text, 100);
        assert_eq!(found.len(), 100);
        assert_eq!(work.steps, 100);
        assert!(work.bytes <= 100 * (STEP_BYTES + MAX_MATCH_BYTES) as u64);
        let mut work = SearchBudget::default();
        assert!(all(&mut work, "b", &text, 1).is_empty());
        assert_eq!(work.steps, 4);
    }

    #[test]
    fn a_search_ends_where_it_is_stopped_late_or_has_done_enough() {
        let text = "a".repeat(1024);
        let pattern = Regex::new("b").unwrap();
        let mut stopped = SearchBudget::default();
        drop(StopOnDrop(Some(Arc::clone(&stopped.stopped))));
        assert_eq!(stopped.find(&pattern, &text, 0), Err(SearchEnd::Cancelled));
        let mut late = SearchBudget {
            until: Some(Instant::now()),
            ..SearchBudget::default()
        };
        assert_eq!(late.is_match(&pattern, &text), Err(SearchEnd::Late));
        let mut spent = SearchBudget {
            bytes: MAX_SEARCHED_BYTES + 1,
            ..SearchBudget::default()
        };
        assert_eq!(spent.find(&pattern, &text, 0), Err(SearchEnd::TooMuch));
        assert!(spent.is_spent());
    }

    #[tokio::test]
    async fn a_project_searches_one_thing_at_a_time_and_a_call_that_is_gone_stops() {
        let searches = Arc::new(Searches::default());
        let project = ProjectId::new("p").unwrap();
        let (began, mut has_begun) = tokio::sync::mpsc::channel::<()>(1);
        let (own, of) = (Arc::clone(&searches), project.clone());
        let call = tokio::spawn(async move {
            let part = move |work: &mut SearchBudget| {
                began.blocking_send(()).unwrap();
                while work.step(0).is_ok() {
                    std::thread::yield_now();
                }
            };
            own.run(&of, SearchBudget::default(), part).await.map(drop)
        });
        has_begun.recv().await.unwrap();
        assert!(searches.threads.next(&project).now_or_never().is_none());
        call.abort();
        // The next one gets the place when the thread of the first has ended.
        let next = searches.run(&project, SearchBudget::default(), |_| 7).await;
        assert_eq!(next.unwrap().0, 7);
    }
}
