//! JSON that is kept as its original text.
//!
//! Tool inputs, unknown fields and unknown blocks must leave the service byte for byte as they
//! arrived. Values that the service does not interpret are therefore never parsed into a tree. The
//! meaning of providers' JSON is defined in `codec`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The maximum nesting depth of a value. Providers and many parsers reject deeper values.
pub const MAX_DEPTH: usize = 128;

/// The reason why a text is rejected as JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not UTF-8.
    #[error("is not UTF-8 (first bad byte at {at})")]
    Utf8 {
        /// The offset of the first invalid byte.
        at: usize,
    },
    /// The text is not well-formed JSON.
    #[error("is not JSON: {problem} at line {line}, column {column}")]
    Syntax {
        /// The parser's finding. It never contains any of the text.
        problem: &'static str,
        /// The line, counted from 1.
        line: usize,
        /// The column, counted from 1.
        column: usize,
    },
    /// The value is nested deeper than [`MAX_DEPTH`].
    #[error("nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The text is valid JSON of an unexpected type.
    #[error("must be {expected}")]
    Kind {
        /// The expected type.
        expected: &'static str,
    },
    /// An object contains a field twice.
    #[error("names the field `{field}` twice")]
    Duplicate {
        /// The name of the field. Only known fields are checked, so the error never contains
        /// content.
        field: &'static str,
    },
    /// A required field is missing.
    #[error("lacks the field `{field}`")]
    Missing {
        /// The name of the field.
        field: &'static str,
    },
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        let problem = match error.classify() {
            serde_json::error::Category::Eof => "it ends too early",
            _ => "a syntax error",
        };
        Self::Syntax {
            problem,
            line: error.line(),
            column: error.column(),
        }
    }
}

/// A JSON value as text. The value is well formed, within the depth limit and otherwise unmodified.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Box<str>);

impl RawJson {
    /// Validates a text and stores it.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        // The parser of raw values skips nested values without a limit of its own.
        check_depth(text)?;
        let raw: &RawValue = serde_json::from_str(text)?;
        Ok(Self(raw.get().into()))
    }

    /// Copies a part of a text that was validated as a whole. Performs no check.
    pub fn of(raw: &RawValue) -> Self {
        Self(raw.get().into())
    }

    /// Returns the JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the value is an object.
    pub fn is_object(&self) -> bool {
        self.0.starts_with('{')
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Formats a document over several lines for people to read. The bytes of values and the order of
/// fields do not change.
pub fn pretty_print(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 5 / 4);
    // A byte-level pass instead of a parse: numbers and escapes must keep their spelling.
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut rest = json.chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(c) = rest.next() {
        if in_string {
            out.push(c);
            // A quote ends the string unless it is escaped. A backslash escapes the next character unless it is
            // escaped itself.
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
                // An empty object or array stays on one line.
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

/// Validates a document: UTF-8 and within the depth limit. Lone surrogate escapes are replaced by
/// `\ufffd`.
///
/// A string that was cut in the middle of an emoji contains half of a surrogate pair. Providers
/// reject a whole request for one such half. The replacement is the only change.
pub fn document(bytes: &[u8]) -> Result<Cow<'_, str>, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|error| JsonError::Utf8 {
        at: error.valid_up_to(),
    })?;
    check_depth(text)?;
    Ok(replace_lone_surrogates(text))
}

