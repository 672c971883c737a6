//! The layout of keys and values in sled's single tree. Every key begins with a byte for its kind.
//! Within a kind, the byte order is the order that scans need.

use palimpsest_core::ids::{ProjectId, SessionId, SessionKey, Timestamp};
use palimpsest_core::message::Digest;

use crate::head_record::{HeadRecord, LeaseRecord, SnapshotRecord};
use crate::{FileIntent, LONGEST_WAIT_MS, Lease, Tombstone};

const HEAD: u8 = 1;
const DUE: u8 = 2;
const FRAME: u8 = 3;
const SNAPSHOT: u8 = 4;
const GARBAGE: u8 = 5;
const USAGE: u8 = 6;
const TOMBSTONE: u8 = 7;
const INTENT: u8 = 8;
const TIP: u8 = 9;
const SESSION_TIPS: u8 = 10;
const SUBAGENT: u8 = 11;
const LEASED: u8 = 16;

// Kind zero contains the records that exist once per store.

/// The version of this layout.
pub(super) const FORMAT_KEY: &[u8] = b"\0format";
/// The number of batches applied so far. See the mark in `files`.
pub(super) const SEQUENCE_KEY: &[u8] = b"\0sequence";
/// The last incarnation that was assigned.
pub(super) const INCARNATION_KEY: &[u8] = b"\0incarnation";
/// The storage usage of all projects.
pub(super) const USAGE_KEY: &[u8] = b"\0usage";
pub(super) const STORE_KEY: &[u8] = b"\0store";
/// The value of the canary write.
pub(super) const CANARY_KEY: &[u8] = b"\0canary";

/// The maximum size of a value, in bytes. sled stores a value inline only if its page stays below the
/// side-file threshold. A page contains up to 17 values of this size. Larger values need two to three
/// times their size on disk.
pub(super) const MAX_VALUE: usize = 4096;
/// The size of the header in the first chunk of an object, in bytes.
pub(super) const OBJECT_HEADER: usize = 16;

/// Appends a session name to a key. Names contain no zero byte, so a zero between the parts preserves
/// the order of `(project, session)` and separates names with a common prefix.
fn push_name(to: &mut Vec<u8>, key: &SessionKey) {
    to.extend_from_slice(key.project.as_str().as_bytes());
    to.push(0);
    to.extend_from_slice(key.session.as_str().as_bytes());
}

fn parse_name(name: &[u8]) -> Option<SessionKey> {
    let (project, session) = std::str::from_utf8(name).ok()?.split_once('\0')?;
    Some(SessionKey::new(
        ProjectId::new(project).ok()?,
        SessionId::new(session).ok()?,
    ))
}

pub(super) fn head(key: &SessionKey) -> Vec<u8> {
    let mut out = vec![HEAD];
    push_name(&mut out, key);
    out
}

/// Returns the prefix of all heads, or of one project's heads.
pub(super) fn heads(project: Option<&ProjectId>) -> Vec<u8> {
    let mut out = vec![HEAD];
    if let Some(project) = project {
        out.extend_from_slice(project.as_str().as_bytes());
        out.push(0);
    }
    out
}

pub(super) fn parse_head(key: &[u8]) -> Option<SessionKey> {
    parse_name(key.strip_prefix(&[HEAD])?)
}

/// Returns the key that marks a session as leased. With these keys, leases of an earlier process are
/// found without reading every head.
pub(super) fn lease_key(key: &SessionKey) -> Vec<u8> {
    let mut out = vec![LEASED];
    push_name(&mut out, key);
    out
}

pub(super) const LEASED_PREFIX: &[u8] = &[LEASED];

pub(super) fn parse_leased(key: &[u8]) -> Option<SessionKey> {
    parse_name(key.strip_prefix(LEASED_PREFIX)?)
}

/// The prefix of the usage rows of projects.
pub(super) const USAGE_PREFIX: &[u8] = &[USAGE];

/// Returns the key of a project's usage row.
pub(super) fn usage(project: &ProjectId) -> Vec<u8> {
    [&[USAGE], project.as_str().as_bytes()].concat()
}

