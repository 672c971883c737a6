//! Tests of conversions in both directions.

mod filters;
mod inward;
mod outward;
mod reports;
mod round_trip;
mod taken;

use bytes::Bytes;
use palimpsest_core::command::{Append, Command, ServeView};
use palimpsest_core::ids::MessageId;
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::Policy;
use palimpsest_core::view::{Provider, Target};
use palimpsest_histories::SessionHarness;
use palimpsest_proto::context::v1;

use v1::block::Block as B;
use v1::media_source::Source;
use v1::tool_result_content::Content as C;

use super::{FieldError, InputMessage, messages};

/// Validates messages. New ids count from 1.
fn read(inputs: Vec<v1::MessageInput>, limits: &Limits) -> Result<Vec<InputMessage>, FieldError> {
    let mut next = 0;
    messages(inputs, limits, &mut || {
        next += 1;
        MessageId::new(uuid::Uuid::from_u128(next))
    })
}

fn payload(format: v1::Format, json: &str) -> v1::MessageInput {
    v1::MessageInput {
        content: Some(v1::message_input::Content::Payload(v1::Payload {
            format: format.into(),
            json: Bytes::copy_from_slice(json.as_bytes()),
        })),
        ..v1::MessageInput::default()
    }
}

fn anthropic(json: &str) -> v1::MessageInput {
    payload(v1::Format::AnthropicMessages, json)
}

fn typed(blocks: Vec<v1::Block>) -> v1::MessageInput {
    v1::MessageInput {
        content: Some(v1::message_input::Content::Message(v1::Message {
            role: v1::Role::User.into(),
            blocks,
            ..v1::Message::default()
        })),
        ..v1::MessageInput::default()
    }
}

fn block(block: B) -> v1::Block {
    v1::Block {
        block: Some(block),
        ..v1::Block::default()
    }
}

fn text(text: &str) -> v1::Block {
    block(B::Text(v1::TextBlock { text: text.into() }))
}

fn image(source: Option<Source>, media_type: &str) -> v1::Block {
    block(B::Image(v1::ImageBlock {
        source: Some(v1::MediaSource {
            media_type: media_type.into(),
            source,
        }),
    }))
}

fn call(id: &str, name: &str, input: &'static [u8]) -> v1::Block {
    block(B::ToolUse(v1::ToolUseBlock {
        tool_use_id: id.into(),
        tool_name: name.into(),
        input_json: Bytes::from_static(input),
        call_key: "c9".into(),
    }))
}

fn result(id: &str, content: Option<C>) -> v1::Block {
    block(B::ToolResult(v1::ToolResultBlock {
        tool_use_id: id.into(),
        content: Some(v1::ToolResultContent { content }),
        ..v1::ToolResultBlock::default()
    }))
}

fn opaque(kind: &str, json: &'static str) -> v1::Block {
    block(B::Opaque(v1::OpaqueBlock {
        r#type: kind.into(),
        json: Bytes::from_static(json.as_bytes()),
    }))
}

fn with_extra(mut block: v1::Block, json: &'static str) -> v1::Block {
    block.extra_json = Bytes::from_static(json.as_bytes());
    block
}

/// Builds a session with these messages in Anthropic's JSON.
fn world(jsons: &[&str]) -> SessionHarness {
    let mut world = SessionHarness::with_policy(Policy::default());
    append(&mut world, jsons);
    world
}

fn append(world: &mut SessionHarness, jsons: &[&str]) {
    let already = world.session.transcript().len() as u128;
    let mut next = already;
    let messages = jsons.iter().flat_map(|json| {
        let mut next_id = || {
            next += 1;
            MessageId::new(uuid::Uuid::from_u128(next))
        };
        let read = messages(vec![anthropic(json)], &Limits::default(), &mut next_id);
        read.unwrap()
            .into_iter()
            .map(|input| std::sync::Arc::new(input.message))
    });
    let messages = messages.collect();
    world.run(Command::Append(Append {
        messages,
        ..Append::default()
    }));
}

fn serve(world: &mut SessionHarness, interrupt_open_calls: bool) {
    world.run(Command::ServeView(ServeView {
        interrupt_open_calls,
        ..ServeView::default()
    }));
}

fn target(provider: Provider) -> Target {
    Target {
        provider,
        model: "model-a".into(),
        thinking: true,
        system_messages: false,
    }
}
