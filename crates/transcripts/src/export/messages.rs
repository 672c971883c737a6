//! Originals in a provider's format.

use palimpsest_core::codec;
use palimpsest_core::ids::Ordinal;
use palimpsest_core::message::{
    Block, Media, MediaKind, MediaSource, Message, MessageOrigin, ResultContent, Role,
};
use palimpsest_core::view::{Provider, WireBlock, WireMessage, WireResult, WireRole};

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
