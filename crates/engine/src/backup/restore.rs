//! Restores a backup into an empty store, or only verifies the backup.

use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes, BytesMut};
use futures::TryStreamExt as _;
use futures::future::join_all;
use futures::stream::BoxStream;
use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};
use palimpsest_store::archive::{Archive, hex};
use palimpsest_store::blobs::{BlobError, BlobOwner, Blobs};
use palimpsest_store::sled::{SledLog, SledOptions, swap_folder};
use palimpsest_store::{
    Batch, DueChange, MAX_FRAME_BYTES, MAX_LIST_ROW_BYTES, Position, SessionLog, Store as _,
    StoreId, crash_point,
};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use super::manifest::{LogFile, ManifestEntry, ManifestReader, result_path};
use super::tip_reader::TipReader;
use super::{BackupError, damaged};
use crate::sessions::parent_in_row;

/// Sessions that are restored concurrently.
const PARALLEL: usize = 4;
/// Records of one session that are appended concurrently, because a sync for each record would be slow. The log
/// applies them in the order of the calls.
const MAX_BATCH_RECORDS: usize = 24;
/// Bytes of the header of a record.
const RECORD_HEAD: usize = 16;

/// The sessions to restore. Empty lists select all sessions.
#[derive(Debug, Clone, Default)]
pub struct RestoreFilter {
    /// Projects whose sessions are restored.
    pub projects: Vec<ProjectId>,
    /// Single sessions that are restored.
    pub sessions: Vec<SessionKey>,
}

impl RestoreFilter {
    fn contains(&self, key: &SessionKey) -> bool {
        let all = self.projects.is_empty() && self.sessions.is_empty();
        all || self.projects.contains(&key.project) || self.sessions.contains(key)
    }
}

/// The target of a restore.
#[derive(Debug, Clone)]
pub struct RestoreTarget {
    /// The folder of the log. It must be missing or empty.
    pub log: PathBuf,
    /// The blob store for the stored results.
    pub blobs: Blobs,
    /// The location of `blobs`. It identifies an interrupted restore.
    pub blobs_at: String,
    /// True if the blob store may already contain results.
    pub keep_blobs: bool,
    /// The time of the restore. The worker writes every `summary.md` again from this time on.
    pub now: Timestamp,
}

/// The amount of data that was verified and restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestoreReport {
    /// Sessions.
    pub sessions: u64,
    /// Events of these sessions.
    pub events: u64,
    /// Stored results.
    pub results: u64,
    /// Stored results that were already damaged or lost when the backup was taken. They are not restored.
    pub damaged: u64,
    /// Verified bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for RestoreReport {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.events += other.events;
        self.results += other.results;
        self.damaged += other.damaged;
        self.bytes += other.bytes;
    }
}

/// Verifies all files of a backup against its manifest.
pub async fn check(
    place: &Archive,
    id: &str,
    selection: &RestoreFilter,
) -> Result<RestoreReport, BackupError> {
    ManifestReader::check(place, id).await?;
    restore_each(place, id, selection, None).await
}

/// Restores a backup. The log is moved to its final folder when it is complete, so an interrupted restore is never
/// mistaken for a store.
pub async fn restore(
    place: &Archive,
    id: &str,
    selection: &RestoreFilter,
    target: RestoreTarget,
) -> Result<RestoreReport, BackupError> {
    // The whole manifest is verified before anything is written. Only its last line proves that it is complete.
    let backup = ManifestReader::check(place, id).await?;
    let (log, building) = (target.log.clone(), sibling(&target.log, "restoring"));
    let note = RestoreNote::new(&log, id, &target.blobs_at);
    let goes_on = must_be_empty(&target, &note).await?;
    if building.exists() {
        // The folder belongs to an interrupted restore. No process uses it.
        std::fs::remove_dir_all(&building).map_err(|e| io("remove", &building, e))?;
    }
    let parent = log.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(|e| io("create", parent, e))?;
    // The note must exist before the first result is stored. A repeated restore is allowed to find results only with
    // it.
    note.write()?;
    // Existing results belong to a log with a store id. The new log continues with the same id.
    let store = if target.keep_blobs || goes_on {
        target.blobs.read_owner().await?
    } else {
        None
    };
    // Results of another store must stay with it: the sweep of the restored log would remove them.
    let origin: Option<StoreId> = backup.store_id.and_then(|id| id.parse().ok());
    if let (Some(found), Some(given)) = (store, origin)
        && !goes_on
        && found != given
        && target.blobs.restored_from().await? != Some(given)
    {
        return Err(BackupError::OtherResults { found, given });
    }
    let options = SledOptions {
        id: store,
        ..SledOptions::new(&building)
    };
    let opened = spawn_blocking(move || SledLog::open(&options)).await;
    let opened = opened.map_err(|e| io("open", &building, std::io::Error::other(e)))??;
    let opened = Arc::new(opened);
    let into = SessionSink {
        log: Arc::clone(&opened),
        blobs: target.blobs.clone().bind(BlobOwner {
            store: opened.store_id().await?,
            adopts: target.keep_blobs,
            takes_over_from: None,
            restored_from: origin,
        }),
        now: target.now,
    };
    into.blobs.verify().await?;
    let restored = restore_each(place, id, selection, Some(&into)).await?;
    opened.close().await?;
    // The log must be closed and dropped before its folder is moved.
    drop((into, opened));
    crash_point("restore.closed");
    swap_folder(&building, &log, None)?;
    crash_point("restore.placed");
    note.remove()?;
    Ok(restored)
}

