//! Replaces the array in the body of a request, and adds tools to it.

use std::ops::Range;

use bytes::Bytes;
use palimpsest_engine::turn::{ArrayPlace, JsonParts};

use super::tools::{AddedTools, end_of_tools};
use crate::context::OfferedTools;

/// Returns the body with these messages, separated by commas, in place of the conversation, and with further tools. The
/// operator messages before the conversation stay, and so do all other bytes.
pub fn with_messages(
    body: &JsonParts,
    place: ArrayPlace,
    messages: &JsonParts,
    tools: Option<AddedTools>,
) -> (JsonParts, Option<OfferedTools>) {
    let begin = place.open + 1;
    let tools = tools.and_then(|added| {
        let head = body.section(0..begin).whole();
        let tail = body.section(place.close..body.len()).whole();
        let end = end_of_tools(&head, &tail)?;
        // The position is that without the content of the array.
        let end = if end < begin {
            end
        } else {
            end + place.close - begin
        };
        Some((end, added))
    });
    let mut parts = section(body, 0..place.lead_end, tools.as_ref());
    // A comma is valid only between operator messages and the view.
    let has_lead = place.lead_end > begin;
    parts.extend((has_lead && !messages.is_empty()).then_some(Bytes::from_static(b",")));
    parts.extend_from_slice(messages.parts());
    // Further requests of one response insert calls of offered tools and their results here.
    let array_end = parts.iter().map(Bytes::len).sum();
    parts.extend(section(body, place.close..body.len(), tools.as_ref()));
    let offered = tools.map(|(_, added)| OfferedTools {
        names: added.names,
        array_end,
    });
    (JsonParts::new(parts), offered)
}

/// Returns a part of the body, with the further tools if it contains the end of the agent's tools.
fn section(
    body: &JsonParts,
    range: Range<usize>,
    tools: Option<&(usize, AddedTools)>,
) -> Vec<Bytes> {
    let Some((end, added)) = tools.filter(|(end, _)| range.contains(end)) else {
        return body.section(range).parts().to_vec();
    };
    let mut parts = body.section(range.start..*end).parts().to_vec();
    parts.push(format!(",{}", added.definitions).into());
    parts.extend_from_slice(body.section(*end..range.end).parts());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, (lead, close): (&str, &str), expected: &str) {
        let open = body.find(r#""m":"#).unwrap();
        let open = open + body[open..].find('[').unwrap();
        let close = open + body[open..].find(close).unwrap();
        let place = ArrayPlace {
            open,
            lead_end: body.find(lead).unwrap() + lead.len(),
            close,
        };
        let added = AddedTools {
            names: ["read".to_owned()].into(),
            definitions: r#"{"name":"read"}"#.to_owned(),
        };
        let messages = JsonParts::from(Bytes::from_static(b"{\"x\":1},{}"));
        let body = JsonParts::from(Bytes::copy_from_slice(body.as_bytes()));
        let (written, offered) = with_messages(&body, place, &messages, Some(added));
        let text = String::from_utf8(written.whole().to_vec()).unwrap();
        assert_eq!(text, expected);
        assert_eq!(offered.is_some(), text.contains("tools"));
        if let Some(offered) = offered {
            assert!(text[..offered.array_end].ends_with("{}"));
        }
    }

    #[test]
    fn only_the_conversation_is_replaced() {
        check(
            r#"{"a":1, "m": [ {"old":1} ] ,"b":2}"#,
            ("[", "] ,"),
            r#"{"a":1, "m": [{"x":1},{}] ,"b":2}"#,
        );
        check(
            r#"{"m":[{"role":"system"}, {"old":1}]}"#,
            (r#"{"role":"system"}"#, "]}"),
            r#"{"m":[{"role":"system"},{"x":1},{}]}"#,
        );
    }

    #[test]
    fn tools_are_added_after_those_of_the_agent() {
        check(
            r#"{"tools":[{"name":"a"} ], "m":[{"old":1}],"b":2}"#,
            (r#""m":["#, "],"),
            r#"{"tools":[{"name":"a"} ,{"name":"read"}], "m":[{"x":1},{}],"b":2}"#,
        );
        check(
            r#"{"m":[{"old":1}],"tools":[{"name":"a"}]}"#,
            ("[", "],"),
            r#"{"m":[{"x":1},{}],"tools":[{"name":"a"},{"name":"read"}]}"#,
        );
    }
}
