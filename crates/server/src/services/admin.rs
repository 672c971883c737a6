//! `AdminService`: reads the store for backups.
//!
//! Sessions are read one by one. Each copy is a durable prefix of a session's log. The backup reads the log
//! directly and bypasses the sessions' handles and their cache, so other calls continue meanwhile.

use std::collections::BTreeMap;

use async_stream::try_stream;
use bytes::{BufMut as _, Bytes, BytesMut};
use palimpsest_core::ids::{ProjectId, Revision, SessionKey};
use palimpsest_core::message::Digest;
use palimpsest_engine::EngineError;
use palimpsest_engine::maintenance::referenced_files::{self, ReferencedFiles};
use palimpsest_proto::context::v1::admin_service_server::AdminService;
use palimpsest_proto::context::v1::{
    ListStoredSessionsRequest, ListStoredSessionsResponse, ReadStoredFileRequest,
    ReadStoredFileResponse, ReadStoredSessionRequest, ReadStoredSessionResponse, StoredFile,
    StoredSession, StoredSessionEnd,
};
use palimpsest_store::blobs::{BlobError, result_path};
use palimpsest_store::{Frame, MAX_LIST, Position, SessionHead, crash_point, error_chain};
use sha2::{Digest as _, Sha256};
use tonic::{Request, Response, Status, async_trait};

use super::context::ReplyStream;
use super::{Service, reply};
use crate::convert::{self, PageCursor};
use crate::errors::{RETRY_SOON, ServiceError};

/// Bytes of a log that one read requests: 1 MiB.
const READ_BYTES: usize = 1 << 20;
/// The maximum size of the data in one stream element: 1 MiB, which is below the default message limit of clients.
const PART_BYTES: usize = 1 << 20;
/// The maximum number of files in one stream element.
const FILES: usize = 1_000;

/// The handlers of `AdminService`.
#[derive(Debug, Clone)]
pub struct AdminHandlers(pub Service);

#[async_trait]
impl AdminService for AdminHandlers {
    async fn list_stored_sessions(
        &self,
        request: Request<ListStoredSessionsRequest>,
    ) -> Result<Response<ListStoredSessionsResponse>, Status> {
        // An empty parent lists all projects, which needs the right in each of them.
        let request = if request.get_ref().parent.is_empty() {
            self.0.admit_global_call(request)?
        } else {
            self.0.admit_call(request)?
        };
        reply(list(&self.0, request).await)
    }

    type ReadStoredSessionStream = ReplyStream<ReadStoredSessionResponse>;

    async fn read_stored_session(
        &self,
        request: Request<ReadStoredSessionRequest>,
    ) -> Result<Response<Self::ReadStoredSessionStream>, Status> {
        reply(read(&self.0, self.0.admit_call(request)?).await)
    }

    type ReadStoredFileStream = ReplyStream<ReadStoredFileResponse>;

    async fn read_stored_file(
        &self,
        request: Request<ReadStoredFileRequest>,
    ) -> Result<Response<Self::ReadStoredFileStream>, Status> {
        reply(read_file(&self.0, self.0.admit_call(request)?).await)
    }
}

async fn list(
    service: &Service,
    request: ListStoredSessionsRequest,
) -> Result<ListStoredSessionsResponse, ServiceError> {
    let project: Option<ProjectId> = match request.parent.as_str() {
        "" => None,
        name => Some(convert::project(name, "parent")?),
    };
    let most = u32::try_from(MAX_LIST).unwrap_or(u32::MAX);
    let size = convert::page_size(request.page_size, most, MAX_LIST)?;
    // The digest binds a page token to the list that issued it.
    let digest = Digest::of_bytes(request.parent.as_bytes());
    let after = match convert::page_token(&request.page_token, digest)? {
        Some(PageCursor::Named(_, name)) => {
            Some(SessionKey::parse(&name).map_err(|_| ServiceError::invalid_page_token())?)
        }
        Some(PageCursor::Number(_) | PageCursor::Within(..) | PageCursor::Inside(..)) => {
            return Err(ServiceError::invalid_page_token());
        }
        None => None,
    };
    let log = service.sessions.log();
    let rows = log.list(project.as_ref(), after.as_ref(), size).await?;
    // A full page may be the last one. In that case the next page is empty.
    let next_page_token = match rows.last() {
        Some((last, _)) if rows.len() == size => {
            convert::page_token_text(&PageCursor::Named(0, last.to_string()), digest)
        }
        _ => String::new(),
    };
    // The marker of the results has it. Later pages need not read it again.
    let restored_from = match after {
        Some(_) => None,
        None => service
            .blobs
            .restored_from()
            .await
            .map_err(|error| unreadable_marker(&error))?,
    };
    let restored_from = restored_from.map(|id| id.to_string()).unwrap_or_default();
    let stored = |(key, head): (SessionKey, SessionHead)| StoredSession {
        session: key.to_string(),
        incarnation: head.incarnation,
        revision: head.revision.get(),
        log_bytes: head.log_bytes,
    };
    Ok(ListStoredSessionsResponse {
        sessions: rows.into_iter().map(stored).collect(),
        next_page_token,
        store_id: log.store_id().await?.to_string(),
        restored_from,
    })
}

