//! The service's tools that a body offers to the model, and the calls of them.

use std::sync::Arc;

use palimpsest_core::codec;
use palimpsest_core::ids::{MessageId, Ordinal, SessionKey};
use palimpsest_core::json::{self, ObjectFields, RawJson};
use palimpsest_core::message::{Block, Message};
use palimpsest_core::policy::Policy;
use palimpsest_core::view::{Provider, WireBlock, WireMessage, WireRole};
use palimpsest_engine::call::SPANS;
use palimpsest_engine::tools::{self, ToolAnswer, ToolRunner};
use serde::Deserialize;
use serde_json::value::RawValue;
use tracing::{Instrument as _, Span, field};

use super::provider_of;
use crate::context::{OwnCalls, RecordError, ToolCounts, ToolRound};
use crate::read_back::results_json;

/// The maximum length of the id of a call in a span, in bytes. Providers choose the ids.
const MAX_CALL_ID_BYTES: usize = 100;

/// The definitions to add to the tools of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedTools {
    /// The names of the tools.
    pub names: Arc<[String]>,
    /// The definitions as JSON, with commas between them.
    pub definitions: String,
}

#[derive(Deserialize)]
struct Named {
    name: Option<String>,
    function: Option<NamedFunction>,
}

#[derive(Deserialize)]
struct NamedFunction {
    name: Option<String>,
}

/// Returns the tools that the policy of a session enables. `None` without such tools, if the request defines no tools, or
/// if a tool of the agent has the name of one of them.
pub(super) fn added(
    policy: &Policy,
    provider: Provider,
    agents: Option<&RawJson>,
) -> Option<AddedTools> {
    let definitions = tools::all(policy, provider);
    let agents: &RawValue = serde_json::from_str(agents?.as_str()).ok()?;
    let agents = json::array(agents).ok()?;
    if definitions.is_empty() || agents.is_empty() {
        return None;
    }
    let is_taken = |raw: &&RawValue| {
        // A tool of an unknown form has no name that could be equal.
        let named: Option<Named> = serde_json::from_str(raw.get()).ok();
        let name = named.and_then(|named| named.name.or(named.function?.name));
        name.is_some_and(|name| definitions.iter().any(|own| own.name == name))
    };
    // Two tools of one name would be ambiguous for the model and for the gateway.
    if agents.iter().any(is_taken) {
        return None;
    }
    let texts: Vec<&str> = definitions.iter().map(|own| &*own.definition).collect();
    Some(AddedTools {
        definitions: texts.join(","),
        names: definitions.iter().map(|own| own.name.clone()).collect(),
    })
}

/// Returns the position after the last tool of a request. `head` and `tail` are its body before and after the content of
/// its array of messages.
pub(super) fn end_of_tools(head: &[u8], tail: &[u8]) -> Option<usize> {
    // `head` ends with `[` and `tail` begins with `]`, so both together are a body without messages.
    let joined = [head, tail].concat();
    let text = std::str::from_utf8(&joined).ok()?;
    let tools = ObjectFields::read_str(text).ok()?.take("tools").ok()??;
    let begin = tools.get().as_ptr().addr() - text.as_ptr().addr();
    // A value such as null has no place for further tools.
    tools
        .get()
        .ends_with(']')
        .then(|| begin + tools.get().len() - 1)
}

/// Runs the calls of offered tools in a response.
pub(super) async fn run(
    runner: &dyn ToolRunner,
    calls: &OwnCalls,
    mut next_id: impl FnMut() -> MessageId,
) -> Result<ToolRound, RecordError> {
    let provider = provider_of(calls.api);
    let messages = codec::read(provider, &calls.json, &mut next_id);
    let messages = messages.map_err(|error| RecordError(error.to_string()))?;
    let (mut results, mut counts) = (Vec::new(), ToolCounts::default());
    for block in messages.iter().flat_map(|message| &message.blocks) {
        let Block::ToolUse(call) = block else {
            continue;
        };
        // The agent runs the calls of its own tools.
        if !calls.names.iter().any(|name| **name == *call.name) {
            continue;
        }
        let answer = if calls.may_run {
            let input = call.input.as_str();
            let span = execute_tool(&calls.session, &call.name, &call.id);
            let running = runner.run_tool(&calls.session, &call.name, input);
            let answer = running.instrument(span.clone()).await;
            if answer.is_error {
                span.record("error.type", "tool_error");
                span.record("otel.status_code", "ERROR");
            }
            counts.ok += u64::from(!answer.is_error);
            counts.failed += u64::from(answer.is_error);
            answer
        } else {
            counts.exhausted += 1;
            ToolAnswer {
                text: "This response has used up its calls of this tool. Continue without it."
                    .to_owned(),
                is_error: true,
            }
        };
        results.push((call.id.clone(), answer));
    }
    Ok(ToolRound {
        calls: as_sent(provider, &messages),
        results: results_json(calls.api, &results),
        counts,
    })
}

/// Starts the span of a call, with the attributes of the OpenTelemetry conventions for generative AI.
fn execute_tool(session: &SessionKey, name: &str, call: &str) -> Span {
    tracing::debug_span!(
        target: SPANS,
        "execute_tool",
        otel.name = format!("execute_tool {name}"),
        otel.status_code = field::Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = name,
        gen_ai.tool.type = "function",
        gen_ai.tool.call.id = &call[..call.floor_char_boundary(MAX_CALL_ID_BYTES)],
        gen_ai.conversation.id = %session.session,
        error.type = field::Empty,
    )
}

/// Returns messages of the model as the next view contains them, so that the next prompt begins with this one.
fn as_sent(provider: Provider, messages: &[Message]) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages {
        if !out.is_empty() {
            out.push(b',');
        }
        let wire = WireMessage {
            role: WireRole::Assistant,
            blocks: message.blocks.iter().map(WireBlock::from_block).collect(),
            extra: Some(&message.extra).filter(|extra| !extra.is_empty()),
            first: Ordinal::new(0),
        };
        codec::write(provider, &wire, &mut out);
    }
    out
}
