//! `StreamContext`: streams a view that exceeds the size of one reply.

use std::sync::Arc;

use futures::stream;
use palimpsest_core::command::Rejection;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::Session;
use palimpsest_proto::context::v1::{StreamContextRequest, StreamContextResponse};

use tonic::Status;

use super::context::ReplyStream;
use super::prepare::{messages_json, typed};
use super::{Service, etag};
use crate::convert::{self, MessageForm};
use crate::errors::ServiceError;

/// The maximum size of a chunk: 1 MiB. A larger message is sent in a chunk of its own.
const CHUNK_BYTES: usize = 1024 * 1024;

/// A view during a stream. Each chunk is rendered on demand, so a slow reader needs no memory. A view-changing
/// event ends the stream.
struct ViewStream {
    service: Service,
    key: SessionKey,
    named: Arc<etag::ViewName>,
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
    let cursor = ViewStream {
        service: service.clone(),
        key,
        named: Arc::new(named),
        next: request.skip_messages as usize,
        done: false,
    };
    // The first chunk is rendered before the reply starts. If the view has changed, the call itself fails.
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
    let (named, next) = (Arc::clone(&cursor.named), cursor.next);
    let render = move |session: &Session| render(session, &named, next);
    let rendered = cursor
        .service
        .sessions
        .read_full(&cursor.key, render)
        .await??;
    cursor.next += rendered.1;
    cursor.done = rendered.0.last;
    Ok((rendered.0, cursor))
}

/// Renders the chunk that starts at a message. Also returns its number of messages.
fn render(
    session: &Session,
    named: &etag::ViewName,
    next: usize,
) -> Result<(StreamContextResponse, usize), ServiceError> {
    let target = &named.target;
    // After a view-changing event, further chunks would mix two arrays.
    if !named.etag.is_current(session.sealed(), target) {
        return Err(ServiceError::view_changed(session.revision()));
    }
    let messages = session
        .wire_messages(named.etag, target)
        .map_err(Rejection::from)?;
    // A caller that skips more messages than the view has gets an empty last chunk, not an error.
    let rest = messages.get(next..).unwrap_or_default();
    let (mut total, mut count) = (0, 0);
    let mut rendered = Vec::new();
    for message in rest {
        // The JSON size also limits chunks of typed messages, which have no cheaper measure.
        let one = messages_json(target, std::slice::from_ref(message));
        let size: usize = one.iter().map(bytes::Bytes::len).sum();
        // A chunk contains at least one message, whatever its size.
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
