//! The definitions of the service's tools for the model.

use palimpsest_core::message::Block;
use palimpsest_core::policy::{ModelTool, Policy};
use palimpsest_core::tokens::Counter;
use palimpsest_proto::context::v1::ToolDefinition;
use serde_json::{Value, json};

use crate::convert::model_tool;

/// Returns the tool with this name if the policy enables it.
pub(super) fn by_name(policy: &Policy, name: &str) -> Option<ModelTool> {
    let tools = &policy.model_tools;
    ModelTool::ALL
        .into_iter()
        .find(|tool| tools.name_of(*tool).as_deref() == Some(name))
}

/// Returns the definitions of all tools that the policy enables.
pub(super) fn all(policy: &Policy, openai: bool) -> Vec<ToolDefinition> {
    let define = |tool| definition(policy, tool, openai);
    ModelTool::ALL.into_iter().filter_map(define).collect()
}

/// Returns the tokens that the definitions add to a request.
pub(super) fn tokens(definitions: &[ToolDefinition], counter: Counter) -> u32 {
    let size = |tool: &ToolDefinition| {
        let text = String::from_utf8_lossy(&tool.definition_json);
        counter.text(&text)
    };
    let frame = counter.block(&Block::text(""));
    definitions
        .iter()
        .map(size)
        .fold(frame, u32::saturating_add)
}

fn definition(policy: &Policy, tool: ModelTool, openai: bool) -> Option<ToolDefinition> {
    let name = policy.model_tools.name_of(tool)?;
    let (description, schema) = (description(tool), schema(tool));
    let definition = if openai {
        json!({"type": "function", "function": {"name": name, "description": description, "parameters": schema}})
    } else {
        json!({"name": name, "description": description, "input_schema": schema})
    };
    Some(ToolDefinition {
        tool: model_tool(tool).into(),
        name,
        description: description.into(),
        input_schema_json: schema.to_string().into(),
        definition_json: definition.to_string().into(),
    })
}

const fn description(tool: ModelTool) -> &'static str {
    match tool {
        ModelTool::Snip => {
            "Removes earlier turns of this conversation from your context, to make room. Name them \
             by the ids that stand as [id:...] at the end of user messages. A turn leaves with \
             everything up to the next user message. Use it for finished or abandoned work that \
             nothing depends on any more; not for the current turn. Nothing is lost: \
             SearchTranscript and ReadTranscript still find it."
        }
        ModelTool::ReadToolResult => {
            "Reads the full result of an earlier tool call that your context shows only as a preview, \
             a reference or a marker. Ask for a part when it is large: lines, the last lines, or the \
             lines that match a pattern."
        }
        ModelTool::ReadTranscript => {
            "Reads messages of this conversation as they were first written, also those that are no \
             longer in your context. Messages are numbered from 1. Of several messages, long parts \
             are cut and say how to read the rest; one message alone comes whole."
        }
        ModelTool::SearchTranscript => {
            "Searches this whole conversation, also what is no longer in your context, and tells where \
             the matches stand, so that ReadTranscript can read them."
        }
    }
}

fn schema(tool: ModelTool) -> Value {
    // `additionalProperties` is false because the parser of the input rejects unknown fields.
    match tool {
        ModelTool::Snip => json!({
            "type": "object",
            "properties": {
                "ids": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "The six-character ids of the turns to remove."
                },
                "reason": {"type": "string", "description": "Why they are not needed any more."}
            },
            "required": ["ids"],
            "additionalProperties": false
        }),
        ModelTool::ReadToolResult => json!({
            "type": "object",
            "properties": {
                "reference": {"type": "string", "description": "The reference that your context shows."},
                "tool_use_id": {"type": "string", "description": "The id of the call, where there is no reference."},
                "first_line": {"type": "integer", "minimum": 1, "description": "Begin with this line."},
                "lines": {"type": "integer", "minimum": 1, "description": "How many lines."},
                "last_lines": {"type": "integer", "minimum": 1, "description": "So many lines at the end instead."},
                "offset": {"type": "integer", "minimum": 0, "description": "Begin so many bytes into the result, where an answer was cut."},
                "pattern": {"type": "string", "description": "Only lines that match this regular expression."},
                "context_lines": {"type": "integer", "minimum": 0, "maximum": 100, "description": "Lines around each match."}
            },
            "additionalProperties": false
        }),
        ModelTool::ReadTranscript => json!({
            "type": "object",
            "properties": {
                "first": {"type": "integer", "minimum": 1, "description": "The number of the first message."},
                "last": {"type": "integer", "minimum": 1, "description": "The number of the last message; the same as the first by default."},
                "message_id": {"type": "string", "description": "One message by its id, instead of a number."},
                "collapse_id": {"type": "string", "description": "The messages that were folded into a note, by the id that the note tells."},
                "offset": {"type": "integer", "minimum": 0, "description": "Begin so many bytes into the message, where an answer was cut."}
            },
            "additionalProperties": false
        }),
        ModelTool::SearchTranscript => json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "The text to search for."},
                "regex": {"type": "boolean", "description": "Whether the pattern is a regular expression."},
                "ignore_case": {"type": "boolean", "description": "Whether upper and lower case are the same."},
                "max_hits": {"type": "integer", "minimum": 1, "maximum": 100, "description": "How many matches at most; 20 by default."},
                "first": {"type": "integer", "minimum": 1, "description": "Begin with this message, where an answer says that it did not search the rest."}
            },
            "required": ["pattern"],
            "additionalProperties": false
        }),
    }
}
