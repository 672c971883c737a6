//! Canonical digests of elements, after the readers of both formats.

use palimpsest_core::codec;
use palimpsest_core::ids::MessageId;
use palimpsest_core::message::CanonicalDigests;
use palimpsest_core::view::Provider;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::spelling::{Choices, edit, object, respell, write};

fn digests(provider: Provider, text: &str) -> CanonicalDigests {
    let mut next_id = || MessageId::new(Uuid::nil());
    let messages = codec::read(provider, text.as_bytes(), &mut next_id);
    CanonicalDigests::of(&messages.unwrap_or_else(|error| panic!("{error}: {text}"))[0])
}

fn word() -> impl Strategy<Value = String> {
    // The last word needs escapes and has a character of two bytes, so its JSON has several spellings.
    prop::sample::select(vec!["a", "b", "read it", "é {\"x\":1}"]).prop_map(str::to_owned)
}

fn arguments() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        word().prop_map(Value::from),
        (0_i64..30).prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(word(), inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    });
    prop::collection::btree_map(word(), value, 0..3)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()))
}

fn text_block() -> impl Strategy<Value = Value> {
    word().prop_map(|text| json!({ "type": "text", "text": text }))
}

fn anthropic() -> impl Strategy<Value = Value> {
    let image = word().prop_map(|data| {
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": data } })
    });
    let result = (
        word(),
        prop::collection::vec(text_block(), 0..3),
        prop::option::of(Just(true)),
    );
    let result = result.prop_map(|(id, content, is_error)| {
        object([
            ("type", json!("tool_result")),
            ("tool_use_id", json!(id)),
            ("content", json!(content)),
            ("is_error", json!(is_error)),
        ])
    });
    let call = (word(), arguments()).prop_map(
        |(id, input)| json!({ "type": "tool_use", "id": id, "name": "t", "input": input }),
    );
    let server = arguments()
        .prop_map(|input| json!({ "type": "server_tool_use", "name": "s", "input": input }));
    let thinking =
        word().prop_map(|text| json!({ "type": "thinking", "thinking": text, "signature": "s" }));
    let asked = prop_oneof![text_block(), image, result];
    let answered = prop_oneof![text_block(), call, server, thinking];
    prop_oneof![
        prop::collection::vec(asked, 1..4)
            .prop_map(|content| json!({ "role": "user", "content": content })),
        prop::collection::vec(answered, 1..4)
            .prop_map(|content| json!({ "role": "assistant", "content": content })),
        word().prop_map(|text| json!({ "role": "system", "content": text })),
    ]
}

fn chat() -> impl Strategy<Value = Value> {
    let image = word().prop_map(
        |url| json!({ "type": "image_url", "image_url": { "url": url, "detail": "low" } }),
    );
    let call = (word(), arguments()).prop_map(|(id, input)| {
        let function = json!({ "name": "t", "arguments": input.to_string() });
        json!({ "id": id, "type": "function", "function": function })
    });
    prop_oneof![
        prop::collection::vec(prop_oneof![text_block(), image], 1..3)
            .prop_map(|content| json!({ "role": "user", "content": content })),
        (prop::collection::vec(text_block(), 0..2), prop::collection::vec(call, 1..3)).prop_map(
            |(content, calls)| json!({ "role": "assistant", "content": content, "tool_calls": calls })
        ),
        (word(), word()).prop_map(
            |(id, text)| json!({ "role": "tool", "tool_call_id": id, "content": text })
        ),
        word().prop_map(|text| json!({ "role": "developer", "content": text, "name": "n" })),
    ]
}

fn element() -> impl Strategy<Value = (Provider, Value)> {
    prop_oneof![
        anthropic().prop_map(|element| (Provider::Anthropic, element)),
        chat().prop_map(|element| (Provider::OpenAi, element)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_respelled_element_has_the_same_digests(
        (provider, element) in element(),
        choices in prop::collection::vec(any::<u8>(), 1..60),
    ) {
        let mut choices = Choices::new(&choices);
        let respelled = write(&respell(&element, &mut choices), &mut choices);
        let plain = digests(provider, &element.to_string());
        prop_assert_eq!(plain, digests(provider, &respelled), "{}", respelled);
    }

    #[test]
    fn an_edited_element_has_another_digest(
        (provider, element) in element(),
        choices in prop::collection::vec(any::<u8>(), 1..60),
    ) {
        let mut choices = Choices::new(&choices);
        let edited = edit(&element, &mut choices);
        let respelled = write(&respell(&edited, &mut choices), &mut choices);
        let plain = digests(provider, &element.to_string());
        // The loose digest ignores thinking, so an edit of thinking changes the strict digest alone.
        prop_assert_ne!(plain.strict, digests(provider, &respelled).strict, "{}", respelled);
    }
}
