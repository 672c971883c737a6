//! `AdminService`: the store as it is, for backups.
//!
//! Session after session, each a prefix of its log that is durable. Neither the sessions' handles nor
//! their cache are touched: what is read is what the log holds, and calls go on meanwhile.

use async_stream::try_stream;
use bytes::{BufMut as _, Bytes, BytesMut};
use palimpsest_core::ids::{ProjectId, Revision, SessionKey};
use palimpsest_core::message::Digest;
use palimpsest_engine::sessions::SessionsError;
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
use super::failure::SOON;
use super::{Service, reply};
use crate::convert::{self, PageCursor};
use crate::errors::ServiceError;
use crate::upkeep::names::{self, ReferencedFiles};

/// How much of a log is read at a time.
const READ_BYTES: usize = 1 << 20;
/// The most bytes of one element: well under what clients take by default.
const PART_BYTES: usize = 1 << 20;
/// How many files one element names.
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
        let request = if request.get_ref().parent.is_empty() {
            self.0.enter_all(request)?
        } else {
            self.0.enter(request)?
        };
        reply(list(&self.0, request).await)
    }

    type ReadStoredSessionStream = ReplyStream<ReadStoredSessionResponse>;

    async fn read_stored_session(
        &self,
        request: Request<ReadStoredSessionRequest>,
    ) -> Result<Response<Self::ReadStoredSessionStream>, Status> {
        reply(read(&self.0, self.0.enter(request)?).await)
    }

    type ReadStoredFileStream = ReplyStream<ReadStoredFileResponse>;

    async fn read_stored_file(
        &self,
        request: Request<ReadStoredFileRequest>,
    ) -> Result<Response<Self::ReadStoredFileStream>, Status> {
        reply(read_file(&self.0, self.0.enter(request)?).await)
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
    let digest = Digest::of_bytes(request.parent.as_bytes());
    let after = match convert::page_token(&request.page_token, digest)? {
        Some(PageCursor::Named(_, name)) => {
            Some(SessionKey::parse(&name).map_err(|_| ServiceError::InvalidPageToken)?)
        }
        Some(PageCursor::Number(_) | PageCursor::Within(..)) => {
            return Err(ServiceError::InvalidPageToken);
        }
        None => None,
    };
    let log = service.sessions.log();
    let rows = log.list(project.as_ref(), after.as_ref(), size).await?;
    let next_page_token = match rows.last() {
        Some((last, _)) if rows.len() == size => {
            convert::page_token_text(&PageCursor::Named(0, last.to_string()), digest)
        }
        _ => String::new(),
    };
    let stored = |(key, head): (SessionKey, SessionHead)| StoredSession {
        session: key.to_string(),
        incarnation: head.incarnation,
        revision: head.revision.get(),
        log_bytes: head.log_bytes,
    };
    Ok(ListStoredSessionsResponse {
        sessions: rows.into_iter().map(stored).collect(),
        next_page_token,
    })
}

async fn read(
    service: &Service,
    request: ReadStoredSessionRequest,
) -> Result<ReplyStream<ReadStoredSessionResponse>, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let head = head(service, &key).await?;
    let to = head.revision;
    let known = Revision::new(request.after_revision);
    let mut last = Vec::new();
    let mut after = Revision::ZERO;
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
                // It was deleted meanwhile, or the store went on from an earlier state of itself.
                service.sessions.confirm(&key, head.position()).await.map_err(failed)?;
                Err(Status::from(ServiceError::StoreUnavailable { retry_after: SOON }))?;
            }
            for frame in frames {
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
        // The files after the log: whatever an event up to here names was there before it.
        let files = service.blobs.results(&key).await.map_err(blobs)?;
        let known = if files.is_empty() {
            ReferencedFiles::new()
        } else {
            digests(&service, &key).await.map_err(failed)?
        };
        for files in files.chunks(FILES) {
            let files = files.iter().map(|(file, bytes)| StoredFile {
                file: file.clone(),
                bytes: *bytes,
                sha256: known
                    .get(&**file)
                    .map(|digest| Bytes::copy_from_slice(digest))
                    .unwrap_or_default(),
            });
            yield ReadStoredSessionResponse {
                files: files.collect(),
                ..ReadStoredSessionResponse::default()
            };
        }
        // It was read in steps: no part of it is of a history that took the place of the one before.
        service.sessions.confirm(&key, head.position()).await.map_err(failed)?;
        yield ReadStoredSessionResponse {
            end: Some(StoredSessionEnd {
                incarnation: head.incarnation,
                after_revision: from.get(),
                revision: to.get(),
                last_sha256: last.into(),
                row: head.summary,
            }),
            ..ReadStoredSessionResponse::default()
        };
    };
    Ok(Box::pin(stream))
}

/// The digests that the log has of a session's files. A log that cannot be read as events is backed up all the same, and
/// its files as they are.
async fn digests(service: &Service, key: &SessionKey) -> Result<ReferencedFiles, SessionsError> {
    match names::of(&service.sessions, key).await {
        Err(error @ SessionsError::Unreadable { .. }) => {
            tracing::warn!(session = %key, error = %error_chain(&error), "failed to read the events of a session that is backed up; its files are copied unchecked");
            Ok(ReferencedFiles::new())
        }
        read => read,
    }
}

async fn head(service: &Service, key: &SessionKey) -> Result<SessionHead, ServiceError> {
    let head = service.sessions.log().head(key).await?;
    head.ok_or_else(|| ServiceError::SessionNotFound {
        session: key.clone(),
    })
}

fn failed(error: SessionsError) -> Status {
    Status::from(ServiceError::from(error))
}

/// The frame that ends at a position, if one does.
async fn frame_at(
    service: &Service,
    key: &SessionKey,
    at: Position,
) -> Result<Option<Frame>, ServiceError> {
    let before = at.at(Revision::new(at.revision.get() - 1));
    let frames = service.sessions.log().read(key, before, 1).await?;
    let first = frames.into_iter().next();
    Ok(first.filter(|frame| frame.last() == at.revision))
}

fn digest(frame: &Frame) -> Vec<u8> {
    Sha256::digest(&frame.bytes).to_vec()
}

/// A frame as it is streamed: its head, and its bytes in parts.
fn record(frame: &Frame) -> Vec<Bytes> {
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
    let not_found = ServiceError::ResultNotFound {
        name: request.file.clone(),
    };
    let bytes = match service.blobs.get(&path).await {
        Ok(bytes) => bytes,
        Err(BlobError::NotFound(_)) => return Err(not_found),
        // A bucket that cannot be reached now is no reason to leave the result out.
        Err(error @ (BlobError::Store(_) | BlobError::Folder(_))) => {
            tracing::warn!(session = %key, file = request.file, error = %error_chain(&error), "failed to read a stored result");
            return Err(ServiceError::StoreUnavailable { retry_after: SOON });
        }
        Err(error) => return Err(ServiceError::internal("read a stored result", error)),
    };
    let stream = try_stream! {
        let mut rest = bytes;
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

fn blobs(error: BlobError) -> Status {
    Status::from(ServiceError::internal("list stored results", error))
}
