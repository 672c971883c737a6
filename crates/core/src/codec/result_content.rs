//! The content of a tool result without its message.

use uuid::Uuid;

use super::{CodecError, read};
use crate::ids::MessageId;
use crate::json::{self, JsonError, RawJson};
use crate::message::{Block, ResultContent};
use crate::view::Provider;

/// Reads the content of a tool result from the JSON array of its blocks, in Anthropic's form.
///
/// # Errors
///
/// Fails if the JSON is not valid or contains a block that a result cannot contain.
pub fn read_result_content(array: &[u8]) -> Result<ResultContent, CodecError> {
    const BEFORE: &str =
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"#;
    let text = json::document(array)?;
    let raw = RawJson::parse(&text)?;
    if !raw.as_str().starts_with('[') {
        let expected = "an array of blocks";
        return Err(JsonError::Kind { expected }.into());
    }
    // `raw` is one complete JSON value. Its text therefore cannot close the array or add fields to the wrapper.
    let around = format!("{BEFORE}{}}}]}}", raw.as_str());
    // The wrapper message is discarded, so its id need not be unique.
    let mut no_id = || MessageId::new(Uuid::nil());
    let messages = read(Provider::Anthropic, around.as_bytes(), &mut no_id).map_err(|error| {
        let path = error.path.strip_prefix("content[0].content");
        CodecError {
            path: path.unwrap_or(&error.path).to_owned(),
            error: error.error,
        }
    })?;
    let mut blocks = messages.into_iter().flat_map(|message| message.blocks);
    let content = blocks.find_map(|block| match block {
        Block::ToolResult(result) => Some(result.content),
        _ => None,
    });
    // The codec accepts every block inside a result, so types that a result cannot contain are rejected here.
    if let Some(ResultContent::Blocks(blocks)) = &content {
        let is_nested_call = |block: &Block| {
            matches!(
                block,
                Block::ToolUse(_) | Block::ToolResult(_) | Block::Thinking(_)
            )
        };
        if let Some(index) = blocks.iter().position(is_nested_call) {
            return Err(CodecError {
                path: format!("[{index}]"),
                error: JsonError::Kind {
                    expected: "a block that a result may hold",
                },
            });
        }
    }
    Ok(content.unwrap_or(ResultContent::None))
}
