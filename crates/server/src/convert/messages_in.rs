//! Input messages: validation of typed messages, payloads and their metadata.

use palimpsest_core::codec;
use palimpsest_core::event::Attributes;
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Block, Message, MessageKind, MessageOrigin, Usage};
use palimpsest_core::view::Provider;
use palimpsest_proto::context::v1;
use prost::Message as _;
use v1::message_input::Content;

use super::scalars::{message_id, optional_timestamp, payload_format, role, unknown};
use super::{FieldError, FieldProblem, WithFieldPath, blocks_in, own_fields};

/// A message and its index in the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputMessage {
    /// The index of the entry in the request's `messages`, starting at 0.
    pub input_index: u32,
    /// The message.
    pub message: Message,
}

/// Validates the messages of a request in order, including those inside payloads. `next_id` generates missing ids.
pub fn messages(
    inputs: Vec<v1::MessageInput>,
    limits: &Limits,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<Vec<InputMessage>, FieldError> {
    let mut all = Vec::with_capacity(inputs.len().min(limits.max_messages));
    for (index, input) in inputs.into_iter().enumerate() {
        let path = format!("messages[{index}]");
        let read = self::input(input, limits, next_id).under(&path)?;
        // The limit includes messages inside payloads, whose number is known only after parsing.
        if all.len() + read.len() > limits.max_messages {
            let what = format!(
                "must have at most {} messages, those inside payloads included",
                limits.max_messages
            );
            return Err(FieldError::invalid("messages", what));
        }
        let input_index = u32::try_from(index).unwrap_or(u32::MAX);
        all.extend(read.into_iter().map(|message| InputMessage {
            input_index,
            message,
        }));
    }
    Ok(all)
}

fn input(
    input: v1::MessageInput,
    limits: &Limits,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<Vec<Message>, FieldError> {
    let id = match input.id.as_str() {
        "" => None,
        id => Some(message_id(id, "id")?),
    };
    let metadata =
        InputMetadata::read(input.metadata.unwrap_or_default(), limits).under("metadata")?;
    let mut messages = match input.content {
        None => return Err(FieldError::missing("content")),
        Some(Content::Message(typed)) => {
            let id = id.unwrap_or_else(&mut *next_id);
            vec![self::typed(id, typed, limits).under("message")?]
        }
        Some(Content::Payload(payload)) => {
            let mut read = self::payload(&payload, limits, next_id).under("payload")?;
            // One id cannot name several messages.
            match (id, read.as_mut_slice()) {
                (None, _) => {}
                (Some(id), [message]) => message.id = id,
                (Some(_), _) => {
                    return Err(FieldError::invalid(
                        "id",
                        "must not be set with a payload that does not contain exactly one message",
                    ));
                }
            }
            read
        }
    };
    let mut before = metadata.parent;
    // Messages of one payload form a chain: each has the previous one as its parent.
    for message in &mut messages {
        message.parent = before.replace(message.id);
        metadata.apply(message);
    }
    Ok(messages)
}

fn typed(id: MessageId, typed: v1::Message, limits: &Limits) -> Result<Message, FieldError> {
    // Checked before the conversion, so that a too large message costs no more work.
    check_bytes(typed.encoded_len(), limits.max_message_bytes)?;
    let role = role(typed.role, "role")?;
    check_block_count(typed.blocks.len(), limits, "blocks")?;
    let origin = payload_format(typed.extra_format, "extra_format")?;
    let origin = origin.map_or(MessageOrigin::Typed, Provider::origin);
    let extra = blocks_in::extra(&typed.extra_json, &own_fields::of_message(origin))?;
    let blocks = typed
        .blocks
        .into_iter()
        .enumerate()
        .map(|(index, block)| {
            let block = blocks_in::block(block, origin).at("blocks", index)?;
            check_names(&block, limits)
                .map_err(|(field, error)| error.under(field).under(&format!("blocks[{index}]")))?;
            Ok(block)
        })
        .collect::<Result<_, FieldError>>()?;
    let mut message = Message::new(id, role, blocks);
    (message.extra, message.origin) = (extra, origin);
    // Base64 is longer than the data in the request, so the size is checked again after the conversion.
    check_size(&message, limits)?;
    Ok(message)
}

fn payload(
    payload: &v1::Payload,
    limits: &Limits,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<Vec<Message>, FieldError> {
    let Some(provider) = payload_format(payload.format, "format")? else {
        return Err(FieldError::missing("format"));
    };
    // A single object is one message. An array may be as large as a request.
    let is_array = payload.json.trim_ascii_start().starts_with(b"[");
    let limit = if is_array {
        limits.max_request_bytes
    } else {
        limits.max_message_bytes
    };
    messages_of(provider, &payload.json, limit, limits, next_id)
}

/// Reads the messages of a payload of at most `limit` bytes.
pub(super) fn messages_of(
    provider: Provider,
    json: &[u8],
    limit: usize,
    limits: &Limits,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<Vec<Message>, FieldError> {
    check_payload(json, limit)?;
    let messages = codec::read(provider, json, next_id).map_err(|error| {
        let (path, error) = (error.path, error.error);
        FieldError::new("json", FieldProblem::Payload { path, error })
    })?;
    check_messages(&messages, limits)?;
    Ok(messages)
}

/// Checks the size of a payload.
pub(super) fn check_payload(json: &[u8], limit: usize) -> Result<(), FieldError> {
    if json.is_empty() {
        return Err(FieldError::missing("json"));
    }
    check_bytes(json.len(), limit).under("json")
}

/// Checks the messages of a payload. It can contain several messages, and the limits apply to each of them.
pub(super) fn check_messages<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    limits: &Limits,
) -> Result<(), FieldError> {
    for message in messages {
        check_block_count(message.blocks.len(), limits, "json")?;
        check_size(message, limits).under("json")?;
        for block in &message.blocks {
            check_names(block, limits).map_err(|(_, error)| error.under("json"))?;
        }
        let names = [&message.provider_message_id, &message.model];
        for name in names.into_iter().flatten() {
            check_name(name, limits).under("json")?;
        }
    }
    Ok(())
}

fn check_block_count(count: usize, limits: &Limits, field: &str) -> Result<(), FieldError> {
    // Pieces of a view store the index of a block in 16 bits.
    let limit = limits.max_blocks.min(usize::from(u16::MAX));
    if count <= limit {
        return Ok(());
    }
    let what = format!("must have at most {limit} blocks in one message, has {count}");
    Err(FieldError::invalid(field, what))
}

fn check_size(message: &Message, limits: &Limits) -> Result<(), FieldError> {
    let extra = message.extra.iter().map(|(_, raw)| raw.as_str().len());
    let actual = message.content_bytes() + extra.sum::<usize>();
    check_bytes(actual, limits.max_message_bytes)
}

fn check_bytes(actual: usize, limit: usize) -> Result<(), FieldError> {
    if actual <= limit {
        return Ok(());
    }
    Err(FieldError::new(
        "",
        FieldProblem::TooLarge { limit, actual },
    ))
}

/// Validates the lengths of a block's ids and names. The error contains the field of the typed block.
fn check_names(block: &Block, limits: &Limits) -> Result<(), (&'static str, FieldError)> {
    let names: &[(&'static str, &str)] = match block {
        Block::ToolUse(call) => &[
            ("tool_use.tool_use_id", &call.id),
            ("tool_use.tool_name", &call.name),
        ],
        Block::ToolResult(result) => &[("tool_result.tool_use_id", &result.tool_use_id)],
        _ => &[],
    };
    for (field, name) in names {
        check_name(name, limits).map_err(|error| (*field, error))?;
    }
    Ok(())
}

fn check_name(name: &str, limits: &Limits) -> Result<(), FieldError> {
    let (limit, len) = (limits.max_id_bytes, name.len());
    if len <= limit {
        return Ok(());
    }
    let what = format!("must have ids and names of at most {limit} bytes, has one of {len}");
    Err(FieldError::invalid("", what))
}

/// The validated metadata of a message.
struct InputMetadata {
    parent: Option<MessageId>,
    at: Option<Timestamp>,
    provider_message_id: Option<Box<str>>,
    model: Option<Box<str>>,
    usage: Option<Usage>,
    kind: MessageKind,
    machine_generated: bool,
    transcript_only: bool,
    attributes: Attributes,
}

impl InputMetadata {
    fn read(metadata: v1::MessageMetadata, limits: &Limits) -> Result<Self, FieldError> {
        let name = |text: String, field: &str| {
            check_name(&text, limits).under(field)?;
            Ok((!text.is_empty()).then(|| text.into_boxed_str()))
        };
        Ok(Self {
            parent: match metadata.parent_id.as_str() {
                "" => None,
                id => Some(message_id(id, "parent_id")?),
            },
            at: optional_timestamp(metadata.create_time, "create_time")?,
            provider_message_id: name(metadata.provider_message_id, "provider_message_id")?,
            model: name(metadata.model, "model")?,
            // A usage of zero means that the provider reported none.
            usage: metadata.usage.map(usage).filter(|u| u.total_tokens() > 0),
            kind: kind(metadata.kind)?,
            machine_generated: metadata.machine_generated,
            transcript_only: metadata.transcript_only,
            attributes: attributes(metadata.attributes, limits)?,
        })
    }

    /// Applies the metadata to a message. It takes precedence over values in a payload.
    fn apply(&self, message: &mut Message) {
        message.at = self.at;
        if let Some(id) = &self.provider_message_id {
            message.provider_message_id = Some(id.clone());
        }
        if let Some(model) = &self.model {
            message.model = Some(model.clone());
        }
        if let Some(usage) = self.usage {
            message.usage = Some(usage);
        }
        message.kind = self.kind;
        message.machine_generated = self.machine_generated;
        message.transcript_only = self.transcript_only;
        message.attributes.clone_from(&self.attributes);
    }
}

/// Converts the usage that a provider reported.
pub fn usage(usage: v1::Usage) -> Usage {
    Usage {
        input_tokens: usage.input_tokens.into(),
        cache_read_tokens: usage.cache_read_tokens.into(),
        cache_write_tokens: usage.cache_write_tokens.into(),
        output_tokens: usage.output_tokens.into(),
    }
}

fn kind(kind: i32) -> Result<MessageKind, FieldError> {
    match v1::MessageKind::try_from(kind) {
        Ok(v1::MessageKind::Unspecified | v1::MessageKind::Ordinary) => Ok(MessageKind::Ordinary),
        Ok(v1::MessageKind::Attachment) => Ok(MessageKind::Attachment),
        Ok(v1::MessageKind::Hook) => Ok(MessageKind::Hook),
        Ok(v1::MessageKind::Summary | v1::MessageKind::Boundary | v1::MessageKind::Synthetic) => {
            Err(FieldError::invalid(
                "kind",
                "must be ORDINARY, ATTACHMENT or HOOK: the service sets the others",
            ))
        }
        Err(_) => Err(unknown("kind")),
    }
}

/// Validates attributes and sorts them by name. Map order is random, and the log must be deterministic.
pub(super) fn attributes(
    attributes: impl IntoIterator<Item = (String, String)>,
    limits: &Limits,
) -> Result<Attributes, FieldError> {
    let invalid = |what: String| Err(FieldError::invalid("attributes", what));
    let mut sorted: Attributes = attributes
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    sorted.sort();
    let (limit, count) = (limits.max_attributes, sorted.len());
    if count > limit {
        return invalid(format!("must have at most {limit} entries, has {count}"));
    }
    for (name, value) in &sorted {
        if name.is_empty() {
            return invalid("must not contain an empty name".to_owned());
        }
        let (limit, size) = (limits.max_attribute_bytes, name.len() + value.len());
        if size > limit {
            return invalid(format!(
                "must have entries of at most {limit} bytes, has one of {size}"
            ));
        }
    }
    Ok(sorted)
}

/// Returns the format of the last message that has one.
pub fn last_format(messages: &[v1::MessageInput]) -> Option<Provider> {
    let mut payloads = messages
        .iter()
        .rev()
        .filter_map(|message| match &message.content {
            Some(Content::Payload(payload)) => Some(payload.format),
            _ => None,
        });
    // An invalid format is reported when its message is read.
    payloads.find_map(|format| payload_format(format, "format").ok()?)
}