/// Returns an error if the target contains other data. Returns true if an interrupted restore of this backup to this
/// target is resumed.
async fn must_be_empty(target: &RestoreTarget, note: &RestoreNote) -> Result<bool, BackupError> {
    if !is_empty_dir(&target.log)? {
        return Err(BackupError::Occupied(format!(
            "the folder {} contains a store: restore into a missing or empty folder",
            target.log.display()
        )));
    }
    // The results in the blob store come from an interrupted restore of the same backup.
    let goes_on = note.exists()?;
    if !goes_on && !target.keep_blobs && !target.blobs.projects().await?.is_empty() {
        return Err(BackupError::Occupied(
            "the blob store already contains results: restore to another blob store, or pass --keep-blobs if they \
             belong to the same sessions"
                .into(),
        ));
    }
    // A blob store without results can still belong to another log, which would write into it after the restore.
    if !goes_on && !target.keep_blobs && target.blobs.read_owner().await?.is_some() {
        return Err(BackupError::Occupied(
            "the blob store belongs to another store, named in its file _palimpsest/store.json: restore \
             to another blob store, or pass --keep-blobs if it belongs to the same sessions"
                .into(),
        ));
    }
    Ok(goes_on)
}

/// Returns true if a folder is missing or empty. A folder that cannot be read is an error, because it may hold a store.
fn is_empty_dir(dir: &Path) -> Result<bool, BackupError> {
    match dir.read_dir().map(|mut entries| entries.next().transpose()) {
        Ok(Ok(first)) => Ok(first.is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Ok(Err(source)) | Err(source) => Err(BackupError::Io {
            doing: "read the folder",
            path: dir.display().to_string(),
            source,
        }),
    }
}

/// A note beside the unfinished log with the name of the backup and the target. It allows a repeated restore to write
/// into a blob store that the interrupted one has already filled.
struct RestoreNote {
    path: PathBuf,
    text: String,
}

impl RestoreNote {
    fn new(log: &Path, backup: &str, blobs_at: &str) -> Self {
        Self {
            path: sibling(log, "restoring.json"),
            text: serde_json::json!({"backup": backup, "blobs": blobs_at}).to_string(),
        }
    }

    /// Returns true if a restore of the same backup to the same target was interrupted.
    fn exists(&self) -> Result<bool, BackupError> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => Ok(text == self.text),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io("read", &self.path, error)),
        }
    }

    fn write(&self) -> Result<(), BackupError> {
        // The file and its folder entry are both synced, so that the note survives a power loss.
        let written = std::fs::write(&self.path, &self.text).and_then(|()| {
            std::fs::File::open(&self.path)?.sync_all()?;
            let parent = self.path.parent().unwrap_or(Path::new("."));
            std::fs::File::open(parent)?.sync_all()
        });
        written.map_err(|error| io("write", &self.path, error))
    }

    fn remove(&self) -> Result<(), BackupError> {
        std::fs::remove_file(&self.path).map_err(|error| io("remove", &self.path, error))
    }
}

fn sibling(folder: &Path, ending: &str) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    folder.with_file_name(name)
}

fn io(doing: &'static str, path: &Path, source: std::io::Error) -> BackupError {
    BackupError::Io {
        doing,
        path: path.display().to_string(),
        source,
    }
}

/// The target of restored sessions.
struct SessionSink {
    log: Arc<SledLog>,
    blobs: Blobs,
    now: Timestamp,
}

