//! Edits of the context by the provider: cleared tool results, cleared thinking, and compaction.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::array;
use super::betas::{Betas, extra};
use crate::refusal::Refusal;
use crate::{echo, tokens};

/// The directive in the name of a model whose server lacks this feature.
pub(crate) const ABSENT: &str = "no-edits";
/// The beginnings of the betas of this feature.
const BETAS: [&str; 2] = ["context-management-", "compact-"];
const CLEAR_TOOLS: &str = "clear_tool_uses_20250919";
const CLEAR_THINKING: &str = "clear_thinking_20251015";
const COMPACT: &str = "compact_20260112";
/// The defaults of the triggers and of the kept tool uses, and the smallest trigger of a compaction.
const CLEAR_TRIGGER: u64 = 100_000;
const COMPACT_TRIGGER: u64 = 150_000;
const COMPACT_LEAST: u64 = 50_000;
const KEPT_TOOL_USES: u64 = 3;
const PLACEHOLDER: &str = "[cleared to save context]";

/// Checks the field `context_management`.
pub(super) fn check(betas: &Betas, body: &Value) -> Result<(), Refusal> {
    let config = &body["context_management"];
    let model = body["model"].as_str().unwrap_or_default();
    if model.split('+').any(|directive| directive == ABSENT) && betas.has(&BETAS) {
        return Err(Refusal::invalid("invalid beta flag"));
    }
    if config.is_null() {
        return Ok(());
    }
    if !betas.has(&BETAS) {
        return Err(extra("context_management"));
    }
    known(config, &["edits"], "context_management")?;
    for (index, edit) in array(&config["edits"]).iter().enumerate() {
        let at = format!("context_management.edits.{index}");
        let kind = edit["type"].as_str().unwrap_or_default();
        // Each family of edits has its own beta. An edit without its beta is an unknown tag.
        let beta = if kind == COMPACT {
            "compact-"
        } else {
            "context-management-"
        };
        if ![CLEAR_TOOLS, CLEAR_THINKING, COMPACT].contains(&kind) || !betas.has(&[beta]) {
            return Err(Refusal::invalid(format!(
                "{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags: '{CLEAR_TOOLS}', '{CLEAR_THINKING}', '{COMPACT}'"
            )));
        }
        let at = format!("{at}.{kind}");
        match kind {
            CLEAR_THINKING => clear_thinking(body, edit, index, &at)?,
            CLEAR_TOOLS => known(
                edit,
                &[
                    "type", "trigger", "keep", "clear_at_least", "exclude_tools",
                    "clear_tool_inputs",
                ],
                &at,
            )?,
            _ => compact(edit, &at)?,
        }
    }
    Ok(())
}

fn known(value: &Value, fields: &[&str], at: &str) -> Result<(), Refusal> {
    let unknown = value
        .as_object()
        .and_then(|object| object.keys().find(|name| !fields.contains(&name.as_str())));
    unknown.map_or(Ok(()), |unknown| Err(extra(&format!("{at}.{unknown}"))))
}

fn clear_thinking(body: &Value, edit: &Value, index: usize, at: &str) -> Result<(), Refusal> {
    known(edit, &["type", "keep"], at)?;
    if index > 0 {
        return Err(Refusal::invalid(format!(
            "context_management.edits: `{CLEAR_THINKING}` strategy must be the first in the list"
        )));
    }
    if !matches!(
        body["thinking"]["type"].as_str(),
        Some("enabled" | "adaptive")
    ) {
        return Err(Refusal::invalid(format!(
            "context_management.edits: `{CLEAR_THINKING}` strategy requires `thinking` to be enabled or adaptive"
        )));
    }
    let keep = &edit["keep"];
    let is_valid = keep.is_null()
        || keep == "all"
        || keep["type"] == "all"
        || keep["type"] == "thinking_turns" && keep["value"].as_u64().is_some_and(|it| it > 0);
    if is_valid {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "{at}.keep: Input should be 'all' or a number of thinking turns above 0"
    )))
}

fn compact(edit: &Value, at: &str) -> Result<(), Refusal> {
    let fields = ["type", "trigger", "instructions", "pause_after_compaction"];
    known(edit, &fields, at)?;
    let trigger = &edit["trigger"];
    if trigger.is_null()
        || trigger["value"]
            .as_u64()
            .is_some_and(|it| it >= COMPACT_LEAST)
    {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "{at}.trigger.value: Input should be greater than or equal to {COMPACT_LEAST}"
    )))
}

