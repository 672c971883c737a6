//! Append results and the state of tool calls, in the form of the API.

use palimpsest_core::command::{self, AppendReceipt, receipts};
use palimpsest_core::event::MessagesAppended;
use palimpsest_core::ids::{CallKey, Ordinal};
use palimpsest_core::session::{CallState, NotSendableReason, Session, Visibility};
use palimpsest_proto::context::v1;

use super::scalars::export_message_id;

/// Returns the result of an append. `input_indices` contains, for each message in order, the index of its request
/// entry.
pub fn append_result(
    session: &Session,
    event: &MessagesAppended,
    input_indices: &[u32],
    session_created: bool,
) -> v1::AppendResult {
    // One receipt for each message of the call, also for duplicates, in the order of the indices.
    let messages = receipts(session, event)
        .iter()
        .zip(input_indices)
        .map(|(receipt, index)| appended(session, receipt, *index))
        .collect();
    v1::AppendResult {
        messages,
        session_created,
    }
}

fn appended(session: &Session, receipt: &AppendReceipt, input_index: u32) -> v1::AppendedMessage {
    let (outcome, original) = match receipt.visibility {
        // A duplicate has the visibility of the stored message, so it is checked first.
        _ if receipt.is_duplicate => (v1::AppendOutcome::Duplicate, None),
        Visibility::Reemission(of) => (v1::AppendOutcome::ReEmission, Some(of)),
        _ => (v1::AppendOutcome::Appended, None),
    };
    v1::AppendedMessage {
        input_index,
        message_id: receipt.id.to_string(),
        // Ordinals of the contract start at 1, those of the domain at 0.
        ordinal: u64::from(receipt.ordinal.get()) + 1,
        outcome: outcome.into(),
        original_message_id: export_message_id(session, original),
        tokens: receipt.tokens,
        turn_id: turn_id(session, receipt.ordinal),
        calls: calls_of(session, receipt),
    }
}

/// Returns the id of the turn that a message starts, or an empty text.
pub(super) fn turn_id(session: &Session, message: Ordinal) -> String {
    let turns = session.turns();
    let turn = turns.beginning_at(message);
    turn.map(|turn| turns.name(turn)).unwrap_or_default()
}

fn calls_of(session: &Session, receipt: &AppendReceipt) -> Vec<v1::ToolCall> {
    let calls = session.calls().of(receipt.ordinal);
    calls.map(|(key, _)| tool_call(session, key)).collect()
}

/// Returns a call with its state.
pub fn tool_call(session: &Session, key: CallKey) -> v1::ToolCall {
    let call = session.calls().get(key);
    let message = call.and_then(|call| session.transcript().get(call.message));
    v1::ToolCall {
        call: Some(call_ref(session, key)),
        tool_name: call.map(|call| call.name.to_string()).unwrap_or_default(),
        block: call.zip(message).map(|(call, entry)| v1::BlockRef {
            message_id: entry.id.to_string(),
            block_index: call.block.into(),
        }),
        state: call_state(session.calls().state(key)).into(),
    }
}

/// Returns a call of which only the key is known.
pub fn keyed_call(key: CallKey) -> v1::ToolCall {
    v1::ToolCall {
        call: Some(v1::CallRef {
            call_key: key.to_string(),
            tool_use_id: String::new(),
        }),
        ..v1::ToolCall::default()
    }
}

const fn call_state(state: CallState) -> v1::CallState {
    match state {
        CallState::Open => v1::CallState::Open,
        CallState::Answered { .. } | CallState::Late { .. } => v1::CallState::Answered,
        // The contract has no state for calls that a rewind removed. No result will be appended, as for interrupted
        // calls.
        CallState::Interrupted | CallState::Gone => v1::CallState::Interrupted,
    }
}

/// Returns the key and the provider's id of a call.
pub fn call_ref(session: &Session, key: CallKey) -> v1::CallRef {
    let id = session.calls().get(key).map(|call| call.id.to_string());
    v1::CallRef {
        call_key: key.to_string(),
        tool_use_id: id.unwrap_or_default(),
    }
}

/// Returns the reason for which a view is not sendable.
pub const fn not_sendable(unsendable: Option<&NotSendableReason>) -> v1::NotSendableReason {
    match unsendable {
        None => v1::NotSendableReason::Unspecified,
        Some(NotSendableReason::Empty) => v1::NotSendableReason::Empty,
        Some(NotSendableReason::OpenCalls(_)) => v1::NotSendableReason::OpenCalls,
        Some(NotSendableReason::EndsWithAssistant) => v1::NotSendableReason::EndsWithAssistant,
    }
}

/// Returns the open calls that make the view unsendable.
pub fn open_calls(session: &Session, unsendable: Option<&NotSendableReason>) -> Vec<v1::ToolCall> {
    match unsendable {
        Some(NotSendableReason::OpenCalls(calls)) => {
            calls.iter().map(|key| tool_call(session, *key)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the warnings of an append. Re-emissions need none, because the outcome of the message reports them.
pub fn warnings(warnings: &[command::Warning]) -> Vec<v1::Warning> {
    warnings
        .iter()
        .filter_map(|warning| match warning {
            command::Warning::UsageOverWindow {
                message,
                tokens,
                window,
            } => Some(v1::Warning {
                code: v1::WarningCode::UsageIgnored.into(),
                detail: format!(
                    "The reported usage of {tokens} tokens is larger than the window of {window} \
                     and was not used."
                ),
                message_id: message.to_string(),
                call: None,
            }),
            command::Warning::RepeatedTranscript { messages } => Some(v1::Warning {
                code: v1::WarningCode::RepeatedTranscript.into(),
                detail: format!(
                    "The call appended {messages} messages again that the session has already. Append new messages \
                     only, or send whole arrays with SyncContext."
                ),
                ..v1::Warning::default()
            }),
            command::Warning::Reemission { .. } => None,
        })
        .collect()
}
