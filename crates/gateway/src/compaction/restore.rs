//! Puts summaries in the place of the compaction items that the service has made.

use std::borrow::Cow;

use bytes::Bytes;
use palimpsest_core::codec::compaction_item::{self, PREFIX};
use palimpsest_engine::turn::JsonParts;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::input::{InputItems, has_type};
use crate::search::contains;

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    encrypted_content: Cow<'a, str>,
}

/// Returns true if a body can have an item of the service. Almost no body can, and a search is much faster than a parse.
pub(crate) fn has_summary(body: &JsonParts) -> bool {
    contains(body.parts(), PREFIX.as_bytes())
}

/// Returns the body with a message of the user in place of each item. `None` if the body has no such item.
pub(crate) fn with_summaries(body: &JsonParts) -> Option<JsonParts> {
    let whole = body.whole();
    let input = InputItems::of(&whole)?;
    let mut parts: Vec<Bytes> = Vec::new();
    let mut done = 0;
    for item in input.all() {
        let Some(summary) = summary_in(item) else {
            continue;
        };
        let mut message = Vec::new();
        compaction_item::write_message(&summary, &mut message);
        let place = input.place(item);
        parts.push(whole.slice(done..place.start));
        parts.push(message.into());
        done = place.end;
    }
    // A replaced item ends behind the opening brace of the body, so its end is never 0.
    if done == 0 {
        return None;
    }
    parts.push(whole.slice(done..));
    Some(JsonParts::new(parts))
}

/// Returns the summary in an item that the service has made.
fn summary_in(item: &RawValue) -> Option<String> {
    // A parse of an item takes longer than a search in it.
    if !item.get().contains(PREFIX) || !has_type(item, compaction_item::TYPE) {
        return None;
    }
    let item: Item<'_> = serde_json::from_str(item.get()).ok()?;
    compaction_item::decode(&item.encrypted_content)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn parts(text: &str, at: &[usize]) -> JsonParts {
        let mut ends: Vec<usize> = at.iter().map(|at| at % (text.len() + 1)).collect();
        ends.extend([0, text.len()]);
        ends.sort_unstable();
        let parts = ends
            .windows(2)
            .map(|ends| &text.as_bytes()[ends[0]..ends[1]]);
        JsonParts::new(parts.map(Bytes::copy_from_slice).collect())
    }

    fn restored(body: &str) -> Option<String> {
        let restored = with_summaries(&parts(body, &[]))?;
        Some(String::from_utf8(restored.whole().to_vec()).unwrap())
    }

    fn item(summary: &str) -> Value {
        json!({"id": "cmp_1", "type": "compaction", "encrypted_content": compaction_item::encode(summary)})
    }

    #[test]
    fn only_the_item_is_replaced() {
        assert_eq!(
            restored(
                r#"{"b":"palimpsest.1.b2s", "input" : [ {"type":"compaction","encrypted_content":"palimpsest.1.b2s"} ,{"x": 1}],"a":2}"#
            )
            .as_deref(),
            Some(
                r#"{"b":"palimpsest.1.b2s", "input" : [ {"type":"message","role":"user","content":[{"type":"input_text","text":"ok"}]} ,{"x": 1}],"a":2}"#
            )
        );
    }

    #[test]
    fn a_body_without_an_item_of_the_service_stays() {
        let with = |item: Value| json!({"input": [item]}).to_string();
        let content = compaction_item::encode("ok");
        for body in [
            with(json!({"type": "compaction", "encrypted_content": "gAAAA"})),
            with(json!({"type": "compaction", "encrypted_content": format!("{content}!")})),
            with(json!({"type": "compaction", "encrypted_content": [content]})),
            with(json!({"type": "reasoning", "encrypted_content": content})),
            with(json!({"role": "user", "content": content})),
            with(json!({"role": "user", "content": item("quoted").to_string()})),
            with(json!({"type": "function_call_output", "output": [item("nested")]})),
            json!({"input": content}).to_string(),
            json!({"messages": [item("ok")]}).to_string(),
            with(item("ok")) + "]",
            // A repeated field is ambiguous.
            format!(r#"{{"input":[{}],"input":[]}}"#, item("ok")),
        ] {
            assert_eq!(restored(&body), None, "{body}");
        }
    }

    fn items() -> impl Strategy<Value = Vec<Value>> {
        let text = prop_oneof![
            any::<String>(),
            any::<String>().prop_map(|text| format!("{text}{}", compaction_item::encode(&text))),
            any::<String>().prop_map(|text| item(&text).to_string()),
        ];
        let item = prop_oneof![
            text.clone().prop_map(|text| item(&text)),
            text.clone()
                .prop_map(|text| json!({"role": "user", "content": text})),
            text.clone().prop_map(
                |text| json!({"type": "message", "content": [{"type": "input_text", "text": text}]})
            ),
            text.prop_map(|text| json!({"type": "compaction", "encrypted_content": text})),
            any::<i32>().prop_map(|number| json!(number)),
        ];
        prop::collection::vec(item, 0..6)
    }

    /// Writes JSON with white space between its tokens.
    fn spaced(value: &Value, spaces: &mut impl Iterator<Item = usize>, out: &mut String) {
        let mut space = |out: &mut String| {
            out.push_str(["", " ", "\n", " \t\r\n"][spaces.next().unwrap_or(0) % 4]);
        };
        space(out);
        match value {
            Value::Array(values) => {
                out.push('[');
                for (at, value) in values.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    spaced(value, spaces, out);
                }
                out.push(']');
            }
            Value::Object(fields) => {
                out.push('{');
                for (at, (name, value)) in fields.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    spaced(&json!(name), spaces, out);
                    out.push(':');
                    spaced(value, spaces, out);
                }
                out.push('}');
            }
            value => out.push_str(&value.to_string()),
        }
        out.push_str(["", " ", "\n"][spaces.next().unwrap_or(0) % 3]);
    }

    fn expected(item: &Value) -> Value {
        let is_item = item["type"] == "compaction";
        let content = item["encrypted_content"].as_str().filter(|_| is_item);
        match content.and_then(compaction_item::decode) {
            None => item.clone(),
            Some(summary) => json!({"type": "message", "role": "user",
                "content": [{"type": "input_text", "text": summary}]}),
        }
    }

    proptest! {
        #[test]
        fn each_item_of_the_service_becomes_a_message_and_nothing_else_changes(
            items in items(),
            other in any::<String>(),
            spaces in prop::collection::vec(any::<usize>(), 1..40),
            at in prop::collection::vec(any::<usize>(), 0..4),
        ) {
            let body = json!({"a": [other, {"input": items}], "input": items, "z": other});
            let mut text = String::new();
            spaced(&body, &mut spaces.iter().copied().cycle(), &mut text);
            let mut wanted = body.clone();
            wanted["input"] = items.iter().map(expected).collect();
            let parts = parts(&text, &at);
            match with_summaries(&parts).filter(|_| has_summary(&parts)) {
                None => prop_assert_eq!(&wanted, &body),
                Some(restored) => {
                    prop_assert_ne!(&wanted, &body);
                    let restored: Value = serde_json::from_slice(&restored.whole()).unwrap();
                    prop_assert_eq!(restored, wanted);
                }
            }
        }
    }
}
