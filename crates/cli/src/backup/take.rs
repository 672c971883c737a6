//! Takes a backup of a running server, upon the last one: what that has is not read again.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_engine::backup::{
    BackupError, FORMAT, LogFile, Manifest, ManifestEntry, ManifestHeader, ManifestWriter,
    ResultFile, latest, log_path, result_path,
};
use palimpsest_proto::context::v1::admin_service_client::AdminServiceClient;
use palimpsest_proto::context::v1::{
    ListStoredSessionsRequest, ReadStoredFileRequest, ReadStoredSessionRequest, StoredFile,
    StoredSession, StoredSessionEnd,
};
use palimpsest_store::archive::{Archive, ArchiveWriter, Sum, hex};
use palimpsest_store::blobs::BlobError;
use palimpsest_store::crash_point;
use tokio::time::sleep;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, StdError};
use tonic::{Code, Status};

/// Sessions that are read at one time.
const PARALLEL: usize = 4;
/// How often a session is read while the server answers that its store cannot be read now, and the first pause
/// between two, which doubles.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// What was backed up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct BackupReport {
    /// The name of the backup.
    pub id: String,
    /// The backup that it was made upon.
    pub base: Option<String>,
    /// Sessions in it.
    pub sessions: u64,
    /// Those of them that had something new.
    pub changed: u64,
    /// Sessions that were deleted while it was taken, which it does not have.
    pub gone: u64,
    /// Stored results that were new.
    pub results: u64,
    /// Stored results that it does not have, because the server's copies are damaged: the session and the file.
    pub damaged: Vec<(String, String)>,
    /// Bytes that were written.
    pub bytes: u64,
}

