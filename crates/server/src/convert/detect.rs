//! Detects the format of a whole array, for callers that do not state it.

use std::borrow::Cow;

use palimpsest_core::view::Provider;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The fields of a request body that only some formats have.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    input: Option<IgnoredAny>,
    system: Option<IgnoredAny>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Tool {
    input_schema: Option<IgnoredAny>,
    function: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    tool_calls: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
}

/// Returns the format of an array, or of a request body with an array. A text that is no such JSON has the default format,
/// whose reader then reports the error.
///
/// Arrays of plain text are equal in Anthropic's and OpenAI's Chat format, so the answer for them does not matter.
pub(super) fn detect(payload: &[u8]) -> Provider {
    if payload.trim_ascii_start().first() == Some(&b'[') {
        return serde_json::from_slice(payload)
            .ok()
            .and_then(of_array)
            .unwrap_or_default();
    }
    let Ok(body) = serde_json::from_slice::<Body<'_>>(payload) else {
        return Provider::default();
    };
    // `{"input": [..]}` without `messages` is a body of the Responses API.
    if body.input.is_some() && body.messages.is_none() {
        return Provider::OpenAiResponses;
    }
    // Only Anthropic has the system prompt in a field `system` of the body.
    if body.system.is_some() {
        return Provider::Anthropic;
    }
    let of_tools = body.tools.and_then(of_tools);
    // The Responses API has its array in `input`.
    let of_messages = || {
        body.messages
            .and_then(of_array)
            .filter(|of| *of != Provider::OpenAiResponses)
    };
    let of_model = || {
        // The weakest sign comes last, because proxies serve models under any name.
        let model = body.model.as_deref()?;
        Some(if model.contains("claude") {
            Provider::Anthropic
        } else {
            Provider::OpenAi
        })
    };
    of_tools
        .or_else(of_messages)
        .or_else(of_model)
        .unwrap_or_default()
}

fn of_tools(tools: &RawValue) -> Option<Provider> {
    let tools: Vec<Tool> = serde_json::from_str(tools.get()).ok()?;
    tools
        .iter()
        .find_map(|tool| match (&tool.input_schema, &tool.function) {
            (Some(_), _) => Some(Provider::Anthropic),
            (None, Some(_)) => Some(Provider::OpenAi),
            (None, None) => None,
        })
}

fn of_array(array: &RawValue) -> Option<Provider> {
    let rows: Vec<Row<'_>> = serde_json::from_str(array.get()).ok()?;
    // The content of a row can be the format's own, so it is examined only if no row shows the format.
    let of_rows = || {
        rows.iter()
            .enumerate()
            .find_map(|(index, row)| of_row(index, row))
    };
    of_rows().or_else(|| {
        rows.iter()
            .filter_map(|row| row.content)
            .find_map(of_content)
    })
}

fn of_row(index: usize, row: &Row<'_>) -> Option<Provider> {
    // Items of the Responses API have a type and, apart from messages, no role.
    if row.r#type.is_some() {
        return Some(Provider::OpenAiResponses);
    }
    let of_chat = match row.role.as_deref() {
        Some("tool" | "function" | "developer") => true,
        // Anthropic has system messages too, but not as the first one.
        Some("system") => index == 0,
        _ => row.tool_calls.is_some(),
    };
    of_chat.then_some(Provider::OpenAi)
}

fn of_content(content: &RawValue) -> Option<Provider> {
    if !content.get().starts_with('[') {
        return None;
    }
    let blocks: Vec<Block<'_>> = serde_json::from_str(content.get()).ok()?;
    blocks
        .iter()
        .find_map(|block| match block.r#type.as_deref()? {
            "input_text" | "output_text" | "input_image" | "input_file" => {
                Some(Provider::OpenAiResponses)
            }
            "image_url" | "input_audio" | "file" | "refusal" => Some(Provider::OpenAi),
            // Text is common to all formats, and any other block is one of Anthropic's.
            "text" => None,
            _ => Some(Provider::Anthropic),
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(payload: &serde_json::Value, expected: Provider) {
        assert_eq!(
            detect(payload.to_string().as_bytes()),
            expected,
            "{payload}"
        );
    }

    #[test]
    fn bodies_show_their_format() {
        let text = json!([{"role": "user", "content": "hi"}]);
        check(&json!({"messages": text}), Provider::Anthropic);
        check(
            &json!({"messages": text, "model": "gpt-5"}),
            Provider::OpenAi,
        );
        check(
            &json!({"messages": text, "model": "claude-sonnet-4-5"}),
            Provider::Anthropic,
        );
        check(
            &json!({"messages": text, "model": "gpt-5", "system": "s"}),
            Provider::Anthropic,
        );
        check(
            &json!({"input": "hi", "model": "gpt-5"}),
            Provider::OpenAiResponses,
        );
        let tool = json!([{"name": "t", "input_schema": {}}]);
        check(
            &json!({"messages": text, "model": "other", "tools": tool}),
            Provider::Anthropic,
        );
        let tool = json!([{"type": "function", "function": {"name": "t"}}]);
        check(
            &json!({"messages": text, "model": "claude-x", "tools": tool}),
            Provider::OpenAi,
        );
        check(&json!("text"), Provider::Anthropic);
    }

    #[test]
    fn arrays_show_their_format() {
        let system = json!({"role": "system", "content": "s"});
        let user = json!({"role": "user", "content": "hi"});
        check(&json!([user]), Provider::Anthropic);
        check(&json!([system, user]), Provider::OpenAi);
        check(&json!([user, system]), Provider::Anthropic);
        check(
            &json!([user, {"role": "assistant", "tool_calls": []}]),
            Provider::OpenAi,
        );
        check(
            &json!([user, {"type": "reasoning"}]),
            Provider::OpenAiResponses,
        );
        let of = |kind: &str| json!([{"role": "user", "content": [{"type": kind}]}]);
        check(&of("text"), Provider::Anthropic);
        check(&of("tool_result"), Provider::Anthropic);
        check(&of("image_url"), Provider::OpenAi);
        check(&of("input_text"), Provider::OpenAiResponses);
    }
}
