//! Searches in a text of several parts.

use bytes::Bytes;
use memchr::memmem::Finder;

/// Returns true if the parts together contain the text.
pub(crate) fn contains(parts: &[Bytes], text: &[u8]) -> bool {
    let finder = Finder::new(text);
    let mut before = Vec::new();
    parts.iter().any(|part| {
        // The text can begin in one part and end in a later one.
        // A match across parts has at most `text.len() - 1` bytes in each of them.
        before.extend_from_slice(&part[..part.len().min(text.len() - 1)]);
        let found = finder.find(&before).is_some() || finder.find(part).is_some();
        let kept = part.len().min(text.len() - 1);
        if kept == text.len() - 1 {
            before.clear();
            before.extend_from_slice(&part[part.len() - kept..]);
        }
        found
    })
}
