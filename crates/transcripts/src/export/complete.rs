//! The complete export format: a header line, one line for each message, and a last line with counts and a digest.
//! `import::palimpsest` reads it.

use palimpsest_core::ids::Timestamp;
use palimpsest_core::message::{Message, MessageOrigin, Role};
use palimpsest_core::session::Session;
use palimpsest_core::view::{Provider, WireBlock};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::line::{content, line};
use super::messages::json_messages;
use super::original::{BlobLoss, OriginalMessage, PendingResult};
use crate::import::palimpsest::{ExportVisibility, KindName, VERSION, WHAT};

/// The writer of one file.
#[derive(Debug)]
pub struct CompleteWriter {
    head: Value,
    messages: u64,
    pending_results: u64,
    digest: Sha256,
}

impl CompleteWriter {
    /// Creates the writer for a session. `partial` is true if a filter or omitted results make the export
    /// incomplete.
    pub fn of(session: &Session, partial: bool) -> Self {
        let about = session.info();
        let mut head = json!({
            "palimpsest": WHAT,
            "version": VERSION,
            "session": session.key().to_string(),
            "revision": session.revision().get(),
            "title": about.title,
            "project_path": about.project_path,
            "branch": about.branch,
            "parent_session": about.parent.as_ref().map(ToString::to_string),
            "attributes": attributes(&about.attributes),
            "partial": partial,
        });
        remove_defaults(&mut head);
        Self {
            head,
            messages: 0,
            pending_results: 0,
            digest: Sha256::new(),
        }
    }

    /// Returns the header line.
    pub fn begin(&mut self) -> Vec<u8> {
        self.written(format!("{}\n", self.head).into_bytes())
    }

    /// Returns the line of a message.
    pub fn line(&mut self, original: &OriginalMessage) -> Vec<u8> {
        self.messages += 1;
        self.written(message_line(original))
    }

    /// Returns the line of a stored result without a message: its text, or the reason for its loss. These lines
    /// follow those of the messages.
    pub fn pending(
        &mut self,
        result: &PendingResult,
        text: Result<(String, bool), BlobLoss>,
    ) -> Vec<u8> {
        self.pending_results += 1;
        let mut line = json!({
            "tool_use_id": result.tool_use_id,
            "tool": result.tool,
            "file": result.file,
        });
        match text {
            Ok((text, is_json)) => {
                line["json"] = json!(is_json);
                line["text"] = json!(text);
            }
            Err(loss) => line["loss"] = json!(loss.as_str()),
        }
        self.written(format!("{}\n", json!({"pending_result": line})).into_bytes())
    }

    /// Returns the last line: the number of lines by kind, and the digest of all bytes before it.
    pub fn end(&self) -> Vec<u8> {
        let digest = self.digest.clone().finalize();
        let sha256 = palimpsest_core::hex(&digest);
        let mut end = json!({"messages": self.messages, "sha256": sha256});
        if self.pending_results > 0 {
            end["pending_results"] = json!(self.pending_results);
        }
        format!("{end}\n").into_bytes()
    }

    fn written(&mut self, line: Vec<u8>) -> Vec<u8> {
        // The digest covers every line before the last one.
        self.digest.update(&line);
        line
    }
}

fn attributes(all: &[(Box<str>, Box<str>)]) -> serde_json::Map<String, Value> {
    let entry = |(name, value): &(Box<str>, Box<str>)| (name.to_string(), json!(value));
    all.iter().map(entry).collect()
}

fn remove_defaults(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|_, value| {
            !value.is_null()
                && *value != json!(false)
                && *value != json!("")
                && value.as_object().is_none_or(|map| !map.is_empty())
        });
    }
}

/// Returns the line of a message with all stored data. The content uses Anthropic's block format, which can
/// represent every block. Items of OpenAI's Responses API have their own format, because their unknown fields have
/// the names of Anthropic's fields.
fn message_line(original: &OriginalMessage) -> Vec<u8> {
    let (entry, message) = (&original.entry, &original.message);
    let usage = message.usage.map(|usage| {
        json!({
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        })
    });
    // `ordinal` starts at 1 in the export, and at 0 in the code.
    let mut head = json!({
        "id": entry.id.to_string(),
        "ordinal": u64::from(original.ordinal.get()) + 1,
        "revision": entry.revision.get(),
        "visibility": ExportVisibility::from(entry.visibility),
        "parent_id": message.parent.map(|id| id.to_string()),
        "create_time_ms": message.at.map(Timestamp::as_millis),
        "provider_message_id": message.provider_message_id,
        "model": message.model,
        "usage": usage,
        "kind": KindName::from(message.kind),
        "origin": origin(message.origin),
        "meta": message.machine_generated,
        "transcript_only": message.transcript_only,
        "attributes": attributes(&message.attributes),
        "unreadable_results": unreadable(original),
    });
    remove_defaults(&mut head);
    let mut whole = Vec::new();
    message_json(message, &mut whole);
    line(&head, &whole)
}

/// Returns the stored results that are lost permanently. Their blocks contain the replacements.
fn unreadable(original: &OriginalMessage) -> Option<Value> {
    let lost = original
        .unreadable
        .iter()
        .map(|lost| json!({"block": lost.block, "file": lost.file, "loss": lost.loss.as_str()}));
    let lost: Vec<Value> = lost.collect();
    (!lost.is_empty()).then_some(Value::Array(lost))
}

