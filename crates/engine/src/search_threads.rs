//! Interruptible searches on threads of their own.
//!
//! The regular expression engine needs time proportional to the text for one match, and a search finds many. So
//! each text is searched in steps of bounded length. Between two steps a search checks for cancellation, its
//! deadline and its work limit. Steps run on a few threads, and a project uses at most one of them, so no pattern
//! starves other calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use palimpsest_core::ids::ProjectId;
use regex::Regex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::EngineError;
use crate::call::Deadline;
use crate::fair_turns::FairTurns;

/// Bytes of text in which one step searches for the start of a match: 256 KiB.
const STEP_BYTES: usize = 256 * 1024;
/// The maximum length of a match that is guaranteed to be found completely: 64 KiB. A longer match may be cut or
/// missed.
pub const MAX_MATCH_BYTES: usize = 64 * 1024;
/// The work limit of one call: 512 MiB of searched text. Text that several steps cover is counted for each. A
/// search returns its matches after half of the limit. The search for one match in a message of the maximum size stays
/// below the other half, so every call makes progress.
const MAX_SEARCHED_BYTES: u64 = 512 * 1024 * 1024;

/// The search threads.
#[derive(Debug)]
pub struct SearchPool {
    threads: FairTurns,
}

impl Default for SearchPool {
    fn default() -> Self {
        // At most half of the cores are used, so that the others can answer calls.
        let threads = available_parallelism().map_or(1, usize::from) / 2;
        Self {
            threads: FairTurns::new(threads.clamp(1, 4)),
        }
    }
}

impl SearchPool {
    /// Runs a part of a search when it is the project's turn. The call's work so far is passed to the part and
    /// returned. Dropping the future stops the part at its next step.
    pub async fn run<T: Send + 'static>(
        &self,
        project: &ProjectId,
        mut work: SearchBudget,
        part: impl FnOnce(&mut SearchBudget) -> T + Send + 'static,
    ) -> Result<(T, SearchBudget), EngineError> {
        let turn = self.threads.next(project).await;
        // A blocking task cannot be aborted, so the flag stops it at its next step.
        let mut guard = StopOnDrop(Some(Arc::clone(&work.stopped)));
        let task = spawn_blocking(move || {
            let found = part(&mut work);
            // The turn is held until the thread has finished, even if the call was cancelled.
            drop(turn);
            (found, work)
        });
        let done = task.await;
        // The part finished, so the call's next part must not be stopped.
        guard.0 = None;
        done.map_err(|error| EngineError::internal("search", error))
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

/// The reason for which a search ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchEnd {
    /// The caller cancelled the call.
    Cancelled,
    /// The deadline has passed.
    DeadlineExceeded,
    /// The call has reached its work limit.
    TooMuch,
}

/// The search work of one call and its deadline.
#[derive(Debug, Default)]
pub struct SearchBudget {
    stopped: Arc<AtomicBool>,
    until: Option<Instant>,
    steps: u64,
    bytes: u64,
}

impl SearchBudget {
    /// Creates the budget of the current task's call, with its deadline.
    pub fn of_call() -> Self {
        Self {
            until: Deadline::current().map(Deadline::instant),
            ..Self::default()
        }
    }

    /// Returns true if the call has used half of its work limit and should return the results so far.
    pub fn is_exhausted(&self) -> bool {
        self.bytes >= MAX_SEARCHED_BYTES / 2
    }

    /// Checks the limits and counts a step over `bytes` bytes before it runs.
    fn step(&mut self, bytes: usize) -> Result<(), SearchEnd> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(SearchEnd::Cancelled);
        }
        if self.until.is_some_and(|until| until <= Instant::now()) {
            return Err(SearchEnd::DeadlineExceeded);
        }
        if self.bytes > MAX_SEARCHED_BYTES {
            return Err(SearchEnd::TooMuch);
        }
        self.steps += 1;
        self.bytes += bytes as u64;
        Ok(())
    }

    /// Returns the range of the next non-empty match that starts at or after `from`.
    pub fn find(
        &mut self,
        pattern: &Regex,
        text: &str,
        from: usize,
    ) -> Result<Option<(usize, usize)>, SearchEnd> {
        self.next(pattern, text, from, false)
    }

    /// Returns the next match. Empty matches are skipped unless `empty` is true.
    fn next(
        &mut self,
        pattern: &Regex,
        text: &str,
        from: usize,
        empty: bool,
    ) -> Result<Option<(usize, usize)>, SearchEnd> {
        let mut at = from;
        while at < text.len() {
            // A match must start in the step, but may extend past it. So consecutive steps overlap by the longest
            // match.
            let begins_before = text.floor_char_boundary(at + STEP_BYTES);
            let end = text.floor_char_boundary(begins_before + MAX_MATCH_BYTES);
            self.step(end - at)?;
            let found = pattern.find_at(&text[..end], at);
            match found.filter(|found| found.start() < begins_before || end == text.len()) {
                // An empty match does not advance the search, so the next attempt starts one character later.
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

    /// Returns true if a line matches. Long lines are searched in steps as well.
    pub fn is_match(&mut self, pattern: &Regex, line: &str) -> Result<bool, SearchEnd> {
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
    fn matches_across_step_boundaries_are_found() {
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
    fn a_search_step_is_bounded_for_patterns_that_scan_far() {
        let text = "a".repeat(1024 * 1024);
        let mut work = SearchBudget::default();
        // Each attempt scans to the end of its input before it fails.
        let found = all(&mut work, r"(?s).*[~\x00-\x08]|a", &text, 100);
        assert_eq!(found.len(), 100);
        assert_eq!(work.steps, 100);
        assert!(work.bytes <= 100 * (STEP_BYTES + MAX_MATCH_BYTES) as u64);
        let mut work = SearchBudget::default();
        assert!(all(&mut work, "b", &text, 1).is_empty());
        assert_eq!(work.steps, 4);
    }

    #[test]
    fn a_search_stops_when_cancelled_late_or_over_its_budget() {
        let text = "a".repeat(1024);
        let pattern = Regex::new("b").unwrap();
        let mut stopped = SearchBudget::default();
        drop(StopOnDrop(Some(Arc::clone(&stopped.stopped))));
        assert_eq!(stopped.find(&pattern, &text, 0), Err(SearchEnd::Cancelled));
        let mut late = SearchBudget {
            until: Some(Instant::now()),
            ..SearchBudget::default()
        };
        assert_eq!(
            late.is_match(&pattern, &text),
            Err(SearchEnd::DeadlineExceeded)
        );
        let mut spent = SearchBudget {
            bytes: MAX_SEARCHED_BYTES + 1,
            ..SearchBudget::default()
        };
        assert_eq!(spent.find(&pattern, &text, 0), Err(SearchEnd::TooMuch));
        assert!(spent.is_exhausted());
    }

    #[tokio::test]
    async fn a_project_runs_one_search_at_a_time_and_a_cancelled_call_stops() {
        let searches = Arc::new(SearchPool::default());
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
        // The next part starts when the thread of the first one has finished.
        let next = searches.run(&project, SearchBudget::default(), |_| 7).await;
        assert_eq!(next.unwrap().0, 7);
    }
}
