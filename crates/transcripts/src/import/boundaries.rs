//! Lines with which Claude Code records changes of its model's view: compaction boundaries of
//! several versions, removed messages and collapsed spans.

use palimpsest_core::ids::MessageId;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The fields of a line that concern the view.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ViewLine {
    #[serde(default)]
    subtype: String,
    compact_metadata: Option<CompactMetadata>,
    microcompact_metadata: Option<MicrocompactMetadata>,
    snip_metadata: Option<SnipMetadata>,
    #[serde(default, rename = "removedUuids")]
    removed: Vec<String>,
    /// Older versions store the boundary in the field `message`.
    message: Option<WrappedMetadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrappedMetadata {
    #[serde(default)]
    r#type: String,
    compact_metadata: Option<CompactMetadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SnipMetadata {
    #[serde(default, rename = "removedUuids")]
    removed: Vec<String>,
}

#[derive(Deserialize)]
struct MicrocompactMetadata {
    #[serde(default, rename = "compactedToolIds")]
    calls: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct CompactMetadata {
    #[serde(default, alias = "compactType")]
    trigger: String,
    #[serde(default, alias = "preCompactTokenCount")]
    pre_tokens: Option<u32>,
    preserved_segment: Option<PreservedSegment>,
    /// Newer versions list the messages here and name the segment too.
    preserved_messages: Option<PreservedMessages>,
}

#[derive(Deserialize, Default)]
struct PreservedMessages {
    #[serde(default)]
    uuids: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PreservedSegment {
    head_uuid: Option<String>,
    tail_uuid: Option<String>,
    summary_message_uuid: Option<String>,
    #[serde(default)]
    preserved_message_uuids: Vec<String>,
}

/// A compaction boundary. The next message contains the summary.
#[derive(Debug)]
pub(super) struct CompactBoundary {
    pub(super) line: usize,
    pub(super) manual: bool,
    pub(super) before_tokens: Option<u32>,
    /// The first and the last message of a kept segment, if the boundary does not list its messages.
    pub(super) segment: Option<(MessageId, MessageId)>,
    /// The messages that were kept.
    pub(super) kept: Vec<MessageId>,
    /// The id of the summary, if the boundary names it.
    pub(super) summary: Option<MessageId>,
}

impl ViewLine {
    /// Parses a line. Returns `None` if the line does not concern the view.
    pub(super) fn read(text: &str) -> Option<Self> {
        // Most system lines change no view, so a search avoids parsing them a second time.
        let says = ["compact", "removedUuids"];
        let may = says.iter().any(|word| text.contains(word));
        may.then(|| serde_json::from_str(text).ok()).flatten()
    }

    /// Returns the compaction boundary of the line, if any. Boundaries of a microcompaction are
    /// ignored.
    pub(super) fn mark(&self, line: usize) -> Option<CompactBoundary> {
        let inner = self.message.as_ref();
        let inner_type = inner.map_or("", |inner| &*inner.r#type);
        if [&*self.subtype, inner_type].contains(&"microcompact_boundary") {
            return None;
        }
        let of_inner = inner.and_then(|inner| inner.compact_metadata.as_ref());
        let metadata = self.compact_metadata.as_ref().or(of_inner);
        // A line of this type is a boundary even without metadata.
        let is_named = [&*self.subtype, inner_type].contains(&"compact_boundary");
        let nothing = CompactMetadata::default();
        let metadata = metadata.or(is_named.then_some(&nothing))?;
        if metadata.trigger == "micro" {
            return None;
        }
        let segment = metadata.preserved_segment.as_ref();
        let id = |text: &Option<String>| text.as_deref().and_then(MessageId::parse);
        let of_segment = segment.map(|segment| &segment.preserved_message_uuids);
        let listed = metadata.preserved_messages.as_ref().map(|it| &it.uuids);
        let kept = of_segment.into_iter().chain(listed).flatten();
        let kept: Vec<MessageId> = kept.filter_map(|id| MessageId::parse(id)).collect();
        let ends = segment.and_then(|it| id(&it.head_uuid).zip(id(&it.tail_uuid)));
        Some(CompactBoundary {
            line,
            manual: metadata.trigger == "manual",
            before_tokens: metadata.pre_tokens,
            // Replaced messages may stand between kept ones, so a list is more exact than a segment.
            segment: ends.filter(|_| kept.is_empty()),
            kept,
            summary: segment.and_then(|it| id(&it.summary_message_uuid)),
        })
    }

    /// Returns the calls whose results were cleared.
    pub(super) fn cleared_calls(self) -> Vec<String> {
        let metadata = self.microcompact_metadata;
        metadata.map(|it| it.calls).unwrap_or_default()
    }

    /// Returns the removed messages without duplicates.
    pub(super) fn removed(&self) -> Vec<MessageId> {
        let of_snip = self.snip_metadata.iter().flat_map(|snip| &snip.removed);
        let all = self.removed.iter().chain(of_snip);
        let mut ids: Vec<MessageId> = Vec::new();
        for id in all.filter_map(|id| MessageId::parse(id)) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }
}

/// The type of lines that record collapsed spans.
pub(super) const COLLAPSED_SPAN_PREFIX: &str = "marble-origami-commit";

/// A span of messages that a summary replaced.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CollapsedSpan {
    summary_uuid: Option<String>,
    summary_content: String,
    first_archived_uuid: String,
    last_archived_uuid: String,
}

impl CollapsedSpan {
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the first and the last message of the span.
    pub(super) fn span(&self) -> Option<(MessageId, MessageId)> {
        let first = MessageId::parse(&self.first_archived_uuid)?;
        Some((first, MessageId::parse(&self.last_archived_uuid)?))
    }

    pub(super) fn id(&self) -> Option<MessageId> {
        MessageId::parse(self.summary_uuid.as_deref()?)
    }

    /// Returns the summary as a message.
    pub(super) fn payload(&self) -> Option<Box<RawValue>> {
        let message = serde_json::json!({"role": "user", "content": self.summary_content});
        serde_json::value::to_raw_value(&message).ok()
    }
}
