//! `GetView`: the view of a session at a revision.

use palimpsest_core::ids::Revision;
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::TargetOverride;
use palimpsest_proto::context::v1::{GetViewRequest, GetViewResponse};
use prost::Message as _;
use tokio::task::spawn_blocking;

use super::Service;
use super::messages::place;
use super::view_report::budget;
use crate::convert::{self, PageCursor, ViewReader};
use crate::errors::ServiceError;

const DEFAULT_PAGE: u32 = 200;

pub(super) async fn get(
    service: &Service,
    request: GetViewRequest,
) -> Result<GetViewResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let limits = service.limits_of(&key).await?;
    let size = convert::page_size(request.page_size, DEFAULT_PAGE, limits.max_page_size);
    let digest = convert::body_digest(&request);
    let token = convert::page_token(&request.page_token, digest)?;
    let from = place(service, &key, token.as_ref()).await?.unwrap_or(0);
    let target = convert::target_override(request.target, &service.model_table)?;
    // All pages show the view that the first one showed, also if the session has changed since.
    let position = match token {
        Some(PageCursor::Within(position, _)) => position,
        _ => service.sessions.position(&key).await?,
    };
    let page = ViewPage {
        from: usize::try_from(from).unwrap_or(usize::MAX),
        size,
        max_bytes: limits.max_reply_bytes,
        max_text: match request.max_text_chars {
            0 => usize::MAX,
            chars => chars as usize,
        },
        target,
    };
    let revision = match request.revision {
        0 => position.revision,
        revision => Revision::new(revision),
    };
    // The current session often has the requested revision. Then no earlier state is rebuilt from the log.
    let read = |session: &Session| (session.revision() == revision).then(|| page.read(session));
    let current = service.sessions.read_full(&key, read).await?;
    let page = if let Some(current) = current {
        current
    } else {
        let sessions = &service.sessions;
        let past = sessions
            .past_session(&key, revision, position.revision)
            .await?;
        let read = spawn_blocking(move || page.read(&past.session)).await;
        read.map_err(|_| ServiceError::fault("read the view: its task ended early"))?
    };
    let (mut response, next) = page.map_err(|_: ContentNotLoaded| {
        ServiceError::fault("read the view: the content of a message is not loaded")
    })?;
    // The view was read in several steps. `confirm` fails if another history has replaced the session meanwhile.
    service.sessions.confirm(&key, position).await?;
    response.next_page_token = next
        .map(|next| convert::page_token_text(&PageCursor::Within(position, next), digest))
        .unwrap_or_default();
    Ok(response)
}

/// A page of a view.
struct ViewPage {
    from: usize,
    size: usize,
    max_bytes: usize,
    max_text: usize,
    target: TargetOverride,
}

impl ViewPage {
    /// Reads the page. Also returns the index of the block with which the next page begins.
    fn read(&self, session: &Session) -> Result<(GetViewResponse, Option<u64>), ContentNotLoaded> {
        let (target, window) = session.target_of(&self.target);
        let blocks = session.view_blocks(&target)?;
        let reader = ViewReader::new(session, &target, self.max_text);
        let mut response = GetViewResponse {
            revision: session.revision().get(),
            epoch: session.sealed().epoch().get().into(),
            target: Some(convert::export_target(&target, window)),
            tokens: convert::saturate_tokens(session.tokens().tokens),
            breakdown: Some(convert::breakdown(session, None)),
            budget: Some(budget(session, &self.target)),
            time: Some(convert::export_timestamp(session.info().modified)),
            hidden: convert::hidden_ranges(&session.hidden_messages()),
            ..GetViewResponse::default()
        };
        let mut bytes = 0;
        for (index, block) in blocks.iter().enumerate().skip(self.from) {
            let converted = reader.block(block);
            // A page ends at the limit of blocks or bytes, but contains at least one block.
            let more = converted.encoded_len();
            let is_full = response.blocks.len() == self.size || bytes + more > self.max_bytes;
            if is_full && !response.blocks.is_empty() {
                return Ok((response, Some(index as u64)));
            }
            bytes += more;
            response.blocks.push(converted);
        }
        Ok((response, None))
    }
}
