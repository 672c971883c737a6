//! The parameters in the query of a request.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::decoder::BodyProblem;
use crate::json::{Cardinality, Form, Kind, MessageIndex, Schema};

/// Returns the JSON of the parameters: `filter.text=a&page_size=2` is `{"filter":{"text":"a"},"page_size":"2"}`.
pub(crate) fn to_json(
    schema: &Schema,
    message: MessageIndex,
    query: &str,
) -> Result<Vec<u8>, BodyProblem> {
    let mut fields = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        let mut message = message;
        let mut object = &mut fields;
        let mut parts = name.split('.').peekable();
        while let Some(part) = parts.next() {
            let unknown = || BodyProblem::Field {
                path: name.clone(),
                problem: "is not a parameter of this path".to_owned(),
            };
            let field = schema
                .field_named(message, part, Form::Plain)
                .ok_or_else(unknown)?;
            if parts.peek().is_some() {
                let Kind::Message(inner) = field.kind else {
                    return Err(unknown());
                };
                message = inner;
                let nested = object.entry(part).or_insert_with(|| Map::new().into());
                // In `?filter=a&filter.text=b`, a text is in the place of the object.
                object = nested.as_object_mut().ok_or_else(unknown)?;
                continue;
            }
            let value = match (field.kind, value.as_str()) {
                // `?allow_missing` without a value is true.
                (Kind::Bool, "true" | "") => Value::Bool(true),
                (Kind::Bool, "false") => Value::Bool(false),
                // The reader also accepts numbers as strings.
                _ => Value::String(value.clone()),
            };
            if field.cardinality == Cardinality::List {
                let list = object
                    .entry(part)
                    .or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut().ok_or_else(unknown)?.push(value);
            } else if object.insert(part.to_owned(), value).is_some() {
                return Err(BodyProblem::Field {
                    path: name.clone(),
                    problem: "appears twice".to_owned(),
                });
            }
        }
    }
    Ok(Value::Object(fields).to_string().into_bytes())
}

fn decoded(text: &str) -> Result<String, BodyProblem> {
    // A plus sign is a space in a query. `%2B` is decoded afterwards and stays a plus sign.
    let text = text.replace('+', " ");
    let text = percent_decode_str(&text)
        .decode_utf8()
        .map_err(|_| BodyProblem::Malformed)?;
    Ok(text.into_owned())
}
