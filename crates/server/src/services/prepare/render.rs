//! Rendering of a view for a reply, as the provider's JSON or as typed messages.

use bytes::Bytes;
use palimpsest_core::codec;
use palimpsest_core::session::{ContentNotLoaded, Session, View};
use palimpsest_core::view::{Target, WireMessage};
use palimpsest_proto::context::v1::{self, PrepareContextResponse};
use serde_json::json;

use crate::convert::{self, MessageForm};

/// Adds the new messages of a view to a reply. If they exceed the size limit, `view_omitted` is set instead.
pub(super) fn put_messages(
    response: &mut PrepareContextResponse,
    session: &Session,
    target: &Target,
    (view, form, max_reply_bytes): (&View<'_>, MessageForm, usize),
) -> Result<(), ContentNotLoaded> {
    let bytes;
    match form {
        MessageForm::Typed => {
            // Typed messages are measured as JSON, so the limit does not depend on the form.
            bytes = size(target, &view.messages);
            response.messages = typed(session, target, &view.messages);
            let system = typed(session, target, &session.system(target)?);
            response.system = system
                .into_iter()
                .flat_map(|message| message.blocks)
                .collect();
        }
        MessageForm::Json => {
            response.messages_json = messages_json(target, &view.messages);
            bytes = response.messages_json.iter().map(Bytes::len).sum();
            response.system_json = system_json(target, session)?;
        }
    }
    response.view_bytes = bytes as u64;
    // The policy of a session can lower the limit of the server, and never raise it.
    let own = session.policy().limits.max_reply_bytes as usize;
    // The caller can read an omitted view with `StreamContext`.
    if bytes > max_reply_bytes.min(own) {
        response.view_omitted = true;
        response.messages.clear();
        response.messages_json.clear();
    }
    Ok(())
}

/// Renders wire messages as the provider's JSON, one buffer slice for each message.
pub(in crate::services) fn messages_json(
    target: &Target,
    messages: &[WireMessage<'_>],
) -> Vec<Bytes> {
    let mut buffer = Vec::new();
    let mut ends = Vec::with_capacity(messages.len());
    for message in messages {
        codec::write(target.provider, message, &mut buffer);
        ends.push(buffer.len());
    }
    let buffer = Bytes::from(buffer);
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts
        .zip(&ends)
        .map(|(start, end)| buffer.slice(start..*end))
        .collect()
}

/// Renders wire messages as typed messages.
pub(in crate::services) fn typed(
    session: &Session,
    target: &Target,
    messages: &[WireMessage<'_>],
) -> Vec<v1::Message> {
    let typed = |message| convert::view_message(message, session.calls(), target.provider);
    messages.iter().map(typed).collect()
}

fn size(target: &Target, messages: &[WireMessage<'_>]) -> usize {
    messages_json(target, messages).iter().map(Bytes::len).sum()
}

/// Returns the system blocks that the provider takes outside of the array. They are always complete, because they
/// have no position in the array that the caller could keep.
fn system_json(target: &Target, session: &Session) -> Result<Bytes, ContentNotLoaded> {
    let system = session.system(target)?;
    // Without system blocks the field is empty, not `[]`, so the caller adds no system prompt.
    if system.is_empty() {
        return Ok(Bytes::new());
    }
    let mut out = Vec::from(*b"[");
    for block in system.iter().flat_map(|message| &message.blocks) {
        if out.len() > 1 {
            out.push(b',');
        }
        codec::write_block(target.provider, block, &mut out);
    }
    out.push(b']');
    Ok(out.into())
}

/// Returns the value of `context_management` for the provider's request, as set by the policy. Empty if unused.
pub(super) fn management(session: &Session, target: &Target) -> Bytes {
    let policy = &session.policy().provider_management;
    // The APIs of other providers do not have this field.
    if !target.provider.is_anthropic() {
        return Bytes::new();
    }
    let mut edits = Vec::new();
    // Anthropic requires that this edit is the first of the list, and that thinking is enabled.
    if policy.clear_thinking && target.thinking {
        edits.push(json!({"type": "clear_thinking_20251015", "keep": "all"}));
    }
    if policy.clear_tool_uses {
        edits.push(json!({
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": policy.clear_trigger_tokens},
            "clear_at_least": {"type": "input_tokens", "value": policy.clear_min_tokens},
        }));
    }
    if edits.is_empty() {
        return Bytes::new();
    }
    json!({ "edits": edits }).to_string().into()
}
