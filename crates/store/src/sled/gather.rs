//! Which changes become one group, and so share a sync.

use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{self, error::TryRecvError};

use super::queued::Queued;

/// The most changes in a group, and so the most that a failure leaves in doubt.
const MAX_GROUP: usize = 1024;

/// The bytes after which a group takes no more: the first in it should not wait for all the others.
const MAX_GROUP_BYTES: usize = 4 << 20;

/// In how many parts it is waited for more changes, and for how long at most in all.
const LOOKS: u32 = 4;
const MAX_PATIENCE: Duration = Duration::from_millis(2);

/// The changes of the next group.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) queued: Vec<Queued>,
    bytes: usize,
}

impl Waiting {
    pub(super) fn push(&mut self, queued: Queued) {
        self.bytes += queued.job.bytes();
        self.queued.push(queued);
    }

    /// Takes what is there and fits; false when nobody is left who could send any.
    pub(super) fn drain(&mut self, queue: &mut mpsc::Receiver<Queued>) -> bool {
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

/// What is known of the groups before.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// How many changes the last one had.
    last: usize,
    /// What a sync takes of late.
    sync: Duration,
}

impl Gathering {
    /// Waits for more, as long as more come and as a sync takes at most.
    ///
    /// A sync costs the processor as much for one change as for many. Where cores are busy, it takes that from those
    /// whose changes could be in the same one. Who changes something alone is not kept waiting.
    pub(super) fn gather(&mut self, waiting: &mut Waiting, queue: &mut mpsc::Receiver<Queued>) {
        let count = waiting.queued.len();
        if count > 0 && self.last.max(count) > 1 {
            self.wait(waiting, queue);
        }
        self.last = waiting.queued.len();
    }

    fn wait(&self, waiting: &mut Waiting, queue: &mut mpsc::Receiver<Queued>) {
        let look = self.sync.min(MAX_PATIENCE) / LOOKS;
        for _ in 0..LOOKS {
            if !waiting.has_room() {
                break;
            }
            let before = waiting.queued.len();
            thread::sleep(look);
            if !waiting.drain(queue) || waiting.queued.len() == before {
                break;
            }
        }
    }

    /// Learns what a sync took.
    pub(super) fn synced(&mut self, took: Duration) {
        self.sync = (3 * self.sync + took) / 4;
    }
}
