//! Lines of JSON that contain messages in their original bytes.

use palimpsest_core::codec;
use palimpsest_core::view::WireBlock;

/// Returns an object as one line with the message as its last field. The message keeps its bytes, so unknown fields
/// and numbers do not change. Line breaks in JSON can only be white space between values. They become spaces,
/// because they would end the line.
pub(super) fn line(head: &serde_json::Value, message: &[u8]) -> Vec<u8> {
    line_with(head, "message", message)
}

/// Like [`line`], with the name of the last field.
pub(super) fn line_with(head: &serde_json::Value, field: &str, message: &[u8]) -> Vec<u8> {
    let mut out = head.to_string().into_bytes();
    // The object stays open: the message becomes its last field before the closing brace.
    out.pop();
    out.extend_from_slice(format!(",\"{field}\":").as_bytes());
    let byte = |byte: &u8| match byte {
        b'\n' | b'\r' => b' ',
        byte => *byte,
    };
    out.extend(message.iter().map(byte));
    out.extend_from_slice(b"}\n");
    out
}

/// Appends blocks in their original bytes as a JSON array.
pub(super) fn content<'a>(blocks: impl IntoIterator<Item = WireBlock<'a>>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, block) in blocks.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        codec::write_original(&block, out);
    }
    out.push(b']');
}