/// Returns the format of the message's unknown fields, or `None` for typed messages.
const fn origin(origin: MessageOrigin) -> Option<&'static str> {
    match origin {
        MessageOrigin::Typed => None,
        MessageOrigin::Anthropic => Some("ANTHROPIC_MESSAGES"),
        MessageOrigin::OpenAi => Some("OPENAI_CHAT"),
        MessageOrigin::OpenAiResponses => Some("OPENAI_RESPONSES"),
    }
}

/// Writes the message as JSON: blocks in Anthropic's format for any provider, and the unknown fields under `extra`.
fn message_json(message: &Message, out: &mut Vec<u8>) {
    if message.origin == MessageOrigin::OpenAiResponses {
        let items = json_messages(message, Provider::OpenAiResponses);
        // A message of this origin is one item.
        out.extend(items.into_iter().next().unwrap_or_default());
        return;
    }
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Developer => "developer",
    };
    out.extend_from_slice(format!("{{\"role\":\"{role}\",\"content\":").as_bytes());
    content(message.blocks.iter().map(WireBlock::from_block), out);
    if let Some(extra) = message.extra.to_object() {
        out.extend_from_slice(b",\"extra\":");
        out.extend_from_slice(extra.as_bytes());
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use palimpsest_core::codec;
    use palimpsest_core::ids::{MessageId, Ordinal, Revision};
    use palimpsest_core::message::Digest;
    use palimpsest_core::session::{TranscriptEntry, Visibility};
    use palimpsest_histories::{appended_messages, operation};
    use proptest::prelude::*;
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;

    fn read(provider: Provider, json: &str) -> Message {
        let mut next_id = || MessageId::new(uuid::Uuid::nil());
        let mut messages = codec::read(provider, json.as_bytes(), &mut next_id).unwrap();
        assert_eq!(messages.len(), 1);
        messages.remove(0)
    }

    fn write(message: &Message) -> String {
        let entry = TranscriptEntry {
            id: message.id,
            revision: Revision::new(2),
            digest: Digest::of_message(message),
            role: message.role,
            kind: message.kind,
            visibility: Visibility::Visible,
            size: palimpsest_core::tokens::TokenSize::default(),
            counted_by: palimpsest_core::policy::TokenEstimator::Bytes,
            content: None,
        };
        let original = OriginalMessage {
            ordinal: Ordinal::new(0),
            entry,
            message: Arc::new(message.clone()),
            unreadable: Vec::new(),
        };
        String::from_utf8(message_line(&original)).unwrap()
    }

    /// Returns the message of an exported line, in its original bytes.
    fn message_of(line: &str) -> &str {
        #[derive(serde::Deserialize)]
        struct Line<'a> {
            #[serde(borrow)]
            message: &'a RawValue,
        }
        serde_json::from_str::<Line<'_>>(line)
            .unwrap()
            .message
            .get()
    }

    #[track_caller]
    fn check(message: &Message) {
        let line = write(message);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let provider = match message.origin {
            MessageOrigin::OpenAiResponses => Provider::OpenAiResponses,
            _ => Provider::Anthropic,
        };
        let back = read(provider, message_of(&line));
        assert_eq!(back.blocks, message.blocks);
    }

    #[test]
    fn originals_are_exported_byte_for_byte() {
        let json = concat!(
            r#"{"role":"user","content":["#,
            r#"{"type":"text","text":"q","n":1e400,"cache_control":{"type":"ephemeral","ttl":"1h"}},"#,
            r#"{"type":"tool_result","tool_use_id":"a","content":["#,
            r#"{"type":"text","text":"1","cache_control":{"type":"ephemeral"}}],"is_error":false,"#,
            r#""cache_control":{"type":"ephemeral"}},"#,
            r#"{"type":"image","source":{"type":"url","url":"u"},"cache_control":{"type":"ephemeral"}},"#,
            r#"{"type":"novel","cache_control":{"type":"ephemeral"}}]}"#
        );
        let message = read(Provider::Anthropic, json);
        check(&message);
        assert_eq!(message_of(&write(&message)), json);
        let json = concat!(
            r#"{"role":"assistant","content":["#,
            r#"{"type":"tool_use","id":"a","name":"t","input":{ "x" : 1 },"cache_control":{"type":"ephemeral"}},"#,
            r#"{"type":"tool_use","id":"b","name":"t","input":"{\"cut\": "}],"#,
            r#""extra":{"stop_reason":"tool_use"}}"#
        );
        let given = json.replace(
            r#""extra":{"stop_reason":"tool_use"}"#,
            r#""stop_reason":"tool_use""#,
        );
        let message = read(Provider::Anthropic, &given);
        check(&message);
        assert_eq!(message_of(&write(&message)), json);
    }

    #[test]
    fn an_exported_line_names_the_origin_of_its_unknown_fields() {
        let json = r#"{"role":"user","content":"q","name":"x"}"#;
        let origin = |message: &Message| {
            let line: Value = serde_json::from_str(&write(message)).unwrap();
            line["origin"].clone()
        };
        let mut message = read(Provider::OpenAi, json);
        assert_eq!(origin(&message), "OPENAI_CHAT");
        message.origin = MessageOrigin::Anthropic;
        assert_eq!(origin(&message), "ANTHROPIC_MESSAGES");
        message.origin = MessageOrigin::Typed;
        assert_eq!(origin(&message), Value::Null);
    }

    proptest! {
        #[test]
        fn any_history_is_exported_without_loss(
            operations in prop::collection::vec(operation(), 1..12),
        ) {
            appended_messages(&operations).iter().for_each(check);
        }
    }
}
