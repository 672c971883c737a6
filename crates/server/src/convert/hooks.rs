//! Calls of users' hooks: requests and responses in the form of the API.

use std::sync::Arc;

use palimpsest_core::compaction::{Preview, StartedCompaction};
use palimpsest_core::event::HookCalled;
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Block, MessageKind, Role};
use palimpsest_core::session::{Hook, HookCall, HookResult, Session};
use palimpsest_engine::compaction::{HookDecision, HookReply, instructions_of};
use palimpsest_proto::context::v1;

use super::compaction::{compaction, strategy};
use super::levels::trigger;
use super::messages_in::messages;
use super::saturate_tokens;
use super::scalars::{export_message_id, export_millis};
use super::tokens::budget;
use super::working_state::files;

/// The maximum number of messages that a hook may add.
const MAX_MESSAGES: usize = 100;
/// The maximum length of a hook's instructions: 16 KiB.
const MAX_INSTRUCTION_BYTES: usize = 16 * 1024;
/// The maximum number of texts that a hook may protect.
const MAX_KEPT: usize = 20;
/// The maximum total length of these texts: 64 KiB.
const MAX_KEPT_BYTES: usize = 64 * 1024;
/// The maximum number of files of a `PreCompact` response.
const MAX_FILES: usize = 100;

convert_enum! {
    /// Converts the kind of a hook.
    pub fn hook_kind(Hook) -> v1::HookKind {
        PreCompact, PostCompact, SessionStart,
    }
}

convert_enum! {
    fn hook_result(HookResult) -> v1::HookResult { Continued, Vetoed, FailedContinued, FailedStopped }
}

fn outcome(call: &HookCall) -> v1::HookOutcome {
    v1::HookOutcome {
        hook: hook_kind(call.hook).into(),
        result: hook_result(call.result).into(),
        detail: call.detail.to_string(),
        duration: Some(export_millis(call.duration_ms)),
        message_ids: call.messages.iter().map(ToString::to_string).collect(),
    }
}

/// Converts the hook calls of a compaction.
pub(super) fn outcomes(calls: &[HookCall]) -> Vec<v1::HookOutcome> {
    calls.iter().map(outcome).collect()
}

/// Converts a hook call event.
pub(super) fn called(event: &HookCalled) -> v1::HookCalled {
    v1::HookCalled {
        outcome: Some(outcome(&event.call)),
        compaction_id: event.key.to_string(),
    }
}

/// Returns the attributes of a session as sent to every hook.
fn attributes(session: &Session) -> impl Iterator<Item = (String, String)> {
    let attributes = session.info().attributes.iter();
    attributes.map(|(name, value)| (name.to_string(), value.to_string()))
}

/// Returns the request for the `PreCompact` hook.
pub fn pre_compact(started: &StartedCompaction) -> v1::PreCompactRequest {
    let StartedCompaction { session, running } = started;
    let sizes = running.leaving.iter().filter_map(|at| {
        let entry = session.transcript().get(*at)?;
        Some(u64::from(entry.size.tokens))
    });
    v1::PreCompactRequest {
        session: session.key().to_string(),
        compaction_id: running.key.to_string(),
        trigger: trigger(running.trigger).into(),
        strategy: strategy(running.strategy).into(),
        budget: Some(last_budget(session)),
        // The sizes of messages are estimates before calibration.
        input_tokens: saturate_tokens(session.ledger().calibration.apply(sizes.sum())),
        first_message_id: export_message_id(session, running.leaving.first().copied()),
        last_message_id: export_message_id(session, running.leaving.last().copied()),
        instructions: instructions_of(started),
        attributes: attributes(session).collect(),
    }
}

/// Returns the request for the `PostCompact` hook.
pub fn post_compact(preview: &Preview) -> v1::PostCompactRequest {
    let session = &preview.session;
    v1::PostCompactRequest {
        session: session.key().to_string(),
        compaction: compaction(&preview.event, session),
        budget: Some(last_budget(session)),
        attributes: attributes(session).collect(),
    }
}

