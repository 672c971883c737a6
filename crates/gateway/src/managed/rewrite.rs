//! Replaces the array in the body of a request, and adds tools to it.

use bytes::Bytes;
use palimpsest_engine::turn::ArrayPlace;

use super::tools::{AddedTools, end_of_tools};
use crate::context::OfferedTools;

/// Returns the body with these messages in place of the conversation, and with further tools. The operator messages
/// before the conversation stay, and so do all other bytes.
pub(super) fn with_messages(
    body: &[u8],
    place: ArrayPlace,
    messages: &[Vec<u8>],
    tools: Option<AddedTools>,
) -> (Bytes, Option<OfferedTools>) {
    let begin = place.open + 1;
    let tools = tools.and_then(|added| {
        let end = end_of_tools(&body[..begin], &body[place.close..])?;
        // The position is that without the content of the array.
        let end = if end < begin {
            end
        } else {
            end + place.close - begin
        };
        Some((end, added))
    });
    let size: usize = messages.iter().map(|message| message.len() + 1).sum();
    let added = tools
        .as_ref()
        .map_or(0, |(_, added)| added.definitions.len() + 1);
    let mut out = Vec::with_capacity(place.lead_end + size + body.len() - place.close + added);
    copy(&mut out, body, 0..place.lead_end, tools.as_ref());
    let mut needs_comma = place.lead_end > begin;
    for message in messages {
        if needs_comma {
            out.push(b',');
        }
        needs_comma = true;
        out.extend_from_slice(message);
    }
    let array_end = out.len();
    copy(&mut out, body, place.close..body.len(), tools.as_ref());
    let offered = tools.map(|(_, added)| OfferedTools {
        names: added.names,
        array_end,
    });
    (out.into(), offered)
}

/// Copies a part of the body, with the further tools if it contains the end of the agent's tools.
fn copy(
    out: &mut Vec<u8>,
    body: &[u8],
    part: std::ops::Range<usize>,
    tools: Option<&(usize, AddedTools)>,
) {
    match tools.filter(|(end, _)| part.contains(end)) {
        None => out.extend_from_slice(&body[part]),
        Some((end, added)) => {
            out.extend_from_slice(&body[part.start..*end]);
            out.push(b',');
            out.extend_from_slice(added.definitions.as_bytes());
            out.extend_from_slice(&body[*end..part.end]);
        }
    }
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
        let messages = [b"{\"x\":1}".to_vec(), b"{}".to_vec()];
        let (written, offered) = with_messages(body.as_bytes(), place, &messages, Some(added));
        let text = std::str::from_utf8(&written).unwrap();
        assert_eq!(text, expected);
        assert_eq!(offered.is_some(), body.contains("tools"));
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