async fn read(
    service: &Service,
    request: ReadStoredSessionRequest,
) -> Result<ReplyStream<ReadStoredSessionResponse>, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    // The head fixes the end of the copy. Later commits are not part of it.
    let head = head(service, &key).await?;
    let to = head.revision;
    let known = Revision::new(request.after_revision);
    let mut last = Vec::new();
    let mut after = Revision::ZERO;
    // An incremental copy continues only if the caller's last frame is still part of this log. Otherwise the whole
    // log is sent.
    if known > Revision::ZERO && known <= to {
        let given = &request.after_sha256;
        if let Some(frame) = frame_at(service, &key, head.position().at(known)).await?
            && digest(&frame) == given[..]
        {
            after = known;
            last = given.to_vec();
        }
    }
    let (service, from) = (service.clone(), after);
    let stream = try_stream! {
        while after < to {
            let frames = service.sessions.log().read(&key, head.position().at(after), READ_BYTES);
            let frames = frames.await.map_err(ServiceError::from).map_err(Status::from)?;
            if frames.is_empty() {
                // The session was deleted meanwhile, or the store was restored to an earlier state.
                service.sessions.confirm(&key, head.position()).await.map_err(failed)?;
                Err(Status::from(ServiceError::store_unavailable(RETRY_SOON)))?;
            }
            for frame in frames {
                // A commit may follow while the stream runs. Frames past the head read at the start belong to the
                // next backup.
                if frame.last() > to {
                    break;
                }
                after = frame.last();
                last = digest(&frame);
                for data in record(&frame) {
                    yield ReadStoredSessionResponse { data, ..ReadStoredSessionResponse::default() };
                }
            }
        }
        crash_point("backup.log_read");
        // Files are listed after the log is read. A file is stored before the event that names it, so the list
        // contains all files that the copied events name.
        let files = service.blobs.results(&key).await.map_err(blobs)?;
        // Digests need a read of all events, which sessions that never stored a file can skip.
        let known = if files.is_empty() && head.blob_bytes == 0 {
            ReferencedFiles::new()
        } else {
            digests(&service, &key).await.map_err(failed)?
        };
        let missing = lost_files(&service, &key, &files, &known).await.map_err(blobs)?;
        let stored = |(file, bytes): &(String, u64)| StoredFile {
            file: file.clone(),
            bytes: *bytes,
            sha256: known
                .get(&**file)
                .map(|digest| Bytes::copy_from_slice(digest))
                .unwrap_or_default(),
            lost: false,
        };
        let files: Vec<_> = files.iter().map(stored).chain(missing).collect();
        for files in files.chunks(FILES) {
            yield ReadStoredSessionResponse {
                files: files.to_vec(),
                ..ReadStoredSessionResponse::default()
            };
        }
        // The log was read in several steps. `confirm` fails if another history has replaced the session meanwhile,
        // so the stream never mixes two histories.
        service.sessions.confirm(&key, head.position()).await.map_err(failed)?;
        yield ReadStoredSessionResponse {
            end: Some(StoredSessionEnd {
                incarnation: head.incarnation,
                after_revision: from.get(),
                revision: to.get(),
                last_sha256: last.into(),
                row: head.list_row,
            }),
            ..ReadStoredSessionResponse::default()
        };
    };
    Ok(Box::pin(stream))
}

/// Returns the digests of a session's files as recorded in the log. A log whose events cannot be decoded is still
/// backed up, and its files are copied without a check.
async fn digests(service: &Service, key: &SessionKey) -> Result<ReferencedFiles, EngineError> {
    match referenced_files::read_referenced_files(&service.sessions, key).await {
        Err(error @ EngineError::Unreadable { .. }) => {
            tracing::warn!(session = %key, error = %error_chain(&error), "failed to read the events of a session that is backed up; its files are copied unchecked");
            Ok(ReferencedFiles::new())
        }
        read => read,
    }
}

