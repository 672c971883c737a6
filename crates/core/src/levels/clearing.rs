//! Level 3: determines the results that may be cleared and the paths that the model no longer sees.

use std::collections::BTreeSet;

use palimpsest_facts::tool_action::PATH_FIELDS;

use crate::ids::CallKey;
use crate::message::{Block, ToolInput};
use crate::policy::{ModelTool, Policy};
use crate::session::{Call, ContentNotLoaded, Session};
use crate::tokens::estimate_text;
use crate::view::{CLEARED, PieceForm};

/// Returns true if the policy allows a call's result to be cleared. Pinned results are never cleared.
pub(crate) fn is_clearable(session: &Session, call: CallKey) -> bool {
    let policy = &session.policy().microcompact;
    let Some(call) = session.calls().get(call) else {
        return false;
    };
    let is = |name: &str| *name == *call.name;
    // A list of protected tools replaces the list of clearable tools.
    let by_name = match &policy.protected_tools {
        Some(protected) => !protected.iter().any(|name| is(name)),
        None => policy.clearable_tools.iter().any(|name| is(name)),
    };
    let has_media = call
        .result()
        .is_some_and(|(message, block)| session.transcript().image_count(message, block) > 0);
    by_name
        && !is_pinned(session, call)
        && (!has_media || call.result_tokens >= policy.min_media_tokens)
}

/// Returns true if a call's result may be cleared by the rule of a caller, which names the tools whose results stay.
pub(crate) fn is_clearable_except(session: &Session, call: CallKey, excluded: &[Box<str>]) -> bool {
    let call = session.calls().get(call);
    call.is_some_and(|call| !excluded.contains(&call.name) && !is_pinned(session, call))
}

fn is_pinned(session: &Session, call: &Call) -> bool {
    let position = call.result();
    position.is_some_and(|(message, block)| session.pins().pin_of_block(message, block).is_some())
}

/// Returns the number of results of the view that are cleared, and the tokens that this frees.
pub fn cleared_results(session: &Session) -> (u64, u64) {
    let marker = estimate_text(CLEARED);
    let pieces = session.sealed().pieces().iter();
    let cleared = pieces.filter_map(|piece| match piece.form {
        PieceForm::Cleared(call) => session.calls().get(call),
        _ => None,
    });
    cleared.fold((0, 0), |(count, tokens), call| {
        let freed = call.result_tokens.saturating_sub(marker);
        (count + 1, tokens + u64::from(freed))
    })
}

/// Returns the name of the tool with which the model reads a stored result. Defaults to `Read`.
pub(crate) fn read_tool(policy: &Policy) -> String {
    let own = policy.model_tools.name_of(ModelTool::ReadToolResult);
    own.unwrap_or_else(|| "Read".into())
}

/// Returns the paths whose content leaves the view with the results of these calls, and that no other result shows.
pub(crate) fn hidden_paths(
    session: &Session,
    leaves: impl Fn(CallKey) -> bool,
) -> Result<Vec<Box<str>>, ContentNotLoaded> {
    let live = || session.sealed().live_results().iter().copied();
    let mut hidden = BTreeSet::new();
    for call in live().filter(|call| leaves(*call)) {
        hidden.extend(read_path(session, call)?);
    }
    for call in live().filter(|call| !leaves(*call)) {
        // Each further call reads a message, so the search ends when every path is shown elsewhere.
        if hidden.is_empty() {
            break;
        }
        if let Some(path) = read_path(session, call)? {
            hidden.remove(&path);
        }
    }
    Ok(hidden.into_iter().collect())
}

/// Returns the path of a reading call. A tool reads if its name contains `read` or `view`, in any case.
fn read_path(session: &Session, call: CallKey) -> Result<Option<Box<str>>, ContentNotLoaded> {
    let Some(call) = session.calls().get(call) else {
        return Ok(None);
    };
    let name = call.name.to_ascii_lowercase();
    if !name.contains("read") && !name.contains("view") {
        return Ok(None);
    }
    let message = session.transcript().require_content(call.message)?;
    Ok(match message.blocks.get(usize::from(call.block)) {
        Some(Block::ToolUse(tool)) => path_in(&tool.input),
        _ => None,
    })
}

/// Returns the path in a tool's input. `None` if the input is not a JSON object or has no path field.
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
