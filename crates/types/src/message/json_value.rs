//! Hashes JSON by value: white space, the order of keys, and the spelling of strings and numbers do
//! not count.
//!
//! The text is read once, from the start to the end, and no tree is built. Every [`RawJson`] is well
//! formed, so the scanner detects no errors. It ends on any text.

use std::borrow::Cow;

use super::hasher::{Digest, Hasher};
use crate::json::RawJson;

const LITERAL: u8 = 0;
const NUMBER: u8 = 1;
const STRING: u8 = 2;
const ARRAY: u8 = 3;
const OBJECT: u8 = 4;
const END: u8 = 5;

/// The name of the field that marks the end of a cached prefix.
pub(super) const CACHE_MARKER: &str = "cache_control";

/// The treatment of keys that are named like a cache marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheMarkers {
    /// They do not count at any depth.
    Ignored,
    /// They count as any other key, for example in the arguments of a tool.
    Counted,
}

/// Adds a value to a hash.
pub(super) fn hash_json_value(json: &RawJson, markers: CacheMarkers, hasher: &mut Hasher) {
    let mut scanner = Scanner {
        bytes: json.as_str().as_bytes(),
        at: 0,
        markers,
    };
    scanner.value(hasher);
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    markers: CacheMarkers,
}

impl<'a> Scanner<'a> {
    fn value(&mut self, hasher: &mut Hasher) {
        self.skip_separators();
        match self.bytes.get(self.at) {
            Some(b'{') => self.object(hasher),
            Some(b'[') => self.array(hasher),
            Some(b'"') => {
                hasher.tag(STRING);
                hasher.bytes(&self.string());
            }
            _ => scalar(self.word(), hasher),
        }
    }

    fn array(&mut self, hasher: &mut Hasher) {
        hasher.tag(ARRAY);
        self.at += 1;
        while !self.closes(b']') {
            self.value(hasher);
        }
        hasher.tag(END);
    }

    fn object(&mut self, hasher: &mut Hasher) {
        self.at += 1;
        // Members are sorted by key, so each value is hashed alone first. The sort is stable: of equal keys, parsers
        // take the last one, so their order counts.
        let mut members: Vec<(Cow<'a, [u8]>, Digest)> = Vec::new();
        while !self.closes(b'}') {
            let name = self.string();
            let mut value = Hasher::new();
            self.value(&mut value);
            if self.markers == CacheMarkers::Counted || *name != *CACHE_MARKER.as_bytes() {
                members.push((name, value.finish()));
            }
        }
        members.sort_by(|(one, _), (other, _)| one.cmp(other));
        hasher.tag(OBJECT);
        hasher.length(members.len());
        for (name, value) in members {
            hasher.bytes(&name);
            hasher.update(value.as_bytes());
        }
    }

    /// Returns true and skips the bracket if the array or object ends here, or if the text ends.
    fn closes(&mut self, bracket: u8) -> bool {
        self.skip_separators();
        let next = self.bytes.get(self.at);
        let closes = next.is_none_or(|byte| *byte == bracket);
        self.at += usize::from(closes);
        closes
    }

    fn skip_separators(&mut self) {
        // The text is well formed, so commas and colons carry no information.
        while let Some(b' ' | b'\t' | b'\n' | b'\r' | b',' | b':') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    /// Reads a literal or a number. Reads at least one byte, so that every loop ends.
    fn word(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let is_part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        self.at += length.max(1);
        &rest[..length]
    }

    /// Reads a string without its quotes and escapes. The scanner is at the opening quote.
    fn string(&mut self) -> Cow<'a, [u8]> {
        self.at += 1;
        let mut text: Cow<'a, [u8]> = Cow::Borrowed(&[]);
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let is_special = |byte: &u8| matches!(byte, b'"' | b'\\');
            let plain = rest.iter().position(is_special).unwrap_or(rest.len());
            // A string without escapes, the usual case, is not copied.
            if text.is_empty() {
                text = Cow::Borrowed(&rest[..plain]);
            } else {
                text.to_mut().extend_from_slice(&rest[..plain]);
            }
            self.at += plain + 1;
            match rest.get(plain) {
                Some(b'\\') => self.escape(text.to_mut()),
                _ => return text,
            }
        }
    }

    /// Reads an escape after its backslash.
    fn escape(&mut self, out: &mut Vec<u8>) {
        let kind = self.bytes.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        match kind {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'b' => out.push(0x08),
            b'f' => out.push(0x0C),
            b'u' => self.unicode_escape(out),
            other => out.push(other),
        }
    }

