//! Whole arrays: a conversation in the provider's JSON, alone or in the body of a model request.

use palimpsest_core::codec::CodecError;
use palimpsest_core::ids::MessageId;
use palimpsest_core::json::RawJson;
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Message, Role};
use palimpsest_core::view::Provider;
use palimpsest_engine::turn::{BodyFields, ReadArray};
use palimpsest_proto::context::v1;

use super::messages_in::{check_messages, check_payload, messages_of};
use super::scalars::payload_format;
use super::{FieldError, FieldProblem, WithFieldPath};

/// Reads a whole array with `read`.
pub fn whole_array(
    payload: Option<v1::Payload>,
    limits: &Limits,
    read: impl FnOnce(Provider, &bytes::Bytes) -> Result<ReadArray, CodecError>,
) -> Result<ReadArray, FieldError> {
    let payload = payload.ok_or_else(|| FieldError::missing("payload"))?;
    let read = || {
        let provider = provider(&payload)?;
        check_payload(&payload.json, limits.max_request_bytes)?;
        let read = read(provider, &payload.json).map_err(|error| {
            let (path, error) = (error.path, error.error);
            FieldError::new("json", FieldProblem::Payload { path, error })
        })?;
        check_messages(read.new.iter().map(|message| &**message), limits)?;
        Ok(read)
    };
    read().map_err(|error: FieldError| error.under("payload"))
}

/// Returns the system prompt and the tools of a request body.
pub fn body_prefix(body: BodyFields) -> v1::PromptPrefix {
    let json = |part: Option<RawJson>| part.map_or_else(String::new, |raw| raw.as_str().to_owned());
    v1::PromptPrefix {
        system_json: json(body.system).into(),
        tools_json: json(body.tools).into(),
        ..v1::PromptPrefix::default()
    }
}

/// Reads the response of a model. The field is optional.
pub fn last_response(
    payload: Option<&v1::Payload>,
    limits: &Limits,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<Vec<Message>, FieldError> {
    let Some(payload) = payload else {
        return Ok(Vec::new());
    };
    let read = provider(payload).and_then(|provider| {
        let limit = limits.max_request_bytes;
        messages_of(provider, &payload.json, limit, limits, next_id)
    });
    let messages = read.under("last_response")?;
    if messages.iter().any(|one| one.role != Role::Assistant) {
        let what = "must be a response of the model";
        return Err(FieldError::invalid("last_response", what));
    }
    Ok(messages)
}

fn provider(payload: &v1::Payload) -> Result<Provider, FieldError> {
    let provider = payload_format(payload.format, "format")?;
    provider.ok_or_else(|| FieldError::missing("format"))
}
