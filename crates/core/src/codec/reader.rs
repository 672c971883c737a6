//! The error of a payload with its path, and the helpers that both providers' readers and writers share.

use serde_json::value::RawValue;

use crate::json::{self, JsonError, ObjectFields, UnknownFields};

/// A payload that could not be read: where, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} {error}", path = if path.is_empty() { "the payload" } else { path.as_str() })]
pub struct CodecError {
    /// A path into the payload, such as `messages[3].content[0].source`.
    pub path: String,
    /// What is wrong there.
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

/// Says where an error happened, from the inside out.
pub(super) trait At<T> {
    fn at(self, segment: &str) -> Result<T, CodecError>;
    fn at_index(self, index: usize) -> Result<T, CodecError>;
}

impl<T, E: Into<CodecError>> At<T> for Result<T, E> {
    fn at(self, segment: &str) -> Result<T, CodecError> {
        self.map_err(|error| {
            let error = error.into();
            let path = match error.path.as_str() {
                "" => segment.to_owned(),
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

/// For whom a block is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// A model: what its provider takes.
    Model,
    /// Whoever reads the transcript: everything as it came.
    Transcript,
}

/// The unknown fields and the closing brace, for a model.
pub(super) fn close(out: &mut Vec<u8>, extra: Option<&UnknownFields>) {
    close_for(Audience::Model, out, extra);
}

/// The unknown fields and the closing brace. For a model a cache marker is never among them: markers
/// are placed on request, and must not change the bytes that views are compared by.
pub(super) fn close_for(reader: Audience, out: &mut Vec<u8>, extra: Option<&UnknownFields>) {
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

/// Reads every element of an array, saying which one was wrong.
pub(super) fn each<T>(
    raw: &RawValue,
    mut read: impl FnMut(&RawValue) -> Result<T, CodecError>,
) -> Result<Vec<T>, CodecError> {
    json::array(raw)?
        .into_iter()
        .enumerate()
        .map(|(index, element)| read(element).at_index(index))
        .collect()
}

/// Takes a count of tokens out of a usage object; absent is zero.
pub(super) fn count(fields: &mut ObjectFields<'_>, field: &'static str) -> Result<u64, CodecError> {
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
    raw.get().starts_with('[')
}

pub(super) fn is_string(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}
