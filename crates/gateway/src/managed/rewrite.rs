//! Replaces the array in the body of a request.

use bytes::Bytes;
use palimpsest_engine::turn::{ArrayPlace, JsonParts};

/// Returns the body with these messages, separated by commas, in place of the conversation. The operator messages before
/// the conversation and all bytes outside of the array stay.
pub(super) fn with_messages(
    body: &JsonParts,
    place: ArrayPlace,
    messages: &JsonParts,
) -> JsonParts {
    let head = body.section(0..place.lead_end);
    let tail = body.section(place.close..body.len());
    let has_lead = place.lead_end > place.open + 1;
    let comma = (has_lead && !messages.is_empty()).then_some(Bytes::from_static(b","));
    let head = head.parts().iter().cloned().chain(comma);
    let rest = messages.parts().iter().chain(tail.parts());
    JsonParts::new(head.chain(rest.cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, lead: &str, expected: &str) {
        let open = body.find('[').unwrap();
        let place = ArrayPlace {
            open,
            lead_end: body.find(lead).unwrap() + lead.len(),
            close: body.rfind(']').unwrap(),
        };
        let messages = JsonParts::from(Bytes::from_static(b"{\"x\":1},{}"));
        let body = JsonParts::from(Bytes::copy_from_slice(body.as_bytes()));
        let written = with_messages(&body, place, &messages).whole();
        assert_eq!(std::str::from_utf8(&written).unwrap(), expected);
    }

    #[test]
    fn only_the_conversation_is_replaced() {
        check(
            r#"{"a":1, "m": [ {"old":1} ] ,"b":2}"#,
            "[",
            r#"{"a":1, "m": [{"x":1},{}] ,"b":2}"#,
        );
        check(
            r#"{"m":[{"role":"system"}, {"old":1}]}"#,
            r#"{"role":"system"}"#,
            r#"{"m":[{"role":"system"},{"x":1},{}]}"#,
        );
    }
}
