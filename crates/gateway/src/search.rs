//! Searches in a text of several parts.

use bytes::Bytes;
use memchr::memmem::Finder;

/// Returns true if the parts together contain the text.
pub(crate) fn contains(parts: &[Bytes], text: &[u8]) -> bool {
    let finder = Finder::new(text);
    // A match across parts has at most this many bytes in each of them.
    let across = text.len().saturating_sub(1);
    // The end of the parts so far. It stays short, so that many small parts do not make the search quadratic.
    let mut before = Vec::new();
    parts.iter().any(|part| {
        before.extend_from_slice(&part[..part.len().min(across)]);
        let found = finder.find(&before).is_some() || finder.find(part).is_some();
        if part.len() > across {
            before.clear();
            before.extend_from_slice(&part[part.len() - across..]);
        } else {
            before.drain(..before.len().saturating_sub(across));
        }
        found
    })
}
