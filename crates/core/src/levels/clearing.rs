//! Level 3: which results may be cleared, and what a caller must know of it.

use std::collections::BTreeSet;

use palimpsest_facts::tool_action::PATH_FIELDS;

use crate::ids::CallKey;
use crate::message::{Block, ToolInput};
use crate::policy::{ModelTool, Policy};
use crate::session::{ContentNotLoaded, Session};

/// Whether the policy lets a call's result be cleared.
pub(crate) fn is_clearable(session: &Session, call: CallKey) -> bool {
    let policy = &session.policy().microcompact;
    let Some(call) = session.calls().get(call) else {
        return false;
    };
    let is = |name: &str| *name == *call.name;
    let by_name = match &policy.protected_tools {
        Some(protected) => !protected.iter().any(|name| is(name)),
        None => policy.clearable_tools.iter().any(|name| is(name)),
    };
    let place = call.result();
    let is_pinned =
        place.is_some_and(|(message, block)| session.pins().at(message, block).is_some());
    let has_media =
        place.is_some_and(|(message, block)| session.transcript().pictures_in(message, block) > 0);
    by_name && !is_pinned && (!has_media || call.result_tokens >= policy.min_media_tokens)
}

/// The tool with which the model reads a stored result.
pub(crate) fn read_tool(policy: &Policy) -> String {
    let own = policy.model_tools.name_of(ModelTool::ReadToolResult);
    own.unwrap_or_else(|| "Read".into())
}

/// The paths that the model read through some calls and does not see through any other.
pub(crate) fn hidden_paths(
    session: &Session,
    cleared: &[CallKey],
) -> Result<Vec<Box<str>>, ContentNotLoaded> {
    let mut hidden = BTreeSet::new();
    for call in cleared {
        hidden.extend(read_path(session, *call)?);
    }
    for call in session.sealed().live() {
        if hidden.is_empty() {
            break;
        }
        if !cleared.contains(call)
            && let Some(path) = read_path(session, *call)?
        {
            hidden.remove(&path);
        }
    }
    Ok(hidden.into_iter().collect())
}

/// The path that a call reads, when its tool is one that reads.
fn read_path(session: &Session, call: CallKey) -> Result<Option<Box<str>>, ContentNotLoaded> {
    let Some(call) = session.calls().get(call) else {
        return Ok(None);
    };
    let name = call.name.to_ascii_lowercase();
    if !name.contains("read") && !name.contains("view") {
        return Ok(None);
    }
    let message = session.transcript().held(call.message)?;
    Ok(match message.blocks.get(usize::from(call.block)) {
        Some(Block::ToolUse(tool)) => path_in(&tool.input),
        _ => None,
    })
}

/// The path that a tool's input names.
pub fn path_in(input: &ToolInput) -> Option<Box<str>> {
    let ToolInput::Object(json) = input else {
        return None;
    };
    let fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(json.as_str()).ok()?;
    let path = PATH_FIELDS
        .iter()
        .find_map(|field| fields.get(*field)?.as_str());
    path.map(Into::into)
}