impl SessionSink {
    /// Appends consecutive batches concurrently and returns the incarnation. The first batch of a session is appended
    /// alone, because it determines the incarnation.
    async fn append(&self, key: &SessionKey, batches: Vec<Batch>) -> Result<u64, BackupError> {
        let (creating, later): (Vec<_>, Vec<_>) = batches
            .into_iter()
            .partition(|batch| batch.expected == Position::START);
        let mut incarnation = 0;
        for batch in creating {
            incarnation = self.log.append(key, batch).await?.incarnation;
        }
        let appends = later.into_iter().map(|mut batch| {
            // Batches of a new session were built before its incarnation was known.
            batch.expected.incarnation = batch.expected.incarnation.max(incarnation);
            self.log.append(key, batch)
        });
        for appended in join_all(appends).await {
            incarnation = appended?.incarnation;
        }
        Ok(incarnation)
    }
}

async fn restore_each(
    place: &Archive,
    id: &str,
    selection: &RestoreFilter,
    into: Option<&SessionSink>,
) -> Result<RestoreReport, BackupError> {
    let manifest = ManifestReader::open(place, id).await?;
    let entries = futures::stream::try_unfold(manifest, async |mut manifest: ManifestReader| {
        let entry = manifest.next().await?;
        Ok::<_, BackupError>(entry.map(|entry| (entry, manifest)))
    });
    let wanted = entries.try_filter_map(async |entry| {
        let key = entry.key().filter(|key| selection.contains(key));
        Ok(key.map(|key| (key, entry)))
    });
    // Buffered in order, so the manifest is read only a few entries ahead of the restored sessions.
    let done = wanted
        .map_ok(async |(key, entry)| session(place, &key, &entry, into).await)
        .try_buffered(PARALLEL);
    let mut done = std::pin::pin!(done);
    let mut all = RestoreReport::default();
    while let Some(one) = done.try_next().await? {
        all += one;
        crash_point("restore.session");
    }
    Ok(all)
}

async fn session(
    place: &Archive,
    key: &SessionKey,
    entry: &ManifestEntry,
    into: Option<&SessionSink>,
) -> Result<RestoreReport, BackupError> {
    let mut done = RestoreReport {
        sessions: 1,
        events: entry.revision,
        damaged: entry.damaged.len() as u64,
        ..RestoreReport::default()
    };
    // Results are stored first: an event may only reference a file that exists.
    for result in &entry.results {
        let path = result_path(key, &result.file);
        let mut parts = read(place, &path).await?;
        let mut held = BytesMut::new();
        while let Some(part) = parts.try_next().await? {
            held.extend_from_slice(&part);
            // Reading stops early at a file that is too large. Its digest cannot match.
            if held.len() as u64 > result.bytes {
                break;
            }
        }
        if hex(&Sha256::digest(&held)) != result.sha256 {
            return Err(damaged(
                &path,
                "its content differs from the digest in the manifest",
            ));
        }
        done.bytes += held.len() as u64;
        done.results += 1;
        if let Some(into) = into {
            into.blobs
                .put_file(key, &result.file, held.freeze())
                .await?;
        }
    }
    // The log rejects a longer row. Checking here reports the damaged session instead.
    let row = STANDARD.decode(&entry.row).ok();
    let row = row.filter(|row| row.len() <= MAX_LIST_ROW_BYTES);
    let row = row.ok_or_else(|| damaged(&entry.session, "its row cannot be read"))?;
    let mut at = Position::START;
    let mut tips = TipReader::default();
    for log in &entry.logs {
        // A missing part of the log would silently drop events, so the parts must be contiguous.
        if log.after != at.revision.get() {
            return Err(damaged(&log.path, "it does not follow the part before it"));
        }
        let mut records = LogPartReader::open(place, log).await?;
        let last = log.revision == entry.revision;
        // Without bytes, a session counts as one that never stored a result, and a backup looks for none. A lost
        // result counts as one byte, so that later backups report it.
        let stored: u64 = entry.results.iter().map(|result| result.bytes).sum();
        let end = last.then_some(stored + entry.damaged.len() as u64);
        at = append(
            &mut records,
            (key, &row, end),
            at,
            into.zip(Some(&mut tips)),
        )
        .await?;
        done.bytes += log.bytes;
    }
    if at.revision.get() != entry.revision {
        return Err(damaged(
            &entry.session,
            "its log does not reach its revision",
        ));
    }
    Ok(done)
}

