//! Policy overrides from the API to the domain, by field name.

use palimpsest_core::policy::Overlay;
use palimpsest_proto::context::v1;
use palimpsest_settings::policy_fields::{POLICY, Shape, prefix};
use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, MapKey, ReflectMessage as _, Value,
};
use serde_json::{Map, Number, Value as Json};

use super::super::FieldError;

/// Converts the fields set in a policy. `path` is the field of the request, for errors.
pub fn overlay(policy: &v1::Policy, path: &str) -> Result<Overlay, FieldError> {
    let mut message = DynamicMessage::new(POLICY.clone());
    message
        .transcode_from(policy)
        .map_err(|_| FieldError::invalid(path, "cannot be read"))?;
    Ok(Overlay::new(fields(&message, path)?))
}

fn fields(message: &DynamicMessage, path: &str) -> Result<Map<String, Json>, FieldError> {
    message
        .fields()
        .map(|(field, value)| {
            let path = format!("{path}.{}", field.name());
            Ok((field.name().to_owned(), json(&field, value, &path)?))
        })
        .collect()
}

fn json(field: &FieldDescriptor, value: &Value, path: &str) -> Result<Json, FieldError> {
    match (Shape::of(field), value) {
        (Shape::Map(of), Value::Map(entries)) => {
            let mut object = Map::new();
            for (key, value) in entries {
                let MapKey::String(name) = key else {
                    return Err(FieldError::invalid(path, "must have names as keys"));
                };
                let path = format!("{path}[\"{}\"]", shortened(name));
                object.insert(name.clone(), json(&of, value, &path)?);
            }
            Ok(object.into())
        }
        (Shape::List(of), Value::Message(message)) => {
            let list = message.get_field(&of);
            let items = list.as_list().unwrap_or_default();
            let item = |(index, item)| single(&of, item, &format!("{path}.{}[{index}]", of.name()));
            items.iter().enumerate().map(item).collect()
        }
        (Shape::Duration, Value::Message(message)) => duration(message, path),
        (Shape::Group(_), Value::Message(message)) => group(message, path),
        _ => single(field, value, path),
    }
}

/// Converts a message. If it has a `oneof`, one of its fields must be set.
fn group(message: &DynamicMessage, path: &str) -> Result<Json, FieldError> {
    let descriptor = message.descriptor();
    for choice in descriptor.oneofs().filter(|oneof| !oneof.is_synthetic()) {
        let Some(chosen) = choice.fields().find(|field| message.has_field(field)) else {
            return Err(FieldError::missing(format!("{path}.{}", choice.name())));
        };
        // A boolean in a `oneof` only selects the choice, so `false` has no meaning.
        if message.get_field(&chosen).as_bool() == Some(false) {
            let path = format!("{path}.{}", chosen.name());
            return Err(FieldError::invalid(path, "must be true"));
        }
    }
    Ok(fields(message, path)?.into())
}

fn single(field: &FieldDescriptor, value: &Value, path: &str) -> Result<Json, FieldError> {
    match (Shape::of(field), value) {
        (Shape::Choice(choices), Value::EnumNumber(number)) => choice(&choices, *number, path),
        (_, Value::Bool(truth)) => Ok((*truth).into()),
        (_, Value::U32(number)) => Ok((*number).into()),
        (_, Value::U64(number)) => Ok((*number).into()),
        (_, Value::F64(number)) => Number::from_f64(*number)
            .map(Json::Number)
            .ok_or_else(|| FieldError::invalid(path, "must be a finite number")),
        (_, Value::String(text)) => Ok(text.as_str().into()),
        _ => Err(FieldError::invalid(
            path,
            "is of a kind that no setting has",
        )),
    }
}

/// Returns the name of an enum value. Unset fields are skipped earlier, so 0 occurs only inside a list.
fn choice(choices: &EnumDescriptor, number: i32, path: &str) -> Result<Json, FieldError> {
    if number == 0 {
        return Err(FieldError::missing(path));
    }
    let Some(value) = choices.get_value(number) else {
        let what = format!("is {number}, which is no value of {}", choices.name());
        return Err(FieldError::invalid(path, what));
    };
    let prefix = prefix(choices);
    let name = value.name().strip_prefix(&prefix).unwrap_or(value.name());
    Ok(name.to_lowercase().into())
}

fn duration(message: &DynamicMessage, path: &str) -> Result<Json, FieldError> {
    let part = |name: &str| message.get_field_by_name(name);
    let seconds = part("seconds").and_then(|value| value.as_i64());
    let nanos = part("nanos").and_then(|value| value.as_i32());
    match (seconds, nanos) {
        (Some(seconds @ 0..), Some(nanos @ 0..=999_999_999)) => {
            // 2 seconds and 5 nanoseconds are `2.000000005s`: without padding they would be `2.5s`.
            Ok(format!("{seconds}.{nanos:09}s").into())
        }
        _ => Err(FieldError::invalid(path, "must be a duration of 0 or more")),
    }
}

/// Truncates a tool name for an error path. Tool names come from the caller.
fn shortened(name: &str) -> &str {
    let end = name.char_indices().nth(64).map_or(name.len(), |(at, _)| at);
    &name[..end]
}
