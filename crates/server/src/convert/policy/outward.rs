//! Policies from the domain to the API.

use std::collections::HashMap;

use palimpsest_core::policy::{Overlay, Policy};
use palimpsest_proto::context::v1;
use palimpsest_settings::policy_fields::{POLICY, Shape, policy_fields, prefix};
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage as _, Value,
};
use serde_json::{Map, Value as Json};

/// Converts a resolved policy. Settings without a value and a default stay unset.
pub fn policy(policy: &Policy) -> v1::Policy {
    let all = Overlay::of(policy);
    message(POLICY.clone(), all.fields())
        .transcode_to()
        .expect("what was made by the contract's descriptors is one of its messages")
}

/// Returns the paths of the settings in which two policies differ.
pub fn changed_paths(before: &Policy, after: &Policy) -> Vec<String> {
    let (before, after) = (Overlay::of(before), Overlay::of(after));
    policy_fields()
        .iter()
        .filter(|field| before.get(&field.path) != after.get(&field.path))
        .map(|field| field.path.join("."))
        .collect()
}

fn message(descriptor: MessageDescriptor, fields: &Map<String, Json>) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor);
    for field in message.descriptor().fields() {
        let given = fields.get(field.name());
        if let Some(value) = given.and_then(|given| value(&field, given)) {
            message.set_field(&field, value);
        }
    }
    message
}

fn value(field: &FieldDescriptor, json: &Json) -> Option<Value> {
    match (Shape::of(field), json) {
        (Shape::Map(of), Json::Object(entries)) => {
            let entry = |(name, json): (&String, &Json)| {
                Some((MapKey::String(name.clone()), value(&of, json)?))
            };
            let entries: HashMap<_, _> = entries.iter().filter_map(entry).collect();
            Some(Value::Map(entries))
        }
        (Shape::List(of), Json::Array(items)) => {
            let items = items.iter().filter_map(|item| single(&of, item)).collect();
            // The contract wraps a list in a message, so that an empty list differs from no list.
            let mut wrapper = DynamicMessage::new(of.parent_message().clone());
            wrapper.set_field(&of, Value::List(items));
            Some(Value::Message(wrapper))
        }
        (Shape::Duration, Json::String(text)) => duration(field, text),
        (Shape::Group(descriptor), Json::Object(fields)) => {
            Some(Value::Message(message(descriptor, fields)))
        }
        _ => single(field, json),
    }
}

fn single(field: &FieldDescriptor, json: &Json) -> Option<Value> {
    match Shape::of(field) {
        Shape::Choice(choices) => {
            let name = format!("{}{}", prefix(&choices), json.as_str()?.to_uppercase());
            let value = choices.get_value_by_name(&name)?;
            Some(Value::EnumNumber(value.number()))
        }
        Shape::Plain(Kind::Bool) => json.as_bool().map(Value::Bool),
        Shape::Plain(Kind::Uint32) => u32::try_from(json.as_u64()?).ok().map(Value::U32),
        Shape::Plain(Kind::Uint64) => json.as_u64().map(Value::U64),
        Shape::Plain(Kind::Double) => json.as_f64().map(Value::F64),
        Shape::Plain(Kind::String) => Some(Value::String(json.as_str()?.to_owned())),
        _ => None,
    }
}

/// Converts a duration in the domain's format: seconds with a sign and at most three decimal places.
fn duration(field: &FieldDescriptor, text: &str) -> Option<Value> {
    let (seconds, part) = text
        .strip_suffix('s')?
        .split_once('.')
        .unwrap_or((text.strip_suffix('s')?, ""));
    // The fraction `5` of `2.5s` is half a second, not 5 nanoseconds.
    let nanos: i32 = format!("{part:0<9}").parse().ok()?;
    let Kind::Message(descriptor) = field.kind() else {
        return None;
    };
    let mut duration = DynamicMessage::new(descriptor);
    duration.set_field_by_name("seconds", Value::I64(seconds.parse().ok()?));
    duration.set_field_by_name("nanos", Value::I32(nanos));
    Some(Value::Message(duration))
}
