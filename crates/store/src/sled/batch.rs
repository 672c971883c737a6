//! Batching for group commit: decides which changes are written together and share one sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{self, error::TryRecvError};

use super::queued::QueuedJob;

/// The maximum number of changes in a group. It also bounds the number of changes with an unknown
/// outcome after a failure.
const MAX_GROUP: usize = 1024;

/// The size at which a group accepts no more changes, in bytes. It bounds the delay of the first change
/// in the group.
const MAX_GROUP_BYTES: usize = 4 << 20;

/// The maximum number of waits for more changes, and the maximum length of one wait.
const MAX_WAITS: u32 = 4;
const MAX_WAIT: Duration = Duration::from_micros(500);

/// A counter of the changes that are being prepared or wait to become durable. The counter is optional.
#[derive(Debug, Clone, Default)]
pub struct PendingWrites(Option<Arc<AtomicUsize>>);

impl PendingWrites {
    /// Uses a counter that the caller updates.
    pub fn counted_by(number: Arc<AtomicUsize>) -> Self {
        Self(Some(number))
    }

    /// Returns true if more than `waiting` changes are in flight. Returns `None` without a counter.
    fn exceed(&self, waiting: usize) -> Option<bool> {
        let number = self.0.as_ref()?;
        // Relaxed is enough: a wrong count only changes how long the commit thread waits.
        Some(number.load(Ordering::Relaxed) > waiting)
    }
}

#[derive(Default)]
pub(super) struct NextGroup {
    pub(super) queued: Vec<QueuedJob>,
    bytes: usize,
}

impl NextGroup {
    pub(super) fn push(&mut self, queued: QueuedJob) {
        self.bytes += queued.job.bytes();
        self.queued.push(queued);
    }

    /// Takes the queued changes that fit. Returns false if all senders are gone.
    pub(super) fn drain(&mut self, queue: &mut mpsc::Receiver<QueuedJob>) -> bool {
        while self.has_room() {
            match queue.try_recv() {
                Ok(queued) => self.push(queued),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    fn has_room(&self) -> bool {
        self.queued.len() < MAX_GROUP && self.bytes < MAX_GROUP_BYTES
    }
}

/// Statistics of earlier groups, used to decide whether to wait for more changes.
#[derive(Debug, Default)]
pub(super) struct Batcher {
    /// The number of changes in the last group.
    last: usize,
    /// The moving average of the sync time.
    sync: Duration,
    in_hand: PendingWrites,
}

impl Batcher {
    pub(super) fn new(in_hand: PendingWrites) -> Self {
        Self {
            in_hand,
            ..Self::default()
        }
    }

    /// Waits for more changes as long as they arrive. One wait is at most as long as a sync.
    ///
    /// The CPU cost of a sync does not depend on the number of changes. On busy cores, fewer syncs leave
    /// more time for callers whose changes could join the group. The wait ends when all changes in flight
    /// have arrived.
    pub(super) fn collect(
        &mut self,
        waiting: &mut NextGroup,
        queue: &mut mpsc::Receiver<QueuedJob>,
    ) {
        self.collect_with(waiting, queue, thread::sleep);
    }

    fn collect_with(
        &mut self,
        waiting: &mut NextGroup,
        queue: &mut mpsc::Receiver<QueuedJob>,
        mut sleep: impl FnMut(Duration),
    ) {
        // Without a counter, the previous group predicts whether more changes will arrive.
        let look = self.sync.min(MAX_WAIT);
        let mut came = self.last > 1 || waiting.queued.len() > 1;
        for _ in 0..MAX_WAITS {
            let before = waiting.queued.len();
            // Stop as soon as a wait brought nothing new, or all changes in flight are here.
            let more_come = came && self.in_hand.exceed(before).unwrap_or(true);
            // An empty group is a turn for the garbage collection, which must not wait.
            if before == 0 || !more_come || !waiting.has_room() {
                break;
            }
            sleep(look);
            if !waiting.drain(queue) {
                break;
            }
            came = waiting.queued.len() > before;
        }
        self.last = waiting.queued.len();
    }

    /// Updates the average sync time. The latest measurement has a weight of one quarter.
    pub(super) fn record_sync(&mut self, took: Duration) {
        self.sync = (3 * self.sync + took) / 4;
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::sled::WriteGroup;
    use crate::sled::job::{DiskUse, WriteJob};

    fn change() -> QueuedJob {
        let (reply, _) = oneshot::channel();
        QueuedJob::new(WriteJob::new(
            DiskUse::Grows(0),
            |group: &mut WriteGroup<'_>| group.canary(),
            reply,
        ))
    }

    /// Returns the size of the group and the number of waits. The group starts with `first` changes, and
    /// one of `others` arrives during each wait.
    fn gather(gathering: &mut Batcher, first: usize, others: usize) -> (usize, u32) {
        let (sender, mut queue) = mpsc::channel(100);
        let mut waiting = NextGroup::default();
        for _ in 0..first {
            waiting.push(change());
        }
        let (mut looks, mut left) = (0, others);
        gathering.collect_with(&mut waiting, &mut queue, |time| {
            assert!(time <= MAX_WAIT);
            looks += 1;
            if left > 0 {
                left -= 1;
                sender.try_send(change()).unwrap();
            }
        });
        (waiting.queued.len(), looks)
    }

    fn with(in_hand: usize) -> Batcher {
        Batcher::new(PendingWrites::counted_by(Arc::new(AtomicUsize::new(
            in_hand,
        ))))
    }

    #[test]
    fn a_single_append_is_not_delayed_by_the_batcher() {
        assert_eq!(gather(&mut with(1), 1, 5), (1, 0));
        assert_eq!(gather(&mut Batcher::default(), 1, 5), (1, 0));
        assert_eq!(
            gather(&mut with(3), 3, 5),
            (3, 0),
            "all appends are in the group"
        );
        assert_eq!(gather(&mut with(3), 0, 5), (0, 0), "no append is in flight");
    }

    #[test]
    fn a_group_waits_for_appends_in_flight_while_they_arrive() {
        assert_eq!(gather(&mut with(5), 2, 9), (5, 3));
        assert_eq!(
            gather(&mut with(5), 2, 0),
            (2, 1),
            "no further append arrives"
        );
        let most = 2 + MAX_WAITS as usize;
        assert_eq!(gather(&mut with(99), 2, 99), (most, MAX_WAITS));
    }

    #[test]
    fn without_a_count_the_last_group_size_decides_the_wait() {
        let mut gathering = Batcher::default();
        assert_eq!(gather(&mut gathering, 2, 1), (3, 2));
        assert_eq!(gather(&mut gathering, 1, 0), (1, 1));
        assert_eq!(gather(&mut gathering, 1, 1), (1, 0));
    }
}