/// An error while a backup is taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum TakeError {
    /// The server refused, or cannot be reached.
    #[error("the server says: {}", .0.message())]
    Server(#[source] Box<Status>),
    /// The server ended a stream before its end.
    #[error("the server ended {0} before its end: try again")]
    Cut(SessionKey),
    /// The place of the backup cannot be read or written, or an earlier backup in it is no base.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

impl From<Status> for TakeError {
    fn from(status: Status) -> Self {
        Self::Server(Box::new(status))
    }
}

impl From<BlobError> for TakeError {
    fn from(error: BlobError) -> Self {
        Self::Backup(error.into())
    }
}

/// What reaches a server: a channel, with a credential or without.
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

/// Takes a backup. `now` and `random` make its name; with `full`, it stands by itself.
pub(super) async fn take<W: GrpcTransport>(
    place: &Archive,
    client: AdminServiceClient<W>,
    (now, random): (Timestamp, u64),
    full: bool,
) -> Result<BackupReport, TakeError> {
    let last = latest(place).await?;
    let last = match last {
        // A base that is damaged would make this one worthless too; what stands by itself needs none.
        Some(last) => match Manifest::check(place, &last).await {
            Err(error) if !full => return Err(error.into()),
            checked => checked.ok(),
        },
        None => None,
    };
    // The latest one is found by its name, whatever became of the clock.
    let after = last.as_ref().map_or(i64::MIN, |last| last.started_ms + 1);
    let started = now.max(Timestamp::from_millis(after));
    let mut client = client;
    let first = client.list_stored_sessions(ListStoredSessionsRequest::default());
    let mut page = first.await?.into_inner();
    let store_id = page.store_id.clone();
    let last = last.filter(|_| !full);
    if let Some((last, found)) = last
        .as_ref()
        .and_then(|last| Some((last, last.store_id.as_ref()?)))
    {
        // A restored store continues the backups that it was restored from.
        if *found != page.restored_from {
            is_store(found, &store_id, &last.id)?;
        }
    }
    let base = last.map(|last| last.id);
    let backup = ManifestHeader {
        format: FORMAT,
        id: name(started, random),
        started_ms: started.as_millis(),
        base: base.clone(),
        store_id: Some(store_id.clone()),
    };
    let run = Run {
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
        for session in page.sessions {
            let key = parsed(&session)?;
            let before = before.of(&key).await?;
            work.push((key, session, before));
        }
        let read = work
            .into_iter()
            .map(|(key, session, before)| run.whole_session(key, session, before));
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
        // The server may have been replaced meanwhile.
        is_store(&store_id, &page.store_id, &backup.id)?;
    }
    crash_point("backup.read");
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

fn parsed(session: &StoredSession) -> Result<SessionKey, TakeError> {
    let no_name = || Status::new(Code::Internal, "it lists a session without a name");
    Ok(SessionKey::parse(&session.session).map_err(|_| no_name())?)
}

/// The time in UTC, so that names sort as backups were taken, and something that tells two of one
/// second apart.
fn name(now: Timestamp, random: u64) -> String {
    let at = jiff::Timestamp::from_millisecond(now.as_millis()).unwrap_or_default();
    let random = random & 0xFFFF_FFFF;
    format!("{}-{random:08x}", at.strftime("%Y%m%dT%H%M%S%.3fZ"))
}

/// The manifest of the last backup, read beside the server's list: both are in the order of names.
struct PreviousManifest {
    manifest: Option<Manifest>,
    next: Option<ManifestEntry>,
}

impl PreviousManifest {
    async fn open(place: &Archive, base: Option<&str>) -> Result<Self, BackupError> {
        let mut manifest = match base {
            Some(base) => Some(Manifest::open(place, base).await?),
            None => None,
        };
        let next = match &mut manifest {
            Some(manifest) => manifest.next().await?,
            None => None,
        };
        Ok(Self { manifest, next })
    }

    /// The entry of a session; those before it are not asked for any more.
    async fn of(&mut self, key: &SessionKey) -> Result<Option<ManifestEntry>, BackupError> {
        loop {
            let next = self.next.as_ref().and_then(ManifestEntry::key);
            match next {
                Some(next) if next < *key => {}
                Some(next) if next == *key => return Ok(self.next.take_if(|_| true)),
                _ => {
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
                self.manifest = None;
                return Ok(None);
            }
        }
    }
}

struct Run<'a, W> {
    place: &'a Archive,
    client: AdminServiceClient<W>,
    id: &'a str,
}

/// A stored result that was asked for.
enum Copied {
    /// It is in the backup now.
    Whole(ResultFile),
    /// The server's copy is damaged, and the place of the backup has a whole one.
    Kept(ResultFile),
    /// It was swept meanwhile, which only happens to what no event names.
    Swept,
    /// The server's copy is damaged, and there is no other.
    Damaged,
}

/// A session that was read.
struct BackedUpSession {
    entry: ManifestEntry,
    results: u64,
    bytes: u64,
}

impl<W: GrpcTransport> Run<'_, W> {
    /// Reads what is new of a session; none when it is gone. A store that cannot be read now, or that changed the
    /// session's history meanwhile, is asked for all of it again.
    async fn whole_session(
        &self,
        key: SessionKey,
        stored: StoredSession,
        before: Option<ManifestEntry>,
    ) -> Result<Option<BackedUpSession>, TakeError> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match self
                .session(key.clone(), stored.clone(), before.clone())
                .await
            {
                Err(TakeError::Server(status)) if status.code() == Code::Unavailable => {
                    tracing::warn!(session = %key, error = status.message(), "failed to read a session; it is read again");
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
    ) -> Result<Option<BackedUpSession>, TakeError> {
        let before = before.filter(|before| before.incarnation == stored.incarnation);
        let (log, files, end) = match self.log(&key, before.as_ref()).await {
            Ok(read) => read,
            Err(TakeError::Server(status)) if status.code() == Code::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // Upon the last backup, unless the server began anew: the session is another one by now.
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
            let same = known.remove(&file.file).filter(|it| it.bytes == file.bytes);
            if let Some(result) = same {
                results.push(result);
                continue;
            }
            let name = file.file.clone();
            match self.result(&key, file).await? {
                Copied::Whole(result) => {
                    bytes += result.bytes;
                    new += 1;
                    results.push(result);
                }
                Copied::Kept(result) => results.push(result),
                Copied::Swept => {}
                Copied::Damaged => damaged.push(name),
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
    ) -> Result<(Option<LogFile>, Vec<StoredFile>, StoredSessionEnd), TakeError> {
        let request = ReadStoredSessionRequest {
            session: key.to_string(),
            after_revision: before.map_or(0, |before| before.revision),
            after_sha256: before
                .and_then(|before| unhex(&before.last_sha256))
                .unwrap_or_default()
                .into(),
        };
        let stream = self.client.clone().read_stored_session(request).await?;
        let mut stream = stream.into_inner();
        let path = log_path(key, self.id);
        let mut writer: Option<ArchiveWriter> = None;
        let mut files = Vec::new();
        while let Some(part) = stream.message().await? {
            if !part.data.is_empty() {
                let writer = match &mut writer {
                    Some(writer) => writer,
                    none => none.insert(self.place.writer(&path)?),
                };
                writer.write(&part.data).await?;
            }
            files.extend(part.files);
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
        Err(TakeError::Cut(key.clone()))
    }

    /// Copies a stored result. One that is damaged is no reason to have no backup of everything else.
    async fn result(&self, key: &SessionKey, file: StoredFile) -> Result<Copied, TakeError> {
        let request = ReadStoredFileRequest {
            session: key.to_string(),
            file: file.file.clone(),
        };
        let stream = match self.client.clone().read_stored_file(request).await {
            Ok(stream) => stream,
            Err(status) if status.code() == Code::NotFound => return Ok(Copied::Swept),
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
            // Nobody can say what a file holds that no event names.
            let logged = hex(&file.sha256);
            let is_whole = logged.is_empty() || sum.sha256 == logged;
            if is_whole {
                writer.finish().await?;
            }
            // An earlier backup may have a copy that is whole, under the same name.
            let kept = if is_whole {
                None
            } else {
                self.place.sum(&path).await.ok()
            };
            let kept = kept.filter(|kept| kept.sha256 == logged);
            let of = |sum: Sum| ResultFile {
                file: file.file,
                sha256: sum.sha256,
                bytes: sum.bytes,
            };
            return Ok(match kept {
                _ if is_whole => Copied::Whole(of(sum)),
                Some(kept) => Copied::Kept(of(kept)),
                None => Copied::Damaged,
            });
        }
        Err(TakeError::Cut(key.clone()))
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dates_that_sort() {
        for (millis, expected) in [
            (0, "19700101T000000.000Z-000000ab"),
            (951_782_399_999, "20000228T235959.999Z-000000ab"),
            (951_782_400_000, "20000229T000000.000Z-000000ab"),
            (1_709_251_200_000, "20240301T000000.000Z-000000ab"),
            (1_798_761_599_000, "20261231T235959.000Z-000000ab"),
        ] {
            assert_eq!(name(Timestamp::from_millis(millis), 0xAB), expected);
        }
    }
}
