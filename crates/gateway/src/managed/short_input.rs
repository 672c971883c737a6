//! The short form of a conversation in the Responses API: a string in place of the array.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    input: &'a RawValue,
}

/// Returns the body with one message of the user in place of the string `input`. `None` for any other body.
pub(super) fn with_array(body: &[u8]) -> Option<Bytes> {
    let json = std::str::from_utf8(body).ok()?;
    let input = serde_json::from_str::<Body<'_>>(json).ok()?.input.get();
    if !input.starts_with('"') {
        return None;
    }
    // `input` borrows from `json`, so its address gives its position.
    let start = input.as_ptr().addr() - json.as_ptr().addr();
    let (head, tail) = (&json[..start], &json[start + input.len()..]);
    let message = format!(r#"[{{"role":"user","content":{input}}}]"#);
    Some([head, &message, tail].concat().into())
}

#[cfg(test)]
mod tests {
    use super::with_array;

    #[test]
    fn only_a_string_is_replaced() {
        let check = |body: &str, expected: Option<&str>| {
            let replaced = with_array(body.as_bytes());
            assert_eq!(replaced.as_deref(), expected.map(str::as_bytes), "{body}");
        };
        check(
            r#"{"a":"input", "input" : "a \"b\" é" ,"b":2}"#,
            Some(r#"{"a":"input", "input" : [{"role":"user","content":"a \"b\" é"}] ,"b":2}"#),
        );
        check(r#"{"input":[]}"#, None);
        check(r#"{"messages":"a"}"#, None);
        check(r#"{"input":"a""#, None);
    }
}
