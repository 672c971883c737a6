//! `AdminService`: reads the store for backups, session by session.

use async_stream::try_stream;
use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, Revision, SessionKey};
use palimpsest_core::message::Digest;
use palimpsest_engine::EngineError;
use palimpsest_engine::backup::{self, PART_BYTES, SessionCopy};
use palimpsest_proto::context::v1::admin_service_server::AdminService;
use palimpsest_proto::context::v1::{
    ListProjectsRequest, ListProjectsResponse, ListStoredSessionsRequest,
    ListStoredSessionsResponse, ReadStoredFileRequest, ReadStoredFileResponse,
    ReadStoredSessionRequest, ReadStoredSessionResponse, StoredFile, StoredSession,
    StoredSessionEnd,
};
use palimpsest_store::blobs::{BlobError, result_path};
use palimpsest_store::{MAX_LIST, SessionHead, error_chain};
use tonic::{Request, Response, Status, async_trait};

use super::context::ReplyStream;
use super::{Service, projects, reply};
use crate::convert::{self, PageCursor};
use crate::errors::{RETRY_SOON, ServiceError};

/// The maximum number of files in one stream element.
const FILES: usize = 1_000;

/// The handlers of `AdminService`.
#[derive(Debug, Clone)]
pub struct AdminHandlers(pub Service);

#[async_trait]
impl AdminService for AdminHandlers {
    async fn list_projects(
        &self,
        request: Request<ListProjectsRequest>,
    ) -> Result<Response<ListProjectsResponse>, Status> {
        let (request, granted) = self.0.admit_call_for_projects(request)?;
        reply(projects::list(&self.0, request, granted).await)
    }

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
    let size = convert::page_size(request.page_size, most, MAX_LIST);
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
    // A backup must not miss a session, so an unreadable row fails the call.
    let rows = log.list(project.as_ref(), after.as_ref(), size).await?;
    // A full page may be the last one. In that case the next page is empty.
    let next_page_token = match rows.last() {
        Some((last, _)) if rows.len() == size => {
            // This list is ordered by name alone, so the number of the cursor is not used.
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
    let known = Revision::new(request.after_revision);
    let mut copy = SessionCopy::begin(service, key, (known, &request.after_sha256)).await?;
    let stream = try_stream! {
        loop {
            let parts = copy.next().await.map_err(failed)?;
            if parts.is_empty() {
                break;
            }
            for data in parts {
                yield ReadStoredSessionResponse { data, ..ReadStoredSessionResponse::default() };
            }
        }
        // A file is stored before the event that names it, so a list after the log has all files of the log.
        for files in copy.files().await.map_err(failed)?.chunks(FILES) {
            yield ReadStoredSessionResponse {
                files: files.iter().map(stored_file).collect(),
                ..ReadStoredSessionResponse::default()
            };
        }
        let end = copy.end().await.map_err(failed)?;
        yield ReadStoredSessionResponse {
            end: Some(StoredSessionEnd {
                incarnation: end.head.incarnation,
                after_revision: end.from.get(),
                revision: end.head.revision.get(),
                last_sha256: end.last_sha256.into(),
                row: end.head.list_row,
            }),
            ..ReadStoredSessionResponse::default()
        };
    };
    Ok(Box::pin(stream))
}

fn stored_file(file: &backup::StoredFile) -> StoredFile {
    let sha256 = file.sha256.as_ref();
    StoredFile {
        file: file.file.clone(),
        bytes: file.bytes,
        sha256: sha256
            .map(|digest| Bytes::copy_from_slice(digest))
            .unwrap_or_default(),
        lost: file.lost,
    }
}

fn failed(error: EngineError) -> Status {
    Status::from(ServiceError::from(error))
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
