//! Random items of OpenAI's Responses API.

use palimpsest_core::codec;
use palimpsest_core::ids::MessageId;
use palimpsest_core::message::{CallKind, Message};
use palimpsest_core::view::Provider;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::ItemDraft;

/// Generates the description of an item. Most items belong to calls, because these have the most rules.
pub(crate) fn item() -> impl Strategy<Value = ItemDraft> {
    prop_oneof![
        1 => any::<u8>().prop_map(ItemDraft::User),
        2 => any::<u8>().prop_map(ItemDraft::Model),
        3 => any::<bool>().prop_map(|encrypted| ItemDraft::Reasoning { encrypted }),
        // Four ids for all kinds, so that outputs also meet calls of another kind.
        4 => (0..4_u8, 0..5_u8).prop_map(|(id, kind)| ItemDraft::Call { id, kind }),
        4 => (0..4_u8, 0..5_u8).prop_map(|(id, kind)| ItemDraft::Output { id, kind }),
        1 => Just(ItemDraft::Search),
        1 => Just(ItemDraft::Compaction),
    ]
}

/// Returns the message that the codec reads from an item.
pub(crate) fn message(id: MessageId, item: &ItemDraft) -> Message {
    let json = json(item).to_string();
    let read = codec::read(Provider::OpenAiResponses, json.as_bytes(), &mut || id);
    read.unwrap().remove(0)
}

fn json(item: &ItemDraft) -> Value {
    match item {
        ItemDraft::User(n) => json!({"role": "user", "content": format!("question {n}")}),
        ItemDraft::Model(n) => json!({
            "type": "message", "id": format!("msg_{n}"), "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": format!("answer {n}"), "annotations": []}],
        }),
        ItemDraft::Reasoning { encrypted } => json!({
            "type": "reasoning", "id": "rs_1", "summary": [],
            "encrypted_content": encrypted.then_some("sealed"),
        }),
        ItemDraft::Call { id, kind } => {
            let (kind, call_id) = (kind_of(*kind), format!("call_{id}"));
            let mut item = json!({"type": kind.call_type(), "id": "x", "call_id": call_id});
            let (name, value) = match kind {
                CallKind::Function => ("arguments", json!("{\"path\": \"a\"}")),
                CallKind::Custom => ("input", json!("patch")),
                CallKind::LocalShell | CallKind::Shell => ("action", json!({"commands": ["ls"]})),
                CallKind::ApplyPatch => ("operation", json!({"type": "delete_file"})),
            };
            item[name] = value;
            if matches!(kind, CallKind::Function | CallKind::Custom) {
                item["name"] = json!("Read");
            }
            item
        }
        ItemDraft::Output { id, kind } => {
            let kind = kind_of(*kind);
            let output = match kind {
                CallKind::Shell => json!([{"stdout": "said", "stderr": ""}]),
                CallKind::Custom => json!([{"type": "input_text", "text": "said"}]),
                _ => json!("a long line of output\n".repeat(20)),
            };
            json!({"type": kind.output_type(), "call_id": format!("call_{id}"), "output": output})
        }
        ItemDraft::Search => {
            json!({"type": "web_search_call", "id": "ws_1", "status": "completed"})
        }
        ItemDraft::Compaction => json!({"type": "compaction", "encrypted_content": "sealed"}),
    }
}

fn kind_of(kind: u8) -> CallKind {
    CallKind::ALL[usize::from(kind) % CallKind::ALL.len()]
}
