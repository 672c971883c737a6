//! Creates a backup of a running server. Data of the base, which is the last backup, is not read again.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_engine::backup::{
    BackupError, FORMAT, LogFile, ManifestEntry, ManifestHeader, ManifestReader, ManifestWriter,
    ResultFile, latest, log_path, result_path,
};
use palimpsest_proto::context::v1::admin_service_client::AdminServiceClient;
use palimpsest_proto::context::v1::{
    ListStoredSessionsRequest, ReadStoredFileRequest, ReadStoredSessionRequest, StoredFile,
    StoredSession, StoredSessionEnd,
};
use palimpsest_store::archive::{Archive, ArchiveWriter, FileChecksum, hex};
use palimpsest_store::blobs::BlobError;
use palimpsest_store::crash_point;
use tokio::time::sleep;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, StdError};
use tonic::{Code, Status};

/// The number of sessions that are read at the same time.
const PARALLEL: usize = 4;
/// The maximum number of reads of one session while the server answers `UNAVAILABLE`. The pause between two reads
/// starts at `FIRST_PAUSE` and doubles.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct BackupReport {
    /// The name of the backup.
    pub id: String,
    /// The base of an incremental backup.
    pub base: Option<String>,
    /// The sessions in the backup.
    pub sessions: u64,
    /// The sessions with changes since the base.
    pub changed: u64,
    /// The sessions that were deleted during the backup. They are not in it.
    pub gone: u64,
    /// The stored results that were copied.
    pub results: u64,
    /// The session and file of each missing result. The copies of the server are damaged or lost.
    pub damaged: Vec<(String, String)>,
    /// The number of written bytes.
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum CreateBackupError {
    /// A call to the server failed.
    #[error("a call to the server failed: {0}")]
    Server(#[source] FailedCall),
    /// The server ended a stream early.
    #[error("the server ended the stream of {0} early: run the command again")]
    StreamEnded(SessionKey),
    /// The place of the backups cannot be read or written, or its last backup is damaged.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

/// The status of a failed call. It is shown as its message and its cause: the text of a status repeats the message.
#[derive(Debug)]
pub(super) struct FailedCall(Box<Status>);

impl FailedCall {
    pub(super) fn code(&self) -> Code {
        self.0.code()
    }
}

impl fmt::Display for FailedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message())
    }
}

