//! Errors with paths, and helpers for the readers and writers of both providers.

use serde_json::value::RawValue;

use crate::json::{self, JsonError, ObjectFields, UnknownFields};

/// An error in a payload, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} {error}", path = if path.is_empty() { "the payload" } else { path.as_str() })]
pub struct CodecError {
    /// The path of the invalid value, such as `messages[3].content[0].source`. Empty for the payload itself.
    pub path: String,
    /// The reason for the rejection.
    pub error: JsonError,
}

impl CodecError {
    pub(super) fn new(error: impl Into<JsonError>) -> Self {
        Self {
            path: String::new(),
            error: error.into(),
        }
    }
}

impl From<JsonError> for CodecError {
    fn from(error: JsonError) -> Self {
        Self::new(error)
    }
}

/// Adds path segments to an error, from the innermost to the outermost.
pub(super) trait ErrorPath<T> {
    fn at(self, segment: &str) -> Result<T, CodecError>;
    fn at_index(self, index: usize) -> Result<T, CodecError>;
}

impl<T, E: Into<CodecError>> ErrorPath<T> for Result<T, E> {
    fn at(self, segment: &str) -> Result<T, CodecError> {
        self.map_err(|error| {
            let error = error.into();
            let path = match error.path.as_str() {
                "" => segment.to_owned(),
                // An index follows its array without a dot: `messages[3]`.
                rest if rest.starts_with('[') => format!("{segment}{rest}"),
                rest => format!("{segment}.{rest}"),
            };
            CodecError { path, ..error }
        })
    }

    fn at_index(self, index: usize) -> Result<T, CodecError> {
        self.at(&format!("[{index}]"))
    }
}

/// The audience of a written block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// A model. Only fields that its provider accepts are written.
    Model,
    /// A reader of the transcript. All fields are written in their original form.
    Transcript,
}

/// Writes the unknown fields and the closing brace for a model.
pub(super) fn write_end(out: &mut Vec<u8>, extra: Option<&UnknownFields>) {
    write_end_for(Audience::Model, out, extra);
}

/// Writes the unknown fields and the closing brace. Cache markers are omitted for a model. Breakpoints are placed
/// on request, and must not change the bytes by which views are compared.
pub(super) fn write_end_for(reader: Audience, out: &mut Vec<u8>, extra: Option<&UnknownFields>) {
    for (name, value) in extra.into_iter().flat_map(UnknownFields::iter) {
        if name == "cache_control" && reader == Audience::Model {
            continue;
        }
        out.push(b',');
        json::write_str(out, name);
        out.push(b':');
        out.extend_from_slice(value.as_str().as_bytes());
    }
    out.push(b'}');
}

/// Reads each element of an array. An error contains the index of the element.
pub(super) fn read_array<T>(
    raw: &RawValue,
    mut read: impl FnMut(&RawValue) -> Result<T, CodecError>,
) -> Result<Vec<T>, CodecError> {
    json::array(raw)?
        .into_iter()
        .enumerate()
        .map(|(index, element)| read(element).at_index(index))
        .collect()
}

/// Takes a token count out of a usage object. A missing field is 0.
pub(super) fn read_token_count(
    fields: &mut ObjectFields<'_>,
    field: &'static str,
) -> Result<u64, CodecError> {
    match fields.take(field)? {
        None => Ok(0),
        Some(raw) => serde_json::from_str(raw.get())
            .map_err(|_| JsonError::Kind {
                expected: "a whole number of tokens",
            })
            .at(field),
    }
}

pub(super) fn is_array(raw: &RawValue) -> bool {
    // The text of a `RawValue` has no leading white space, so its first byte decides.
    raw.get().starts_with('[')
}

pub(super) fn is_string(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}
