use palimpsest_core::json;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;

const PROVIDERS: [Provider; 3] = [
    Provider::Anthropic,
    Provider::OpenAi,
    Provider::OpenAiResponses,
];

fn key() -> SessionKey {
    SessionKey::parse("projects/p/sessions/s").unwrap()
}

fn read(reader: &ArrayReader, provider: Provider, json: &str) -> Result<ReadArray, CodecError> {
    let mut next = 0_u128;
    let mut next_id = || {
        next += 1;
        MessageId::new(Uuid::from_u128(next))
    };
    let json = Bytes::copy_from_slice(json.as_bytes());
    reader.read(
        &key(),
        (provider, &json),
        Timestamp::default(),
        &mut next_id,
    )
}

/// Asserts that a reader with known arrays and a new one read the same.
fn check(reader: &ArrayReader, provider: Provider, json: &str) -> usize {
    let alone = read(&ArrayReader::default(), provider, json);
    let (read, alone) = match (read(reader, provider, json), alone) {
        (Ok(read), Ok(alone)) => (read, alone),
        (read, alone) => {
            assert_eq!(read.unwrap_err(), alone.unwrap_err());
            return 0;
        }
    };
    let content = |array: &ReadArray| {
        let elements = array.elements.iter();
        let content = elements.map(|element| {
            let message = &element.message;
            (
                element.digests,
                message.role,
                message.blocks.clone(),
                message.extra.clone(),
            )
        });
        content.collect::<Vec<_>>()
    };
    assert_eq!(content(&read), content(&alone), "{json}");
    assert_eq!(
        (read.outside, &read.body, read.place),
        (alone.outside, &alone.body, alone.place),
        "{json}"
    );
    if let Some(place) = read.place {
        let bracket = |position: usize| json.as_bytes()[position];
        assert_eq!((bracket(place.open), bracket(place.close)), (b'[', b']'));
    }
    read.new.len()
}

fn message(number: u8) -> Value {
    let role = if number.is_multiple_of(2) {
        "user"
    } else {
        "assistant"
    };
    json!({"role": role, "content": format!("text \u{e9} ] , {number}")})
}

fn body(provider: Provider, messages: &[Value], shape: u8) -> String {
    let array = Value::from(messages.to_vec());
    let array = if shape & 1 == 0 {
        array.to_string()
    } else {
        json::pretty_print(&array.to_string())
    };
    let (name, system) = field_names(provider);
    let system = system.map_or(String::new(), |name| format!("\"{name}\":\"be brief\","));
    let tools = r#""tools":[{"name":"t"}],"#;
    match shape >> 1 & 7 {
        0 => array,
        1 => format!("{{{system}{tools}\"{name}\":{array},\"stream\":true}}"),
        2 => format!("{{\"model\":\"m\",\"{name}\":{array} ,{tools}{system}\"n\":1}}"),
        3 => format!("{{{system}\"{name}\":{array},{tools}{system}\"n\":1}}"),
        4 => format!("{{\"{name}\":{array},\"{name}\":{array}}}"),
        5 => format!("{{\"{name}\":{array}}} x"),
        6 => format!("{{\"{name}\":{array},\"type\":\"message\"}}"),
        _ => format!("{{{tools}\"{name}\":{array}}}"),
    }
}

proptest! {
    #[test]
    fn known_bytes_change_nothing(
        provider in prop::sample::select(PROVIDERS.to_vec()),
        steps in prop::collection::vec((0_u8..12, any::<u8>(), 0_u8..16), 1..10),
    ) {
        let reader = ArrayReader::default();
        let mut messages: Vec<Value> = Vec::new();
        for (count, edit, shape) in steps {
            if edit < 40 && !messages.is_empty() {
                let at = usize::from(edit) % messages.len();
                messages.truncate(at);
            }
            messages.extend((0..count).map(|number| message(number.wrapping_add(edit))));
            check(&reader, provider, &body(provider, &messages, shape));
        }
    }
}

