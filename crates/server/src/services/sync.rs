//! `SyncContext`: takes a whole array and returns the view.

use std::sync::Arc;

use palimpsest_core::array::ArrayOutcome;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::Session;
use palimpsest_core::view::Provider;
use palimpsest_engine::call::SPANS;
use palimpsest_engine::turn::{self, FirstStore, SyncInput, TurnOutcome};
use palimpsest_proto::context::v1::{
    self, PrepareContextRequest, SyncContextRequest, SyncContextResponse,
};

use super::Service;
use super::cache_control::{cache_control_dropped, has_cache_control};
use super::prepare::{read_call, report_omitted};
use crate::convert::{self, BodyOptions};
use crate::errors::ServiceError;

pub(super) async fn sync(
    service: &Service,
    mut request: SyncContextRequest,
) -> Result<SyncContextResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let converting = tracing::debug_span!(target: SPANS, "convert");
    // `read_input` comes first: it takes the payload, and fills in the prompt prefix that `read_call` reads.
    let SyncRead {
        input,
        outside,
        options: body,
        format,
        has_cache_control,
    } = converting.in_scope(|| read_input(service, &key, &mut request))?;
    let places_breakpoints = request.cache_breakpoints.is_some();
    let mut call = read_call(service, options(request))?;
    call.turn.target.format = Some(format);
    let drops_cache_control = has_cache_control && !places_breakpoints;
    call.turn.target = convert::with_body_options(call.turn.target, body, &service.model_table);
    let missing = service.create_if_missing(&key.project);
    let finish = |session: &Session, outcome: &TurnOutcome| {
        let mut context = call.respond(service, session, outcome)?;
        if drops_cache_control {
            context.warnings.push(cache_control_dropped());
        }
        let mut response = SyncContextResponse {
            context: Some(context),
            ..SyncContextResponse::default()
        };
        if let Some(array) = &outcome.array {
            response.set_outcome(sync_outcome(array.outcome));
            response.lead_messages = count(array.lead.saturating_sub(outside));
            response.appended_messages = count(array.appended);
        }
        Ok(response)
    };
    let done = turn::sync(service, &key, &missing, &call.turn, &input, finish).await?;
    let (key, done) = done;
    let mut response = done.answer;
    response.session = key.to_string();
    if let Some(context) = &mut response.context {
        report_omitted(service, &key, done.omitted, context).await?;
        context.delegated_request = call.delegated_request(service, &key).await;
    }
    Ok(response)
}

/// The payload of a call.
struct SyncRead {
    input: SyncInput,
    /// The number of messages at the start that are not in the array.
    outside: usize,
    /// The options of a request. `None` for an array alone.
    options: Option<BodyOptions>,
    /// The format of the array.
    format: Provider,
    /// True if the array contains markers of the prompt cache.
    has_cache_control: bool,
}

/// Reads the array, and the system prompt, the tools and the model of a request body.
fn read_input(
    service: &Service,
    key: &SessionKey,
    request: &mut SyncContextRequest,
) -> Result<SyncRead, ServiceError> {
    let now = service.sessions.clock().now();
    let limits = service.limits();
    let mut next_id = service.next_id();
    // The clone shares the bytes with the payload, which is taken below.
    let payload = request.payload.as_ref().map(|payload| payload.json.clone());
    let (format, read) = convert::whole_array(request.payload.take(), limits, |provider, json| {
        let source = (provider, json);
        service.arrays.read(key, source, now, &mut next_id)
    })?;
    let has_cache_control = match (payload, read.place) {
        (Some(json), Some(place)) => has_cache_control(&json[place.open..place.close]),
        _ => false,
    };
    let response = request.last_response.as_ref();
    let response = convert::last_response(response, format, limits, &mut next_id)?;
    let options = read.body.as_ref().map(|body| BodyOptions {
        model: body.model().map(String::into_boxed_str),
        // Only Anthropic has the option `{"thinking": {"type": "enabled"}}` in the body.
        has_thinking: format == Provider::Anthropic && body.has_thinking(),
        max_output_tokens: body.max_output_tokens(),
    });
    if request.prompt_prefix.is_none() {
        let system = read.system_json();
        request.prompt_prefix = read
            .body
            .map(|body| convert::body_prefix(system, body.tools));
    }
    let prefix = request.prompt_prefix.as_ref();
    let input = SyncInput {
        returned: None,
        elements: read.elements,
        has_tools: prefix.is_some_and(has_tools),
        side_requests: false,
        caller_compacted: request.caller_compacted,
        first_store: FirstStore::Large,
        last_response: response.into_iter().map(Arc::new).collect(),
        ids: Arc::clone(&service.ids),
        mark: next_id(),
    };
    Ok(SyncRead {
        input,
        outside: read.outside,
        options,
        format,
        has_cache_control,
    })
}

fn has_tools(prefix: &v1::PromptPrefix) -> bool {
    let json = prefix.tools_json.trim_ascii();
    prefix
        .tools_tokens
        .map_or_else(|| !json.is_empty() && json != b"[]", |tokens| tokens > 0)
}

/// Returns the options that both calls have.
fn options(request: SyncContextRequest) -> PrepareContextRequest {
    PrepareContextRequest {
        session: request.session,
        target: request.target,
        known_etag: request.known_etag,
        form: request.form,
        interrupt_open_calls: request.interrupt_open_calls,
        compaction_mode: request.compaction_mode,
        compaction_overrides: request.compaction_overrides,
        delegate_summary: request.delegate_summary,
        prompt_prefix: request.prompt_prefix,
        cache_edits_supported: request.cache_edits_supported,
        cache_breakpoints: request.cache_breakpoints,
        prompt_too_long: request.prompt_too_long,
        dry_run: request.dry_run,
        ..PrepareContextRequest::default()
    }
}

fn sync_outcome(outcome: ArrayOutcome) -> v1::SyncOutcome {
    match outcome {
        ArrayOutcome::New => v1::SyncOutcome::New,
        ArrayOutcome::Equal => v1::SyncOutcome::Equal,
        ArrayOutcome::Extended => v1::SyncOutcome::Extended,
        ArrayOutcome::ResponseReplaced => v1::SyncOutcome::ResponseReplaced,
        ArrayOutcome::Trimmed => v1::SyncOutcome::Trimmed,
        ArrayOutcome::Adopted => v1::SyncOutcome::Adopted,
        ArrayOutcome::Displaced => v1::SyncOutcome::Displaced,
        ArrayOutcome::Rewound => v1::SyncOutcome::Rewound,
    }
}

fn count(messages: usize) -> u32 {
    u32::try_from(messages).unwrap_or(u32::MAX)
}
