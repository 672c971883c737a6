//! A stored message as input for another server, which reads the same message from it.

use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Message, MessageKind, MessageOrigin, Role};
use palimpsest_core::session::Calls;
use palimpsest_core::view::{Provider, WireBlock};
use palimpsest_core::{codec, ids::Ordinal};
use palimpsest_proto::context::v1;
use v1::message_input::Content;

use super::messages_in::messages;
use super::transcript::{json_messages, metadata, original};

/// Returns the message as a request entry. The flag is true if a server reads an equal message from it. It is false
/// if the provider's format cannot represent some field.
pub fn message_input(message: &Message) -> (v1::MessageInput, bool) {
    let typed = Content::Message(original(Ordinal::new(0), message, &Calls::default()));
    let own = match message.origin {
        MessageOrigin::Typed => None,
        MessageOrigin::Anthropic => {
            let json = anthropic(message);
            Some(payload(v1::Format::AnthropicMessages, json))
        }
        MessageOrigin::OpenAi => openai(message),
        MessageOrigin::OpenAiResponses => one(
            message,
            Provider::OpenAiResponses,
            v1::Format::OpenaiResponses,
        ),
    };
    // Only OpenAI's format has the `developer` role.
    let own = own.or_else(|| (message.role == Role::Developer).then(|| openai(message))?);
    let metadata = v1::MessageMetadata {
        kind: match message.kind {
            MessageKind::Attachment => v1::MessageKind::Attachment,
            MessageKind::Hook => v1::MessageKind::Hook,
            _ => v1::MessageKind::Ordinary,
        }
        .into(),
        ..metadata(message)
    };
    let input = |content| v1::MessageInput {
        id: message.id.to_string(),
        content: Some(content),
        metadata: Some(metadata.clone()),
    };
    // The provider's own format is tried first. The typed form is the fallback.
    let said = own.map(input).filter(|input| is_same(input, message));
    said.map_or_else(
        || {
            let input = input(typed);
            let is_same = is_same(&input, message);
            (input, is_same)
        },
        |input| (input, true),
    )
}

/// Returns true if a server reads the same message from the input.
fn is_same(input: &v1::MessageInput, message: &Message) -> bool {
    // Size limits are checked by the receiving server.
    let limits = Limits {
        max_request_bytes: usize::MAX,
        max_message_bytes: usize::MAX,
        max_blocks: usize::MAX,
        max_id_bytes: usize::MAX,
        max_attributes: usize::MAX,
        max_attribute_bytes: usize::MAX,
        ..Limits::default()
    };
    // Without limits and with a fixed id, only the content decides whether the form is exact.
    let read = messages(vec![input.clone()], &limits, &mut || message.id);
    matches!(read.as_deref(), Ok([read]) if read.message == *message)
}

fn payload(format: v1::Format, json: Vec<u8>) -> Content {
    Content::Payload(v1::Payload {
        format: format.into(),
        json: json.into(),
    })
}

fn openai(message: &Message) -> Option<Content> {
    one(message, Provider::OpenAi, v1::Format::OpenaiChat)
}

/// Returns the message in the format of a provider. Returns `None` if the format needs several messages.
fn one(message: &Message, provider: Provider, format: v1::Format) -> Option<Content> {
    match json_messages(message, provider).as_slice() {
        [one] => Some(payload(format, one.to_vec())),
        _ => None,
    }
}

/// Returns the message in Anthropic's format with all its unknown fields.
fn anthropic(message: &Message) -> Vec<u8> {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System | Role::Developer => "system",
    };
    let mut out = format!("{{\"role\":\"{role}\",\"content\":[").into_bytes();
    for (index, block) in message.blocks.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        codec::write_original(&WireBlock::from_block(block), &mut out);
    }
    out.push(b']');
    // The unknown fields are an object. Without its brace it continues the one of the message.
    if let Some(extra) = message.extra.to_object() {
        out.push(b',');
        out.extend_from_slice(extra.trim_start_matches('{').as_bytes());
    } else {
        out.push(b'}');
    }
    out
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::MessageId;
    use palimpsest_histories::{appended_messages, operation};
    use proptest::prelude::*;

    use super::*;

    fn read(provider: Provider, json: &str) -> Message {
        let mut next_id = || MessageId::new(uuid::Uuid::from_u128(7));
        codec::read(provider, json.as_bytes(), &mut next_id)
            .unwrap()
            .remove(0)
    }

    #[track_caller]
    fn check(message: &Message) {
        let (input, is_same) = message_input(message);
        assert!(is_same, "{message:?}: {input:?}");
    }

    #[test]
    fn messages_are_returned_in_the_format_of_their_provider() {
        check(&read(
            Provider::Anthropic,
            r#"{"role":"assistant","id":"msg","model":"m","stop_reason":"x","usage":{"input_tokens":3},
            "content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},
            {"type":"thinking","thinking":"hm","signature":"s"},{"type":"novel","n":1e400}]}"#,
        ));
        check(&read(
            Provider::OpenAi,
            r#"{"role":"user","content":"q","name":"x"}"#,
        ));
        check(&read(
            Provider::OpenAi,
            r#"{"role":"developer","content":"rules"}"#,
        ));
        check(&read(
            Provider::OpenAi,
            r#"{"role":"tool","tool_call_id":"c","content":"done"}"#,
        ));
        let mut attachment = read(Provider::Anthropic, r#"{"role":"user","content":"a file"}"#);
        (attachment.kind, attachment.machine_generated) = (MessageKind::Attachment, true);
        check(&attachment);
    }

    #[test]
    fn an_unsupported_message_kind_is_reported_as_not_identical() {
        let mut message = read(Provider::Anthropic, r#"{"role":"user","content":"q"}"#);
        message.kind = MessageKind::Summary;
        assert!(!message_input(&message).1);
    }

    proptest! {
        #[test]
        fn any_message_of_a_history_survives_a_round_trip(
            operations in prop::collection::vec(operation(), 1..12),
        ) {
            appended_messages(&operations).iter().for_each(check);
        }
    }
}