#[test]
fn only_new_messages_are_read_again() {
    for provider in PROVIDERS {
        for shape in [0, 1, 2, 3, 4, 14] {
            let reader = ArrayReader::default();
            let mut messages: Vec<Value> = (0..40).map(message).collect();
            check(&reader, provider, &body(provider, &messages, shape));
            messages.extend((40..43).map(message));
            let again = body(provider, &messages, shape);
            // A system prompt after the array is read again.
            let system = provider == Provider::Anthropic && shape >> 1 == 2;
            let new = check(&reader, provider, &again);
            assert_eq!(new, 3 + usize::from(system), "{provider:?} {shape}");
            let new = check(&reader, provider, &again);
            assert_eq!(new, usize::from(system), "{provider:?} {shape}");
        }
    }
}

#[test]
fn only_the_messages_after_a_change_are_read_again() {
    for provider in PROVIDERS {
        for shape in [0, 1, 2, 3, 4, 14] {
            let reader = ArrayReader::default();
            let mut messages: Vec<Value> = (0..40).map(message).collect();
            // The agent marks the end of each array, so the marker moves.
            messages[39]["cache_control"] = json!({"type": "ephemeral"});
            check(&reader, provider, &body(provider, &messages, shape));
            messages[39] = message(39);
            messages.extend((40..43).map(message));
            messages[42]["cache_control"] = json!({"type": "ephemeral"});
            let system = provider == Provider::Anthropic && shape >> 1 == 2;
            let new = check(&reader, provider, &body(provider, &messages, shape));
            assert_eq!(new, 4 + usize::from(system), "{provider:?} {shape}");
            // The agent takes back the last messages.
            messages.truncate(20);
            let new = check(&reader, provider, &body(provider, &messages, shape));
            assert_eq!(new, usize::from(system), "{provider:?} {shape}");
        }
    }
}

#[test]
fn an_array_in_parts_is_read_like_a_whole_one() {
    let reader = ArrayReader::default();
    let mut messages: Vec<Value> = (0..10).map(message).collect();
    let mut next_id = || MessageId::new(Uuid::nil());
    for count in 10..20 {
        messages.push(message(count));
        let text = body(Provider::OpenAi, &messages, 2);
        let parts = text.as_bytes().chunks(7).map(Bytes::copy_from_slice);
        let json = JsonParts::new(parts.collect());
        let array = reader.compare(&key(), Provider::OpenAi, json);
        let now = Timestamp::default();
        let read = reader.read_rest(&key(), &array, now, &mut next_id);
        assert_eq!(read.is_some(), count > 10);
        if count > 10 {
            assert!(array.unread_bytes() < 100, "{}", array.unread_bytes());
        }
        let read = read.unwrap_or_else(|| {
            let whole = reader.read_whole(&key(), &array, now, &mut next_id);
            whole.unwrap()
        });
        assert_eq!(read.elements.len(), messages.len());
    }
}

#[test]
fn invalid_ends_are_invalid_after_known_messages_too() {
    let reader = ArrayReader::default();
    let messages: Vec<Value> = (0..3).map(message).collect();
    for provider in PROVIDERS {
        let text = body(provider, &messages, 2);
        check(&reader, provider, &text);
        // A comma without a message, and a form feed, which is no white space of JSON.
        for end in ["}, ]", "}\u{c}]"] {
            let text = text.replace("}],\"stream\"", &format!("{end},\"stream\""));
            assert!(read(&reader, provider, &text).is_err(), "{text}");
        }
    }
}

#[test]
fn known_arrays_are_bounded() {
    let reader = ArrayReader::default();
    let text = "x".repeat(MAX_ARRAY_BYTES / 2);
    let json = Bytes::from(json!([{"role": "user", "content": text}]).to_string());
    for number in 0..40 {
        let key = SessionKey::parse(&format!("projects/p/sessions/{number}")).unwrap();
        let mut next_id = || MessageId::new(Uuid::nil());
        let source = (Provider::Anthropic, &json);
        reader
            .read(&key, source, Timestamp::default(), &mut next_id)
            .unwrap();
        assert!(reader.0.size().1 <= MAX_KNOWN_BYTES);
    }
    assert!(reader.0.size().0 > 3);
}
