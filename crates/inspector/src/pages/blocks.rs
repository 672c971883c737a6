//! Blocks of messages, as text.

use maud::{Markup, html};
use palimpsest_proto::context::v1::block::Block as Content;
use palimpsest_proto::context::v1::media_source::Source;
use palimpsest_proto::context::v1::tool_result_content::Content as Result;
use palimpsest_proto::context::v1::{Block, MediaSource, Message, Role, ToolResultBlock};

use crate::format::number;
use crate::text::shown;

/// The maximum length of a text on a page, in characters. Longer ones are cut.
pub(super) const MAX_TEXT: usize = 6_000;
/// Longer texts are folded, in characters.
const FOLD: usize = 1_200;

/// Shows the blocks of a message.
pub(super) fn message(message: &Message) -> Markup {
    html! {
        @for block in &message.blocks {
            (self::block(block))
        }
    }
}

/// Shows one block.
pub(super) fn block(block: &Block) -> Markup {
    match &block.block {
        None => html! { p.note { "a block of a kind that this page does not know" } },
        Some(Content::Text(one)) => text("text", &one.text),
        Some(Content::Thinking(one)) => text("thinking", &one.thinking),
        Some(Content::RedactedThinking(_)) => html! { p.note { "redacted thinking" } },
        Some(Content::Image(one)) => media("image", one.source.as_ref()),
        Some(Content::Document(one)) => media("document", one.source.as_ref()),
        Some(Content::ToolUse(one)) => {
            let input = String::from_utf8_lossy(&one.input_json);
            html! {
                p.block-head { "call " strong { (shown(&one.tool_name)) } " " code { (shown(&one.tool_use_id)) } }
                (text("input", &input))
            }
        }
        Some(Content::ToolResult(one)) => result(one),
        Some(Content::Opaque(one)) => {
            let json = String::from_utf8_lossy(&one.json);
            html! {
                p.block-head { (shown(&one.r#type)) }
                (text("JSON", &json))
            }
        }
    }
}

fn result(result: &ToolResultBlock) -> Markup {
    let content = result.content.as_ref().and_then(|one| one.content.as_ref());
    html! {
        p.block-head {
            @if result.is_error { "failed " }
            "result of " code { (shown(&result.tool_use_id)) }
        }
        @match content {
            None => p.note { "no content" },
            Some(Result::Text(content)) => (text("result", content)),
            Some(Result::Json(json)) => (text("result", &String::from_utf8_lossy(json))),
            Some(Result::Blocks(list)) => {
                @for inner in &list.blocks {
                    (block(inner))
                }
            },
        }
    }
}

fn media(kind: &str, source: Option<&MediaSource>) -> Markup {
    let of = source.and_then(|one| one.source.as_ref());
    html! {
        p.note {
            (kind) " "
            @match of {
                None => "without a source",
                Some(Source::Data(data)) => { (number(data.len() as u64)) " bytes" },
                Some(Source::Url(url)) => (shown(url)),
                Some(Source::FileId(id)) => (shown(id)),
                Some(Source::Text(content)) => { (number(content.len() as u64)) " bytes of text" },
            }
        }
    }
}

/// Shows a text. A long one is folded, and a very long one is cut.
pub(super) fn text(kind: &str, text: &str) -> Markup {
    let chars = text.chars().count();
    let cut = text
        .char_indices()
        .nth(MAX_TEXT)
        .map_or(text, |(at, _)| &text[..at]);
    let body = html! {
        pre.content { (shown(cut)) }
        @if cut.len() < text.len() {
            p.note { "cut: " (number(chars as u64)) " characters in all" }
        }
    };
    if chars <= FOLD {
        return body;
    }
    html! {
        details {
            summary { (kind) ", " (number(chars as u64)) " characters: " (shown(&crate::text::one_line(text, 100))) }
            (body)
        }
    }
}

/// Returns the name of a role.
pub(super) const fn role(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Unspecified => "",
    }
}
