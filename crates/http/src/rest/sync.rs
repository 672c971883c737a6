//! `SyncContext` with the body of a model request: the conversation is the body itself.

use bytes::Bytes;
use prost::encoding::{WireType, decode_key, decode_varint};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::decoder::BodyProblem;
use crate::json::{Form, MessageIndex, Schema, put_bytes, read_without};

/// The field of the body with the parameters of the call.
const PARAMETERS: &str = "palimpsest";
/// Fields of `SyncContextRequest`, of its payload, and of the response.
const PAYLOAD: u32 = 2;
const PAYLOAD_JSON: u32 = 2;
const KNOWN_ETAG: u32 = 4;
const LEAD_MESSAGES: u32 = 3;
const CONTEXT: u32 = 5;
const CONTEXT_MESSAGES_JSON: u32 = 3;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    palimpsest: Option<&'a RawValue>,
}

/// Writes the request with the whole body as its payload.
pub(crate) fn decode(
    schema: &Schema,
    message: MessageIndex,
    (body, name_field): (&Bytes, &'static str),
    out: &mut Vec<u8>,
) -> Result<(), BodyProblem> {
    let invalid = |problem: String| BodyProblem::Field {
        path: String::new(),
        problem,
    };
    // An array alone is a conversation too. It has no place for parameters.
    let is_array = body.trim_ascii_start().first() == Some(&b'[');
    if !is_array {
        let parsed: Body<'_> = serde_json::from_slice(body).map_err(|error| {
            invalid(format!(
                "must be a JSON object with the conversation in `messages` or `input`: {error}"
            ))
        })?;
        if let Some(parameters) = parsed.palimpsest {
            let text = parameters.get().as_bytes();
            let text = (text, Some(name_field));
            read_without(schema, message, Form::Plain, text, out).map_err(|error| {
                let dot = if error.path.is_empty() { "" } else { "." };
                BodyProblem::Field {
                    path: format!("{PARAMETERS}{dot}{}", error.path),
                    problem: error.problem,
                }
            })?;
        }
    }
    let mut payload = Vec::with_capacity(body.len() + 8);
    put_bytes(PAYLOAD_JSON, body, &mut payload);
    put_bytes(PAYLOAD, &payload, out);
    Ok(())
}

/// Returns the response with the system messages of the array in front of the view, so that its messages are the whole
/// array to send. A caller that holds a view gets the rest of the view alone.
pub(crate) fn with_lead(response: Bytes, message: &[u8], body: &Bytes) -> Bytes {
    // An encoder leaves out a count of zero.
    let lead = varint_field(&response, LEAD_MESSAGES).unwrap_or(0);
    if lead == 0 || has_field(message, KNOWN_ETAG) {
        return response;
    }
    let mut context = Vec::new();
    for element in first_elements(body, lead) {
        put_bytes(
            CONTEXT_MESSAGES_JSON,
            element.get().as_bytes(),
            &mut context,
        );
    }
    let mut out = Vec::with_capacity(response.len() + context.len() + 8);
    // Occurrences of a message are merged, and their lists are joined in this order.
    put_bytes(CONTEXT, &context, &mut out);
    out.extend_from_slice(&response);
    out.into()
}

/// Returns the first messages of an array, or of the array in a body.
fn first_elements(body: &[u8], count: u64) -> Vec<&RawValue> {
    #[derive(Deserialize)]
    struct Arrays<'a> {
        #[serde(borrow)]
        messages: Option<&'a RawValue>,
        #[serde(borrow)]
        input: Option<&'a RawValue>,
    }
    let array = if body.trim_ascii_start().first() == Some(&b'[') {
        serde_json::from_slice::<&RawValue>(body).ok()
    } else {
        let arrays = serde_json::from_slice::<Arrays<'_>>(body).ok();
        arrays.and_then(|arrays| arrays.messages.or(arrays.input))
    };
    let mut elements = Vec::new();
    let mut rest = array.map_or("", RawValue::get).trim_start_matches('[');
    // Only the leading elements are parsed, because the array can be long.
    while (elements.len() as u64) < count {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let Some(Ok(element)) = values.next() else {
            break;
        };
        elements.push(element);
        rest = &rest[values.byte_offset()..];
        rest = rest.trim_start();
        rest = rest.strip_prefix(',').unwrap_or("");
    }
    elements
}

fn has_field(message: &[u8], number: u32) -> bool {
    fields(message).any(|(of, _)| of == number)
}

fn varint_field(message: &[u8], number: u32) -> Option<u64> {
    fields(message).find(|(of, _)| *of == number)?.1
}

/// Returns the numbers of the fields, with the values of those that are integers.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u32, Option<u64>)> {
    std::iter::from_fn(move || {
        let (number, wire_type) = decode_key(&mut message).ok()?;
        let skip = match wire_type {
            WireType::Varint => return Some((number, Some(decode_varint(&mut message).ok()?))),
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut message).ok()?).ok()?,
            // Proto3 has no groups.
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        message = message.split_at_checked(skip)?.1;
        Some((number, None))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_messages_are_found_in_bodies_and_arrays() {
        let texts = |body: &str, count| {
            let elements = first_elements(body.as_bytes(), count);
            elements
                .iter()
                .map(|one| one.get().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            texts(r#" [ {"a":1} , {"b":[2]} ,{}]"#, 2),
            [r#"{"a":1}"#, r#"{"b":[2]}"#]
        );
        assert_eq!(
            texts(r#"{"model":"m","input":[{"a":1}]}"#, 3),
            [r#"{"a":1}"#]
        );
        assert!(texts("[]", 1).is_empty());
        assert!(texts("{", 1).is_empty());
    }
}
