//! `AppendMessages` and the messages of `PrepareContext`.

use std::sync::Arc;

use palimpsest_core::event::Event;
use palimpsest_core::ids::Revision;
use palimpsest_core::session::{RequestStamp, Session};
use palimpsest_engine::call::SPANS;
use palimpsest_engine::turn::{self, AppendContent, AppendInput, AppendStatus, Appended};
use palimpsest_proto::context::v1::{
    self, AdoptedCompaction, AppendMessagesRequest, AppendMessagesResponse, AppendResult,
    MessageInput,
};

use super::cache_control::{cache_control_dropped, messages_have_cache_control};
use super::view_report::{budget, tokens};
use super::{Service, adopt};
use crate::access::Right;
use crate::convert;
use crate::errors::ServiceError;

/// The validated messages of one request.
pub(super) struct AppendCall {
    /// The append.
    pub(super) input: AppendInput,
    /// For each message, the index of the request entry that contained it.
    input_indices: Vec<u32>,
}

impl AppendCall {
    /// Validates the messages of a request and assigns ids and times where the caller gave none.
    pub(super) fn read(
        service: &Service,
        inputs: Vec<MessageInput>,
        adopted: Option<&AdoptedCompaction>,
        expected_revision: Option<u64>,
        request: Option<RequestStamp>,
    ) -> Result<Self, ServiceError> {
        let now = service.sessions.clock().now();
        let read = convert::messages(inputs, service.limits(), &mut service.next_id())?;
        let input_indices = read.iter().map(|input| input.input_index).collect();
        let timed = read.into_iter().map(|input| {
            let mut message = input.message;
            // A message without a time gets the time of its arrival.
            message.at.get_or_insert(now);
            Arc::new(message)
        });
        let messages: Vec<_> = timed.collect();
        let content = match adopted {
            None => AppendContent::Messages(messages),
            Some(adopted) => AppendContent::Adoption(adopt::read(service, adopted, &messages)?),
        };
        Ok(Self {
            input: AppendInput {
                content,
                expected_revision: expected_revision.map(Revision::new),
                request,
            },
            input_indices,
        })
    }

    /// Returns the part of the reply about an append of this call.
    pub(super) fn result(&self, session: &Session, appended: &Appended) -> AppendResult {
        convert::append_result(
            session, &appended.event, &self.input_indices, appended.created,
        )
    }
}

pub(super) async fn append(
    service: &Service,
    request: AppendMessagesRequest,
) -> Result<AppendMessagesResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    // A summary removes messages from the view as `Compact` does, so the caller also needs that right.
    if request.adopted_compaction.is_some() {
        service.authorize_also(Right::Compact, &key)?;
    }
    let stamp = convert::request_stamp(&request, service.limits())?;
    let AppendMessagesRequest {
        expected_revision,
        messages,
        target,
        adopted_compaction,
        ..
    } = request;
    let drops_cache_control = messages_have_cache_control(&messages);
    let converting = tracing::debug_span!(target: SPANS, "convert");
    let adopted = adopted_compaction.as_ref();
    let read = || AppendCall::read(service, messages, adopted, expected_revision, stamp);
    let call = converting.in_scope(read)?;
    // An invalid target is rejected before anything is committed.
    let target = convert::target_override(target, &service.model_table)?;
    let missing = service.create_if_missing(&key.project);
    let finish = |session: &Session, status: &AppendStatus| {
        let appended = status.now();
        let mut warnings = convert::warnings(&status.warnings(session));
        warnings.extend(drops_cache_control.then(cache_control_dropped));
        Ok(AppendMessagesResponse {
            append: Some(appended.map_or_else(AppendResult::default, |appended| {
                call.result(session, appended)
            })),
            revision: session.revision().get(),
            tokens: Some(tokens(session, None)),
            budget: Some(budget(session, &target)),
            warnings,
            level_reports: appended
                .and_then(|appended| level_report(session, appended))
                .into_iter()
                .collect(),
        })
    };
    let appended = turn::append(service, &key, &missing, &call.input, finish).await?;
    let (mut response, original) = appended;
    // A repeat reports the original append.
    if let Some(original) = original {
        let result = |session: &Session| call.result(session, &original);
        response.append = Some(service.sessions.read(&key, result).await?);
    }
    Ok(response)
}

/// Returns the report of level 1, or none if it stored no result.
fn level_report(session: &Session, appended: &Appended) -> Option<v1::LevelReport> {
    let persisted = appended.persisted.clone()?;
    convert::stage(&Event::ResultsPersisted(persisted), session, false)
}