/// Appends all records of a part of a log and returns the new position. The last part has an `end`. With its last
/// record, the session becomes due for the worker, the bytes of its results are counted, and its tips are stored.
async fn append(
    records: &mut LogPartReader<'_>,
    (key, row, end): (&SessionKey, &[u8], Option<u64>),
    mut at: Position,
    mut into: Option<(&SessionSink, &mut TipReader)>,
) -> Result<Position, BackupError> {
    let parent = parent_in_row(row);
    loop {
        let mut batches = Vec::new();
        let mut bytes = 0;
        while batches.len() < MAX_BATCH_RECORDS && bytes < MAX_FRAME_BYTES {
            let Some((first, events, frame)) = records.next().await? else {
                break;
            };
            // A batch is limited by bytes too, because all its frames are in memory.
            bytes += frame.len();
            let ends = first + u64::from(events.get()) - 1 == records.log.revision;
            let end = end.filter(|_| ends);
            let tips = into.as_mut().and_then(|(_, tips)| {
                tips.read(key, &frame);
                end.and_then(|_| tips.tips())
            });
            batches.push(Batch {
                blob_bytes: end.unwrap_or(0),
                completed_intents: Vec::new(),
                expected: Position {
                    revision: Revision::new(first - 1),
                    ..at
                },
                events,
                frame,
                list_row: Bytes::copy_from_slice(row),
                parent: parent.clone(),
                due: match &into {
                    Some((into, _)) if end.is_some() => DueChange::At(into.now),
                    _ => DueChange::Keep,
                },
                tips,
            });
        }
        let Some(last) = batches.last() else {
            return Ok(at);
        };
        at.revision = last.expected.revision.plus(u64::from(last.events.get()));
        if let Some((into, _)) = &into {
            at.incarnation = into.append(key, batches).await?;
        }
    }
}

/// The content of a file of the backup, in parts.
type FileParts = BoxStream<'static, Result<Bytes, BlobError>>;

/// Reads a file that the manifest of the backup names.
async fn read(place: &Archive, path: &str) -> Result<FileParts, BackupError> {
    match place.read(path).await {
        Err(BlobError::NotFound(_)) => Err(damaged(path, "it is missing")),
        read => Ok(read?),
    }
}

/// Reads the records of a part of a log, and verifies the digest at the end.
struct LogPartReader<'a> {
    log: &'a LogFile,
    parts: FileParts,
    buffer: BytesMut,
    digest: Sha256,
    at: u64,
}

impl<'a> LogPartReader<'a> {
    async fn open(place: &Archive, log: &'a LogFile) -> Result<Self, BackupError> {
        Ok(Self {
            log,
            parts: read(place, &log.path).await?,
            buffer: BytesMut::new(),
            digest: Sha256::new(),
            at: log.after,
        })
    }

    async fn next(&mut self) -> Result<Option<(u64, NonZeroU32, Bytes)>, BackupError> {
        let damaged = |what: &str| damaged(&self.log.path, what);
        let other = damaged("its content differs from the digest in the manifest");
        // No further record: the part is valid only if nothing is left over and revision and digest match.
        // The digest is known only here, after the earlier records were appended. Their folder becomes the store only
        // if no part fails.
        if !self.fill_buffer(RECORD_HEAD).await? {
            let is_whole = self.buffer.is_empty()
                && self.at == self.log.revision
                && hex(&self.digest.clone().finalize()) == self.log.sha256;
            return if is_whole { Ok(None) } else { Err(other) };
        }
        let mut head = self.buffer.split_to(RECORD_HEAD);
        let (first, events, len) = (head.get_u64(), head.get_u32(), head.get_u32() as usize);
        let events = NonZeroU32::new(events).filter(|_| first == self.at + 1);
        let Some(events) = events.filter(|_| len <= MAX_FRAME_BYTES) else {
            return Err(other);
        };
        if !self.fill_buffer(len).await? {
            return Err(other);
        }
        self.at += u64::from(events.get());
        // Revisions must be contiguous and must not exceed the part, whatever the record claims.
        if self.at > self.log.revision {
            return Err(other);
        }
        Ok(Some((first, events, self.buffer.split_to(len).freeze())))
    }