pub(super) fn tombstone(key: &SessionKey) -> Vec<u8> {
    let mut out = vec![TOMBSTONE];
    push_name(&mut out, key);
    out
}

pub(super) const TOMBSTONE_PREFIX: &[u8] = &[TOMBSTONE];

pub(super) fn encode_tombstone(tombstone: &Tombstone) -> Vec<u8> {
    let mut out = vec![RECORD_VERSION, u8::from(tombstone.lease.is_some())];
    out.extend_from_slice(&tombstone.incarnation.to_be_bytes());
    out.extend_from_slice(&tombstone.at.as_millis().to_be_bytes());
    if let Some(lease) = &tombstone.lease {
        out.extend_from_slice(&lease.until.as_millis().to_be_bytes());
        out.extend_from_slice(lease.owner.as_bytes());
    }
    out
}

/// Decodes a tombstone from its key and its value. Returns `None` for an invalid record.
pub(super) fn decode_tombstone(key: &[u8], mut value: &[u8]) -> Option<Tombstone> {
    let key = parse_name(key.strip_prefix(TOMBSTONE_PREFIX)?)?;
    let from = &mut value;
    let [version, has_lease] = take::<2>(from)?;
    if version != RECORD_VERSION {
        return None;
    }
    let incarnation = u64::from_be_bytes(take(from)?);
    let at = Timestamp::from_millis(i64::from_be_bytes(take(from)?));
    let lease = if has_lease == 0 {
        None
    } else {
        let until = Timestamp::from_millis(i64::from_be_bytes(take(from)?));
        // The owner has no length prefix, so it must be the last field.
        let owner = String::from_utf8(from.to_vec()).ok()?;
        Some(Lease { owner, until })
    };
    Some(Tombstone {
        key,
        incarnation,
        at,
        lease,
    })
}

/// Returns the key of a file's intent. File names contain no zero byte either.
pub(super) fn intent(key: &SessionKey, file: &str) -> Vec<u8> {
    let mut out = vec![INTENT];
    push_name(&mut out, key);
    out.push(0);
    out.extend_from_slice(file.as_bytes());
    out
}

pub(super) const INTENT_PREFIX: &[u8] = &[INTENT];

pub(super) fn encode_intent(intent: &FileIntent) -> Vec<u8> {
    let mut out = vec![RECORD_VERSION, u8::from(intent.is_revoked)];
    out.extend_from_slice(&intent.at.as_millis().to_be_bytes());
    out
}

/// Decodes an intent from its key and its value. Returns `None` for an invalid record.
pub(super) fn decode_intent(key: &[u8], mut value: &[u8]) -> Option<FileIntent> {
    let name = key.strip_prefix(INTENT_PREFIX)?;
    // The last zero separates the file, because the session name contains one too.
    let end = name.iter().rposition(|byte| *byte == 0)?;
    let (name, file) = (name.get(..end)?, name.get(end + 1..)?);
    let [version, is_doomed] = take::<2>(&mut value)?;
    if version != RECORD_VERSION {
        return None;
    }
    Some(FileIntent {
        key: parse_name(name)?,
        file: std::str::from_utf8(file).ok()?.into(),
        at: Timestamp::from_millis(i64::from_be_bytes(take(&mut value)?)),
        is_revoked: is_doomed != 0,
    })
}

/// Returns the prefix of the keys of all sessions with a tip.
pub(super) fn tip(project: &ProjectId, scope: Digest, digest: Digest) -> Vec<u8> {
    let mut out = vec![TIP];
    out.extend_from_slice(project.as_str().as_bytes());
    out.push(0);
    // The scope and the digest have fixed lengths, so no byte separates them.
    out.extend_from_slice(scope.as_bytes());
    out.extend_from_slice(digest.as_bytes());
    out
}

/// Returns the key of one session with a tip. Both numbers are inverted, so the latest session is the first one.
pub(super) fn tip_of(sessions: &[u8], number: u64, incarnation: u64) -> Vec<u8> {
    let (number, incarnation) = (!number, !incarnation);
    [sessions, &number.to_be_bytes(), &incarnation.to_be_bytes()].concat()
}

