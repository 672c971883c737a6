//! Originals in a provider's format.

use palimpsest_core::codec;
use palimpsest_core::ids::Ordinal;
use palimpsest_core::json::{RawJson, UnknownFields};
use palimpsest_core::message::{
    Block, Media, MediaKind, MediaSource, Message, MessageOrigin, ResultContent, Role, Thinking,
};
use palimpsest_core::view::{Provider, WireBlock, WireMessage, WireResult, WireRole};

/// The field that marks the end of a cached prefix in a request.
const CACHE_MARKER: &str = "cache_control";

/// Returns the original in a provider's JSON, without repairs. Blocks that the format cannot represent become text.
/// Unknown fields are included only for the provider that they came from.
pub fn json_messages(message: &Message, provider: Provider) -> Vec<Vec<u8>> {
    wire_messages(message, provider)
        .iter()
        .map(|wire| {
            let mut out = Vec::new();
            codec::write_transcript(provider, wire, &mut out);
            out
        })
        .collect()
}

/// Like [`json_messages`], without `cache_control`: for a file that a program continues.
pub fn messages_to_continue(message: &Message, provider: Provider) -> Vec<Vec<u8>> {
    json_messages(&without_cache_markers(message), provider)
}

/// Returns a message without `cache_control`. A program that continues an export sets markers of its own, and a provider
/// rejects a request with more than four.
pub(super) fn without_cache_markers(message: &Message) -> Message {
    let mut copy = message.clone();
    remove_marker(&mut copy.extra);
    copy.blocks.iter_mut().for_each(remove_block_markers);
    copy
}

fn remove_block_markers(block: &mut Block) {
    match block {
        Block::Text { extra, .. } => remove_marker(extra),
        Block::Media(media) => remove_marker(&mut media.extra),
        Block::ToolUse(call) => remove_marker(&mut call.extra),
        Block::ToolResult(result) => {
            remove_marker(&mut result.extra);
            if let ResultContent::Blocks(nested) = &mut result.content {
                nested.iter_mut().for_each(remove_block_markers);
            }
        }
        Block::Thinking(Thinking::Plain { extra, .. } | Thinking::Redacted { extra, .. }) => {
            remove_marker(extra);
        }
        Block::Opaque { json, .. } => {
            // Blocks without a marker keep their bytes.
            if !json.as_str().contains(CACHE_MARKER) {
                return;
            }
            let Ok(mut fields) = UnknownFields::from_object(json.as_str()) else {
                return;
            };
            remove_marker(&mut fields);
            let others = fields.to_object().map(|object| RawJson::parse(&object));
            if let Some(Ok(others)) = others {
                *json = others;
            }
        }
    }
}

fn remove_marker(fields: &mut UnknownFields) {
    if fields.get(CACHE_MARKER).is_none() {
        return;
    }
    let others: Vec<_> = fields
        .iter()
        .filter(|(name, _)| *name != CACHE_MARKER)
        .collect();
    // Each field is put before the later ones, so the order stays.
    let others = others.into_iter().rev();
    *fields = others.fold(UnknownFields::default(), |later, (name, value)| {
        later.with_first(name, value.clone())
    });
}

/// Returns the blocks of the original for Anthropic's format. Blocks that it cannot represent become text.
pub(super) fn original_blocks(message: &Message) -> Vec<WireBlock<'_>> {
    let wire = wire_messages(message, Provider::Anthropic).into_iter();
    wire.flat_map(|message| message.blocks).collect()
}

fn wire_messages(message: &Message, provider: Provider) -> Vec<WireMessage<'_>> {
    let role = match message.role {
        Role::User => WireRole::User,
        Role::Assistant => WireRole::Assistant,
        Role::System => WireRole::System,
        Role::Developer => WireRole::Developer,
    };
    let foreign = match message.origin {
        MessageOrigin::Typed => false,
        MessageOrigin::Anthropic => !provider.is_anthropic(),
        MessageOrigin::OpenAi => provider != Provider::OpenAi,
        MessageOrigin::OpenAiResponses => provider != Provider::OpenAiResponses,
    };
    let open = |role| WireMessage {
        role,
        blocks: Vec::new(),
        // Another provider would reject these unknown fields.
        extra: (!foreign && !message.extra.is_empty()).then_some(&message.extra),
        first: Ordinal::new(0),
    };
    let mut all: Vec<WireMessage<'_>> = Vec::new();
    for block in &message.blocks {
        let Some(wire) = foreign_block(WireBlock::from_block(block), block, provider, foreign)
        else {
            continue;
        };
        // OpenAI's formats need a message or an item for each result, so one original may become several messages.
        let is_result = matches!(wire, WireBlock::Result { .. });
        let alone = match provider {
            Provider::Anthropic | Provider::Bedrock => false,
            Provider::OpenAi => is_result,
            Provider::OpenAiResponses => !wire.is_content(),
        };
        let role = if alone && is_result {
            WireRole::Tool
        } else {
            role
        };
        match all.last_mut() {
            Some(last) if !alone && last.role == role && joins(last, provider) => {
                last.blocks.push(wire);
            }
            _ => {
                let mut next = open(role);
                next.blocks.push(wire);
                all.push(next);
            }
        }
    }
    // A message whose blocks are all left out still yields one empty message.
    if all.is_empty() {
        all.push(open(role));
    }
    all
}

