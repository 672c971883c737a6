//! Validation of calls and results: each call is answered in the next message, and each result has its call.

use std::collections::HashSet;

use serde_json::Value;

use super::array;
use super::betas::extra;
use crate::refusal::Refusal;

pub(super) fn check(body: &Value) -> Result<(), Refusal> {
    definitions(&body["tools"])?;
    // Adjacent messages of one role count as one message.
    let mut turns: Vec<(&str, Vec<(String, &Value)>)> = Vec::new();
    for (index, message) in array(&body["messages"]).iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        let blocks = array(&message["content"]).iter().enumerate();
        let blocks = blocks.map(|(at, block)| (format!("messages.{index}.content.{at}"), block));
        match turns.last_mut() {
            Some((last, all)) if *last == role => all.extend(blocks),
            _ => turns.push((role, blocks.collect())),
        }
    }
    let mut seen = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (role, blocks) in &turns {
        if *role != "assistant" {
            // A system message between a call and its result ends up here too, as a turn without results.
            answered(&open, blocks)?;
            open.clear();
            continue;
        }
        for (at, block) in blocks
            .iter()
            .filter(|(_, block)| block["type"] == "tool_use")
        {
            let id = call(block, at)?;
            if !seen.insert(id) {
                return Err(Refusal::invalid("messages: `tool_use` ids must be unique"));
            }
            open.push(id);
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(unanswered(&open))
    }
}

fn legal(id: &str) -> bool {
    !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

fn call<'a>(block: &'a Value, at: &str) -> Result<&'a str, Refusal> {
    let Some(id) = block["id"].as_str() else {
        return Err(Refusal::invalid(format!(
            "{at}.tool_use.id: Field required"
        )));
    };
    if !legal(id) {
        return Err(Refusal::invalid(format!(
            "{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        )));
    }
    let name = block["name"].as_str().unwrap_or_default();
    // A call may have a longer name than a definition, whose limit is 128.
    if name.is_empty() || name.len() > 200 {
        return Err(Refusal::invalid(format!(
            "{at}.tool_use.name: String should have between 1 and 200 characters"
        )));
    }
    if !block["input"].is_object() {
        return Err(Refusal::invalid(format!(
            "{at}.tool_use.input: Input should be a valid dictionary"
        )));
    }
    Ok(id)
}

fn answered(open: &[&str], blocks: &[(String, &Value)]) -> Result<(), Refusal> {
    let results: Vec<&(String, &Value)> = blocks
        .iter()
        .filter(|(_, block)| block["type"] == "tool_result")
        .collect();
    let mut given = HashSet::new();
    for (at, result) in &results {
        let Some(id) = result["tool_use_id"].as_str() else {
            return Err(Refusal::invalid(format!(
                "{at}.tool_result.tool_use_id: Field required"
            )));
        };
        if !open.contains(&id) {
            return Err(Refusal::invalid(format!(
                "{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )));
        }
        if !given.insert(id) {
            return Err(Refusal::invalid(format!(
                "{at}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
            )));
        }
    }
    let missing: Vec<&str> = open
        .iter()
        .copied()
        .filter(|id| !given.contains(id))
        .collect();
    // Results must come first in their message. A result after a text does not count.
    let late = blocks
        .iter()
        .take(results.len())
        .any(|(_, block)| block["type"] != "tool_result");
    if !missing.is_empty() || late {
        return Err(unanswered(if missing.is_empty() { open } else { &missing }));
    }
    Ok(())
}

fn unanswered(ids: &[&str]) -> Refusal {
    Refusal::invalid(format!(
        "messages: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        ids.join(", ")
    ))
}

/// Rejects unknown fields of a tool that the client defines.
fn fields(tool: &Value, index: usize) -> Result<(), Refusal> {
    let known = [
        "type",
        "name",
        "description",
        "input_schema",
        "cache_control",
        "strict",
        "defer_loading",
        "allowed_callers",
        "input_examples",
        "eager_input_streaming",
    ];
    let unknown = tool
        .as_object()
        .and_then(|object| object.keys().find(|name| !known.contains(&name.as_str())));
    unknown.map_or(Ok(()), |unknown| {
        Err(extra(&format!("tools.{index}.custom.{unknown}")))
    })
}

fn definitions(tools: &Value) -> Result<(), Refusal> {
    let mut names = HashSet::new();
    for (index, tool) in array(tools).iter().enumerate() {
        // Anthropic's own tools have a type and no schema.
        let own = tool["type"].as_str().is_some_and(|kind| kind != "custom");
        let Some(name) = tool["name"]
            .as_str()
            .filter(|name| legal(name) && name.len() <= 128)
        else {
            return Err(Refusal::invalid(format!(
                "tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            )));
        };
        if !names.insert(name) {
            return Err(Refusal::invalid("tools: Tool names must be unique."));
        }
        if !own {
            fields(tool, index)?;
        }
        if !own && tool["input_schema"]["type"] != "object" {
            return Err(Refusal::invalid(format!(
                "tools.{index}.custom.input_schema.type: Field required"
            )));
        }
    }
    Ok(())
}
