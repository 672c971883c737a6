//! Latencies of the honest tenant, by the start time of each call.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time window of a 99th percentile: long enough for a sufficient number of calls, and short enough to show a stall
/// of seconds.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// One call of the honest tenant.
#[derive(Debug, Clone)]
struct Served {
    what: String,
    began: Instant,
    took: Duration,
    is_done: bool,
}

/// All calls of the honest tenant.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    calls: Mutex<Vec<Served>>,
    refusals: Mutex<BTreeMap<String, u64>>,
}

/// The figures of a span of time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    pub(crate) calls: usize,
    pub(crate) given_up: usize,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

impl Latencies {
    /// Records a served call.
    pub(crate) fn served(&self, what: &str, began: Instant) {
        self.add(what, began, true);
    }

    /// Records a call that was never served.
    pub(crate) fn given_up(&self, what: &str, began: Instant) {
        self.add(what, began, false);
    }

    /// Records a rejected attempt that is repeated.
    pub(crate) fn refused(&self, outcome: &str) {
        let mut refusals = self.refusals.lock().unwrap();
        *refusals.entry(outcome.to_owned()).or_default() += 1;
    }

    /// Returns the rejections since the last call.
    pub(crate) fn take_refusals(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut *self.refusals.lock().unwrap())
    }

    fn add(&self, what: &str, began: Instant, is_done: bool) {
        self.calls.lock().unwrap().push(Served {
            what: what.to_owned(),
            began,
            took: began.elapsed(),
            is_done,
        });
    }

    /// Returns the figures of the calls that started in a time span.
    pub(crate) fn figures(&self, span: &Range<Instant>) -> Figures {
        self.figures_of(span, |_| true)
    }

    /// Returns the figures by kind of call.
    pub(crate) fn by_kind(&self, span: &Range<Instant>) -> BTreeMap<String, Figures> {
        let calls = self.calls.lock().unwrap();
        let mut kinds: Vec<String> = calls.iter().map(|call| call.what.clone()).collect();
        drop(calls);
        kinds.sort();
        kinds.dedup();
        let with_figures = |kind: String| {
            let figures = self.figures_of(span, |what| what == kind);
            (kind, figures)
        };
        kinds.into_iter().map(with_figures).collect()
    }

    fn figures_of(&self, span: &Range<Instant>, is_meant: impl Fn(&str) -> bool) -> Figures {
        let calls = self.calls.lock().unwrap();
        let meant = calls
            .iter()
            .filter(|call| span.contains(&call.began) && is_meant(&call.what));
        let mut times = Vec::new();
        let mut given_up = 0;
        for call in meant {
            times.push(call.took);
            given_up += usize::from(!call.is_done);
        }
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len() * percent / 100).copied();
        Figures {
            calls: times.len(),
            given_up,
            p50: at(50).unwrap_or_default(),
            p99: at(99).unwrap_or_default(),
            max: times.last().copied().unwrap_or_default(),
        }
    }

    /// Returns the figures of each window in a time span. A window with few calls shows that the tenant waited for
    /// earlier calls.
    pub(crate) fn windows(&self, span: &Range<Instant>) -> Vec<Figures> {
        let mut windows = Vec::new();
        let mut from = span.start;
        // An incomplete window at the end has too few calls for a judgment.
        while from + WINDOW <= span.end {
            windows.push(self.figures(&(from..from + WINDOW)));
            from += WINDOW;
        }
        windows
    }
}
