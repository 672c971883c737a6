//! The rendered views of sessions. Of the next view of a session, only the new messages are rendered.

use std::collections::BTreeMap;

use palimpsest_core::codec;
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::{Etag, Target};
use palimpsest_engine::turn::{JsonParts, LastOfSessions};

/// Maximum size of all rendered views, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// The last rendered view of each session.
#[derive(Debug)]
pub(super) struct RenderedViews(LastOfSessions<KnownView>);

#[derive(Debug)]
struct KnownView {
    etag: Etag,
    messages: RenderedMessages,
}

/// The messages of a view in the provider's JSON, separated by commas.
#[derive(Debug, Clone, Default)]
pub(super) struct RenderedMessages {
    text: JsonParts,
    /// The positions after the messages.
    ends: Vec<usize>,
}

impl Default for RenderedViews {
    fn default() -> Self {
        Self(LastOfSessions::new(MAX_BYTES))
    }
}

impl RenderedViews {
    /// Renders the view of a session. Returns `None` if the view cannot be sent. A view that `is_committed` is kept for
    /// the next one.
    pub(super) fn render(
        &self,
        session: &Session,
        target: &Target,
        is_committed: bool,
    ) -> Result<Option<RenderedMessages>, ContentNotLoaded> {
        let key = session.key();
        let known = self.0.get(key);
        let view = session.view(target, known.as_ref().map(|known| known.etag))?;
        if view.not_sendable.is_some() {
            return Ok(None);
        }
        // The etag identifies the view and the target, so the kept messages have the same bytes.
        let mut messages = known.map_or_else(RenderedMessages::default, |known| {
            known.messages.first(view.keep as usize)
        });
        let mut json = Vec::new();
        for message in &view.messages {
            json.clear();
            codec::write(target.provider, message, &mut json);
            messages.push(&json);
        }
        if is_committed {
            let (etag, bytes) = (view.etag, messages.text.len());
            let known = KnownView {
                etag,
                messages: messages.clone(),
            };
            self.0.insert(key, known, bytes);
        }
        Ok(Some(messages))
    }
}

impl RenderedMessages {
    /// Returns the number of messages.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the JSON of a message.
    pub(super) fn get(&self, message: usize) -> Option<JsonParts> {
        let end = *self.ends.get(message)?;
        Some(self.text.section(self.begin(message)..end))
    }

    /// Returns the text with some messages replaced.
    pub(super) fn with(&self, replaced: &BTreeMap<usize, Vec<u8>>) -> JsonParts {
        let mut parts = Vec::new();
        let mut done = 0;
        for (message, json) in replaced {
            let Some(end) = self.ends.get(*message) else {
                continue;
            };
            let before = self.text.section(done..self.begin(*message));
            parts.extend(before.parts().iter().cloned());
            parts.push(json.clone().into());
            done = *end;
        }
        let rest = self.text.section(done..self.text.len());
        parts.extend(rest.parts().iter().cloned());
        JsonParts::new(parts)
    }

    fn begin(&self, message: usize) -> usize {
        let before = message.checked_sub(1).and_then(|at| self.ends.get(at));
        // One comma separates the messages.
        before.map_or(0, |end| end + 1)
    }

    fn first(&self, count: usize) -> Self {
        let ends = self.ends[..count.min(self.ends.len())].to_vec();
        Self {
            text: self.text.section(0..ends.last().copied().unwrap_or(0)),
            ends,
        }
    }

    pub(super) fn push(&mut self, json: &[u8]) {
        if !self.ends.is_empty() {
            self.text.push(b",");
        }
        self.text.push(json);
        self.ends.push(self.text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_replaced_in_the_text() {
        let mut messages = RenderedMessages::default();
        for json in ["{\"a\":1}", "{}", "{\"b\":[2]}"] {
            messages.push(json.as_bytes());
        }
        let text = |replaced: &[(usize, &str)]| {
            let replaced = replaced
                .iter()
                .map(|(at, json)| (*at, json.as_bytes().to_vec()));
            let whole = messages.with(&replaced.collect()).whole();
            String::from_utf8(whole.to_vec()).unwrap()
        };
        assert_eq!(text(&[]), r#"{"a":1},{},{"b":[2]}"#);
        assert_eq!(text(&[(0, "1"), (2, "3")]), "1,{},3");
        // Position 7 has no message and changes nothing.
        assert_eq!(text(&[(1, "22"), (7, "x")]), r#"{"a":1},22,{"b":[2]}"#);
        let last = messages.get(2).unwrap().whole();
        assert_eq!(&last[..], br#"{"b":[2]}"#);
        assert_eq!(messages.get(3), None);
        let mut shorter = messages.first(2);
        shorter.push(b"9");
        assert_eq!(
            &shorter.with(&BTreeMap::new()).whole()[..],
            br#"{"a":1},{},9"#
        );
        assert_eq!(messages.first(0).len(), 0);
    }
}