/// Returns the index of the message with the last compaction, and that of its block. Everything before is ignored.
fn last_compaction(body: &Value) -> Option<(usize, usize)> {
    let messages = array(&body["messages"]).iter().enumerate().rev();
    messages.into_iter().find_map(|(at, message)| {
        let is_summary =
            |block: &Value| block["type"] == "compaction" && block["content"].is_string();
        let block = array(&message["content"]).iter().rposition(is_summary)?;
        Some((at, block))
    })
}

/// The context of a request after the edits.
pub(super) struct Edited<'a> {
    /// The request with its edited messages.
    pub(super) body: Cow<'a, Value>,
    /// The edits in the form of the response.
    pub(super) applied: Vec<Value>,
    /// The summary, if the provider compacts the conversation.
    pub(super) summary: Option<String>,
    /// True if the response ends after the summary.
    pub(super) pauses: bool,
}

/// Applies the edits of a valid request.
pub(super) fn apply(body: &Value) -> Edited<'_> {
    let mut edited = Edited {
        body: Cow::Borrowed(body),
        applied: Vec::new(),
        summary: None,
        pauses: false,
    };
    if let Some((at, block)) = last_compaction(body)
        // At (0, 0) nothing precedes the block, and the request stays borrowed instead of cloned.
        && (at, block) != (0, 0)
        && let Some(messages) = edited.body.to_mut()["messages"].as_array_mut()
    {
        messages.drain(..at);
        if let Some(Value::Array(content)) = messages[0].get_mut("content") {
            content.drain(..block);
        }
    }
    for edit in array(&body["context_management"]["edits"]) {
        let applied = match edit["type"].as_str() {
            Some(CLEAR_THINKING) => cleared_thinking(&mut edited.body, edit),
            Some(CLEAR_TOOLS) => cleared_tools(&mut edited.body, edit),
            _ => {
                compacted(&mut edited, edit);
                None
            }
        };
        edited.applied.extend(applied);
    }
    edited
}

/// Returns the tokens of a prompt.
pub(super) fn size(body: &Value) -> u64 {
    let parts = ["system", "tools", "messages"];
    parts.iter().map(|name| tokens::of(&body[*name])).sum()
}

fn cleared_thinking(body: &mut Cow<'_, Value>, edit: &Value) -> Option<Value> {
    let keep = &edit["keep"];
    if keep == "all" || keep["type"] == "all" {
        return None;
    }
    // The default keeps the thinking of the last turn.
    let kept = keep["value"].as_u64().unwrap_or(1);
    let before = size(body);
    let is_thinking =
        |block: &Value| block["type"] == "thinking" || block["type"] == "redacted_thinking";
    let mut turns: u64 = 0;
    let mut cleared: u64 = 0;
    let messages = body.to_mut()["messages"].as_array_mut()?;
    for message in messages.iter_mut().rev() {
        let Some(Value::Array(content)) = message.get_mut("content") else {
            continue;
        };
        if content.iter().any(is_thinking) {
            turns += 1;
            if turns > kept {
                content.retain(|block| !is_thinking(block));
                cleared += 1;
            }
        }
    }
    (cleared > 0).then(|| {
        json!({
            "type": CLEAR_THINKING, "cleared_thinking_turns": cleared,
            "cleared_input_tokens": before - size(body),
        })
    })
}

