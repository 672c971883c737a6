//! Finds the large tool results of an array, and writes their replacements into it. All other bytes of the array stay.

use std::collections::HashMap;
use std::ops::Range;

use palimpsest_core::command::{CallRef, DecidePersist};
use palimpsest_core::json::{self, ObjectFields, RawJson, write_str};
use palimpsest_core::levels::results::{Verdict, file_content, only_text, verdict};
use palimpsest_core::message::{Block, Message, ResultContent, ToolResult};
use palimpsest_core::policy::ToolResultPolicy;
use palimpsest_core::view::Provider;
use serde_json::value::RawValue;

use super::originals::{OriginalHash, RETRIEVE_TOOL};

/// The field of a cache marker.
const MARKER: &str = "cache_control";

/// A tool result above the limit of its tool.
#[derive(Debug)]
pub(super) struct LargeResult {
    /// The name of its original.
    pub(super) hash: OriginalHash,
    /// The command that stores the original.
    pub(super) offer: DecidePersist,
    place: ContentPlace,
}

/// The position of the content of a result in its array.
#[derive(Debug)]
struct ContentPlace {
    range: Range<usize>,
    /// True if the content is an array of parts. Its replacement is one too.
    is_array: bool,
    /// The cache marker of the last part.
    marker: Option<RawJson>,
}

/// Returns the tool results of an array that are above their limits. The first `frozen` messages stay as they are.
/// `messages` are the messages of the array.
pub(super) fn large_results(
    (provider, array): (Provider, &str),
    messages: &[Message],
    frozen: usize,
    policy: &ToolResultPolicy,
) -> Vec<LargeResult> {
    let tools = tool_names(messages);
    let mut wanted = Vec::new();
    // `enumerate` before `skip`, because `row` is a position in the whole array.
    for (row, message) in messages.iter().enumerate().skip(frozen) {
        for (at, block) in message.blocks.iter().enumerate() {
            let Block::ToolResult(result) = block else {
                continue;
            };
            let tool = tools.get(&*result.tool_use_id).copied().unwrap_or_default();
            // A result of the retrieve tool is an original again. Its replacement would send the model in circles.
            let is_original = tool.ends_with(RETRIEVE_TOOL);
            // Level 1 acts here without a session, so no text is known as a replacement.
            if !is_original && verdict(policy, tool, None, result, |_| false) == Verdict::Persist {
                wanted.push((row, at, tool, result));
            }
        }
    }
    // Most arrays have no large result, and need no second parse.
    if wanted.is_empty() {
        return Vec::new();
    }
    // An array that cannot be read has no rows. The comparison below then leaves the array as it is.
    let rows: Vec<&RawValue> = serde_json::from_str(array).unwrap_or_default();
    // Rows and messages correspond one to one in both formats.
    if rows.len() != messages.len() {
        return Vec::new();
    }
    let found = wanted.into_iter().filter_map(|(row, at, tool, result)| {
        let content = content_of(provider, rows[row], at)?;
        let start = content.get().as_ptr().addr() - array.as_ptr().addr();
        let normal = normalized(result);
        let hash = OriginalHash::of(file_content(&normal).as_bytes());
        // The hash replaces the id of the call, because the original depends on the content alone.
        let call = CallRef {
            key: None,
            id: hash.as_str().into(),
        };
        Some(LargeResult {
            offer: DecidePersist {
                tool: tool.into(),
                ..DecidePersist::new(call, normal)
            },
            hash,
            place: ContentPlace {
                range: start..start + content.get().len(),
                is_array: content.get().starts_with('['),
                // A marker is a cache breakpoint of the caller. It moves from the replaced parts to the replacement.
                marker: last_marker(content),
            },
        })
    });
    found.collect()
}

/// Returns the names of the called tools by the ids of the calls.
fn tool_names(messages: &[Message]) -> HashMap<&str, &str> {
    let blocks = messages.iter().flat_map(|message| &message.blocks);
    let calls = blocks.filter_map(|block| match block {
        Block::ToolUse(call) => Some((&*call.id, &*call.name)),
        _ => None,
    });
    calls.collect()
}

/// Returns the content of a result as JSON.
fn content_of(provider: Provider, row: &RawValue, block: usize) -> Option<&RawValue> {
    let content = ObjectFields::read(row).ok()?.take("content").ok()??;
    if !provider.is_anthropic() {
        return Some(content);
    }
    let blocks = json::array(content).ok()?;
    ObjectFields::read(blocks.get(block)?)
        .ok()?
        .take("content")
        .ok()?
}

/// Returns a result without the details of its call. A result of one text is the same in all forms.
fn normalized(result: &ToolResult) -> ToolResult {
    let content = match only_text(&result.content) {
        Some(text) => ResultContent::Text(text.into()),
        None => result.content.clone(),
    };
    ToolResult {
        tool_use_id: "".into(),
        content,
        is_error: None,
        extra: json::UnknownFields::default(),
    }
}

fn last_marker(content: &RawValue) -> Option<RawJson> {
    let parts = json::array(content).ok()?;
    let marker = ObjectFields::read(parts.last()?)
        .ok()?
        .take(MARKER)
        .ok()??;
    Some(RawJson::of(marker)).filter(RawJson::is_object)
}

