//! JSON kept as the text it came in.
//!
//! Tool inputs, unknown fields and unknown blocks must leave the service with the bytes with which
//! they entered, so values that we do not need to understand are never parsed into a tree. Not here:
//! what any provider's JSON means (`codec`).

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// How deep a value may nest. Providers refuse deeper ones, and so do many parsers downstream.
pub const MAX_DEPTH: usize = 128;

/// Why a text is not JSON that we take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not UTF-8.
    #[error("is not UTF-8 (first bad byte at {at})")]
    Utf8 {
        /// Offset of the first bad byte.
        at: usize,
    },
    /// Not JSON.
    #[error("is not JSON: {what} at line {line}, column {column}")]
    Syntax {
        /// What the parser found, without any of the text itself.
        what: &'static str,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// JSON, but not of the kind that belongs here.
    #[error("must be {expected}")]
    Kind {
        /// What belongs here.
        expected: &'static str,
    },
    /// An object names a field twice.
    #[error("names the field `{field}` twice")]
    Duplicate {
        /// The field. Only fields that we know are checked, so this never echoes content.
        field: &'static str,
    },
    /// A field that must be there is not.
    #[error("lacks the field `{field}`")]
    Missing {
        /// The field.
        field: &'static str,
    },
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        let what = match error.classify() {
            serde_json::error::Category::Eof => "it ends too early",
            _ => "a syntax error",
        };
        Self::Syntax {
            what,
            line: error.line(),
            column: error.column(),
        }
    }
}

/// A JSON value as text: known to be well formed and not too deep, otherwise untouched.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Box<str>);

