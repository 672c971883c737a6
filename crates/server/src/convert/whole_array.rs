//! Whole arrays: a conversation in the provider's JSON, alone or in the body of a model request.

use palimpsest_core::ids::MessageId;
use palimpsest_core::json::ObjectFields;
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Message, Role};
use palimpsest_core::view::Provider;
use palimpsest_proto::context::v1;

use super::messages_in::messages_of;
use super::scalars::payload_format;
use super::{FieldError, WithFieldPath};

/// A conversation, and the prompt prefix of its request body.
#[derive(Debug)]
pub struct WholeArray {
    /// The messages, in order. The first one is the system prompt of an Anthropic body.
    pub messages: Vec<Message>,
    /// Number of messages at the start that are not in the array: the system prompt of an Anthropic body.
    pub outside: usize,
    /// The system prompt and the tools. `None` if the payload is no request body.
    pub prefix: Option<v1::PromptPrefix>,
}

/// Reads a whole array.
pub fn whole_array(
    payload: Option<v1::Payload>,
    limits: &Limits,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<WholeArray, FieldError> {
    let payload = payload.ok_or_else(|| FieldError::missing("payload"))?;
    read(&payload, limits, next_id).under("payload")
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
    let messages = read(payload, limits, next_id).map(|read| read.messages);
    let messages = messages.under("last_response")?;
    if messages.iter().any(|one| one.role != Role::Assistant) {
        let what = "must be a response of the model";
        return Err(FieldError::invalid("last_response", what));
    }
    Ok(messages)
}

fn read(
    payload: &v1::Payload,
    limits: &Limits,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<WholeArray, FieldError> {
    let provider = payload_format(payload.format, "format")?;
    let provider = provider.ok_or_else(|| FieldError::missing("format"))?;
    let limit = limits.max_request_bytes;
    let messages = messages_of(provider, &payload.json, limit, limits, next_id)?;
    let prefix = prefix(provider, &payload.json);
    let has_system = provider.is_anthropic()
        && (prefix.as_ref()).is_some_and(|prefix| !prefix.system_json.is_empty())
        && (messages.first()).is_some_and(|first| first.role == Role::System);
    Ok(WholeArray {
        messages,
        outside: usize::from(has_system),
        prefix,
    })
}

/// Returns the system prompt and the tools of a request body. The messages were read, so the body is valid.
fn prefix(provider: Provider, json: &[u8]) -> Option<v1::PromptPrefix> {
    let body = std::str::from_utf8(json).ok()?;
    let mut fields = ObjectFields::read_str(body).ok()?;
    let (conversation, system) = match provider {
        Provider::Anthropic | Provider::Bedrock => ("messages", "system"),
        Provider::OpenAi => ("messages", ""),
        Provider::OpenAiResponses => ("input", "instructions"),
    };
    fields.take(conversation).ok()??;
    let mut part = |name| {
        let value = fields.take(name).ok().flatten();
        value.map_or_else(Default::default, |value| value.get().to_owned().into())
    };
    Some(v1::PromptPrefix {
        system_json: part(system),
        tools_json: part("tools"),
        ..v1::PromptPrefix::default()
    })
}
