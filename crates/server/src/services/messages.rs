//! `ListMessages`: returns originals from the transcript, independently of the view.

use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::Session;
use palimpsest_engine::EngineError;
use palimpsest_proto::context::v1::{ListMessagesRequest, ListMessagesResponse, TranscriptMessage};
use prost::Message as _;

use super::Service;
use crate::convert::{self, BlockStatuses, ContentForm, MessageForm, PageCursor};
use crate::errors::ServiceError;
use palimpsest_engine::originals::{OriginalMessage, TranscriptWalk};

const DEFAULT_PAGE: u32 = 100;

pub(super) async fn list(
    service: &Service,
    request: ListMessagesRequest,
) -> Result<ListMessagesResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let limits = service.limits_of(&key).await?;
    let size = convert::page_size(request.page_size, DEFAULT_PAGE, limits.max_page_size);
    let digest = convert::body_digest(&request);
    let from = convert::page_token(&request.page_token, digest)?;
    let from = place(service, &key, from.as_ref()).await?;
    let content = match convert::form(request.form, "form")? {
        _ if request.omit_content => ContentForm::Omitted,
        MessageForm::Typed => ContentForm::Typed,
        MessageForm::Json => {
            let format = convert::payload_format(request.format, "format")?;
            ContentForm::Json(format.unwrap_or_default())
        }
    };
    let filter = convert::message_filter(request.filter, service.limits())?;
    let mut walk = TranscriptWalk::begin(service, &key, filter, request.descending, from).await?;
    let mut response = ListMessagesResponse {
        revision: walk.position().revision.get(),
        ..ListMessagesResponse::default()
    };
    let (mut bytes, mut next) = (0, None);
    'walk: while !walk.is_done() {
        // One message more than the page shows whether another page follows.
        let originals = walk.chunk(service, size + 1).await?;
        let show = |session: &Session| show(session, &originals, content);
        let messages = service.sessions.read(&key, show).await?;
        for (original, message) in originals.iter().zip(messages) {
            // A page ends at the limit of messages or bytes, but contains at least one message.
            let more = message.encoded_len();
            let is_full = response.messages.len() == size
                || (bytes + more > limits.max_reply_bytes && !response.messages.is_empty());
            if is_full {
                next = Some(walk.resume_at(original.ordinal));
                break 'walk;
            }
            bytes += more;
            response.messages.push(message);
        }
    }
    response.next_page_token = next
        .map(|next| convert::page_token_text(&PageCursor::Within(walk.position(), next), digest))
        .unwrap_or_default();
    Ok(response)
}

fn show(
    session: &Session,
    originals: &[OriginalMessage],
    content: ContentForm,
) -> Vec<TranscriptMessage> {
    // One scan of the view serves all messages of the page.
    let statuses = BlockStatuses::of(session);
    let messages = originals.iter().map(|original| {
        let entry = (original.ordinal, &original.entry);
        convert::transcript_message(session, entry, &original.message, content, &statuses)
    });
    messages.collect()
}

/// Returns the number in a page token.
pub(super) fn number(cursor: Option<&PageCursor>) -> Result<Option<u64>, ServiceError> {
    match cursor {
        None => Ok(None),
        Some(PageCursor::Number(number)) => Ok(Some(*number)),
        Some(_) => Err(ServiceError::invalid_page_token()),
    }
}

/// Returns the ordinal at which a page begins. A page token is rejected if the session's history has been replaced,
/// because the pages would mix two histories.
pub(super) async fn place(
    service: &Service,
    key: &SessionKey,
    cursor: Option<&PageCursor>,
) -> Result<Option<u64>, ServiceError> {
    let (position, number) = match cursor {
        None => return Ok(None),
        Some(PageCursor::Within(position, number)) => (*position, *number),
        Some(_) => return Err(ServiceError::invalid_page_token()),
    };
    match service.sessions.confirm(key, position).await {
        Err(EngineError::HistoryChanged(_)) => Err(ServiceError::invalid_page_token()),
        confirmed => Ok(confirmed.map(|()| Some(number))?),
    }
}
