//! `ExportTranscript`: a transcript as a file, in chunks.

use async_stream::try_stream;
use bytes::Bytes;
use palimpsest_core::codec;
use palimpsest_core::message::{Message, Role};
use palimpsest_core::session::Session;
use palimpsest_core::view::{Provider, WireBlock};
use palimpsest_proto::context::v1::{ExportTranscriptRequest, ExportTranscriptResponse, Format};
use serde_json::json;
use tonic::Status;

use super::Service;
use super::context::Replies;
use super::originals::{Original, Walk};
use crate::convert;
use crate::errors::ServiceError;

/// How the file is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum File {
    /// One object a line, with everything that is known of a message.
    Lines,
    /// One array of a provider's messages.
    Array(Provider),
}

pub(super) async fn export(
    service: &Service,
    request: ExportTranscriptRequest,
) -> Result<Replies<ExportTranscriptResponse>, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let file = match Format::try_from(request.format) {
        Ok(Format::Unspecified | Format::PalimpsestJsonl) => File::Lines,
        Ok(Format::AnthropicMessages) => File::Array(Provider::Anthropic),
        Ok(Format::OpenaiChat) => File::Array(Provider::OpenAi),
        Ok(Format::ClaudeCodeJsonl) => {
            let what = "is not written by this version: ask for PALIMPSEST_JSONL";
            return Err(ServiceError::invalid("format", what));
        }
        Err(_) => {
            return Err(ServiceError::invalid(
                "format",
                "is not a format that this server knows",
            ));
        }
    };
    let filter = convert::message_filter(request.filter)?;
    let revision = service.sessions.read(&key, Session::revision).await?;
    let mut walk = Walk::begin(service, &key, filter, false, None).await?;
    let service = service.clone();
    let stream = try_stream! {
        let mut exported = 0;
        if file != File::Lines {
            yield part("[".into(), exported);
        }
        while !walk.is_done() {
            let originals = walk.chunk(&service, usize::MAX).await.map_err(Status::from)?;
            for original in originals {
                let data = match file {
                    File::Lines => line(&original),
                    File::Array(provider) => elements(&original, provider, exported == 0),
                };
                exported += 1;
                yield part(data.into(), exported);
            }
        }
        yield ExportTranscriptResponse {
            data: if file == File::Lines { Bytes::new() } else { "\n]\n".into() },
            exported_messages: exported,
            last: true,
            revision: revision.get(),
        };
    };
    Ok(Box::pin(stream))
}

fn part(data: Bytes, exported_messages: u64) -> ExportTranscriptResponse {
    ExportTranscriptResponse {
        data,
        exported_messages,
        ..ExportTranscriptResponse::default()
    }
}

fn elements(original: &Original, provider: Provider, is_first: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, message) in convert::json_messages(&original.message, provider)
        .iter()
        .enumerate()
    {
        if !(is_first && index == 0) {
            out.push(b',');
        }
        out.push(b'\n');
        out.extend_from_slice(message);
    }
    out
}

/// Everything that is known of a message; its content as Anthropic's blocks, which lose nothing.
fn line(original: &Original) -> Vec<u8> {
    let (entry, message) = (&original.entry, &original.message);
    let attributes: serde_json::Map<String, serde_json::Value> = message
        .attributes
        .iter()
        .map(|(name, value)| (name.to_string(), json!(value)))
        .collect();
    let usage = message.usage.map(|usage| {
        json!({
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        })
    });
    let mut head = json!({
        "id": entry.id.to_string(),
        "ordinal": u64::from(original.ordinal.get()) + 1,
        "revision": entry.revision.get(),
        "visibility": convert::visibility(entry.standing).as_str_name().trim_start_matches("VISIBILITY_"),
        "parent_id": message.parent.map(|id| id.to_string()),
        "create_time_ms": message.at.map(palimpsest_core::ids::Timestamp::as_millis),
        "provider_message_id": message.provider_message_id,
        "model": message.model,
        "usage": usage,
        "kind": convert::export_kind(message.kind).as_str_name().trim_start_matches("MESSAGE_KIND_"),
        "meta": message.meta,
        "transcript_only": message.transcript_only,
        "attributes": attributes,
    });
    if let Some(head) = head.as_object_mut() {
        head.retain(|_, value| {
            !value.is_null()
                && *value != json!(false)
                && value.as_object().is_none_or(|map| !map.is_empty())
        });
    }
    let mut out = head.to_string().into_bytes();
    // The message comes last, as the bytes that it has: unknown fields and numbers stay as they are.
    out.pop();
    out.extend_from_slice(b",\"message\":");
    whole(message, &mut out);
    out.extend_from_slice(b"}\n");
    out
}

/// A message's own JSON: its blocks in Anthropic's words, whoever's it was, and its unknown fields.
fn whole(message: &Message, out: &mut Vec<u8>) {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Developer => "developer",
    };
    out.extend_from_slice(format!("{{\"role\":\"{role}\",\"content\":[").as_bytes());
    for (index, block) in message.blocks.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        codec::write_block(Provider::Anthropic, &WireBlock::plain(block), out);
    }
    out.push(b']');
    if let Some(extra) = message.extra.to_object() {
        out.extend_from_slice(b",\"extra\":");
        out.extend_from_slice(extra.as_bytes());
    }
    out.push(b'}');
}
