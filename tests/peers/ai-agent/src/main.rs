//! The Rust crate `ai-agent` as a participant. Calls the public functions that its query loop uses before each model
//! call and after each tool call.
//!
//! `../src/player.rs` defines the protocol, and `../src/views.rs` the format of views.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufWriter, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use ai_agent::services::compact::microcompact::microcompact_messages;
use ai_agent::services::compact::{
    ContentReplacementState, apply_tool_result_budget, create_content_replacement_state,
};
use ai_agent::tool_result_storage::process_tool_result;
use ai_agent::{Message, MessageRole, ToolCall};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Value, json};

/// Size above which a result is stored, in characters. Equal for all participants.
const MAX_RESULT_CHARS: usize = 20_000;

#[derive(Deserialize)]
struct Asked {
    work: String,
    conversation: String,
    views: Option<String>,
}

/// The messages before each model call.
type Calls = Vec<Vec<Message>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    let hello = json!({ "peer": "ai-agent", "version": "0.88.0", "works": ["clear", "offload"] });
    writeln!(out, "{hello}")?;
    out.flush()?;
    // A panic is reported as an answer only, not on standard error.
    std::panic::set_hook(Box::new(|_| {}));
    let folder = std::env::temp_dir().join(format!("palimpsest-peer-{}", std::process::id()));
    let mut known: HashMap<String, Calls> = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let asked: Asked = serde_json::from_str(&line?)?;
        if !known.contains_key(&asked.conversation) {
            known.insert(asked.conversation.clone(), read(&asked.conversation)?);
        }
        // The crate changes messages in place. Each play needs its own copy.
        let calls = known[&asked.conversation].clone();
        let folder = folder.to_string_lossy();
        // A panic of the crate is a result of the comparison, and later requests must still be answered.
        let played = catch_unwind(AssertUnwindSafe(|| play(&asked, calls, &folder)));
        let answer = match played {
            Ok(Ok(call_ns)) => json!({ "call_ns": call_ns }),
            Ok(Err(error)) => json!({ "error": error.to_string() }),
            Err(panic) => json!({ "error": format!("panicked: {}", said(&panic)) }),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    let _ = fs::remove_dir_all(folder);
    Ok(())
}

fn said(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a word")
        .chars()
        .take(80)
        .collect()
}

/// Plays a conversation. Returns the duration of each call, in nanoseconds.
fn play(asked: &Asked, calls: Calls, folder: &str) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
    let mut out = asked
        .views
        .as_ref()
        .map(fs::File::create)
        .transpose()?
        .map(BufWriter::new);
    if let Some(out) = &mut out {
        writeln!(out, "{}", json!({ "provider": "openai" }))?;
    }
    let mut state = create_content_replacement_state();
    let (mut messages, mut call_ns, mut before) = (Vec::new(), Vec::new(), Vec::new());
    for new in calls {
        let (begin, idle) = (Instant::now(), busy());
        match asked.work.as_str() {
            "clear" => clear(&mut messages, new),
            _ => offload(&mut messages, new, &mut state, folder),
        }
        // Excludes the time in which other processes used the processor.
        let own = (busy() - idle).min(begin.elapsed());
        call_ns.push(u64::try_from(own.as_nanos())?);
        if let Some(out) = &mut out {
            let after: Vec<String> = messages.iter().map(|it| shown(it).to_string()).collect();
            let keep = before
                .iter()
                .zip(&after)
                .take_while(|(a, b)| a == b)
                .count();
            writeln!(
                out,
                "{{\"keep\":{keep},\"messages\":[{}]}}",
                after[keep..].join(",")
            )?;
            before = after;
        }
    }
    if let Some(mut out) = out {
        out.flush()?;
    }
    Ok(call_ns)
}

/// Returns the processor time of this process.
fn busy() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Runs the step of the loop before a model call.
fn clear(messages: &mut Vec<Message>, new: Vec<Message>) {
    messages.extend(new);
    microcompact_messages(messages);
}

