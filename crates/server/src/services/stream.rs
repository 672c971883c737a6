//! `StreamContext`: a view that is too large for one reply, in chunks.

use std::sync::Arc;

use futures::stream;
use palimpsest_core::command::Rejection;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::Session;
use palimpsest_core::view::Target;
use palimpsest_proto::context::v1::{StreamContextRequest, StreamContextResponse};

use tonic::Status;

use super::context::ReplyStream;
use super::prepare::{messages_json, typed};
use super::{Service, etag};
use crate::convert::{self, MessageForm};
use crate::errors::ServiceError;

/// How much one chunk holds, unless one message is larger.
const CHUNK_BYTES: usize = 1024 * 1024;

/// A view that is being streamed. Each chunk is rendered when it is asked for, so that a slow reader
/// costs no memory; a view-changing event in between ends the stream.
struct ViewStream {
    service: Service,
    key: SessionKey,
    named: Arc<etag::ViewName>,
    target: Target,
    next: usize,
    done: bool,
}

pub(super) async fn stream(
    service: &Service,
    request: StreamContextRequest,
) -> Result<ReplyStream<StreamContextResponse>, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let Some(named) = etag::read(&request.etag) else {
        return Err(ServiceError::invalid(
            "etag",
            "is not one of a view that was prepared",
        ));
    };
    let current = service.sessions.read(&key, Session::revision).await?;
    let Some(target) = named.target.clone() else {
        return Err(ServiceError::ViewChanged { current });
    };
    let cursor = ViewStream {
        service: service.clone(),
        key,
        named: Arc::new(named),
        target,
        next: request.skip_messages as usize,
        done: false,
    };
    // The first chunk is made at once, so that a view that is gone is the answer of the call itself.
    let first = chunk(cursor).await?;
    let rest = stream::try_unfold(first.1, |cursor| async move {
        if cursor.done {
            return Ok(None);
        }
        Ok::<_, Status>(Some(chunk(cursor).await?))
    });
    let chunks = stream::once(async move { Ok(first.0) });
    Ok(Box::pin(futures::StreamExt::chain(chunks, rest)))
}

async fn chunk(
    mut cursor: ViewStream,
) -> Result<(StreamContextResponse, ViewStream), ServiceError> {
    let (named, target, next) = (
        Arc::clone(&cursor.named),
        cursor.target.clone(),
        cursor.next,
    );
    let render = move |session: &Session| render(session, &named, &target, next);
    let rendered = cursor
        .service
        .sessions
        .read_whole(&cursor.key, render)
        .await??;
    cursor.next += rendered.1;
    cursor.done = rendered.0.last;
    Ok((rendered.0, cursor))
}

/// The chunk that begins with a message, and how many messages it has.
fn render(
    session: &Session,
    named: &etag::ViewName,
    target: &Target,
    next: usize,
) -> Result<(StreamContextResponse, usize), ServiceError> {
    if !named.etag.is_current(session.sealed(), target) {
        return Err(ServiceError::ViewChanged {
            current: session.revision(),
        });
    }
    let messages = session
        .wire_of(named.etag, target)
        .map_err(Rejection::from)?;
    let rest = messages.get(next..).unwrap_or_default();
    let (mut total, mut count) = (0, 0);
    let mut rendered = Vec::new();
    for message in rest {
        let one = messages_json(target, std::slice::from_ref(message));
        let size: usize = one.iter().map(bytes::Bytes::len).sum();
        if count > 0 && total + size > CHUNK_BYTES {
            break;
        }
        total += size;
        count += 1;
        rendered.extend(one);
    }
    let mut response = StreamContextResponse {
        first_message_index: u32::try_from(next).unwrap_or(u32::MAX),
        last: count == rest.len(),
        ..StreamContextResponse::default()
    };
    match named.form {
        MessageForm::Typed => response.messages = typed(session, target, &rest[..count]),
        MessageForm::Json => response.messages_json = rendered,
    }
    Ok((response, count))
}