/// Returns the request for the `SessionStart` hook.
pub fn session_start(started: &StartedCompaction) -> v1::SessionStartRequest {
    let StartedCompaction { session, running } = started;
    v1::SessionStartRequest {
        session: session.key().to_string(),
        source: v1::SessionStartSource::Compact.into(),
        compaction_id: running.key.to_string(),
        attributes: attributes(session).collect(),
    }
}

/// Returns the budget for the target of the last serving.
fn last_budget(session: &Session) -> v1::Budget {
    let last = session.last_served();
    budget(session, &last.target, last.window)
}

/// Validates the response of a `PreCompact` hook.
pub fn pre_compact_decision(
    answer: v1::PreCompactResponse,
    now: Timestamp,
    limits: &Limits,
) -> Result<HookDecision, String> {
    // A veto ends the compaction, so the rest of the response would have no effect.
    if let Some(reason) = answer.veto_reason {
        return Ok(HookDecision::Veto(reason));
    }
    let instructions = answer.additional_instructions;
    if instructions.len() > MAX_INSTRUCTION_BYTES {
        return Err(format!(
            "additional_instructions must have at most {MAX_INSTRUCTION_BYTES} bytes"
        ));
    }
    let mut must_keep = answer.must_keep;
    // A blank text occurs in every summary, so it protects nothing.
    must_keep.retain(|text| !text.trim().is_empty());
    let bytes: usize = must_keep.iter().map(String::len).sum();
    if must_keep.len() > MAX_KEPT || bytes > MAX_KEPT_BYTES {
        return Err(format!(
            "must_keep must have at most {MAX_KEPT} texts, of {MAX_KEPT_BYTES} bytes in all"
        ));
    }
    if answer.files.len() > MAX_FILES {
        return Err(format!("files must have at most {MAX_FILES} entries"));
    }
    let files = files(answer.files, now, limits).map_err(|error| error.to_string())?;
    Ok(HookDecision::Continue(HookReply {
        files,
        instructions: Some(instructions).filter(|text| !text.trim().is_empty()),
        must_keep,
        ..HookReply::default()
    }))
}

/// Converts the response of a `PostCompact` hook.
pub fn post_compact_decision(answer: v1::PostCompactResponse) -> HookDecision {
    match answer.reject_reason {
        Some(reason) => HookDecision::Veto(reason),
        None => HookDecision::Continue(HookReply::default()),
    }
}

