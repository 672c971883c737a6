//! One group of changes: their effect on the heads, and the batches that store it.
//!
//! Each change is contained in one batch. A larger change is staged in several batches and becomes
//! visible with the last one.

use std::collections::HashMap;

use ::sled::{Batch as TreeBatch, Db, Error};
use bytes::Bytes;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};

use super::keys::{self, MAX_VALUE, OBJECT_HEADER, ObjectHeader};
use super::read;
use super::shared::Shared;
use super::tips::StoredTips;
use super::usage::UsageDeltas;
use crate::head_record::{HeadRecord, check_position};
use crate::{Batch, DueChange, FileIntent, Lease, Position, StoreError, Tombstone};

/// The maximum size of one batch, in bytes. sled blocks all other operations while it applies a batch,
/// including reads.
pub(super) const MAX_BATCH: usize = 1 << 20;

/// The maximum size of the records that a change adds besides its frame or snapshot, in bytes: head,
/// queue entries, counters and journal.
const OVERHEAD: usize = 2 * MAX_VALUE;

/// The maximum size of a session name within the key of an intent, in bytes.
const NAME_BYTES: usize = 520;

/// The size of a tip's record without the session name and the project, in bytes.
const TIP_BYTES: usize = 64;

/// The maximum size of a chunk key, in bytes.
const CHUNK_KEY: usize = 32;

/// The reason why a change was not added to the group.
pub(super) enum ChangeError {
    /// The change was rejected and has written nothing.
    Rejected(StoreError),
    /// A write failed. The state on disk is unknown.
    Failed(Error),
}

impl From<StoreError> for ChangeError {
    fn from(error: StoreError) -> Self {
        Self::Rejected(error)
    }
}

impl From<Error> for ChangeError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The counters that continue from group to group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequences {
    pub(super) sequence: u64,
    pub(super) incarnation: u64,
}

/// The changes between two syncs.
pub(super) struct WriteGroup<'a> {
    shared: &'a Shared,
    pub(super) db: &'a Db,
    counts: &'a mut Sequences,
    heads: HashMap<Vec<u8>, Option<HeadRecord>>,
    usage: UsageDeltas,
    tombstones: HashMap<Vec<u8>, Option<Tombstone>>,
    intents: HashMap<Vec<u8>, Option<FileIntent>>,
    /// The tips of sessions, by incarnation.
    pub(super) tips: HashMap<u64, StoredTips>,
    batch: TreeBatch,
    batch_bytes: usize,
    /// True if the group has written data that needs a sync.
    pub(super) wrote: bool,
    /// The prefixes that may be removed after the group is durable.
    pub(super) garbage: Vec<Vec<u8>>,
}

impl<'a> WriteGroup<'a> {
    pub(super) fn new(shared: &'a Shared, db: &'a Db, counts: &'a mut Sequences) -> Self {
        Self {
            shared,
            db,
            counts,
            heads: HashMap::new(),
            usage: UsageDeltas::default(),
            tombstones: HashMap::new(),
            intents: HashMap::new(),
            tips: HashMap::new(),
            batch: TreeBatch::default(),
            batch_bytes: 0,
            wrote: false,
            garbage: Vec::new(),
        }
    }