    fn unicode_escape(&mut self, out: &mut Vec<u8>) {
        let unit = self.hex_unit();
        if (0xD800..0xDC00).contains(&unit) && self.bytes.get(self.at..self.at + 2) == Some(br"\u")
        {
            let before = self.at;
            self.at += 2;
            let low = self.hex_unit();
            if (0xDC00..0xE000).contains(&low) {
                push_code_point(0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00), out);
                return;
            }
            // The second escape is no low half, so it is read again as a character of its own.
            self.at = before;
        }
        push_code_point(unit, out);
    }

    fn hex_unit(&mut self) -> u32 {
        let digits = self.bytes.get(self.at..self.at + 4).unwrap_or_default();
        self.at += 4;
        let text = std::str::from_utf8(digits).unwrap_or_default();
        u32::from_str_radix(text, 16).unwrap_or_default()
    }
}

/// Appends a code point as UTF-8. Half of a surrogate pair has no UTF-8 form, so its three bytes follow the same scheme.
fn push_code_point(code: u32, out: &mut Vec<u8>) {
    if let Some(char) = char::from_u32(code) {
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        return;
    }
    let [_, _, high, low] = code.to_be_bytes();
    out.extend_from_slice(&[
        0xE0 | (high >> 4),
        0x80 | ((high & 0x0F) << 2) | (low >> 6),
        0x80 | (low & 0x3F),
    ]);
}

/// Hashes a literal or a number.
fn scalar(text: &[u8], hasher: &mut Hasher) {
    if let Some(number) = Number::parse(text) {
        hasher.tag(NUMBER);
        hasher.tag(u8::from(number.is_negative));
        hasher.update(&number.exponent.to_le_bytes());
        hasher.bytes(&number.digits);
    } else {
        // A number with an exponent beyond 64 bits is compared as text.
        hasher.tag(LITERAL);
        hasher.bytes(text);
    }
}

/// A number as sign, digits and exponent, without a loss of precision.
#[derive(Debug, PartialEq, Eq)]
struct Number {
    is_negative: bool,
    /// The significant digits. They neither begin nor end with 0. Empty for zero.
    digits: Vec<u8>,
    /// The power of ten of the last digit. 0 for zero.
    exponent: i64,
}

