//! The memory of the bodies that are read.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Unread;

/// The unit in which memory is reserved, in bytes. A larger unit makes fewer reservations.
const STEP: usize = 16 * 1024;

/// The memory that all readers share.
#[derive(Debug, Clone)]
pub struct ReadMemory(Arc<Semaphore>);

impl ReadMemory {
    /// Creates a memory of `max` bytes.
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))))
    }
}

/// The part of the memory that one body has reserved. It is released on drop.
#[derive(Debug)]
pub(crate) struct ReservedMemory {
    memory: ReadMemory,
    permit: Option<OwnedSemaphorePermit>,
}

impl ReservedMemory {
    pub(crate) fn new(memory: ReadMemory) -> Self {
        Self {
            memory,
            permit: None,
        }
    }

    /// Moves the reservation out, for example to another thread.
    pub(crate) fn take(&mut self) -> Self {
        let empty = Self::new(self.memory.clone());
        std::mem::replace(self, empty)
    }

    /// Reserves at least `size` bytes in total. Fails without a wait if the memory is exhausted.
    pub(crate) fn reserve(&mut self, size: usize) -> Result<(), Unread> {
        let reserved = self
            .permit
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        if size <= reserved {
            return Ok(());
        }
        // `size` exceeds `reserved` here, so the subtraction cannot underflow.
        let more = size.next_multiple_of(STEP) - reserved;
        let more = u32::try_from(more).map_err(|_| Unread::Memory)?;
        let budget = Arc::clone(&self.memory.0);
        // A wait could be endless: two bodies that hold a part each would wait for each other.
        let more = budget
            .try_acquire_many_owned(more)
            .map_err(|_| Unread::Memory)?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }
}
