//! Lines of Claude Code that record changes of the view.

use palimpsest_core::ids::{MessageId, Timestamp};
use serde_json::{Map, Value, json};

use super::chain::{CollapsedSpan, Compaction};
use crate::utc;

/// The fields that all records of a session have.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordHead<'s> {
    pub(super) session: &'s str,
    /// The time of the change.
    pub(super) at: Option<Timestamp>,
}

impl RecordHead<'_> {
    /// Returns the line of a compaction. The next line contains the summary.
    pub(super) fn boundary(
        self,
        id: MessageId,
        last: Option<MessageId>,
        compaction: &Compaction,
    ) -> Vec<u8> {
        let mut metadata = json!({
            "trigger": if compaction.manual { "manual" } else { "auto" },
            "preTokens": compaction.before_tokens,
        });
        if !compaction.kept.is_empty() {
            let kept: Vec<String> = compaction.kept.iter().map(ToString::to_string).collect();
            let mut segment = json!({"preservedMessageUuids": kept});
            if let Some(of_chain) = compaction.segment {
                segment["headUuid"] = json!(of_chain.head.to_string());
                segment["anchorUuid"] = json!(of_chain.anchor.to_string());
                segment["tailUuid"] = json!(of_chain.tail.to_string());
            }
            metadata["preservedSegment"] = segment;
        }
        self.system(
            id,
            "compact_boundary",
            "Conversation compacted",
            [
                ("compactMetadata", metadata),
                ("logicalParentUuid", json!(last.map(|id| id.to_string()))),
            ],
        )
    }

    /// Returns the line of removed messages.
    pub(super) fn removal(self, id: MessageId, removed: &[MessageId]) -> Vec<u8> {
        let removed: Vec<String> = removed.iter().map(ToString::to_string).collect();
        let metadata = json!({"removedUuids": removed});
        self.system(
            id,
            "snip_boundary",
            "Messages removed",
            [("snipMetadata", metadata)],
        )
    }

    /// Returns the line of results that the view replaces.
    pub(super) fn replaced(self, id: MessageId, calls: &[&str]) -> Vec<u8> {
        let metadata = json!({"trigger": "auto", "compactedToolIds": calls});
        self.system(
            id,
            "microcompact_boundary",
            "Context microcompacted",
            [("microcompactMetadata", metadata)],
        )
    }

    /// Returns the line of a collapsed span.
    pub(super) fn collapse(self, number: usize, span: &CollapsedSpan) -> Vec<u8> {
        let end = |id: Option<&MessageId>| id.map(ToString::to_string);
        // Claude Code records a collapsed span in a line of this type.
        let line = json!({
            "type": "marble-origami-commit",
            "sessionId": self.session,
            "collapseId": format!("{number:016}"),
            "summaryUuid": span.id.to_string(),
            "summaryContent": span.text,
            "summary": span.text,
            "firstArchivedUuid": end(span.messages.first()),
            "lastArchivedUuid": end(span.messages.last()),
        });
        format!("{line}\n").into_bytes()
    }

    /// Returns the line that replaces a collapsed span in the chain.
    pub(super) fn placeholder(self, span: &CollapsedSpan) -> Vec<u8> {
        let mut line = self.fields("user", span.id);
        line.insert(
            "parentUuid".into(),
            json!(span.parent.map(|id| id.to_string())),
        );
        line.insert("isMeta".into(), json!(true));
        let message = json!({"role": "user", "content": span.text});
        line.insert("message".into(), message);
        format!("{}\n", Value::Object(line)).into_bytes()
    }

    /// Returns the line that names the last message of the chain.
    pub(super) fn leaf(self, leaf: MessageId) -> Vec<u8> {
        let line = json!({
            "type": "last-prompt",
            "leafUuid": leaf.to_string(),
            "sessionId": self.session,
        });
        format!("{line}\n").into_bytes()
    }

    fn system<const N: usize>(
        self,
        id: MessageId,
        subtype: &str,
        content: &str,
        metadata: [(&str, Value); N],
    ) -> Vec<u8> {
        let mut line = self.fields("system", id);
        line.insert("subtype".into(), json!(subtype));
        line.insert("content".into(), json!(content));
        line.insert("isMeta".into(), json!(false));
        line.insert("level".into(), json!("info"));
        line.extend(metadata.map(|(name, value)| (name.to_owned(), value)));
        format!("{}\n", Value::Object(line)).into_bytes()
    }

    fn fields(self, kind: &str, id: MessageId) -> Map<String, Value> {
        let fields = json!({
            "parentUuid": null,
            "isSidechain": false,
            "sessionId": self.session,
            "type": kind,
            "uuid": id.to_string(),
        });
        let mut fields = fields.as_object().cloned().unwrap_or_default();
        if let Some(at) = self.at {
            fields.insert("timestamp".into(), json!(utc::format(at)));
        }
        fields
    }
}