/// Validates the response of a `SessionStart` hook. The messages that the hook adds are marked as machine-generated, whatever the response
/// contains.
pub fn session_start_decision(
    answer: v1::SessionStartResponse,
    limits: &Limits,
    next_id: &mut dyn FnMut() -> MessageId,
) -> Result<HookDecision, String> {
    if answer.messages.len() > MAX_MESSAGES {
        return Err(format!("messages must have at most {MAX_MESSAGES}"));
    }
    let read = messages(answer.messages, limits, next_id).map_err(|error| error.to_string())?;
    // One payload may contain several messages, so the limit is checked again.
    if read.len() > MAX_MESSAGES {
        return Err(format!("messages must have at most {MAX_MESSAGES}"));
    }
    let mut all = Vec::with_capacity(read.len());
    for one in read {
        let (at, mut message) = (one.input_index, one.message);
        // Model responses and results would need a counterpart, and system messages would never leave the view.
        let speaks = |block: &Block| matches!(block, Block::Text { .. } | Block::Media { .. });
        if message.role != Role::User || !message.blocks.iter().all(speaks) {
            return Err(format!(
                "messages[{at}] must be the user's, of texts, images and documents alone"
            ));
        }
        if message.blocks.iter().all(Block::is_blank) {
            return Err(format!("messages[{at}] must not be blank"));
        }
        // A repeated hook call may return the same ids, which would be rejected as duplicates.
        message.id = next_id();
        message.parent = None;
        message.kind = MessageKind::Hook;
        message.machine_generated = true;
        message.transcript_only = false;
        message.usage = None;
        all.push(Arc::new(message));
    }
    Ok(HookDecision::Continue(HookReply {
        messages: all,
        ..HookReply::default()
    }))
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::{MessageId, Timestamp};
    use palimpsest_core::limits::Limits;
    use palimpsest_core::message::{MessageKind, Role};
    use palimpsest_engine::compaction::{HookDecision, HookReply};
    use palimpsest_proto::context::v1;

    use super::{pre_compact_decision, session_start_decision};

    fn reply(decision: Result<HookDecision, String>) -> Result<HookReply, String> {
        match decision? {
            HookDecision::Continue(reply) => Ok(reply),
            HookDecision::Veto(reason) => Err(reason),
        }
    }

    fn answer(instructions: usize, texts: usize, each: usize) -> v1::PreCompactResponse {
        v1::PreCompactResponse {
            additional_instructions: "i".repeat(instructions),
            must_keep: vec!["k".repeat(each); texts],
            veto_reason: None,
            files: Vec::new(),
        }
    }

    #[test]
    fn hook_responses_above_the_limits_are_rejected() {
        let (now, limits) = (Timestamp::default(), Limits::default());
        let wishes = |answer| reply(pre_compact_decision(answer, now, &limits));
        // Exactly the limits: 16 KiB of instructions and 64 KiB of texts.
        let taken = wishes(answer(16 * 1024, 16, 4 * 1024)).unwrap();
        assert_eq!(taken.must_keep.len(), 16);
        assert!(wishes(answer(16 * 1024 + 1, 0, 0)).is_err());
        assert!(wishes(answer(0, 21, 1)).is_err());
        assert!(wishes(answer(0, 2, 32 * 1024 + 1)).is_err());
        let nothing = wishes(answer(0, 3, 0)).unwrap();
        assert!(nothing.must_keep.is_empty() && nothing.instructions.is_none());
        let file = |path: &str| v1::FileState {
            path: path.into(),
            content: "x".into(),
            ..v1::FileState::default()
        };
        let with_files = |files| v1::PreCompactResponse {
            files,
            ..answer(0, 0, 0)
        };
        let taken = wishes(with_files(vec![file("a.rs"); 100])).unwrap();
        assert_eq!(taken.files.len(), 100);
        assert!(wishes(with_files(vec![file("a.rs"); 101])).is_err());
        let error = wishes(with_files(vec![file("")])).unwrap_err();
        assert!(error.contains("files[0].path"), "{error}");
    }

    fn said(role: v1::Role, text: &str) -> v1::MessageInput {
        let block = v1::Block {
            block: Some(v1::block::Block::Text(v1::TextBlock { text: text.into() })),
            ..v1::Block::default()
        };
        v1::MessageInput {
            metadata: Some(v1::MessageMetadata {
                transcript_only: true,
                ..v1::MessageMetadata::default()
            }),
            content: Some(v1::message_input::Content::Message(v1::Message {
                role: role.into(),
                blocks: vec![block],
                ..v1::Message::default()
            })),
            ..v1::MessageInput::default()
        }
    }

    #[test]
    fn hook_messages_are_machine_generated_user_messages() {
        let mut next = 0_u128;
        let mut read = |messages: Vec<v1::MessageInput>| {
            let mut id = || {
                next += 1;
                MessageId::new(uuid::Uuid::from_u128(next))
            };
            let answer = v1::SessionStartResponse { messages };
            let decision = session_start_decision(answer, &Limits::default(), &mut id);
            reply(decision).map(|reply| reply.messages)
        };
        let one = &read(vec![said(v1::Role::User, "the branch is main")]).unwrap()[0];
        assert_eq!((one.kind, one.role), (MessageKind::Hook, Role::User));
        assert!(one.machine_generated && !one.transcript_only && !one.is_real_user_input());
        assert!(read(vec![said(v1::Role::Assistant, "I did")]).is_err());
        assert!(read(vec![said(v1::Role::System, "obey")]).is_err());
        assert!(read(vec![said(v1::Role::User, " ")]).is_err());
        assert!(read(vec![said(v1::Role::User, "x"); 101]).is_err());
        assert_eq!(
            read(vec![said(v1::Role::User, "x"); 100]).unwrap().len(),
            100
        );
    }
}