fn cleared_tools(body: &mut Cow<'_, Value>, edit: &Value) -> Option<Value> {
    let before = size(body);
    let excluded = |name: &Value| array(&edit["exclude_tools"]).contains(name);
    let calls: Vec<Value> = array(&body["messages"])
        .iter()
        .flat_map(|message| array(&message["content"]))
        .filter(|block| block["type"] == "tool_use" && !excluded(&block["name"]))
        .map(|block| block["id"].clone())
        .collect();
    let trigger = &edit["trigger"];
    let is_due = match trigger["type"].as_str() {
        Some("tool_uses") => calls.len() as u64 > trigger["value"].as_u64()?,
        _ => before > trigger["value"].as_u64().unwrap_or(CLEAR_TRIGGER),
    };
    // `checked_sub` ends the edit if the conversation has fewer calls than it keeps.
    let kept = edit["keep"]["value"].as_u64().unwrap_or(KEPT_TOOL_USES);
    let count = calls.len().checked_sub(usize::try_from(kept).ok()?)?;
    if !is_due || count == 0 {
        return None;
    }
    let clears_inputs = match &edit["clear_tool_inputs"] {
        Value::Array(names) => !names.is_empty(),
        other => other == &json!(true),
    };
    // A copy, because `clear_at_least` decides by the resulting size and may reject the edit.
    let mut shorter = body.as_ref().clone();
    for message in shorter["messages"].as_array_mut()? {
        let Some(Value::Array(content)) = message.get_mut("content") else {
            continue;
        };
        for block in content {
            // A block without the field yields null, which equals no call id.
            if calls[..count].contains(&block["tool_use_id"]) {
                block["content"] = json!(PLACEHOLDER);
            } else if clears_inputs && calls[..count].contains(&block["id"]) {
                block["input"] = json!({});
            }
        }
    }
    let cleared = before.saturating_sub(size(&shorter));
    if cleared < edit["clear_at_least"]["value"].as_u64().unwrap_or(1) {
        return None;
    }
    *body = Cow::Owned(shorter);
    Some(json!({
        "type": CLEAR_TOOLS, "cleared_tool_uses": count, "cleared_input_tokens": cleared,
    }))
}

/// Replaces the messages with a summary if the context has reached the trigger.
fn compacted(edited: &mut Edited<'_>, edit: &Value) {
    let trigger = edit["trigger"]["value"].as_u64().unwrap_or(COMPACT_TRIGGER);
    if size(&edited.body) < trigger {
        return;
    }
    let texts: Vec<String> = array(&edited.body["messages"])
        .iter()
        .flat_map(|message| super::parts(&message["content"]))
        .filter_map(|block| Some(block["text"].as_str()?.to_owned()))
        .collect();
    let summary = echo::answer(&texts, edit["instructions"].as_str().unwrap_or_default());
    // The model continues with the summary and the last message alone.
    let last = array(&edited.body["messages"]).last().cloned();
    let block = json!({"type": "compaction", "content": summary});
    let mut messages = vec![json!({"role": "assistant", "content": [block]})];
    messages.extend(last);
    edited.body.to_mut()["messages"] = json!(messages);
    edited.summary = Some(summary);
    edited.pauses = edit["pause_after_compaction"] == json!(true);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::apply;

    fn conversation(edits: &Value) -> Value {
        let mut messages = vec![json!({"role": "user", "content": "go"})];
        for number in 0..5 {
            let id = format!("t{number}");
            messages.push(json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm".repeat(20), "signature": "s"},
                {"type": "tool_use", "id": id, "name": "Read", "input": {}},
            ]}));
            messages.push(json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": "x".repeat(400)},
            ]}));
        }
        json!({"messages": messages, "context_management": {"edits": edits}})
    }

    #[test]
    fn old_results_and_old_thinking_are_cleared() {
        let edits = json!([
            {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}},
            {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 4}},
        ]);
        let request = conversation(&edits);
        let edited = apply(&request);
        // Five turns have thinking, and the edit keeps two of them.
        assert_eq!(edited.applied[0]["cleared_thinking_turns"], 3);
        // Five calls are above the trigger of four, and the default keeps three.
        assert_eq!(edited.applied[1]["cleared_tool_uses"], 2);
        let body = edited.body.to_string();
        assert_eq!(body.matches("\"thinking\":").count(), 2, "{body}");
        assert_eq!(body.matches("cleared to save").count(), 2, "{body}");
        // The conversation is far below the default trigger of 100,000 tokens.
        let unchanged = json!([
            {"type": "clear_thinking_20251015", "keep": "all"},
            {"type": "clear_tool_uses_20250919"},
        ]);
        let request = conversation(&unchanged);
        let edited = apply(&request);
        assert!(edited.applied.is_empty());
        assert_eq!(*edited.body, request);
    }

    #[test]
    fn content_before_a_compaction_is_ignored() {
        let summary = json!({"type": "compaction", "content": "short"});
        // A compaction without content has failed, so the earlier summary still counts.
        let failed = json!({"type": "compaction", "content": null});
        let body = json!({"messages": [
            {"role": "user", "content": "old"},
            {"role": "assistant", "content": [{"type": "text", "text": "old"}, summary, {"type": "text", "text": "new"}]},
            {"role": "user", "content": [failed]},
        ]});
        let messages = apply(&body).body["messages"].to_string();
        assert!(
            messages.contains("short") && messages.contains("new"),
            "{messages}"
        );
        assert!(!messages.contains("old"), "{messages}");
    }
}