/// Returns the array with replacements in place of results.
pub(super) fn with_replacements(array: &str, replaced: &[(&LargeResult, Box<str>)]) -> String {
    let mut out = Vec::with_capacity(array.len());
    let mut written = 0;
    // The results are in the order of the array.
    for (result, text) in replaced {
        let range = &result.place.range;
        out.extend_from_slice(&array.as_bytes()[written..range.start]);
        result.place.write(text, &mut out);
        written = range.end;
    }
    out.extend_from_slice(&array.as_bytes()[written..]);
    // Pieces of a text at the borders of JSON values are text.
    String::from_utf8(out).unwrap_or_else(|_| array.to_owned())
}

impl ContentPlace {
    fn write(&self, text: &str, out: &mut Vec<u8>) {
        if !self.is_array {
            write_str(out, text);
            return;
        }
        out.extend_from_slice(br#"[{"type":"text","text":"#);
        write_str(out, text);
        if let Some(marker) = &self.marker {
            out.push(b',');
            write_str(out, MARKER);
            out.push(b':');
            out.extend_from_slice(marker.as_str().as_bytes());
        }
        out.extend_from_slice(b"}]");
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::codec;
    use palimpsest_core::ids::MessageId;
    use palimpsest_core::policy::Policy;
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    /// Replaces all results above 5 characters by `R`.
    fn replace(provider: Provider, array: &str, frozen: usize) -> String {
        let mut number = 0;
        let mut next = || {
            number += 1;
            MessageId::parse(&format!("{number:032x}")).unwrap()
        };
        let messages = codec::read(provider, array.as_bytes(), &mut next).unwrap();
        let mut policy = Policy::default().tool_results;
        policy.max_result_chars = 5;
        let found = large_results((provider, array), &messages, frozen, &policy);
        // The quote in the replacement shows if the text is escaped.
        let replaced: Vec<_> = found.iter().map(|result| (result, "R\"".into())).collect();
        with_replacements(array, &replaced)
    }

    #[test]
    fn only_the_content_of_large_results_changes() {
        let array = "[ {\"role\":\"tool\", \"tool_call_id\":\"a\",\"content\" : \"large result\", \"x\":1},\n\
                     {\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"small\"},\
                     {\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":[{\"type\":\"text\",\"text\":\"another\"}]}]";
        let expected = "[ {\"role\":\"tool\", \"tool_call_id\":\"a\",\"content\" : \"R\\\"\", \"x\":1},\n\
                        {\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"small\"},\
                        {\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":[{\"type\":\"text\",\"text\":\"R\\\"\"}]}]";
        assert_eq!(replace(Provider::OpenAi, array, 0), expected);
        let frozen = array.replace("another", "\u{1}").replace('\u{1}', "R\\\"");
        assert_eq!(replace(Provider::OpenAi, array, 2), frozen);
        assert_eq!(replace(Provider::OpenAi, array, 9), array);
    }

    #[test]
    fn blocks_of_one_message_are_replaced_one_by_one() {
        let array = r#"[{"role":"user","content":[
            {"type":"tool_result","tool_use_id":"a","content":"large result"},
            {"type":"text","text":"a text of a person"},
            {"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"one"},
                {"type":"text","text":"two","cache_control":{"type":"ephemeral"}}],"cache_control":{"type":"ephemeral"}}]}]"#;
        let expected = r#"[{"role":"user","content":[
            {"type":"tool_result","tool_use_id":"a","content":"R\""},
            {"type":"text","text":"a text of a person"},
            {"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"R\"","cache_control":{"type":"ephemeral"}}],"cache_control":{"type":"ephemeral"}}]}]"#;
        assert_eq!(replace(Provider::Anthropic, array, 0), expected);
    }

    proptest! {
        #[test]
        fn all_other_rows_keep_their_bytes(
            texts in vec((any::<bool>(), "\\PC{0,12}"), 0..8),
            frozen in 0..9_usize,
            space in "[ \n]{0,3}",
        ) {
            let row = |(is_result, text): &(bool, String)| {
                let text = serde_json::to_string(text).unwrap();
                match is_result {
                    true => format!(r#"{{"role":"tool",{space}"tool_call_id":"a","content":{text}{space}}}"#),
                    false => format!(r#"{{"role":"user","content":{space}{text}}}"#),
                }
            };
            let rows: Vec<String> = texts.iter().map(row).collect();
            let array = format!("[{space}{}{space}]", rows.join(&format!(",{space}")));
            let replaced = replace(Provider::OpenAi, &array, frozen);
            let after: Vec<&RawValue> = serde_json::from_str(&replaced).unwrap();
            prop_assert_eq!(after.len(), rows.len());
            for (at, (after, before)) in after.iter().zip(&rows).enumerate() {
                let (is_result, text) = &texts[at];
                // An empty result stays, and so does a text within the limit of 5 characters.
                let is_large = text.chars().count() > 5 && !text.trim().is_empty();
                if *is_result && is_large && at >= frozen {
                    let message: serde_json::Value = serde_json::from_str(after.get()).unwrap();
                    prop_assert_eq!(&message["content"], "R\"");
                } else {
                    prop_assert_eq!(after.get(), before);
                }
            }
        }
    }

    #[test]
    fn an_original_that_the_model_has_read_stays() {
        let array = r#"[{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",
            "function":{"name":"mcp__palimpsest__headroom_retrieve","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"a","content":"large result"}]"#;
        assert_eq!(replace(Provider::OpenAi, array, 0), array);
    }
}