    pub(super) fn append(
        &mut self,
        key: &SessionKey,
        batch: &Batch,
    ) -> Result<Position, ChangeError> {
        // All checks precede the first write, so that a rejected append leaves no trace in the group.
        let old = self.record(key)?;
        check_position(old.as_ref(), batch.expected)?;
        // A name with a head has no tombstone, so only a creation reads it.
        if old.is_none() && self.tombstone(key)?.is_some() {
            return Err(StoreError::Deleting(key.clone()).into());
        }
        for file in &batch.completed_intents {
            if self.intent(key, file)?.is_none_or(|it| it.is_revoked) {
                return Err(StoreError::IntentRevoked(file.clone()).into());
            }
        }
        let old_tips = match (&batch.tips, &old) {
            (Some(_), Some(record)) => self.tips(record.incarnation)?,
            _ => StoredTips::default(),
        };
        // Intents and tips add keys to the batch that contains the head, so reserve space for them.
        let files = batch.completed_intents.iter();
        let settled = files.map(|file| file.len() + NAME_BYTES);
        let tips = batch.tips.as_ref().map_or(0, |tips| tips.digests.len());
        let tip_bytes = (old_tips.len() + tips) * (TIP_BYTES + NAME_BYTES);
        let staged = self.reserve(batch.frame.len() + settled.sum::<usize>() + tip_bytes)?;
        let mut record = match &old {
            Some(record) => record.clone(),
            None => self.create(),
        };
        let object = keys::frame(record.incarnation, record.revision + 1);
        let header = ObjectHeader {
            events: batch.events.get(),
            len: object_len(&batch.frame)?,
            // The offset is the total size of earlier frames, from which the tail size is computed.
            offset: record.log_bytes,
        };
        self.put_object(&object, header, &batch.frame, staged)?;
        // The intents end in the batch that also contains the head and makes the events visible.
        for file in &batch.completed_intents {
            self.set_intent(key, file, None);
        }
        record.append(batch);
        if let Some(tips) = &batch.tips {
            // The sequence number orders the sessions of a tip by the time at which they got it. Sessions of one batch
            // have the same number, and `keys::tip_of` then ranks the later incarnation first.
            let new_tips = old_tips.changed(tips, self.counts.sequence);
            self.set_tips(key, &record, &old_tips, new_tips);
        }
        let position = record.position();
        self.set_record(key, old.as_ref(), Some(record));
        Ok(position)
    }

    pub(super) fn put_snapshot(
        &mut self,
        key: &SessionKey,
        at: Position,
        bytes: &Bytes,
    ) -> Result<(), ChangeError> {
        let old = self
            .record(key)?
            .filter(|record| record.incarnation == at.incarnation)
            .ok_or_else(|| StoreError::NotFound(key.clone()))?;
        if !old.accepts_snapshot(at.revision)? {
            return Ok(());
        }
        // Before `reserve`, because it may apply the current batch.
        let tail_bytes = self.tail_bytes(key, &old, at.revision)?;
        let staged = self.reserve(bytes.len())?;
        let object = keys::snapshot(old.incarnation, old.next_snapshot_version());
        let header = ObjectHeader {
            events: 0,
            len: object_len(bytes)?,
            offset: 0,
        };
        self.put_object(&object, header, bytes, staged)?;
        if let Some(mark) = old.snapshot {
            // Readers may still use the old snapshot, so it is removed after the group.
            self.discard(keys::snapshot(old.incarnation, mark.version));
        }
        let mut record = old.clone();
        record.set_snapshot(at.revision, bytes.len() as u64, tail_bytes);
        self.set_record(key, Some(&old), Some(record));
        Ok(())
    }

    pub(super) fn delete(
        &mut self,
        key: &SessionKey,
        expected: Position,
        at: Timestamp,
    ) -> Result<(), ChangeError> {
        let old = self.record(key)?;
        check_position(old.as_ref(), expected)?;
        // Without a head, only `Position::START` passes the check: there is no session to delete.
        let Some(old) = old else {
            return Ok(());
        };
        let tips = self.tips(old.incarnation)?;
        self.reserve(tips.len() * (TIP_BYTES + NAME_BYTES))?;
        for prefix in keys::session_prefixes(old.incarnation) {
            self.discard(prefix);
        }
        self.set_tips(key, &old, &tips, StoredTips::default());
        self.set_record(key, Some(&old), None);
        self.set_tombstone(key, Some(old.tombstone(key, at)));
        Ok(())
    }

