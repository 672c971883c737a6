//! The compaction item that the service itself makes for OpenAI's Responses API.
//!
//! A provider encrypts the content of its item. The content of this item is the summary in a spelling that every client
//! returns unchanged: the version of the format, then the text as base64url without padding. Its client may read it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::reader::Audience;
use super::responses_write;
use crate::ids::Ordinal;
use crate::json::write_str;
use crate::message::Block;
use crate::view::{WireBlock, WireMessage, WireRole};

/// The type of the item.
pub const TYPE: &str = "compaction";
/// The beginning of the content: the author and the version of the format. JSON needs no escape for any byte of a
/// content, so a search for these bytes finds every content.
pub const PREFIX: &str = "palimpsest.1.";

/// Returns true for an item of any author.
pub(crate) fn is_item(block: &Block) -> bool {
    matches!(block, Block::Opaque { kind, .. } if &**kind == TYPE)
}

/// Returns the content of the item of a summary.
pub fn encode(summary: &str) -> String {
    let mut content = PREFIX.to_owned();
    URL_SAFE_NO_PAD.encode_string(summary, &mut content);
    content
}

/// Returns the summary in the content of an item. `None` for the content of another author or another version.
pub fn decode(content: &str) -> Option<String> {
    let encoded = content.strip_prefix(PREFIX)?;
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
}

/// Appends the item of a summary as JSON to `out`.
pub fn write_item(id: &str, summary: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":");
    write_str(out, id);
    out.extend_from_slice(b",\"type\":");
    write_str(out, TYPE);
    out.extend_from_slice(b",\"encrypted_content\":");
    write_str(out, &encode(summary));
    out.push(b'}');
}

/// Appends the message as which a view shows a summary as JSON to `out`. A view has the same bytes.
pub fn write_message(summary: &str, out: &mut Vec<u8>) {
    let message = WireMessage {
        role: WireRole::User,
        blocks: vec![WireBlock::Text {
            text: summary.into(),
            extra: None,
        }],
        extra: None,
        // The writer does not read this field, so any ordinal serves.
        first: Ordinal::new(0),
    };
    responses_write::message(&message, Audience::Model, out);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>)) -> Value {
        let mut out = Vec::new();
        write(&mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn an_item_has_the_fields_of_the_api() {
        assert_eq!(encode("Fix \u{e9}?>"), "palimpsest.1.Rml4IMOpPz4");
        assert_eq!(
            written(|out| write_item("cmp_1", "ok", out)),
            json!({"id": "cmp_1", "type": "compaction", "encrypted_content": "palimpsest.1.b2s"})
        );
        assert_eq!(
            written(|out| write_message("a \"b\"", out)),
            json!({"type": "message", "role": "user",
                "content": [{"type": "input_text", "text": "a \"b\""}]})
        );
    }

    #[test]
    fn the_content_of_another_author_is_not_read() {
        let others = [
            "", "gAAAAABf", "palimpsest.2.b2s", "palimpsest.1.b2s=", "palimpsest.1.b2s ",
            "palimpsest.1.+/", // Bytes that are not UTF-8.
            "palimpsest.1._w", " palimpsest.1.b2s",
        ];
        for content in others {
            assert_eq!(decode(content), None, "{content}");
        }
        assert_eq!(decode("palimpsest.1.").as_deref(), Some(""));
    }

    proptest! {
        #[test]
        fn a_summary_survives_and_needs_no_escape(summary in any::<String>()) {
            let content = encode(&summary);
            prop_assert_eq!(decode(&content), Some(summary));
            prop_assert_eq!(json!(content).to_string(), format!("\"{content}\""));
        }
    }
}