    /// Reads until `bytes` are buffered. Returns false if the part ends before.
    async fn fill_buffer(&mut self, bytes: usize) -> Result<bool, BackupError> {
        while self.buffer.len() < bytes {
            let Some(part) = self.parts.try_next().await? else {
                return Ok(false);
            };
            self.digest.update(&part);
            self.buffer.extend_from_slice(&part);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut as _;
    use palimpsest_core::event::{ArraySynced, Event, RecordedEvent, SessionCreated};
    use palimpsest_core::message::{Digest, MessageOrigin};
    use palimpsest_core::session::SessionInfo;
    use palimpsest_store::encoding::{encode_frame, encode_list_row};
    use palimpsest_store::{ArrayIndex as _, SubagentIndex as _};

    use super::*;

    #[test]
    fn an_unreadable_restore_target_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(is_empty_dir(dir.path()).unwrap());
        assert!(is_empty_dir(&dir.path().join("missing")).unwrap());
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert!(!is_empty_dir(dir.path()).unwrap());
        let refused = is_empty_dir(&file).unwrap_err().to_string();
        assert!(
            refused.starts_with("failed to read the folder"),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn a_restored_session_is_found_by_content_and_by_its_parent_again() {
        let parent = SessionKey::parse("projects/p/sessions/parent").unwrap();
        let info = SessionInfo {
            parent: Some(parent.clone()),
            ..SessionInfo::default()
        };
        let digest = |byte: u8| Digest::from_bytes([byte; 16]);
        let created = |scope| {
            Event::SessionCreated(SessionCreated {
                rules_version: 1,
                policy: Arc::default(),
                implicit: true,
                title: "".into(),
                project_path: "".into(),
                branch: "".into(),
                hold: "".into(),
                parent: None,
                forked_from: None,
                scope,
                attributes: Vec::new(),
                request: None,
            })
        };
        let synced = |byte: u8| {
            let change = ArraySynced {
                version: 1,
                format: MessageOrigin::Anthropic,
                lead: None,
                keep: 0,
                links: Vec::new(),
                is_provisional: false,
                confirmed: Vec::new(),
                abandoned: Vec::new(),
                tip: Some(digest(byte)),
            };
            Event::ArraySynced(change)
        };
        let folder = tempfile::tempdir().unwrap();
        let archive = Archive::open(folder.path().join("backup").to_str().unwrap()).unwrap();
        let options = SledOptions::new(folder.path().join("log"));
        let log = Arc::new(SledLog::open(&options).unwrap());
        let sink = SessionSink {
            log: Arc::clone(&log),
            blobs: Blobs::in_memory(),
            now: Timestamp::default(),
        };
        for (name, scope, expected) in [("found", Some(digest(9)), true), ("named", None, false)] {
            // The log has two parts, as after an incremental backup.
            let key = SessionKey::parse(&format!("projects/p/sessions/{name}")).unwrap();
            let parts = [vec![created(scope), synced(1)], vec![synced(2)]];
            let mut logs = Vec::new();
            let mut revision = 0;
            for (number, events) in parts.into_iter().enumerate() {
                let path = format!("{name}-{number}");
                let mut writer = archive.writer(&path).unwrap();
                let after = revision;
                for event in events {
                    let at = Timestamp::default();
                    let frame = encode_frame(&[RecordedEvent {
                        at,
                        by: None,
                        event,
                    }]);
                    revision += 1;
                    let mut head = BytesMut::new();
                    head.put_u64(revision);
                    head.put_u32(1);
                    head.put_u32(u32::try_from(frame.len()).unwrap());
                    writer.write(&head).await.unwrap();
                    writer.write(&frame).await.unwrap();
                }
                let sum = writer.finish().await.unwrap();
                logs.push(LogFile {
                    path,
                    after,
                    revision,
                    sha256: sum.sha256,
                    bytes: sum.bytes,
                });
            }
            let entry = ManifestEntry {
                session: key.to_string(),
                incarnation: 1,
                revision,
                last_sha256: String::new(),
                row: STANDARD.encode(encode_list_row(&info)),
                logs,
                results: Vec::new(),
                damaged: Vec::new(),
            };
            session(&archive, &key, &entry, Some(&sink)).await.unwrap();
            for tip in [1, 2] {
                let tips = [digest(tip)];
                let found = log.find_by_tip(&key.project, digest(9), &tips);
                assert_eq!(found.await.unwrap(), expected.then(|| key.clone()));
            }
            let found = log.subagents(std::slice::from_ref(&parent), None, 9).await;
            assert_eq!(found.unwrap(), std::slice::from_ref(&key));
            // The next session has the same tips.
            let at = log.head(&key).await.unwrap().unwrap().position();
            log.delete(&key, at, Timestamp::default()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_blob_store_of_another_log_is_not_empty() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::in_memory();
        let mut target = RestoreTarget {
            log: folder.path().join("log"),
            blobs: blobs.clone(),
            blobs_at: "memory".into(),
            keep_blobs: false,
            now: Timestamp::default(),
        };
        let note = RestoreNote::new(&target.log, "a", &target.blobs_at);
        assert!(!must_be_empty(&target, &note).await.unwrap());
        // Writes the marker and no result.
        blobs.verify().await.unwrap();
        let refused = must_be_empty(&target, &note).await.unwrap_err();
        assert!(matches!(&refused, BackupError::Occupied(text) if text.contains("store.json")));
        target.keep_blobs = true;
        assert!(!must_be_empty(&target, &note).await.unwrap());
    }
}
