//! The warning about markers of the prompt cache that messages bring and no view contains.

use palimpsest_proto::context::v1;
use v1::message_input::Content;

const FIELD: &[u8] = br#""cache_control""#;

/// Returns true if JSON contains the field of a marker. In a text, quotes have a backslash before them.
pub(super) fn has_cache_control(json: &[u8]) -> bool {
    let ends = memchr::memmem::find_iter(json, FIELD).map(|at| at + FIELD.len());
    let mut values = ends.map(|end| json[end..].trim_ascii_start());
    // Only the name of a field has a colon behind it. `["cache_control"]` is a value.
    values.any(|rest| rest.starts_with(b":"))
}

/// Returns true if one of the messages has a marker. The unknown fields of typed messages are JSON too.
pub(super) fn messages_have_cache_control(messages: &[v1::MessageInput]) -> bool {
    let is_marked = |message: &v1::Message| {
        let blocks = message.blocks.iter().map(|block| &block.extra_json);
        let mut fields = blocks.chain([&message.extra_json]);
        fields.any(|json| has_cache_control(json))
    };
    messages.iter().any(|message| match &message.content {
        Some(Content::Payload(payload)) => has_cache_control(&payload.json),
        Some(Content::Message(message)) => is_marked(message),
        None => false,
    })
}

pub(super) fn cache_control_dropped() -> v1::Warning {
    v1::Warning {
        code: v1::WarningCode::CacheControlDropped.into(),
        detail: "The messages contain cache_control, and the view does not. Set cache_breakpoints for the view, and add \
                 the returned markers."
            .to_owned(),
        ..v1::Warning::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_with_any_spaces_and_not_inside_a_text() {
        for json in [r#"{"cache_control":{}}"#, "{\"cache_control\" \n: {}}"] {
            assert!(has_cache_control(json.as_bytes()), "{json}");
        }
        for json in [
            r#"{"text":"a \"cache_control\": b"}"#,
            r#"["cache_control"]"#,
        ] {
            assert!(!has_cache_control(json.as_bytes()), "{json}");
        }
    }
}