    pub(super) fn claim_removal(
        &mut self,
        key: &SessionKey,
        incarnation: u64,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, ChangeError> {
        let Some(mut tombstone) = self.tombstone(key)? else {
            return Ok(false);
        };
        if !tombstone.claim(incarnation, lease, now) {
            return Ok(false);
        }
        self.reserve(0)?;
        self.set_tombstone(key, Some(tombstone));
        Ok(true)
    }

    pub(super) fn declare_intents(
        &mut self,
        key: &SessionKey,
        files: &[Box<str>],
        at: Timestamp,
    ) -> Result<(), ChangeError> {
        // All files are checked before the first write, so that a rejected call leaves no intent.
        for file in files {
            if self.intent(key, file)?.is_some_and(|it| it.is_revoked) {
                return Err(StoreError::IntentRevoked(file.clone()).into());
            }
        }
        for file in files {
            // Reserved one by one, because the intents of one call may not fit one batch.
            self.reserve(0)?;
            let intent = FileIntent {
                key: key.clone(),
                file: file.clone(),
                at,
                is_revoked: false,
            };
            self.set_intent(key, file, Some(intent));
        }
        Ok(())
    }

    pub(super) fn revoke_intent(
        &mut self,
        key: &SessionKey,
        file: &str,
        before: Timestamp,
    ) -> Result<bool, ChangeError> {
        let Some(mut intent) = self.intent(key, file)? else {
            return Ok(false);
        };
        if !intent.is_revoked && intent.at < before {
            intent.is_revoked = true;
            self.reserve(0)?;
            self.set_intent(key, file, Some(intent.clone()));
        }
        Ok(intent.is_revoked)
    }

    pub(super) fn complete_intent(
        &mut self,
        key: &SessionKey,
        file: &str,
    ) -> Result<(), ChangeError> {
        if self.intent(key, file)?.is_some() {
            self.reserve(0)?;
            self.set_intent(key, file, None);
        }
        Ok(())
    }

    /// Removes a tombstone. Returns false while the journal still contains data of the session. See
    /// [`crate::Tombstones::forget`].
    pub(super) fn forget(
        &mut self,
        key: &SessionKey,
        incarnation: u64,
        owner: &str,
    ) -> Result<bool, ChangeError> {
        let found = self.tombstone(key)?;
        let Some(found) = found.filter(|it| it.incarnation == incarnation) else {
            return Ok(true);
        };
        if !found.may_be_forgotten_by(owner) {
            return Ok(false);
        }
        for prefix in keys::session_prefixes(incarnation) {
            // The tombstone blocks the name until all records are gone, including garbage of this group.
            let is_journaled = self.db.contains_key(keys::garbage(&prefix))?;
            if is_journaled || self.garbage.contains(&prefix) {
                return Ok(false);
            }
        }
        self.reserve(0)?;
        self.set_tombstone(key, None);
        Ok(true)
    }

    pub(super) fn claim(
        &mut self,
        key: &SessionKey,
        lease: &Lease,
        now: Timestamp,
    ) -> Result<bool, ChangeError> {
        self.change(key, |record| record.claim(lease, now))
    }

    pub(super) fn release(
        &mut self,
        key: &SessionKey,
        owner: &str,
        next: DueChange,
    ) -> Result<bool, ChangeError> {
        if let Some(mut tombstone) = self.tombstone(key)? {
            let given = tombstone.lease.take_if(|lease| lease.owner == owner);
            if given.is_some() {
                self.reserve(0)?;
                self.set_tombstone(key, Some(tombstone));
                return Ok(true);
            }
        }
        self.change(key, |record| record.release(owner, next))
    }

    pub(super) fn canary(&mut self) -> Result<(), ChangeError> {
        self.reserve(0)?;
        let value = self.counts.sequence.to_be_bytes();
        self.insert(keys::CANARY_KEY.to_vec(), &value);
        Ok(())
    }

    /// Applies the current batch to the tree, together with the usage rows and the next sequence number.
    pub(super) fn apply(&mut self) -> Result<(), Error> {
        if self.batch_bytes == 0 {
            return Ok(());
        }
        // The usage rows belong to the same batch as the changes that they count.
        for (key, row) in self.usage.rows(self.db)? {
            self.insert(key, &row);
        }
        // The sequence is stored in the batch. A mark file with a higher sequence then reveals a lost batch.
        self.counts.sequence += 1;
        let mut batch = std::mem::take(&mut self.batch);
        let sequence = self.counts.sequence.to_be_bytes();
        batch.insert(keys::SEQUENCE_KEY, &sequence);
        self.wrote = true;
        // All kinds of records share one tree, because a batch of sled covers only one.
        self.db.apply_batch(batch)?;
        self.shared.counters.count_applied(self.batch_bytes);
        self.batch_bytes = 0;
        Ok(())
    }

    fn change(
        &mut self,
        key: &SessionKey,
        change: impl FnOnce(&mut HeadRecord) -> bool,
    ) -> Result<bool, ChangeError> {
        let Some(old) = self.record(key)? else {
            return Ok(false);
        };
        let mut record = old.clone();
        if !change(&mut record) {
            return Ok(false);
        }
        self.reserve(0)?;
        self.set_record(key, Some(&old), Some(record));
        Ok(true)
    }

    /// Returns the head, including earlier changes of this group.
    fn record(&self, key: &SessionKey) -> Result<Option<HeadRecord>, StoreError> {
        match self.heads.get(&keys::head(key)) {
            Some(record) => Ok(record.clone()),
            None => read::record(self.db, key),
        }
    }

    /// Returns the tombstone, including earlier changes of this group.
    fn tombstone(&self, key: &SessionKey) -> Result<Option<Tombstone>, StoreError> {
        match self.tombstones.get(&keys::tombstone(key)) {
            Some(tombstone) => Ok(tombstone.clone()),
            None => read::stored_tombstone(self.db, key),
        }
    }

    /// Returns the intent, including earlier changes of this group.
    fn intent(&self, key: &SessionKey, file: &str) -> Result<Option<FileIntent>, StoreError> {
        match self.intents.get(&keys::intent(key, file)) {
            Some(intent) => Ok(intent.clone()),
            None => read::stored_intent(self.db, key, file),
        }
    }

    fn set_intent(&mut self, key: &SessionKey, file: &str, new: Option<FileIntent>) {
        let stored = keys::intent(key, file);
        match &new {
            Some(intent) => self.insert(stored.clone(), &keys::encode_intent(intent)),
            None => self.remove(stored.clone()),
        }
        self.intents.insert(stored, new);
    }

    fn set_tombstone(&mut self, key: &SessionKey, new: Option<Tombstone>) {
        let stored = keys::tombstone(key);
        match &new {
            Some(tombstone) => self.insert(stored.clone(), &keys::encode_tombstone(tombstone)),
            None => self.remove(stored.clone()),
        }
        self.tombstones.insert(stored, new);
    }

    fn create(&mut self) -> HeadRecord {
        self.counts.incarnation += 1;
        let incarnation = self.counts.incarnation;
        // Stored in the batch that creates the session, so that a crash never reuses the number.
        self.insert(keys::INCARNATION_KEY.to_vec(), &incarnation.to_be_bytes());
        HeadRecord::new(incarnation)
    }

    /// Returns the size of the frames that contain revisions after `at`, in bytes.
    fn tail_bytes(
        &mut self,
        key: &SessionKey,
        old: &HeadRecord,
        at: Revision,
    ) -> Result<u64, ChangeError> {
        if at.get() == old.revision {
            return Ok(0);
        }
        // The frames of this group are not in the tree yet.
        self.apply()?;
        let first = read::first_frame_after(self.db, key, old.incarnation, at.get())?;
        Ok(old.log_bytes - first.offset)
    }

    /// Starts a new batch if the current one has no space for a change of `bytes`. Returns true if no batch
    /// has enough space, so that the change must be staged.
    fn reserve(&mut self, bytes: usize) -> Result<bool, Error> {
        let chunks = bytes / (MAX_VALUE - OBJECT_HEADER) + 1;
        let needed = bytes + chunks * CHUNK_KEY + OVERHEAD;
        if self.batch_bytes + needed > MAX_BATCH {
            self.apply()?;
        }
        Ok(needed > MAX_BATCH)
    }

    /// Writes the chunks of an object. A staged object fills several batches: the first one adds its
    /// journal entry, and the last one removes the entry and contains the head.
    fn put_object(
        &mut self,
        object: &[u8],
        header: ObjectHeader,
        bytes: &Bytes,
        staged: bool,
    ) -> Result<(), Error> {
        if staged {
            self.insert(keys::garbage(object), &[]);
        }
        // The first chunk also contains the header.
        let (first, mut rest) = bytes.split_at(bytes.len().min(MAX_VALUE - OBJECT_HEADER));
        let first = [&header.encode()[..], first].concat();
        self.insert(keys::chunk(object, 0), &first);
        let mut index = 0;
        while !rest.is_empty() {
            if staged && self.batch_bytes + MAX_VALUE + CHUNK_KEY + OVERHEAD > MAX_BATCH {
                self.apply()?;
            }
            let (chunk, left) = rest.split_at(rest.len().min(MAX_VALUE));
            index += 1;
            self.insert(keys::chunk(object, index), chunk);
            rest = left;
        }
        if staged {
            self.remove(keys::garbage(object));
        }
        Ok(())
    }

    /// Stores a head and its queue entry. Readers see the previous head until the group is durable.
    fn set_record(&mut self, key: &SessionKey, old: Option<&HeadRecord>, new: Option<HeadRecord>) {
        let head = keys::head(key);
        // Shadow the head before the batch is applied, or readers could see it without a sync.
        self.shared.keep_durable_head(&head, old);
        self.usage.note(key, old, new.as_ref());
        let (was_ready, ready) = (
            old.and_then(HeadRecord::ready_at),
            new.as_ref().and_then(HeadRecord::ready_at),
        );
        // The ready time is part of the queue key, so an update is a removal and an insertion.
        if was_ready != ready {
            if let Some(time) = was_ready {
                self.remove(keys::due(time, key));
            }
            if let Some(time) = ready {
                self.insert(keys::due(time, key), &[]);
            }
        }
        let parent = |record: Option<&HeadRecord>| {
            let record = record?;
            Some((record.parent.clone()?, record.incarnation))
        };
        let (old_parent, new_parent) = (parent(old), parent(new.as_ref()));
        if old_parent != new_parent {
            if let Some((parent, _)) = old_parent {
                self.remove(keys::subagent(&parent, key));
            }
            if let Some((parent, incarnation)) = new_parent {
                let entry = keys::subagent(&parent, key);
                self.insert(entry, &incarnation.to_be_bytes());
            }
        }
        let has_lease = |record: Option<&HeadRecord>| record.is_some_and(|it| it.lease.is_some());
        match (has_lease(old), has_lease(new.as_ref())) {
            (false, true) => self.insert(keys::lease_key(key), &[]),
            (true, false) => self.remove(keys::lease_key(key)),
            _ => {}
        }
        match &new {
            Some(record) => self.insert(head.clone(), &keys::encode_record(record)),
            None => self.remove(head.clone()),
        }
        self.heads.insert(head, new);
    }

    /// Schedules all records under a prefix for removal after the group. Readers that still use them may
    /// finish.
    fn discard(&mut self, prefix: Vec<u8>) {
        self.insert(keys::garbage(&prefix), &[]);
        self.garbage.push(prefix);
    }

    pub(super) fn insert(&mut self, key: Vec<u8>, value: &[u8]) {
        debug_assert!(value.len() <= MAX_VALUE, "a value must stay inline");
        self.batch_bytes += key.len() + value.len();
        self.batch.insert(key, value);
    }

    pub(super) fn remove(&mut self, key: Vec<u8>) {
        self.batch_bytes += key.len();
        self.batch.remove(key);
    }
}

fn object_len(bytes: &Bytes) -> Result<u32, StoreError> {
    u32::try_from(bytes.len()).map_err(|_| StoreError::TooLarge {
        what: "an object",
        len: bytes.len(),
        max: u32::MAX as usize,
    })
}