impl Number {
    fn parse(text: &[u8]) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if !text.first().is_some_and(u8::is_ascii_digit) {
            return None;
        }
        let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (&text[..at], std::str::from_utf8(&text[at + 1..]).ok()?),
            None => (text, "0"),
        };
        let mut exponent: i64 = exponent.parse().ok()?;
        let mut digits = mantissa.to_vec();
        // For `1.50`, the digits become `150` and the exponent -2. Without the zero, they are `15` and -1.
        if let Some(point) = digits.iter().position(|byte| *byte == b'.') {
            digits.remove(point);
            let fraction = i64::try_from(digits.len() - point).ok()?;
            exponent = exponent.checked_sub(fraction)?;
        }
        while digits.pop_if(|last| *last == b'0').is_some() {
            exponent = exponent.checked_add(1)?;
        }
        let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
        digits.drain(..zeros);
        let is_zero = digits.is_empty();
        Some(Self {
            is_negative: is_negative && !is_zero,
            digits,
            exponent: if is_zero { 0 } else { exponent },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn digest(text: &str, markers: CacheMarkers) -> Digest {
        let mut hasher = Hasher::new();
        hash_json_value(&RawJson::parse(text).unwrap(), markers, &mut hasher);
        hasher.finish()
    }

    #[track_caller]
    fn check(one: &str, other: &str, are_equal: bool) {
        let of = |text| digest(text, CacheMarkers::Counted);
        assert_eq!(of(one) == of(other), are_equal, "{one} and {other}");
    }

    #[test]
    fn numbers_are_compared_by_value() {
        for same in ["1", "1.0", "1e0", "10E-1", "0.1e+1", "1.000e0"] {
            check(same, "1", true);
        }
        for zero in ["0", "-0", "0.0", "-0e9"] {
            check(zero, "0", true);
        }
        for (one, other) in [
            ("1", "-1"),
            ("1", "10"),
            ("1e400", "1e401"),
            // The numbers of the next two pairs are equal as 64-bit floating-point numbers.
            ("12345678901234567890123", "12345678901234567890124"),
            ("0.1", "0.10000000000000001"),
            ("1", "true"),
            ("0", "null"),
            ("1", "\"1\""),
            ("1e99999999999999999999", "1e99999999999999999998"),
        ] {
            check(one, other, false);
        }
    }

    #[test]
    fn strings_are_compared_without_escapes() {
        check(r#""a\u00e9\n\/\u0022""#, "\"aé\\n/\\\"\"", true);
        check(r#""\ud83d\ude00""#, "\"\u{1F600}\"", true);
        check(r#""\ud83d""#, r#""\uD83D""#, true);
        check(r#""\ud83d""#, r#""\ud83e""#, false);
        check(r#""\ud83dx""#, r#""\ud83d\u0078""#, true);
        check(r#""\ud83d\u0041""#, r#""\ud83dA""#, true);
    }

    #[test]
    fn the_order_of_equal_keys_counts() {
        check(r#"{"a":1,"b":2,"a":3}"#, r#"{"a":1,"a":3,"b":2}"#, true);
        check(r#"{"a":1,"a":3}"#, r#"{"a":3,"a":1}"#, false);
    }

    #[test]
    fn containers_have_distinct_encodings() {
        let all = [
            "[]", "{}", "[[]]", "[[],[]]", "[{}]", "[null]", r#"[""]"#, r#"{"":[]}"#, "[[1],2]",
            "[[1,2]]",
        ];
        for (index, one) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                check(one, other, false);
            }
        }
    }

    #[test]
    fn cache_markers_are_ignored_at_any_depth_on_request() {
        let of = |text| digest(text, CacheMarkers::Ignored);
        let marked = r#"{"a":[{"b":1,"cache\u005fcontrol":{}}],"cache_control":null}"#;
        assert_eq!(of(marked), of(r#"{"a":[{"b":1}]}"#));
        check(marked, r#"{"a":[{"b":1}]}"#, false);
    }

    #[derive(Debug, Clone, PartialEq)]
    enum Value {
        Word(&'static str),
        Number(i32),
        Text(String),
        Array(Vec<Self>),
        Object(BTreeMap<String, Self>),
    }

    /// Generates values from few texts and numbers, so that two values are often equal or nearly equal.
    fn value() -> impl Strategy<Value = Value> {
        let text = || prop::sample::select(vec!["", "a", "b\n", "é\"", "\u{1F600}"]);
        let leaf = prop_oneof![
            prop::sample::select(vec!["null", "true", "false"]).prop_map(Value::Word),
            prop::sample::select(vec![0, 1, -1, 10, 120]).prop_map(Value::Number),
            text().prop_map(|text| Value::Text(text.to_owned())),
        ];
        leaf.prop_recursive(3, 12, 3, move |inner| {
            let key = text().prop_map(str::to_owned);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                prop::collection::btree_map(key, inner, 0..4).prop_map(Value::Object),
            ]
        })
    }

    /// Writes a value. `choices` selects white space, the order of keys, and the spelling of strings and numbers.
    fn spell(value: &Value, choices: &mut dyn Iterator<Item = u8>, out: &mut String) {
        // Without a further choice, the first spelling is used.
        let mut choose = |options: &[&str]| {
            let choice = choices.next().map_or(0, usize::from);
            options[choice % options.len()].to_owned()
        };
        out.push_str(&choose(&["", " ", "\n\t"]));
        match value {
            Value::Word(word) => out.push_str(word),
            Value::Number(number) => {
                let forms = [
                    format!("{number}"),
                    format!("{number}.00"),
                    format!("{}e-1", number * 10),
                    format!("{number}E+0"),
                ];
                out.push_str(&choose(&forms.each_ref().map(String::as_str)));
            }
            Value::Text(text) => {
                // Every character is escaped. One beyond 16 bits becomes two escapes.
                let mut escaped = String::new();
                for unit in text.encode_utf16() {
                    write!(escaped, "\\u{unit:04x}").unwrap();
                }
                let plain = serde_json::to_string(text).unwrap();
                out.push_str(&choose(&[&plain, &format!("\"{escaped}\"")]));
            }
            Value::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    spell(item, choices, out);
                }
                out.push(']');
            }
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                let by = choices.next().map_or(0, usize::from);
                let count = members.len().max(1);
                members.rotate_left(by % count);
                if by > 127 {
                    members.reverse();
                }
                out.push('{');
                for (index, (name, item)) in members.into_iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    spell(&Value::Text(name.clone()), choices, out);
                    out.push_str(" :");
                    spell(item, choices, out);
                }
                out.push('}');
            }
        }
    }

    fn spelled(value: &Value, choices: &[u8]) -> String {
        let mut out = String::new();
        spell(value, &mut choices.iter().copied().cycle(), &mut out);
        out
    }

    proptest! {
        #[test]
        fn digests_are_equal_if_and_only_if_values_are(
            one in value(),
            other in value(),
            choices in prop::collection::vec(any::<u8>(), 1..40),
        ) {
            let plain = spelled(&one, &[0]);
            let of = |text: &str| digest(text, CacheMarkers::Counted);
            prop_assert_eq!(of(&plain), of(&spelled(&one, &choices)));
            prop_assert_eq!(of(&plain) == of(&spelled(&other, &choices)), one == other);
        }

        #[test]
        fn the_scanner_ends_on_any_text(text in any::<String>()) {
            let mut scanner = Scanner { bytes: text.as_bytes(), at: 0, markers: CacheMarkers::Ignored };
            scanner.value(&mut Hasher::new());
        }
    }
}