impl std::error::Error for FailedCall {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl From<Status> for CreateBackupError {
    fn from(status: Status) -> Self {
        Self::Server(FailedCall(Box::new(status)))
    }
}

impl From<BlobError> for CreateBackupError {
    fn from(error: BlobError) -> Self {
        Self::Backup(error.into())
    }
}

/// A transport for gRPC calls: a channel, with or without a credential.
pub(super) trait GrpcTransport:
    GrpcService<
        Body,
        Error: Into<StdError>,
        Future: Send,
        ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
    > + Clone
    + Send
{
}

impl<T> GrpcTransport for T where
    T: GrpcService<
            Body,
            Error: Into<StdError>,
            Future: Send,
            ResponseBody: HttpBody<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
        > + Clone
        + Send
{
}

/// Creates a backup. `now` and `random` determine its id. With `full`, the backup has no base.
pub(super) async fn create_backup<W: GrpcTransport>(
    place: &Archive,
    client: AdminServiceClient<W>,
    (now, random): (Timestamp, u64),
    full: bool,
) -> Result<BackupReport, CreateBackupError> {
    let last = latest(place).await?;
    let last = match last {
        // A damaged base would make the new backup unusable. A full backup needs no base.
        Some(last) => match ManifestReader::check(place, &last).await {
            Err(error) if !full => return Err(error.into()),
            checked => checked.ok(),
        },
        None => None,
    };
    // The last backup is found by its name. Its time is the minimum, so that the names sort after a clock was set back.
    let after = last.as_ref().map_or(i64::MIN, |last| last.started_ms + 1);
    let started = now.max(Timestamp::from_millis(after));
    let mut client = client;
    let first = client.list_stored_sessions(ListStoredSessionsRequest::default());
    let mut page = first.await?.into_inner();
    let store_id = page.store_id.clone();
    // A full backup has no base and may follow a backup of another store. Only its time depends on the last backup.
    let last = last.filter(|_| !full);
    // A restored store continues the backups that it was restored from.
    if let Some(last) = &last
        && let Some(found) = &last.store_id
        && *found != page.restored_from
    {
        is_store(found, &store_id, &last.id)?;
    }
    let base = last.map(|last| last.id);
    let backup = ManifestHeader {
        format: FORMAT,
        id: backup_id(started, random),
        started_ms: started.as_millis(),
        base: base.clone(),
        store_id: Some(store_id.clone()),
    };
    let run = BackupRun {
        place,
        client,
        id: &backup.id,
    };
    let mut before = PreviousManifest::open(place, base.as_deref()).await?;
    let mut draft = ManifestWriter::begin(place, &backup).await?;
    let mut taken = BackupReport {
        id: backup.id.clone(),
        base,
        ..BackupReport::default()
    };
    loop {
        let mut work = Vec::with_capacity(page.sessions.len());
        // The base is read in the order of the list, so it is searched before the sessions are read in parallel.
        for session in page.sessions {
            let key = parsed(&session)?;
            let before = before.find(&key).await?;
            work.push((key, session, before));
        }
        let read = work
            .into_iter()
            .map(|(key, session, before)| run.whole_session(key, session, before));
        // `buffered` keeps the order of names. The next backup reads this manifest alongside the sorted list of the
        // server.
        let mut read = futures::stream::iter(read).buffered(PARALLEL);
        while let Some(session) = read.try_next().await? {
            let Some(BackedUpSession {
                entry,
                results,
                bytes,
            }) = session
            else {
                taken.gone += 1;
                continue;
            };
            taken.sessions += 1;
            taken.changed += u64::from(bytes > 0);
            taken.results += results;
            taken.bytes += bytes;
            let damaged = entry.damaged.iter();
            let damaged = damaged.map(|file| (entry.session.clone(), file.clone()));
            taken.damaged.extend(damaged);
            // An unchanged session has an entry too. Its entry names the files of earlier backups.
            draft.add(&entry).await?;
        }
        if page.next_page_token.is_empty() {
            break;
        }
        let request = ListStoredSessionsRequest {
            page_token: page.next_page_token,
            ..ListStoredSessionsRequest::default()
        };
        page = run
            .client
            .clone()
            .list_stored_sessions(request)
            .await?
            .into_inner();
        // The server can be replaced by another one between two pages.
        is_store(&store_id, &page.store_id, &backup.id)?;
    }
    crash_point("backup.read");
    // This makes the backup visible. An interrupted run has no manifest, so the last backup stays the base.
    draft.finish().await?;
    Ok(taken)
}

/// Returns an error if a backup was made of another store.
fn is_store(found: &str, given: &str, backup: &str) -> Result<(), BackupError> {
    if found == given {
        return Ok(());
    }
    Err(BackupError::OtherStore {
        backup: backup.to_owned(),
        found: found.to_owned(),
        given: given.to_owned(),
    })
}

fn parsed(session: &StoredSession) -> Result<SessionKey, CreateBackupError> {
    let no_name = || {
        Status::new(
            Code::Internal,
            "the list contains a session without a valid name",
        )
    };
    Ok(SessionKey::parse(&session.session).map_err(|_| no_name())?)
}

/// Returns the id of a backup: the time in UTC, so that ids sort by time, and a random suffix against collisions.
fn backup_id(now: Timestamp, random: u64) -> String {
    let at = jiff::Timestamp::from_millisecond(now.as_millis()).unwrap_or_default();
    let random = random & 0xFFFF_FFFF;
    format!("{}-{random:08x}", at.strftime("%Y%m%dT%H%M%S%.3fZ"))
}

/// The manifest of the base. It is read alongside the list of the server, because both are sorted by name.
struct PreviousManifest {
    manifest: Option<ManifestReader>,
    next: Option<ManifestEntry>,
}

impl PreviousManifest {
    async fn open(place: &Archive, base: Option<&str>) -> Result<Self, BackupError> {
        let mut manifest = match base {
            Some(base) => Some(ManifestReader::open(place, base).await?),
            None => None,
        };
        let next = match &mut manifest {
            Some(manifest) => manifest.next().await?,
            None => None,
        };
        Ok(Self { manifest, next })
    }

    /// Returns the entry of a session and skips all entries before it. Calls must be in the order of names.
    async fn find(&mut self, key: &SessionKey) -> Result<Option<ManifestEntry>, BackupError> {
        loop {
            let next = self.next.as_ref().and_then(ManifestEntry::key);
            match next {
                Some(next) if next < *key => {}
                Some(next) if next == *key => return Ok(self.next.take_if(|_| true)),
                _ => {
                    // The next entry belongs to a later session, so the base lacks this one. The entry stays for a
                    // later call.
                    if self.next.is_some() || self.manifest.is_none() {
                        return Ok(None);
                    }
                }
            }
            self.next = match &mut self.manifest {
                Some(manifest) => manifest.next().await?,
                None => None,
            };
            if self.next.is_none() {
                // The base has no further entry. Later calls return without another read.
                self.manifest = None;
                return Ok(None);
            }
        }
    }
}

struct BackupRun<'a, W> {
    place: &'a Archive,
    client: AdminServiceClient<W>,
    id: &'a str,
}

