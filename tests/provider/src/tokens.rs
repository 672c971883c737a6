//! The token count of this provider: bytes divided by four, rounded up. Tests can therefore compute exact counts.

use serde_json::Value;

/// The tokens of an image, regardless of its size.
const IMAGE: u64 = 1_600;

/// Returns the tokens of a text.
pub fn count(text: &str) -> u64 {
    u64::try_from(text.len().div_ceil(4)).unwrap_or(u64::MAX)
}

/// Returns the tokens of any part of a request: its texts, its images, and the JSON of other fields.
pub(crate) fn of(value: &Value) -> u64 {
    match value {
        Value::Null => 0,
        Value::String(text) => count(text),
        Value::Array(values) => values.iter().map(of).sum(),
        Value::Object(object) => match object.get("type").and_then(Value::as_str) {
            Some("image" | "document" | "image_url" | "file" | "input_audio") => IMAGE,
            Some("text") => object.get("text").map_or(0, of),
            _ => object
                .iter()
                // A moved marker must not change the count, because caches compare prefixes without markers.
                .filter(|(name, _)| *name != "cache_control" && *name != "role" && *name != "type")
                .map(|(_, value)| of(value))
                .sum(),
        },
        Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// Returns the prefix of a text with at most this many tokens.
pub(crate) fn start(text: &str, tokens: u64) -> &str {
    let bytes = usize::try_from(tokens.saturating_mul(4)).unwrap_or(usize::MAX);
    &text[..text.floor_char_boundary(bytes.min(text.len()))]
}