pub(super) fn parse_tip_incarnation(key: &[u8]) -> Option<u64> {
    let (_, incarnation) = key.split_last_chunk::<8>()?;
    Some(!u64::from_be_bytes(*incarnation))
}

/// Returns the key of the list of a session's tips.
pub(super) fn session_tips(incarnation: u64) -> Vec<u8> {
    [&[SESSION_TIPS][..], &incarnation.to_be_bytes()].concat()
}

/// Returns the prefix of the keys of all subagents of a session.
pub(super) fn subagents(parent: &SessionKey) -> Vec<u8> {
    let mut out = vec![SUBAGENT];
    push_name(&mut out, parent);
    out.push(0);
    out
}

/// Returns the key of a subagent in the index of subagents.
pub(super) fn subagent(parent: &SessionKey, key: &SessionKey) -> Vec<u8> {
    let mut out = subagents(parent);
    push_name(&mut out, key);
    out
}

/// Returns the subagent of a key with the prefix of its parent.
pub(super) fn parse_subagent(key: &[u8], prefix: &[u8]) -> Option<SessionKey> {
    parse_name(key.strip_prefix(prefix)?)
}

/// Encodes a time so that its byte order is its numeric order. Flipping the sign bit sorts negative
/// times before positive ones.
fn sortable(time: i64) -> [u8; 8] {
    (time.cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

pub(super) fn due(ready: i64, key: &SessionKey) -> Vec<u8> {
    let mut out = vec![DUE];
    out.extend_from_slice(&sortable(ready));
    push_name(&mut out, key);
    out
}

/// Returns the range of queue keys with a time up to and including `now`.
pub(super) fn due_until(now: i64) -> std::ops::Range<Vec<u8>> {
    let end = match now.checked_add(1) {
        // The end is exclusive, so it is the first key of the next millisecond.
        Some(next) => [&[DUE][..], &sortable(next)].concat(),
        None => vec![DUE + 1],
    };
    vec![DUE]..end
}

/// Returns the range of queue keys more than [`LONGEST_WAIT_MS`] after `now`. A wrong clock set these
/// times.
pub(super) fn due_after(now: i64) -> std::ops::Range<Vec<u8>> {
    let begin = due_until(now.saturating_add(LONGEST_WAIT_MS)).end;
    begin..vec![DUE + 1]
}

pub(super) fn parse_due(key: &[u8]) -> Option<(i64, SessionKey)> {
    let (time, name) = key.strip_prefix(&[DUE])?.split_first_chunk::<8>()?;
    let time = (u64::from_be_bytes(*time) ^ (1 << 63)).cast_signed();
    Some((time, parse_name(name)?))
}

fn object(kind: u8, incarnation: u64, id: u64) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend_from_slice(&incarnation.to_be_bytes());
    out.extend_from_slice(&id.to_be_bytes());
    out
}

/// Returns the prefix of one frame's chunks.
pub(super) fn frame(incarnation: u64, first: u64) -> Vec<u8> {
    object(FRAME, incarnation, first)
}

/// Returns the prefix of one snapshot's chunks.
pub(super) fn snapshot(incarnation: u64, version: u64) -> Vec<u8> {
    object(SNAPSHOT, incarnation, version)
}

/// Returns the prefixes of all records of a session except its head.
pub(super) fn session_prefixes(incarnation: u64) -> [Vec<u8>; 2] {
    [FRAME, SNAPSHOT].map(|kind| [&[kind][..], &incarnation.to_be_bytes()].concat())
}

pub(super) fn chunk(object: &[u8], index: u32) -> Vec<u8> {
    [object, &index.to_be_bytes()].concat()
}

/// Returns a frame's first revision from the key of any of its chunks.
pub(super) fn parse_frame(key: &[u8]) -> Option<u64> {
    // The first eight bytes are the incarnation.
    let first = key.strip_prefix(&[FRAME])?.get(8..16)?;
    Some(u64::from_be_bytes(first.try_into().ok()?))
}

/// Returns the journal key for a prefix to be removed. The prefix covers the chunks of an incomplete
/// write, or of a deleted or replaced object.
pub(super) fn garbage(prefix: &[u8]) -> Vec<u8> {
    [&[GARBAGE], prefix].concat()
}

pub(super) const GARBAGE_PREFIX: &[u8] = &[GARBAGE];

pub(super) fn parse_garbage(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(&[GARBAGE])
}

/// Returns true if a garbage prefix is one object, and false if it covers a deleted session. An
/// object's key may be used again, but an incarnation is never reused.
pub(super) fn is_object(prefix: &[u8]) -> bool {
    // One byte for the kind and eight each for the incarnation and the id.
    prefix.len() == 17
}

/// The header in the first chunk of a frame or a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectHeader {
    /// The number of events in a frame. Zero for a snapshot.
    pub(super) events: u32,
    /// The size of all chunks without this header, in bytes.
    pub(super) len: u32,
    /// The size of all earlier frames of the session, in bytes. The size of a tail therefore needs only one
    /// read.
    pub(super) offset: u64,
}

