//! Messages of Protocol Buffers whose JSON is no object of their fields.

use std::str::FromStr as _;

use prost::Message as _;
use prost_types::{Duration, FieldMask, Timestamp};

use super::schema::Form;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WellKnown {
    /// A time such as `2026-01-31T12:00:00Z`.
    Timestamp,
    /// A number of seconds such as `1.5s`.
    Duration,
    /// Paths of fields, separated by commas.
    FieldMask,
    /// Any message, with its type in `@type`.
    Any,
}

impl WellKnown {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "google.protobuf.Timestamp" => Self::Timestamp,
            "google.protobuf.Duration" => Self::Duration,
            "google.protobuf.FieldMask" => Self::FieldMask,
            "google.protobuf.Any" => Self::Any,
            _ => return None,
        })
    }

    /// Returns the expected form of the JSON.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::Timestamp => "a time such as \"2026-01-31T12:00:00Z\"",
            Self::Duration => "a number of seconds such as \"1.5s\"",
            Self::FieldMask => "names of fields, separated by commas",
            Self::Any => "an object with \"@type\"",
        }
    }

    /// Returns the binary form of a text. `None` for an invalid text.
    pub(super) fn of_text(self, text: &str) -> Option<Vec<u8>> {
        Some(match self {
            Self::Timestamp => Timestamp::from_str(text).ok()?.encode_to_vec(),
            Self::Duration => {
                text.strip_suffix('s')?;
                Duration::from_str(text).ok()?.encode_to_vec()
            }
            Self::FieldMask => {
                let paths = text.split(',').filter(|path| !path.is_empty());
                let paths = paths.map(with_underscores).collect();
                FieldMask { paths }.encode_to_vec()
            }
            Self::Any => return None,
        })
    }

    /// Returns the text of the binary form.
    pub(super) fn text(self, bytes: &[u8], form: Form) -> Option<String> {
        Some(match self {
            Self::Timestamp => Timestamp::decode(bytes).ok()?.to_string(),
            Self::Duration => Duration::decode(bytes).ok()?.to_string(),
            Self::FieldMask => {
                let mask = FieldMask::decode(bytes).ok()?;
                let paths: Vec<_> = match form {
                    Form::Protobuf => mask.paths.iter().map(|path| in_camel_case(path)).collect(),
                    Form::Plain => mask.paths,
                };
                paths.join(",")
            }
            Self::Any => return None,
        })
    }
}

fn with_underscores(path: &str) -> String {
    let mut out = String::with_capacity(path.len() + 4);
    for character in path.chars() {
        if character.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(character.to_ascii_lowercase());
    }
    out
}

fn in_camel_case(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut is_upper = false;
    for character in path.chars() {
        if character == '_' {
            is_upper = true;
        } else if std::mem::take(&mut is_upper) {
            out.push(character.to_ascii_uppercase());
        } else {
            out.push(character);
        }
    }
    out
}