impl RawJson {
    /// Checks a text and keeps it.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        check_depth(text)?;
        let raw: &RawValue = serde_json::from_str(text)?;
        Ok(Self(raw.get().into()))
    }

    /// Keeps a part of a text that was checked as a whole.
    pub fn of(raw: &RawValue) -> Self {
        Self(raw.get().into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the value is an object.
    pub fn is_object(&self) -> bool {
        self.0.starts_with('{')
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A document on many lines, for people to read; every value keeps its bytes and every field its place.
pub fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 5 / 4);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut rest = json.chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(c) = rest.next() {
        if in_string {
            out.push(c);
            (in_string, escaped) = (escaped || c != '"', !escaped && c == '\\');
            continue;
        }
        match c {
            '"' => {
                in_string = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(close) = rest.next_if(|c| matches!(c, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

/// The text of a document: UTF-8, not too deep, and with lone surrogate escapes replaced.
///
/// Providers refuse a whole request for one half of a surrogate pair, which is what a string cut in
/// the middle of an emoji leaves behind; so the replacement is the only change that this makes.
pub fn document(bytes: &[u8]) -> Result<Cow<'_, str>, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError::Utf8 {
        at: error.valid_up_to(),
    })?;
    check_depth(text)?;
    Ok(mend_surrogates(text))
}

fn check_depth(text: &str) -> Result<(), JsonError> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(JsonError::TooDeep);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Replaces `\ud800`…`\udfff` escapes that have no partner by `\ufffd`.
fn mend_surrogates(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut lone = Vec::new();
    let mut at = 0;
    while let Some(step) = bytes.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        at += step;
        match surrogate(bytes, at) {
            Some(high) if high < 0xDC00 => match surrogate(bytes, at + 6) {
                Some(low) if low >= 0xDC00 => at += 12,
                _ => {
                    lone.push(at);
                    at += 6;
                }
            },
            Some(_) => {
                lone.push(at);
                at += 6;
            }
            None => at += 2,
        }
    }
    if lone.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut mended = String::with_capacity(text.len());
    let mut from = 0;
    for at in lone {
        mended.push_str(&text[from..at]);
        mended.push_str("\\ufffd");
        from = at + 6;
    }
    mended.push_str(&text[from..]);
    Cow::Owned(mended)
}

fn memchr(needle: u8, haystack: &[u8]) -> Option<usize> {
    haystack.iter().position(|byte| *byte == needle)
}

fn surrogate(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    if &escape[..2] != b"\\u" {
        return None;
    }
    let digits = std::str::from_utf8(&escape[2..]).ok()?;
    let unit = u16::from_str_radix(digits, 16).ok()?;
    (0xD800..0xE000).contains(&unit).then_some(unit)
}

/// An object's fields, in order, each value still as text.
pub struct ObjectFields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> ObjectFields<'a> {
    /// Reads an object; anything else is an error.
    pub fn read(raw: &'a RawValue) -> Result<Self, JsonError> {
        Self::read_str(raw.get())
    }

    /// The same from a text.
    pub fn read_str(text: &'a str) -> Result<Self, JsonError> {
        if !text.trim_start().starts_with('{') {
            return Err(JsonError::Kind {
                expected: "an object",
            });
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Takes a field out. A `null` counts as absent, as it does for the providers.
    pub fn take(&mut self, field: &'static str) -> Result<Option<&'a RawValue>, JsonError> {
        let mut found = None;
        let mut twice = false;
        self.0.retain(|(name, value)| {
            if name != field {
                return true;
            }
            twice |= found.replace(*value).is_some();
            false
        });
        if twice {
            return Err(JsonError::Duplicate { field });
        }
        Ok(found.filter(|value| value.get() != "null"))
    }

    /// Takes a string out.
    pub fn string(&mut self, field: &'static str) -> Result<Option<Box<str>>, JsonError> {
        self.take(field)?.map(string).transpose()
    }

    /// Takes a string out that must be there.
    pub fn require_string(&mut self, field: &'static str) -> Result<Box<str>, JsonError> {
        self.string(field)?.ok_or(JsonError::Missing { field })
    }

    /// What was not taken out.
    pub fn rest(self) -> UnknownFields {
        UnknownFields(
            self.0
                .into_iter()
                .map(|(name, value)| (name.as_ref().into(), RawJson::of(value)))
                .collect(),
        )
    }
}

impl<'de> Deserialize<'de> for ObjectFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = ObjectFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(BorrowedKey(name)) = map.next_key()? {
                    fields.push((name, map.next_value()?));
                }
                Ok(ObjectFields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// serde borrows a `Cow` only when asked through an attribute, which a map's key cannot carry.
struct BorrowedKey<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for BorrowedKey<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
        Key::deserialize(deserializer).map(|key| Self(key.0))
    }
}

/// The string that a value is.
pub fn string(raw: &RawValue) -> Result<Box<str>, JsonError> {
    if !raw.get().starts_with('"') {
        return Err(JsonError::Kind {
            expected: "a string",
        });
    }
    Ok(serde_json::from_str::<String>(raw.get())?.into_boxed_str())
}

/// The elements that an array is made of.
pub fn array(raw: &RawValue) -> Result<Vec<&RawValue>, JsonError> {
    if !raw.get().starts_with('[') {
        return Err(JsonError::Kind {
            expected: "an array",
        });
    }
    Ok(serde_json::from_str(raw.get())?)
}

/// Fields that we do not know, in order, as they came.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct UnknownFields(Box<[(Box<str>, RawJson)]>);

impl UnknownFields {
    /// Reads an object whose every field is unknown to us.
    pub fn from_object(text: &str) -> Result<Self, JsonError> {
        check_depth(text)?;
        Ok(ObjectFields::read_str(text)?.rest())
    }

    /// The object again; nothing when there is no field.
    pub fn to_object(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let mut out = Vec::from(*b"{");
        for (index, (name, value)) in self.0.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_str(&mut out, name);
            out.push(b':');
            out.extend_from_slice(value.as_str().as_bytes());
        }
        out.push(b'}');
        String::from_utf8(out).ok()
    }

    /// The fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// One field's value.
    pub fn get(&self, field: &str) -> Option<&RawJson> {
        self.iter()
            .find_map(|(name, value)| (name == field).then_some(value))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends a string with its quotes.
pub fn write_str(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing a string to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indenting_changes_white_space_alone() {
        let json = r#"[{"b": "a\"{,}:\\" ,"a":[ ],"n":1.50e3,"o":{}},null]"#;
        let expected = "[\n  {\n    \"b\": \"a\\\"{,}:\\\\\",\n    \"a\": [],\n    \"n\": 1.50e3,\n    \"o\": {}\n  },\n  null\n]";
        assert_eq!(indented(json), expected);
    }

    #[test]
    fn a_lone_surrogate_is_mended_and_a_pair_is_left() {
        let mended = |text: &str| document(text.as_bytes()).unwrap().into_owned();
        assert_eq!(mended(r#""a\ud83d""#), r#""a\ufffd""#);
        assert_eq!(mended(r#""\ude00b""#), r#""\ufffdb""#);
        assert_eq!(mended(r#""\ud83d\ude00""#), r#""\ud83d\ude00""#);
        assert_eq!(mended(r#""\ud83dx\ude00""#), r#""\ufffdx\ufffd""#);
        // An escaped backslash before `ud83d` is text, not an escape.
        assert_eq!(mended(r#""\\ud83d""#), r#""\\ud83d""#);
    }

    #[test]
    fn depth_is_bounded_and_brackets_in_strings_do_not_count() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(RawJson::parse(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(
            RawJson::parse(&nested(MAX_DEPTH + 1)),
            Err(JsonError::TooDeep)
        );
        assert!(RawJson::parse(&format!("{:?}", "[".repeat(1000))).is_ok());
    }

    #[test]
    fn unknown_fields_come_out_as_they_went_in() {
        let text = r#"{"n":1e400,"big":12345678901234567890123,"s":"\u00e9","o":{ "a" : 1 }}"#;
        assert_eq!(
            UnknownFields::from_object(text)
                .unwrap()
                .to_object()
                .unwrap(),
            text
        );
    }

    #[test]
    fn a_known_field_named_twice_is_refused() {
        let mut fields = ObjectFields::read_str(r#"{"type":"a","type":"b"}"#).unwrap();
        assert_eq!(
            fields.take("type").unwrap_err(),
            JsonError::Duplicate { field: "type" }
        );
    }
}