/// Returns the files that events name and that the blob store does not contain.
async fn lost_files(
    service: &Service,
    key: &SessionKey,
    files: &[(String, u64)],
    known: &ReferencedFiles,
) -> Result<Vec<StoredFile>, BlobError> {
    let mut missing: BTreeMap<_, _> = known.iter().collect();
    for (file, _) in files {
        missing.remove(&Box::from(file.as_str()));
    }
    // An event that was committed after the list was read can name a newer file. A second list contains that file.
    if !missing.is_empty() {
        for (file, _) in service.blobs.results(key).await? {
            missing.remove(&Box::from(file));
        }
    }
    let lost = missing.into_iter().map(|(file, digest)| StoredFile {
        file: file.to_string(),
        bytes: 0,
        sha256: Bytes::copy_from_slice(digest),
        lost: true,
    });
    Ok(lost.collect())
}

async fn head(service: &Service, key: &SessionKey) -> Result<SessionHead, ServiceError> {
    let head = service.sessions.log().head(key).await?;
    head.ok_or_else(|| EngineError::SessionNotFound(key.clone()).into())
}

fn failed(error: EngineError) -> Status {
    Status::from(ServiceError::from(error))
}

/// Returns the frame that ends exactly at a position, or `None`.
async fn frame_at(
    service: &Service,
    key: &SessionKey,
    at: Position,
) -> Result<Option<Frame>, ServiceError> {
    let before = at.at(Revision::new(at.revision.get() - 1));
    // A read returns at least one frame, so a limit of one byte is sufficient.
    let frames = service.sessions.log().read(key, before, 1).await?;
    let first = frames.into_iter().next();
    Ok(first.filter(|frame| frame.last() == at.revision))
}

fn digest(frame: &Frame) -> Vec<u8> {
    Sha256::digest(&frame.bytes).to_vec()
}

/// Returns a frame as stream elements: a header of 16 bytes, then its bytes in parts of at most [`PART_BYTES`].
fn record(frame: &Frame) -> Vec<Bytes> {
    // The header contains the first revision, the number of events and the number of bytes. The reader finds the
    // end of the frame with them.
    let mut head = BytesMut::with_capacity(16);
    head.put_u64(frame.first.get());
    head.put_u32(frame.events);
    head.put_u32(u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX));
    let mut parts = vec![head.freeze()];
    let mut rest = frame.bytes.clone();
    while !rest.is_empty() {
        parts.push(rest.split_to(rest.len().min(PART_BYTES)));
    }
    parts
}

async fn read_file(
    service: &Service,
    request: ReadStoredFileRequest,
) -> Result<ReplyStream<ReadStoredFileResponse>, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let path = result_path(&key, &request.file)
        .map_err(|_| ServiceError::invalid("file", "is not the name of a stored result"))?;
    let not_found = ServiceError::result_not_found(&request.file);
    let bytes = match service.blobs.get(&path).await {
        Ok(bytes) => bytes,
        Err(BlobError::NotFound(_)) => return Err(not_found),
        // A blob store that cannot be reached now is retryable. `NotFound` would make the backup omit the result.
        Err(error @ (BlobError::Store(_) | BlobError::Folder(_))) => {
            tracing::warn!(session = %key, file = request.file, error = %error_chain(&error), "failed to read a stored result");
            return Err(ServiceError::store_unavailable(RETRY_SOON));
        }
        Err(error) => return Err(ServiceError::internal("read a stored result", error)),
    };
    let stream = try_stream! {
        let mut rest = bytes;
        // The loop yields at least one element, so an empty file still ends with `last`.
        loop {
            let data = rest.split_to(rest.len().min(PART_BYTES));
            let last = rest.is_empty();
            yield ReadStoredFileResponse { data, last };
            if last {
                break;
            }
        }
    };
    Ok(Box::pin(stream))
}

fn unreadable_marker(error: &BlobError) -> ServiceError {
    tracing::warn!(error = %error_chain(error), "failed to read the marker of the stored results");
    ServiceError::store_unavailable(RETRY_SOON)
}

fn blobs(error: BlobError) -> Status {
    Status::from(ServiceError::internal("list stored results", error))
}