fn check_depth(text: &str) -> Result<(), JsonError> {
    // A scan of the bytes needs no stack, however deep a hostile text nests.
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
            // The text is not parsed yet, so it can close more brackets than it opens.
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Replaces `\ud800`…`\udfff` escapes that are not part of a pair by `\ufffd`.
fn replace_lone_surrogates(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut lone = Vec::new();
    let mut at = 0;
    while let Some(step) = bytes.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        at += step;
        // An escape that is no surrogate advances by two bytes, so that an escaped backslash does
        // not start another escape.
        match surrogate(bytes, at) {
            // A high and a low half form one character, such as `\ud83d\ude00`.
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
        // An escape such as `\ud83d` has six bytes.
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

/// The fields of an object in their original order. Each value is still text.
pub struct ObjectFields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> ObjectFields<'a> {
    /// Reads the fields of an object. Returns an error for any other type.
    pub fn read(raw: &'a RawValue) -> Result<Self, JsonError> {
        Self::read_str(raw.get())
    }

    /// Reads the fields of an object from a text.
    pub fn read_str(text: &'a str) -> Result<Self, JsonError> {
        // The parser would report a value of another type as a syntax error.
        if !text.trim_start().starts_with('{') {
            return Err(JsonError::Kind {
                expected: "an object",
            });
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Removes a field and returns its value. A `null` counts as absent, as it does for the
    /// providers. Returns an error if the field occurs twice.
    pub fn take(&mut self, field: &'static str) -> Result<Option<&'a RawValue>, JsonError> {
        // The whole object is scanned, because a field that occurs twice must be reported.
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

    /// Returns true if a field exists, with whatever value.
    pub fn contains(&self, field: &str) -> bool {
        self.0.iter().any(|(name, _)| name == field)
    }

    /// Removes a string field and returns it.
    pub fn string(&mut self, field: &'static str) -> Result<Option<Box<str>>, JsonError> {
        self.take(field)?.map(string).transpose()
    }

    /// Removes a required string field and returns it. Returns an error if the field is missing.
    pub fn require_string(&mut self, field: &'static str) -> Result<Box<str>, JsonError> {
        self.string(field)?.ok_or(JsonError::Missing { field })
    }

    /// Returns the fields that were not removed.
    pub fn rest(self) -> UnknownFields {
        UnknownFields::of(self.0)
    }

    /// Returns the fields that were not removed: those for which `is_first` returns true, and the others.
    pub fn rest_around(self, is_first: impl Fn(&'a RawValue) -> bool) -> [UnknownFields; 2] {
        let fields = self.0.into_iter();
        let (first, others): (Vec<_>, Vec<_>) = fields.partition(|(_, value)| is_first(value));
        [first, others].map(UnknownFields::of)
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

/// A field name that borrows from the input. serde borrows a `Cow` only through a field attribute,
/// which a map key cannot have.
struct BorrowedKey<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for BorrowedKey<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
        Key::deserialize(deserializer).map(|key| Self(key.0))
    }
}

/// Decodes a value that must be a string.
pub fn string(raw: &RawValue) -> Result<Box<str>, JsonError> {
    if !raw.get().starts_with('"') {
        return Err(JsonError::Kind {
            expected: "a string",
        });
    }
    Ok(serde_json::from_str::<String>(raw.get())?.into_boxed_str())
}

/// Returns the elements of a value that must be an array.
pub fn array(raw: &RawValue) -> Result<Vec<&RawValue>, JsonError> {
    if !raw.get().starts_with('[') {
        return Err(JsonError::Kind {
            expected: "an array",
        });
    }
    Ok(serde_json::from_str(raw.get())?)
}

/// Fields that the service does not interpret, in their original order and with their original
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct UnknownFields(Box<[(Box<str>, RawJson)]>);

impl UnknownFields {
    fn of(fields: Vec<(Cow<'_, str>, &RawValue)>) -> Self {
        let fields = fields.into_iter();
        let fields = fields.map(|(name, value)| (name.as_ref().into(), RawJson::of(value)));
        Self(fields.collect())
    }

    /// Returns these fields and then the others. `None` if both have a field of one name.
    #[must_use]
    pub fn with_last(&self, others: &Self) -> Option<Self> {
        let is_new = |(name, _): (&str, &RawJson)| self.get(name).is_none();
        let fields = self.0.iter().chain(&others.0).cloned();
        others.iter().all(is_new).then(|| Self(fields.collect()))
    }

    /// Reads an object whose fields are all unknown.
    pub fn from_object(text: &str) -> Result<Self, JsonError> {
        check_depth(text)?;
        Ok(ObjectFields::read_str(text)?.rest())
    }

    /// Returns the fields as a JSON object, or `None` if there are no fields.
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
        // All parts are texts, so the conversion cannot fail.
        String::from_utf8(out).ok()
    }

    /// Adds a field before the others.
    #[must_use]
    pub fn with_first(self, name: &str, value: RawJson) -> Self {
        Self(
            std::iter::once((name.into(), value))
                .chain(self.0)
                .collect(),
        )
    }

    /// Returns an iterator over the names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// Returns the value of a field.
    pub fn get(&self, field: &str) -> Option<&RawJson> {
        self.iter()
            .find_map(|(name, value)| (name == field).then_some(value))
    }

    /// Returns true if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends a string as JSON, with quotes and escapes.
pub fn write_str(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing a string to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretty_printing_changes_only_white_space() {
        let json = r#"[{"b": "a\"{,}:\\" ,"a":[ ],"n":1.50e3,"o":{}},null]"#;
        let expected = "[\n  {\n    \"b\": \"a\\\"{,}:\\\\\",\n    \"a\": [],\n    \"n\": 1.50e3,\n    \"o\": {}\n  },\n  null\n]";
        assert_eq!(pretty_print(json), expected);
    }

    #[test]
    fn a_lone_surrogate_is_replaced_and_a_pair_is_kept() {
        let mended = |text: &str| document(text.as_bytes()).unwrap().into_owned();
        assert_eq!(mended(r#""a\ud83d""#), r#""a\ufffd""#);
        assert_eq!(mended(r#""\ude00b""#), r#""\ufffdb""#);
        assert_eq!(mended(r#""\ud83d\ude00""#), r#""\ud83d\ude00""#);
        assert_eq!(mended(r#""\ud83dx\ude00""#), r#""\ufffdx\ufffd""#);
        // An escaped backslash before `ud83d` is text, not an escape.
        assert_eq!(mended(r#""\\ud83d""#), r#""\\ud83d""#);
    }

    #[test]
    fn depth_is_bounded_and_ignores_brackets_in_strings() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(RawJson::parse(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(
            RawJson::parse(&nested(MAX_DEPTH + 1)),
            Err(JsonError::TooDeep)
        );
        assert!(RawJson::parse(&format!("{:?}", "[".repeat(1000))).is_ok());
    }

    #[test]
    fn unknown_fields_are_preserved() {
        // A tree of numbers would lose `1e400` and the digits of the long number.
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
    fn a_duplicate_field_is_rejected() {
        let mut fields = ObjectFields::read_str(r#"{"type":"a","type":"b"}"#).unwrap();
        assert_eq!(
            fields.take("type").unwrap_err(),
            JsonError::Duplicate { field: "type" }
        );
    }
}
