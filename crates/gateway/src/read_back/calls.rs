//! The calls of offered tools, and their results as JSON for the next request.

use palimpsest_engine::tools::ToolAnswer;
use serde_json::{Value, json};

use crate::reading::ResponseApi;

/// Returns the results of calls, given by their ids, as messages of a request, with commas between them.
pub(crate) fn results_json(api: ResponseApi, results: &[(Box<str>, ToolAnswer)]) -> Vec<u8> {
    let each = results.iter().map(|(id, answer)| {
        let text = &answer.text;
        match api {
            ResponseApi::Messages if answer.is_error => {
                json!({"type": "tool_result", "tool_use_id": id, "content": text, "is_error": true})
            }
            ResponseApi::Messages => {
                json!({"type": "tool_result", "tool_use_id": id, "content": text})
            }
            ResponseApi::Chat => json!({"role": "tool", "tool_call_id": id, "content": text}),
            ResponseApi::Responses => {
                json!({"type": "function_call_output", "call_id": id, "output": text})
            }
        }
    });
    let each: Vec<Value> = each.collect();
    match api {
        ResponseApi::Messages => json!({"role": "user", "content": each}).to_string().into(),
        ResponseApi::Chat | ResponseApi::Responses => {
            let each: Vec<String> = each.iter().map(Value::to_string).collect();
            each.join(",").into()
        }
    }
}
