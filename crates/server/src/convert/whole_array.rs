//! Whole arrays: a conversation in the provider's JSON, alone or in the body of a model request.

use palimpsest_core::codec::CodecError;
use palimpsest_core::ids::MessageId;
use palimpsest_core::json::RawJson;
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Message, Role};
use palimpsest_core::view::Provider;
use palimpsest_engine::turn::ReadArray;
use palimpsest_proto::context::v1;

use super::detect::detect;
use super::messages_in::{check_messages, check_payload, messages_of};
use super::scalars::payload_format;
use super::{FieldError, FieldProblem, WithFieldPath};

/// Reads a whole array with `read`. Returns its format too.
pub fn whole_array(
    payload: Option<v1::Payload>,
    limits: &Limits,
    read: impl FnOnce(Provider, &bytes::Bytes) -> Result<ReadArray, CodecError>,
) -> Result<(Provider, ReadArray), FieldError> {
    let payload = payload.ok_or_else(|| FieldError::missing("payload"))?;
    // A closure, so that every error of the payload gets its path in one place.
    let read = || {
        let stated = payload_format(payload.format, "format")?;
        let provider = stated.unwrap_or_else(|| detect(&payload.json));
        check_payload(&payload.json, limits.max_request_bytes)?;
        let read = read(provider, &payload.json).map_err(|error| {
            let (path, error) = (error.path, error.error);
            FieldError::new("json", FieldProblem::Payload { path, error })
        })?;
        check_messages(read.new.iter().map(|message| &**message), limits)?;
        Ok((provider, read))
    };
    read().map_err(|error: FieldError| error.under("payload"))
}

/// Returns the system prompt and the tools of a request body.
pub fn body_prefix(system: Option<RawJson>, tools: Option<RawJson>) -> v1::PromptPrefix {
    let json = |part: Option<RawJson>| part.map_or_else(String::new, |raw| raw.as_str().to_owned());
    v1::PromptPrefix {
        system_json: json(system).into(),
        tools_json: json(tools).into(),
        ..v1::PromptPrefix::default()
    }
}

/// Reads the response of a model. The field is optional, and so is its format: by default, that of the array.
pub fn last_response(
    payload: Option<&v1::Payload>,
    format: Provider,
    limits: &Limits,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<Vec<Message>, FieldError> {
    let Some(payload) = payload else {
        return Ok(Vec::new());
    };
    let stated = payload_format(payload.format, "format");
    let read = stated.and_then(|stated| {
        // A response may be a whole body, for example with `choices` or `output`, not only a message.
        let limit = limits.max_request_bytes;
        messages_of(
            stated.unwrap_or(format),
            &payload.json,
            limit,
            limits,
            next_id,
        )
    });
    let messages = read.under("last_response")?;
    if messages.iter().any(|one| one.role != Role::Assistant) {
        let what = "must be a response of the model";
        return Err(FieldError::invalid("last_response", what));
    }
    Ok(messages)
}