impl ObjectHeader {
    pub(super) fn encode(self) -> [u8; OBJECT_HEADER] {
        let mut out = [0; OBJECT_HEADER];
        out[..4].copy_from_slice(&self.events.to_be_bytes());
        out[4..8].copy_from_slice(&self.len.to_be_bytes());
        out[8..].copy_from_slice(&self.offset.to_be_bytes());
        out
    }

    pub(super) fn decode(mut value: &[u8]) -> Option<Self> {
        Some(Self {
            events: u32::from_be_bytes(take(&mut value)?),
            len: u32::from_be_bytes(take(&mut value)?),
            offset: u64::from_be_bytes(take(&mut value)?),
        })
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*head)
}

/// Takes a field with its length before it.
fn take_prefixed<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(u64::from_be_bytes(take(from)?)).ok()?;
    let (field, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(field)
}

const RECORD_VERSION: u8 = 1;
const HAS_SNAPSHOT: u8 = 1;
const HAS_DUE: u8 = 2;
const HAS_LEASE: u8 = 4;
const HAS_BLOBS: u8 = 8;
const HAS_PARENT: u8 = 16;

/// Encodes a head. Optional fields are present only if their flag is set.
pub(super) fn encode_record(record: &HeadRecord) -> Vec<u8> {
    let mut flags = 0;
    let mut out = vec![RECORD_VERSION, flags];
    let mut push = |number: u64| out.extend_from_slice(&number.to_be_bytes());
    push(record.incarnation);
    push(record.revision);
    push(record.log_bytes);
    push(record.tail_bytes);
    push(record.due_changes);
    if let Some(mark) = record.snapshot {
        flags |= HAS_SNAPSHOT;
        push(mark.at);
        push(mark.bytes);
        push(mark.version);
    }
    if let Some(due) = record.due {
        flags |= HAS_DUE;
        push(due.cast_unsigned());
    }
    if let Some(held) = &record.lease {
        flags |= HAS_LEASE;
        push(held.until.cast_unsigned());
        push(held.due_changes);
        push(held.owner.len() as u64);
        out.extend_from_slice(held.owner.as_bytes());
    }
    if record.blob_bytes > 0 {
        flags |= HAS_BLOBS;
        out.extend_from_slice(&record.blob_bytes.to_be_bytes());
    }
    if let Some(parent) = &record.parent {
        flags |= HAS_PARENT;
        let mut name = Vec::new();
        push_name(&mut name, parent);
        out.extend_from_slice(&(name.len() as u64).to_be_bytes());
        out.extend_from_slice(&name);
    }
    out.extend_from_slice(&record.list_row);
    // The flags are complete only after all optional fields were written.
    out[1] = flags;
    out
}