/// Returns true if a message may have further blocks. An item of OpenAI's Responses API has one.
fn joins(message: &WireMessage<'_>, provider: Provider) -> bool {
    provider != Provider::OpenAiResponses || message.blocks.iter().all(WireBlock::is_content)
}

/// Converts a block to one that the format supports. Returns `None` if the block is left out.
fn foreign_block<'a>(
    mut wire: WireBlock<'a>,
    block: &Block,
    provider: Provider,
    foreign: bool,
) -> Option<WireBlock<'a>> {
    let say = |text: String| {
        Some(WireBlock::Text {
            text: text.into(),
            extra: None,
        })
    };
    match block {
        // OpenAI's Chat Completions API has no thinking blocks, and the other APIs accept only their own.
        Block::Thinking(_) if provider == Provider::OpenAi || foreign => return None,
        Block::Opaque { kind, .. } if foreign => {
            return say(format!("[{kind}: this format does not have it]"));
        }
        Block::Media(media) if !provider.is_anthropic() && !openai_takes(media, provider) => {
            let kind = match media.kind {
                MediaKind::Image => "image",
                MediaKind::Document => "document",
            };
            return say(format!("[{kind}: this format does not have it]"));
        }
        _ => {}
    }
    // Unknown fields are valid only in the format that they came from.
    if foreign {
        strip(&mut wire);
    }
    // Blocks inside a result have the same restrictions.
    if let (WireBlock::Result { content, .. }, Block::ToolResult(result)) = (&mut wire, block)
        && let WireResult::Blocks(nested) = content
        && let ResultContent::Blocks(originals) = &result.content
    {
        *nested = std::mem::take(nested)
            .into_iter()
            .zip(originals)
            .filter_map(|(wire, block)| foreign_block(wire, block, provider, foreign))
            .collect();
    }
    Some(wire)
}

fn openai_takes(media: &Media, provider: Provider) -> bool {
    match (&media.source, media.kind) {
        (MediaSource::Base64 { media_type, .. }, MediaKind::Document) => {
            &**media_type == "application/pdf"
        }
        (MediaSource::Url(_), MediaKind::Document) => provider == Provider::OpenAiResponses,
        (MediaSource::Other(_), _) => false,
        (MediaSource::Base64 { .. } | MediaSource::Url(_), MediaKind::Image) => true,
    }
}

fn strip(block: &mut WireBlock<'_>) {
    match block {
        WireBlock::Text { extra, .. }
        | WireBlock::Media { extra, .. }
        | WireBlock::Call { extra, .. }
        | WireBlock::Result { extra, .. }
        | WireBlock::Thinking { extra, .. } => *extra = None,
        WireBlock::Opaque(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::MessageId;
    use uuid::Uuid;

    use super::*;

    const MARKER: &str = r#""cache_control":{"type":"ephemeral"}"#;

    fn fields(json: &str) -> UnknownFields {
        UnknownFields::from_object(json).unwrap()
    }

    #[test]
    fn no_format_of_a_provider_contains_cache_control() {
        // Typed messages have the unknown fields of any provider.
        let marked = Block::Text {
            text: "go".into(),
            extra: fields(&format!(r#"{{"a":1,{MARKER},"b":2}}"#)),
        };
        let opaque = Block::Opaque {
            kind: "novel".into(),
            json: RawJson::parse(&format!(r#"{{"type":"novel",{MARKER},"n":1e400}}"#)).unwrap(),
        };
        let id = MessageId::new(Uuid::nil());
        let mut message = Message::new(id, Role::User, vec![marked, opaque]);
        message.extra = fields(&format!("{{{MARKER}}}"));
        let copy = without_cache_markers(&message);
        let Block::Text { extra, .. } = &copy.blocks[0] else {
            panic!("{copy:?}");
        };
        assert_eq!(extra.to_object().unwrap(), r#"{"a":1,"b":2}"#);
        let Block::Opaque { json, .. } = &copy.blocks[1] else {
            panic!("{copy:?}");
        };
        assert_eq!(json.as_str(), r#"{"type":"novel","n":1e400}"#);
        assert!(copy.extra.is_empty());

        // OpenAI's formats have no such opaque block.
        message.blocks.truncate(1);
        for provider in [
            Provider::Anthropic,
            Provider::OpenAi,
            Provider::OpenAiResponses,
        ] {
            let json = messages_to_continue(&message, provider).concat();
            let json = String::from_utf8(json).unwrap();
            assert!(!json.contains("cache_control"), "{json}");
            assert!(json.contains("go"), "{json}");
        }
    }
}