/// Runs the step of the loop after tool calls.
fn offload(
    messages: &mut Vec<Message>,
    new: Vec<Message>,
    state: &mut ContentReplacementState,
    folder: &str,
) {
    for mut message in new {
        if message.role == MessageRole::Tool {
            let id = message.tool_call_id.clone().unwrap_or_default();
            let (content, _) = process_tool_result(
                &message.content,
                "tool",
                &id,
                Some(folder),
                Some("session"),
                Some(MAX_RESULT_CHARS),
            );
            message.content = content;
        }
        messages.push(message);
    }
    apply_tool_result_budget(messages, Some(state));
}

fn read(path: &str) -> Result<Calls, Box<dyn std::error::Error>> {
    let (mut calls, mut new) = (Vec::new(), Vec::new());
    for line in fs::read_to_string(path)?.lines() {
        let step: Value = serde_json::from_str(line)?;
        match step.get("message") {
            Some(message) => add(message, &mut new),
            None => calls.push(std::mem::take(&mut new)),
        }
    }
    Ok(calls)
}

/// Converts a message from Anthropic's form to the crate's form, in which each result is a separate message.
fn add(message: &Value, out: &mut Vec<Message>) {
    let parts = match &message["content"] {
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        content => content.as_array().cloned().unwrap_or_default(),
    };
    let kind = |part: &Value| part["type"].as_str().unwrap_or_default().to_owned();
    let texts = parts.iter().filter(|part| kind(part) == "text");
    let text: Vec<&str> = texts.filter_map(|part| part["text"].as_str()).collect();
    let text = text.join("\n");
    if message["role"] == "assistant" {
        let calls: Vec<ToolCall> = parts
            .iter()
            .filter(|part| kind(part) == "tool_use")
            .map(|part| ToolCall {
                id: word(&part["id"]),
                r#type: "function".into(),
                name: word(&part["name"]),
                arguments: part["input"].clone(),
            })
            .collect();
        out.push(Message {
            role: MessageRole::Assistant,
            content: text,
            tool_calls: (!calls.is_empty()).then_some(calls),
            ..Message::default()
        });
        return;
    }
    for part in parts.iter().filter(|part| kind(part) == "tool_result") {
        out.push(Message {
            role: MessageRole::Tool,
            content: result_text(&part["content"]),
            tool_call_id: Some(word(&part["tool_use_id"])),
            is_error: part["is_error"].as_bool(),
            ..Message::default()
        });
    }
    if !text.is_empty() {
        out.push(Message {
            role: MessageRole::User,
            content: text,
            ..Message::default()
        });
    }
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn result_text(content: &Value) -> String {
    match content {
        Value::String(text) if !text.is_empty() => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts
                .iter()
                .filter_map(|part| part["text"].as_str())
                .collect();
            texts.join("\n")
        }
        _ => "(no output)".into(),
    }
}

/// Converts a message to OpenAI's form, as the crate sends it to a compatible endpoint.
fn shown(message: &Message) -> Value {
    match (&message.role, &message.tool_calls) {
        (MessageRole::Assistant, Some(calls)) => {
            let calls: Vec<Value> = calls
                .iter()
                .map(|call| {
                    let arguments = call.arguments.to_string();
                    let function = json!({ "name": call.name, "arguments": arguments });
                    json!({ "id": call.id, "type": "function", "function": function })
                })
                .collect();
            // The crate sends an empty text here, which a provider would reject. The comparison does not count this.
            let content = Some(&message.content).filter(|content| !content.is_empty());
            json!({ "role": "assistant", "content": content, "tool_calls": calls })
        }
        (MessageRole::Tool, _) => {
            let content = if message.is_error == Some(true) {
                format!("<tool_use_error>{}</tool_use_error>", message.content)
            } else {
                message.content.clone()
            };
            json!({ "role": "tool", "content": content, "tool_call_id": message.tool_call_id })
        }
        (role, _) => json!({ "role": role.as_str(), "content": message.content }),
    }
}