/// The outcome of the copy of one stored result.
enum ResultCopy {
    /// The result is in the backup.
    Copied(ResultFile),
    /// The server has no undamaged copy, and an earlier backup in this place has one.
    AlreadyStored(ResultFile),
    /// The result was swept during the backup. Only results that no event names are swept.
    Swept,
    /// The copy of the server is damaged or lost, and no backup has another copy.
    Missing,
}

/// A session that was copied.
struct BackedUpSession {
    entry: ManifestEntry,
    results: u64,
    bytes: u64,
}

impl<W: GrpcTransport> BackupRun<'_, W> {
    /// Copies the changes of a session. Returns `None` if the session was deleted.
    ///
    /// Repeats the whole copy on `UNAVAILABLE`: the store cannot be read, or the history of the session changed during
    /// the copy.
    async fn whole_session(
        &self,
        key: SessionKey,
        stored: StoredSession,
        before: Option<ManifestEntry>,
    ) -> Result<Option<BackedUpSession>, CreateBackupError> {
        let mut pause = FIRST_PAUSE;
        // The last attempt follows the loop, so that its error is returned without another pause.
        for _ in 1..ATTEMPTS {
            // A retry reads everything again. Its log has the same path and replaces that of the failed attempt.
            match self
                .session(key.clone(), stored.clone(), before.clone())
                .await
            {
                Err(CreateBackupError::Server(FailedCall(status)))
                    if status.code() == Code::Unavailable =>
                {
                    tracing::warn!(session = %key, error = status.message(), "failed to read a session; retrying");
                    sleep(pause).await;
                    pause *= 2;
                }
                read => return read,
            }
        }
        self.session(key, stored, before).await
    }

    async fn session(
        &self,
        key: SessionKey,
        stored: StoredSession,
        before: Option<ManifestEntry>,
    ) -> Result<Option<BackedUpSession>, CreateBackupError> {
        // Another incarnation is another session with the same name, so nothing of the base applies to it.
        let before = before.filter(|before| before.incarnation == stored.incarnation);
        let (log, files, end) = match self.log(&key, before.as_ref()).await {
            Ok(read) => read,
            Err(CreateBackupError::Server(FailedCall(status)))
                if status.code() == Code::NotFound =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // The entry of the base applies only if the server continued from its revision. Otherwise the session has
        // another history, and the server sent the whole log.
        let before = before.filter(|before| {
            end.after_revision == before.revision && end.incarnation == before.incarnation
        });
        let (mut logs, known) = match before {
            Some(before) => (before.logs, before.results),
            None => (Vec::new(), Vec::new()),
        };
        let mut bytes = log.as_ref().map_or(0, |log| log.bytes);
        logs.extend(log);
        let mut known: HashMap<String, ResultFile> = known
            .into_iter()
            .map(|result| (result.file.clone(), result))
            .collect();
        let (mut results, mut new) = (Vec::with_capacity(files.len()), 0);
        let mut damaged = Vec::new();
        for file in files {
            // A stored result never changes, so the copy of the base is still valid.
            // A lost result has a size of 0 on the server, so it never equals the copy of the base.
            let same = known.remove(&file.file).filter(|it| it.bytes == file.bytes);
            if let Some(result) = same {
                results.push(result);
                continue;
            }
            let name = file.file.clone();
            match self.result(&key, file).await? {
                ResultCopy::Copied(result) => {
                    bytes += result.bytes;
                    new += 1;
                    results.push(result);
                }
                ResultCopy::AlreadyStored(result) => results.push(result),
                ResultCopy::Swept => {}
                ResultCopy::Missing => damaged.push(name),
            }
        }
        crash_point("backup.session");
        let entry = ManifestEntry {
            session: key.to_string(),
            incarnation: end.incarnation,
            revision: end.revision,
            last_sha256: hex(&end.last_sha256),
            row: STANDARD.encode(&end.row),
            logs,
            results,
            damaged,
        };
        Ok(Some(BackedUpSession {
            entry,
            results: new,
            bytes,
        }))
    }

    async fn log(
        &self,
        key: &SessionKey,
        before: Option<&ManifestEntry>,
    ) -> Result<(Option<LogFile>, Vec<StoredFile>, StoredSessionEnd), CreateBackupError> {
        let request = ReadStoredSessionRequest {
            session: key.to_string(),
            after_revision: before.map_or(0, |before| before.revision),
            // An unreadable digest becomes an empty one, which matches no record. The server then sends the whole log.
            after_sha256: before
                .and_then(|before| unhex(&before.last_sha256))
                .unwrap_or_default()
                .into(),
        };
        // The server compares the revision and checksum of the base with its log. It sends the whole log if they
        // differ.
        let stream = self.client.clone().read_stored_session(request).await?;
        let mut stream = stream.into_inner();
        let path = log_path(key, self.id);
        let mut writer: Option<ArchiveWriter> = None;
        let mut files = Vec::new();
        while let Some(part) = stream.message().await? {
            if !part.data.is_empty() {
                // The file is created with the first data, so a session without changes adds no file.
                let writer = match &mut writer {
                    Some(writer) => writer,
                    none => none.insert(self.place.writer(&path)?),
                };
                // Parts can end within a record, so the bytes are written as they arrive.
                writer.write(&part.data).await?;
            }
            files.extend(part.files);
            // Only the last element has an end. A stream without an end is incomplete.
            let Some(end) = part.end else { continue };
            let log = match writer {
                None => None,
                Some(writer) => {
                    let sum = writer.finish().await?;
                    Some(LogFile {
                        path,
                        after: end.after_revision,
                        revision: end.revision,
                        sha256: sum.sha256,
                        bytes: sum.bytes,
                    })
                }
            };
            return Ok((log, files, end));
        }
        Err(CreateBackupError::StreamEnded(key.clone()))
    }

    /// Copies a stored result. A damaged or lost result does not fail the backup, so that all other data is backed up.
    async fn result(
        &self,
        key: &SessionKey,
        file: StoredFile,
    ) -> Result<ResultCopy, CreateBackupError> {
        // The server has no file to read, and would answer NOT_FOUND.
        if file.lost {
            return Ok(self.earlier_copy(key, file).await);
        }
        let request = ReadStoredFileRequest {
            session: key.to_string(),
            file: file.file.clone(),
        };
        let stream = match self.client.clone().read_stored_file(request).await {
            Ok(stream) => stream,
            // A sweep may remove a result that no event names at any time, so the session needs no copy of it.
            Err(status) if status.code() == Code::NotFound && file.sha256.is_empty() => {
                return Ok(ResultCopy::Swept);
            }
            // The session was deleted, or the result was lost. The next read of the session shows which of both.
            Err(status) if status.code() == Code::NotFound => {
                return Err(Status::unavailable(status.message()).into());
            }
            Err(status) => return Err(status.into()),
        };
        let mut stream = stream.into_inner();
        let path = result_path(key, &file.file);
        let mut writer = self.place.writer(&path)?;
        while let Some(part) = stream.message().await? {
            writer.write(&part.data).await?;
            if !part.last {
                continue;
            }
            let sum = writer.sum();
            // A result that no event names has no checksum in the log, so it is copied unchecked.
            let logged = hex(&file.sha256);
            // The writer is dropped unfinished, so a damaged copy never replaces the copy of an earlier backup.
            if !logged.is_empty() && sum.sha256 != logged {
                return Ok(self.earlier_copy(key, file).await);
            }
            writer.finish().await?;
            return Ok(ResultCopy::Copied(result_file(file, sum)));
        }
        Err(CreateBackupError::StreamEnded(key.clone()))
    }

    /// Returns the undamaged copy of an earlier backup, which has the same name in this place.
    async fn earlier_copy(&self, key: &SessionKey, file: StoredFile) -> ResultCopy {
        let earlier = self
            .place
            .checksum(&result_path(key, &file.file))
            .await
            .ok();
        match earlier.filter(|sum| sum.sha256 == hex(&file.sha256)) {
            Some(sum) => ResultCopy::AlreadyStored(result_file(file, sum)),
            None => ResultCopy::Missing,
        }
    }
}

fn result_file(file: StoredFile, sum: FileChecksum) -> ResultFile {
    ResultFile {
        file: file.file,
        sha256: sum.sha256,
        bytes: sum.bytes,
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    // An odd length makes the last `get` fail, so the whole text is rejected.
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backup_ids_sort_by_time() {
        for (millis, expected) in [
            (0, "19700101T000000.000Z-000000ab"),
            // The days around the end of February 2000, which is a leap year.
            (951_782_399_999, "20000228T235959.999Z-000000ab"),
            (951_782_400_000, "20000229T000000.000Z-000000ab"),
            (1_709_251_200_000, "20240301T000000.000Z-000000ab"),
            (1_798_761_599_000, "20261231T235959.000Z-000000ab"),
        ] {
            assert_eq!(backup_id(Timestamp::from_millis(millis), 0xAB), expected);
        }
    }
}
