//! Summaries that a client sends back as blocks of its conversation.

use std::sync::Arc;

use palimpsest_core::array::{Element, ReturnedSummary};
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::message::{Block, Message, MessageOrigin, Role};
use palimpsest_core::summary::{SummaryFrame, frame};
use serde::Deserialize;

/// The type of the blocks.
const COMPACTION: &str = "compaction";

/// A conversation without the blocks of summaries.
#[derive(Debug)]
pub(super) struct WithoutSummaries {
    pub(super) elements: Arc<[Element]>,
    /// The last summary. `None` if all blocks report a failed compaction.
    pub(super) last: Option<ReturnedSummary>,
}

#[derive(Deserialize)]
struct Compaction {
    content: Option<Box<str>>,
    encrypted_content: Option<String>,
}

/// Removes the blocks of summaries from a conversation. Returns `None` if it has no such block. `now` and `id` are those of
/// a message with the last summary.
pub(super) fn without_summaries(
    elements: &[Element],
    now: Timestamp,
    id: impl FnOnce() -> MessageId,
) -> Option<WithoutSummaries> {
    let is_summary = |block: &Block| read(block).is_some();
    let has_summary = |element: &Element| element.message.blocks.iter().any(is_summary);
    if !elements.iter().any(has_summary) {
        return None;
    }
    let mut kept = Vec::with_capacity(elements.len());
    let mut last = None;
    for element in elements {
        if !has_summary(element) {
            kept.push(element.clone());
            continue;
        }
        let blocks = element.message.blocks.iter();
        let mut summaries = blocks.filter_map(|block| read(block)?.content);
        // Only the last summary counts, because it covers everything before it, also earlier summaries.
        if let Some(text) = summaries.rfind(|text| !text.trim().is_empty()) {
            // The rest of this message follows the summary, so the place is before that rest.
            last = Some((text, kept.len()));
        }
        let mut rest = Message::clone(&element.message);
        rest.blocks.retain(|block| !is_summary(block));
        // The response to a request that pauses contains nothing else.
        if !rest.blocks.is_empty() {
            kept.push(Element::new(Arc::new(rest)));
        }
    }
    let last = last.map(|(text, at)| ReturnedSummary {
        at,
        message: message(&text, now, id()),
        text,
    });
    Some(WithoutSummaries {
        elements: kept.into(),
        last,
    })
}

/// Reads a block of a summary. A block with content that only its provider can read is none.
fn read(block: &Block) -> Option<Compaction> {
    let Block::Opaque { kind, json } = block else {
        return None;
    };
    let compaction: Compaction = (**kind == *COMPACTION)
        .then(|| serde_json::from_str(json.as_str()).ok())
        .flatten()?;
    // A failed compaction is `{"type": "compaction", "content": null}`. With `encrypted_content`, the provider can read
    // the block.
    let is_readable = compaction.content.is_some() || compaction.encrypted_content.is_none();
    is_readable.then_some(compaction)
}

/// Returns a summary in the form in which a view has one.
fn message(summary: &str, now: Timestamp, id: MessageId) -> Element {
    let framing = SummaryFrame {
        automatic: true,
        has_recent_messages: true,
        ..SummaryFrame::default()
    };
    let text = Block::text(frame(summary, framing));
    let mut message = Message::new(id, Role::User, vec![text]);
    message.origin = MessageOrigin::Anthropic;
    message.machine_generated = true;
    message.at = Some(now);
    Element::new(Arc::new(message))
}

#[cfg(test)]
mod tests {
    use palimpsest_core::codec;
    use palimpsest_core::view::Provider;

    use super::*;

    fn id() -> MessageId {
        MessageId::parse("01234567-89ab-7cde-8f01-23456789abcd").unwrap()
    }

    fn elements(json: &str) -> Vec<Element> {
        let read = codec::read(Provider::Anthropic, json.as_bytes(), &mut id);
        read.unwrap()
            .into_iter()
            .map(|message| Element::new(Arc::new(message)))
            .collect()
    }

    fn without(json: &str) -> Option<WithoutSummaries> {
        without_summaries(&elements(json), Timestamp::default(), id)
    }

    #[test]
    fn the_last_summary_and_its_place_are_found() {
        let given = r#"[{"role":"user","content":"u1"},
            {"role":"assistant","content":[{"type":"compaction","content":"first"},{"type":"text","text":"a1"}]},
            {"role":"user","content":"u2"},
            {"role":"assistant","content":[{"type":"compaction","content":"second"}]},
            {"role":"user","content":"u3"}]"#;
        let rest = r#"[{"role":"user","content":"u1"},{"role":"assistant","content":"a1"},
            {"role":"user","content":"u2"},{"role":"user","content":"u3"}]"#;
        let found = without(given).unwrap();
        let digests = |elements: &[Element]| -> Vec<_> {
            elements.iter().map(|element| element.digests).collect()
        };
        assert_eq!(digests(&found.elements), digests(&elements(rest)));
        let last = found.last.unwrap();
        assert_eq!((&*last.text, last.at), ("second", 3));
    }

    #[test]
    fn other_blocks_stay() {
        let block = |fields: &str| {
            let block = format!(r#"{{"type":"compaction",{fields}}}"#);
            without(&format!(
                r#"[{{"role":"assistant","content":[{block},{{"type":"text","text":"a"}}]}}]"#
            ))
        };
        assert!(block(r#""content":null,"encrypted_content":"x""#).is_none());
        let failed = block(r#""content":null"#).unwrap();
        assert!(failed.last.is_none() && failed.elements.len() == 1);
        assert!(without(r#"[{"role":"user","content":"compaction"}]"#).is_none());
    }
}
