//! The definitions of the service's tools for the model.

use palimpsest_core::message::Block;
use palimpsest_core::policy::{ModelTool, Policy};
use palimpsest_core::tokens::TokenCounter;
use palimpsest_core::view::Provider;
use serde_json::{Value, json};

/// The definition of a tool, as a policy names it.
#[derive(Debug)]
pub struct ToolDefinition {
    /// The tool.
    pub tool: ModelTool,
    /// The name under which the model calls it.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON schema of the input.
    pub input_schema: String,
    /// The whole definition in the provider's JSON.
    pub definition: String,
}

/// Returns the tool with this name if the policy enables it.
pub fn by_name(policy: &Policy, name: &str) -> Option<ModelTool> {
    let tools = &policy.model_tools;
    ModelTool::ALL
        .into_iter()
        .find(|tool| tools.name_of(*tool).as_deref() == Some(name))
}

/// Returns the definitions of all tools that the policy enables. Without ids of turns in the view, a model cannot use the
/// tool that snips.
pub fn all(policy: &Policy, provider: Provider) -> Vec<ToolDefinition> {
    let is_usable = |tool: &ModelTool| *tool != ModelTool::Snip || policy.snip.tag_turns;
    let define = |tool| definition(policy, tool, provider);
    let tools = ModelTool::ALL.into_iter().filter(is_usable);
    tools.filter_map(define).collect()
}

/// Returns the tokens that the definitions add to a request.
pub fn tokens(definitions: &[ToolDefinition], counter: TokenCounter) -> u32 {
    let size = |tool: &ToolDefinition| counter.text(&tool.definition);
    let frame = counter.block(&Block::text(""));
    definitions
        .iter()
        .map(size)
        .fold(frame, u32::saturating_add)
}

fn definition(policy: &Policy, tool: ModelTool, provider: Provider) -> Option<ToolDefinition> {
    let name = policy.model_tools.name_of(tool)?;
    let (description, schema) = (description(policy, tool), schema(tool));
    let definition = match provider {
        Provider::Anthropic | Provider::Bedrock => {
            json!({"name": name, "description": description, "input_schema": schema})
        }
        Provider::OpenAi => {
            json!({"type": "function", "function": {"name": name, "description": description, "parameters": schema}})
        }
        // The Responses API makes schemas strict unless the definition says otherwise.
        Provider::OpenAiResponses => {
            json!({"type": "function", "name": name, "description": description, "parameters": schema, "strict": false})
        }
    };
    Some(ToolDefinition {
        tool,
        name,
        description,
        input_schema: schema.to_string(),
        definition: definition.to_string(),
    })
}

fn description(policy: &Policy, tool: ModelTool) -> String {
    // The session's policy can rename or disable each tool, so a text names another tool only as the policy does.
    let others = |tool| policy.model_tools.name_of(tool);
    match tool {
        ModelTool::Snip => {
            let readers = [ModelTool::SearchTranscript, ModelTool::ReadTranscript];
            let readers: Vec<String> = readers.into_iter().filter_map(others).collect();
            let mut text = "Removes earlier turns of this conversation from your context to free \
                space. Name the turns by the ids that are shown as [id:...] at the end of user messages. A turn \
                includes all messages up to the next user message. Use this for finished or abandoned work \
                that no later step needs. Do not use it for the current turn."
                .to_owned();
            if !readers.is_empty() {
                text.push_str(" Removed turns stay readable with ");
                text.push_str(&readers.join(" and "));
                text.push('.');
            }
            text
        }
        ModelTool::ReadToolResult => {
            "Reads the full result of an earlier tool call if your context shows only a preview, a \
             reference or a placeholder. For a large result, request a part of it: some lines, the \
             last lines, or the lines that match a pattern."
                .to_owned()
        }
        ModelTool::ReadTranscript => {
            "Reads original messages of this conversation, including messages that are no longer in your \
             context. Messages are numbered from 1. If you request several messages, long parts are cut, \
             and the answer explains how to read the rest. A single message is returned in full."
                .to_owned()
        }
        ModelTool::SearchTranscript => {
            let reader = others(ModelTool::ReadTranscript);
            let reader = reader.map(|name| format!(", which {name} accepts"));
            format!(
                "Searches this whole conversation, including messages that are no longer in your context. \
                 Returns the numbers of the matching messages{}.",
                reader.unwrap_or_default()
            )
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
                "reason": {"type": "string", "description": "The reason why they are no longer needed."}
            },
            "required": ["ids"],
            "additionalProperties": false
        }),
        ModelTool::ReadToolResult => json!({
            "type": "object",
            "properties": {
                "reference": {"type": "string", "description": "The reference shown in your context."},
                "tool_use_id": {"type": "string", "description": "The id of the tool call, if no reference is shown."},
                "first_line": {"type": "integer", "minimum": 1, "description": "The first line to read, from 1."},
                "lines": {"type": "integer", "minimum": 1, "description": "The number of lines to read."},
                "tail_lines": {"type": "integer", "minimum": 1, "description": "The number of lines to read at the end of the result."},
                "offset": {"type": "integer", "minimum": 0, "description": "The byte of the result to start at. An answer that was cut names it."},
                "pattern": {"type": "string", "description": "A regular expression. Only matching lines are returned."},
                "context_lines": {"type": "integer", "minimum": 0, "maximum": 100, "description": "The number of lines before and after each match."}
            },
            "additionalProperties": false
        }),
        ModelTool::ReadTranscript => json!({
            "type": "object",
            "properties": {
                "first": {"type": "integer", "minimum": 1, "description": "The number of the first message."},
                "last": {"type": "integer", "minimum": 1, "description": "The number of the last message. Default: the first."},
                "message_id": {"type": "string", "description": "The id of one message, instead of numbers."},
                "collapse_id": {"type": "string", "description": "The id in a placeholder. Reads the messages that the placeholder replaced."},
                "offset": {"type": "integer", "minimum": 0, "description": "The byte of the message to start at. An answer that was cut names it."}
            },
            "additionalProperties": false
        }),
        ModelTool::SearchTranscript => json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "The text to search for."},
                "regex": {"type": "boolean", "description": "True if the pattern is a regular expression. Default: false."},
                "ignore_case": {"type": "boolean", "description": "True to ignore case. Default: false."},
                "max_hits": {"type": "integer", "minimum": 1, "maximum": 100, "description": "The maximum number of matches. Default: 20."},
                "first": {"type": "integer", "minimum": 1, "description": "The number of the first message to search. An answer that did not search all messages names it."}
            },
            "required": ["pattern"],
            "additionalProperties": false
        }),
    }
}
