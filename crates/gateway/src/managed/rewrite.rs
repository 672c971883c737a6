//! Replaces the array in the body of a request.

use bytes::Bytes;
use palimpsest_engine::turn::{ArrayPlace, JsonParts};

/// Returns the body with these messages in place of the conversation. The operator messages before the conversation and
/// all bytes outside of the array stay.
pub(super) fn with_messages(
    body: &JsonParts,
    place: ArrayPlace,
    messages: &[Vec<u8>],
) -> JsonParts {
    let size: usize = messages.iter().map(|message| message.len() + 1).sum();
    let mut out = Vec::with_capacity(size);
    let mut needs_comma = place.lead_end > place.open + 1;
    for message in messages {
        if needs_comma {
            out.push(b',');
        }
        needs_comma = true;
        out.extend_from_slice(message);
    }
    let head = body.section(0..place.lead_end);
    let tail = body.section(place.close..body.len());
    let view = [Bytes::from(out)];
    let parts = head.parts().iter().chain(&view).chain(tail.parts());
    JsonParts::new(parts.cloned().collect())
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
        let messages = [b"{\"x\":1}".to_vec(), b"{}".to_vec()];
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
