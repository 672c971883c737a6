//! Writes elements of arrays in other spellings, as clients do.

use serde_json::{Map, Value, json};

/// The decisions of one spelling. They repeat when they end.
pub(crate) struct Choices<'a> {
    all: &'a [u8],
    next: usize,
}

impl<'a> Choices<'a> {
    pub(crate) fn new(all: &'a [u8]) -> Self {
        Self { all, next: 0 }
    }

    /// Returns a number below `options`.
    pub(crate) fn pick(&mut self, options: usize) -> usize {
        let choice = self.all[self.next % self.all.len()];
        self.next += 1;
        usize::from(choice) % options
    }

    fn flip(&mut self) -> bool {
        self.pick(2) == 1
    }
}

/// Returns an element with the same meaning in another spelling.
pub(crate) fn respell(element: &Value, choices: &mut Choices<'_>) -> Value {
    let mut element = element.clone();
    let is_response = element["role"] == "assistant";
    let fields = element.as_object_mut().expect("an element is an object");
    if let Some(content) = fields.get_mut("content") {
        respell_content(content, choices);
        // In the chat format, a response without text may lack its content.
        let is_chat = fields.contains_key("tool_calls");
        if is_chat && fields["content"].as_array().is_some_and(Vec::is_empty) {
            match choices.pick(4) {
                0 => fields.insert("content".into(), Value::Null),
                1 => fields.insert("content".into(), json!("")),
                2 => fields.remove("content"),
                _ => None,
            };
        }
    }
    if let Some(calls) = fields.get_mut("tool_calls") {
        for (index, call) in calls
            .as_array_mut()
            .expect("calls are an array")
            .iter_mut()
            .enumerate()
        {
            let arguments = &mut call["function"]["arguments"];
            let value =
                serde_json::from_str::<Value>(arguments.as_str().expect("arguments are a text"));
            // Arguments that are no JSON are compared as text.
            if let Ok(value) = value {
                *arguments = json!(write(&value, choices));
            }
            if choices.flip() {
                call["index"] = json!(index);
            }
        }
    }
    if is_response && choices.flip() {
        element["stop_reason"] = json!("end_turn");
        element["annotations"] = json!([]);
        element["refusal"] = Value::Null;
    }
    element
}

fn respell_content(content: &mut Value, choices: &mut Choices<'_>) {
    if content.is_string() && choices.flip() {
        *content = json!([{ "type": "text", "text": content }]);
    }
    let Some(blocks) = content.as_array_mut() else {
        return;
    };
    for block in blocks.iter_mut() {
        if block["type"] == "tool_result" {
            match block.get_mut("content") {
                Some(inner) => respell_content(inner, choices),
                None if choices.flip() => block["content"] = json!([]),
                None => {}
            }
            // A result without `is_error` has succeeded.
            if block.get("is_error").is_none() && choices.flip() {
                block["is_error"] = json!(false);
            }
        }
        if choices.flip() {
            block["cache_control"] = json!({ "type": "ephemeral" });
        }
    }
    // A blank block has no meaning, and some clients add one.
    if choices.pick(4) == 0 {
        blocks.push(json!({ "type": "text", "text": "\n" }));
    }
    // A single text can also be a string in place of a list.
    let [only] = blocks.as_slice() else {
        return;
    };
    if only["type"] == "text" && choices.flip() {
        *content = only["text"].clone();
    }
}

/// Writes a value with white space, reordered keys and escapes.
pub(crate) fn write(value: &Value, choices: &mut Choices<'_>) -> String {
    let space = ["", " ", "\n"][choices.pick(3)];
    match value {
        Value::Object(fields) => {
            let mut members: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{}:{space}{}", json!(name), write(value, choices)))
                .collect();
            let by = choices.pick(members.len().max(1));
            members.rotate_left(by);
            format!("{{{space}{}}}", members.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| write(item, choices)).collect();
            format!("[{}{space}]", items.join(","))
        }
        // The bytes of ASCII equal its code points, so only ASCII can be escaped byte by byte.
        Value::String(text) if text.is_ascii() && choices.flip() => {
            let units = text.bytes().map(|byte| format!("\\u{byte:04x}"));
            format!("\"{}\"", units.collect::<String>())
        }
        Value::Number(number) if number.is_i64() && choices.flip() => format!("{number}.0"),
        other => other.to_string(),
    }
}

/// Changes the content of an element: one value, or the list of blocks.
pub(crate) fn edit(element: &Value, choices: &mut Choices<'_>) -> Value {
    let mut edited = element.clone();
    if let Some(blocks) = edited["content"].as_array_mut()
        && !blocks.is_empty()
    {
        match choices.pick(8) {
            0 => blocks.push(json!({ "type": "text", "text": "more" })),
            1 => blocks.truncate(blocks.len() - 1),
            2 => blocks.push(blocks[0].clone()),
            _ => {}
        }
        if edited != *element {
            return edited;
        }
    }
    let mut places = Vec::new();
    collect(&mut edited, &mut places);
    let index = choices.pick(places.len());
    match &mut *places[index] {
        Value::String(text) => text.push('x'),
        Value::Number(number) => *number = (number.as_i64().expect("a small integer") + 1).into(),
        Value::Bool(value) => *value = !*value,
        other => *other = json!("other"),
    }
    edited
}

fn collect<'a>(value: &'a mut Value, places: &mut Vec<&'a mut Value>) {
    // With another type or role, the element would be invalid.
    const FIXED: [&str; 2] = ["type", "role"];
    match value {
        Value::Object(fields) => {
            for (_, value) in fields
                .iter_mut()
                .filter(|(name, _)| !FIXED.contains(&name.as_str()))
            {
                collect(value, places);
            }
        }
        leaf @ (Value::String(_) | Value::Number(_) | Value::Bool(_)) => places.push(leaf),
        Value::Array(items) => {
            for item in items {
                collect(item, places);
            }
        }
        Value::Null => {}
    }
}

/// Builds an object from its fields, without those that are null.
pub(crate) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let present = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(
        present
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<Map<_, _>>(),
    )
}