/// Decodes a head. Returns `None` for an invalid record.
pub(super) fn decode_record(mut value: &[u8]) -> Option<HeadRecord> {
    let from = &mut value;
    let [version, flags] = take::<2>(from)?;
    if version != RECORD_VERSION {
        return None;
    }
    let mut record = HeadRecord::new(u64::from_be_bytes(take(from)?));
    record.revision = u64::from_be_bytes(take(from)?);
    record.log_bytes = u64::from_be_bytes(take(from)?);
    record.tail_bytes = u64::from_be_bytes(take(from)?);
    record.due_changes = u64::from_be_bytes(take(from)?);
    if flags & HAS_SNAPSHOT != 0 {
        record.snapshot = Some(SnapshotRecord {
            at: u64::from_be_bytes(take(from)?),
            bytes: u64::from_be_bytes(take(from)?),
            version: u64::from_be_bytes(take(from)?),
        });
    }
    if flags & HAS_DUE != 0 {
        record.due = Some(i64::from_be_bytes(take(from)?));
    }
    if flags & HAS_LEASE != 0 {
        let until = i64::from_be_bytes(take(from)?);
        let due_changes = u64::from_be_bytes(take(from)?);
        let owner = take_prefixed(from)?;
        record.lease = Some(LeaseRecord {
            owner: String::from_utf8(owner.to_vec()).ok()?,
            until,
            due_changes,
        });
    }
    if flags & HAS_BLOBS != 0 {
        record.blob_bytes = u64::from_be_bytes(take(from)?);
    }
    if flags & HAS_PARENT != 0 {
        record.parent = Some(parse_name(take_prefixed(from)?)?);
    }
    // The list row has no length prefix, so it must be the last field.
    record.list_row = from.to_vec().into();
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SessionKey {
        let (project, session) = name.split_once('/').unwrap();
        SessionKey::new(
            ProjectId::new(project).unwrap(),
            SessionId::new(session).unwrap(),
        )
    }

    #[test]
    fn keys_sort_like_names() {
        let mut names: Vec<_> = [
            "a/b", "a/b.c", "a-b/a", "a.b/a", "a/b-c", "A/z", "a0/a", "a/a",
        ]
        .map(key)
        .into();
        names.sort();
        let mut stored: Vec<_> = names.iter().map(head).collect();
        stored.sort();
        let back: Vec<_> = stored.iter().map(|k| parse_head(k).unwrap()).collect();
        assert_eq!(back, names);
    }

    #[test]
    fn due_keys_sort_by_time_first() {
        let mut keys = Vec::new();
        for time in [i64::MIN, -5, -1, 0, 1, 300, i64::MAX] {
            for name in ["a/b", "b/a"] {
                keys.push((time, key(name)));
            }
        }
        let stored: Vec<_> = keys.iter().map(|(t, k)| due(*t, k)).collect();
        assert!(stored.is_sorted());
        let back: Vec<_> = stored.iter().map(|k| parse_due(k).unwrap()).collect();
        assert_eq!(back, keys);
        assert!(due_until(0).contains(&due(0, &key("z/z"))));
        assert!(!due_until(0).contains(&due(1, &key("A/A"))));
        assert!(due_until(i64::MAX).contains(&due(i64::MAX, &key("z/z"))));
    }

    #[test]
    fn a_maximal_head_record_survives_a_round_trip_in_one_value() {
        let mut record = HeadRecord::new(7);
        record.revision = 9;
        record.log_bytes = 1 << 40;
        record.blob_bytes = 1 << 41;
        record.tail_bytes = 3;
        record.snapshot = Some(SnapshotRecord {
            at: 5,
            bytes: 6,
            version: 2,
        });
        record.due = Some(-4);
        record.due_changes = 11;
        record.lease = Some(LeaseRecord {
            owner: "w".repeat(crate::MAX_OWNER_BYTES),
            until: 99,
            due_changes: 10,
        });
        record.parent = Some(SessionKey::new(
            ProjectId::new(&"p".repeat(ProjectId::MAX_LEN)).unwrap(),
            SessionId::new(&"s".repeat(SessionId::MAX_LEN)).unwrap(),
        ));
        record.list_row = vec![1; crate::MAX_LIST_ROW_BYTES].into();
        let stored = encode_record(&record);
        assert!(stored.len() < MAX_VALUE);
        assert_eq!(decode_record(&stored), Some(record));
        let bare = HeadRecord::new(1);
        assert_eq!(decode_record(&encode_record(&bare)), Some(bare));
        assert_eq!(decode_record(&stored[..60]), None);
    }
}
