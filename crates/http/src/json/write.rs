//! Writes the binary form of a message as a JSON text.

use std::borrow::Cow;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::schema::{Cardinality, Field, Form, Kind, Message, MessageIndex, Schema, is_left_out};
use super::well_known::WellKnown;

/// The plain name of an enum's value 0, which is left out.
const UNSPECIFIED: &str = "unspecified";

/// The binary form does not follow the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message does not follow the contract")]
pub(crate) struct MalformedMessage;

/// Writes a message to `out`.
pub(crate) fn write(
    schema: &Schema,
    message: MessageIndex,
    form: Form,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), MalformedMessage> {
    Writer { schema, form }.message(message, bytes, out)
}

#[derive(Clone, Copy)]
struct Writer<'a> {
    schema: &'a Schema,
    form: Form,
}

/// A value of a field as it is encoded.
#[derive(Debug, Clone, Copy)]
enum Encoded<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl Writer<'_> {
    fn message(
        self,
        index: MessageIndex,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedMessage> {
        let message = self.schema.message(index);
        match message.well_known {
            Some(WellKnown::Any) => return self.any(bytes, out),
            Some(kind) => {
                let text = kind.text(bytes, self.form).ok_or(MalformedMessage)?;
                string(&text, out);
                return Ok(());
            }
            None => {}
        }
        out.push(b'{');
        self.fields(message, bytes, "", out)?;
        if out.last() == Some(&b',') {
            out.pop();
        }
        out.push(b'}');
        Ok(())
    }

    /// Writes the fields of a message, each with a comma behind it. `inline` is the full name of the field that is
    /// replaced by these fields.
    fn fields(
        self,
        message: &Message,
        bytes: &[u8],
        inline: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedMessage> {
        let values = fields_of(message, bytes)?;
        let mut values = values.as_slice();
        for (position, field) in message.fields.iter().enumerate() {
            // `fields_of` sorts by position, so the values of one field are adjacent.
            let count = values.iter().take_while(|(of, _)| *of == position).count();
            let (present, rest) = values.split_at(count);
            values = rest;
            let is_plain = self.form == Form::Plain;
            if is_plain && (field.is_hidden || is_left_out(inline, &field.name)) {
                continue;
            }
            if is_plain && field.is_inline {
                if let (Kind::Message(inner), false) = (field.kind, present.is_empty()) {
                    let full_name = format!("{}.{}", message.name, field.name);
                    self.fields(
                        self.schema.message(inner),
                        &merged(present)?,
                        &full_name,
                        out,
                    )?;
                }
                continue;
            }
            self.field(field, present, out)?;
        }
        Ok(())
    }

    /// Writes a field with its name and a comma, or nothing for an absent one.
    fn field(
        self,
        field: &Field,
        values: &[(usize, Encoded<'_>)],
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedMessage> {
        let kind = field.kind(self.form);
        let is_absent = values.is_empty();
        // The plain form shows defaults, so that a reader need not know them.
        if is_absent && (self.form == Form::Protobuf || field.cardinality == Cardinality::Optional)
        {
            return Ok(());
        }
        let start = out.len();
        string(field.name(self.form), out);
        out.push(b':');
        match field.cardinality {
            Cardinality::Implicit | Cardinality::Optional => {
                let zero = match kind {
                    Kind::String | Kind::Bytes | Kind::Json => Encoded::Bytes(&[]),
                    Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => Encoded::Fixed32(0),
                    Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => Encoded::Fixed64(0),
                    // An absent message has returned above, because its field is never `Implicit`.
                    _ => Encoded::Varint(0),
                };
                if let (Kind::Message(inner), [_, _, ..]) = (kind, values) {
                    self.message(inner, &merged(values)?, out)?;
                    out.push(b',');
                    return Ok(());
                }
                // If a scalar field occurs several times, the last value counts.
                let value = values.last().map_or(zero, |(_, value)| *value);
                if self.form == Form::Plain && self.is_unspecified(kind, value) {
                    out.truncate(start);
                    return Ok(());
                }
                if kind == Kind::Json && matches!(value, Encoded::Bytes([])) {
                    // No JSON text is empty, so the field is absent.
                    out.truncate(start);
                    return Ok(());
                }
                self.value(kind, value, out)?;
            }
            Cardinality::List => {
                out.push(b'[');
                for (_, value) in values {
                    self.element(kind, *value, out)?;
                }
                end_list(out, b']');
            }
            Cardinality::Map(key) => {
                out.push(b'{');
                for (_, entry) in values {
                    self.entry((key, kind), *entry, out)?;
                    out.push(b',');
                }
                end_list(out, b'}');
            }
        }
        out.push(b',');
        Ok(())
    }

    /// Returns true for the value of an enum that says nothing.
    fn is_unspecified(self, kind: Kind, value: Encoded<'_>) -> bool {
        let (Kind::Enum(index), Encoded::Varint(0)) = (kind, value) else {
            return false;
        };
        self.schema.enumeration(index).name(0, Form::Plain) == Some(UNSPECIFIED)
    }

    /// Writes the values of a list, each with a comma behind it. Numbers are packed into one value.
    fn element(
        self,
        kind: Kind,
        value: Encoded<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedMessage> {
        let is_packed = !matches!(
            kind,
            Kind::String | Kind::Bytes | Kind::Json | Kind::Message(_)
        );
        let (Encoded::Bytes(mut packed), true) = (value, is_packed) else {
            self.value(kind, value, out)?;
            out.push(b',');
            return Ok(());
        };
        while !packed.is_empty() {
            let value = match kind {
                Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => {
                    take(WireType::ThirtyTwoBit, &mut packed)?
                }
                Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => {
                    take(WireType::SixtyFourBit, &mut packed)?
                }
                _ => take(WireType::Varint, &mut packed)?,
            };
            self.value(kind, value, out)?;
            out.push(b',');
        }
        Ok(())
    }

    fn entry(
        self,
        (key, kind): (Kind, Kind),
        entry: Encoded<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedMessage> {
        let Encoded::Bytes(mut entry) = entry else {
            return Err(MalformedMessage);
        };
        let zero = |kind| match kind {
            Kind::String | Kind::Bytes | Kind::Json | Kind::Message(_) => Encoded::Bytes(&[]),
            _ => Encoded::Varint(0),
        };
        // An encoder leaves out the key or the value of an entry if it is zero.
        let (mut name, mut value) = (zero(key), zero(kind));
        while !entry.is_empty() {
            let (number, wire_type) = decode_key(&mut entry).map_err(|_| MalformedMessage)?;
            let taken = take(wire_type, &mut entry)?;
            match number {
                1 => name = taken,
                2 => value = taken,
                _ => {}
            }
        }
        let start = out.len();
        self.value(key, name, out)?;
        // The keys of an object are strings.
        if out.get(start) != Some(&b'"') {
            out.insert(start, b'"');
            out.push(b'"');
        }
        out.push(b':');
        self.value(kind, value, out)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "integers are stored as their two's complement"
    )]
    fn value(
        self,
        kind: Kind,
        value: Encoded<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedMessage> {
        match (kind, value) {
            (Kind::Bool, Encoded::Varint(value)) => {
                out.extend_from_slice(if value == 0 { b"false" } else { b"true" });
            }
            (Kind::Int32, Encoded::Varint(value)) => number(value as i32, out),
            (Kind::Uint32, Encoded::Varint(value)) => number(value as u32, out),
            (Kind::Sint32, Encoded::Varint(value)) => number(zigzag(value) as i32, out),
            (Kind::Fixed32, Encoded::Fixed32(value)) => number(value, out),
            (Kind::Sfixed32, Encoded::Fixed32(value)) => number(value as i32, out),
            (Kind::Int64, Encoded::Varint(value)) | (Kind::Sfixed64, Encoded::Fixed64(value)) => {
                self.long(value as i64, out);
            }
            (Kind::Uint64, Encoded::Varint(value)) | (Kind::Fixed64, Encoded::Fixed64(value)) => {
                self.long(value, out);
            }
            (Kind::Sint64, Encoded::Varint(value)) => self.long(zigzag(value), out),
            (Kind::Float, Encoded::Fixed32(value)) => {
                // The `f32` has the shorter text: `0.1`, and as `f64` it would be `0.10000000149011612`.
                let value = f32::from_bits(value);
                float(f64::from(value), value, out);
            }
            (Kind::Double, Encoded::Fixed64(value)) => {
                let value = f64::from_bits(value);
                float(value, value, out);
            }
            (Kind::Enum(index), Encoded::Varint(value)) => {
                let known = self.schema.enumeration(index);
                match known.name(value as i32, self.form) {
                    Some(name) => string(name, out),
                    // The mapping of Protocol Buffers writes a value without a name as its number.
                    None => number(value as i32, out),
                }
            }
            (Kind::String, Encoded::Bytes(bytes)) => {
                string(
                    std::str::from_utf8(bytes).map_err(|_| MalformedMessage)?,
                    out,
                );
            }
            (Kind::Bytes, Encoded::Bytes(bytes)) => {
                out.push(b'"');
                let start = out.len();
                let length = base64::encoded_len(bytes.len(), true).ok_or(MalformedMessage)?;
                out.resize(start + length, 0);
                let encoded = STANDARD.encode_slice(bytes, &mut out[start..]);
                encoded.map_err(|_| MalformedMessage)?;
                out.push(b'"');
            }
            (Kind::Json, Encoded::Bytes(bytes)) => {
                // An empty text in a list is no JSON.
                out.extend_from_slice(if bytes.is_empty() { b"null" } else { bytes });
            }
            (Kind::Message(message), Encoded::Bytes(bytes)) => {
                return self.message(message, bytes, out);
            }
            _ => return Err(MalformedMessage),
        }
        Ok(())
    }

    /// Writes a 64-bit integer. The mapping of Protocol Buffers uses strings, because many languages read numbers of JSON
    /// as floating-point numbers. No number of the contract reaches their limit.
    fn long(self, value: impl std::fmt::Display, out: &mut Vec<u8>) {
        match self.form {
            Form::Protobuf => {
                // Writing to a vector cannot fail.
                let _ = write!(out, "\"{value}\"");
            }
            Form::Plain => number(value, out),
        }
    }

    fn any(self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), MalformedMessage> {
        let any: prost_types::Any = prost::Message::decode(bytes).map_err(|_| MalformedMessage)?;
        let name = any.type_url.rsplit('/').next().unwrap_or_default();
        let message = self.schema.find(name).ok_or(MalformedMessage)?;
        let inner = self.schema.message(message);
        out.extend_from_slice(b"{\"@type\":");
        string(&any.type_url, out);
        out.push(b',');
        if inner.well_known.is_some() {
            out.extend_from_slice(b"\"value\":");
            self.message(message, &any.value, out)?;
        } else {
            self.fields(inner, &any.value, "", out)?;
        }
        if out.last() == Some(&b',') {
            out.pop();
        }
        out.push(b'}');
        Ok(())
    }
}

/// Joins the occurrences of a message, as its decoder would merge them.
fn merged<'a>(values: &[(usize, Encoded<'a>)]) -> Result<Cow<'a, [u8]>, MalformedMessage> {
    let parts = values.iter().map(|(_, value)| match value {
        Encoded::Bytes(bytes) => Ok(*bytes),
        _ => Err(MalformedMessage),
    });
    let parts: Vec<_> = parts.collect::<Result<_, _>>()?;
    Ok(match *parts.as_slice() {
        [only] => Cow::Borrowed(only),
        _ => Cow::Owned(parts.concat()),
    })
}

/// Returns the values of a message with the positions of their fields, in the order of the fields.
fn fields_of<'a>(
    message: &Message,
    mut bytes: &'a [u8],
) -> Result<Vec<(usize, Encoded<'a>)>, MalformedMessage> {
    let mut values = Vec::new();
    while !bytes.is_empty() {
        let (number, wire_type) = decode_key(&mut bytes).map_err(|_| MalformedMessage)?;
        let value = take(wire_type, &mut bytes)?;
        if let Some(position) = message.numbered(number) {
            values.push((position, value));
        }
    }
    // Most encoders write fields in order. The stable sort keeps the order of list elements.
    if !values.is_sorted_by_key(|(position, _)| *position) {
        values.sort_by_key(|(position, _)| *position);
    }
    Ok(values)
}

/// Takes a value from the front of `bytes`.
fn take<'a>(wire_type: WireType, bytes: &mut &'a [u8]) -> Result<Encoded<'a>, MalformedMessage> {
    Ok(match wire_type {
        WireType::Varint => Encoded::Varint(decode_varint(bytes).map_err(|_| MalformedMessage)?),
        WireType::SixtyFourBit => {
            let (value, rest) = bytes.split_first_chunk().ok_or(MalformedMessage)?;
            *bytes = rest;
            Encoded::Fixed64(u64::from_le_bytes(*value))
        }
        WireType::ThirtyTwoBit => {
            let (value, rest) = bytes.split_first_chunk().ok_or(MalformedMessage)?;
            *bytes = rest;
            Encoded::Fixed32(u32::from_le_bytes(*value))
        }
        WireType::LengthDelimited => {
            let length = decode_varint(bytes).map_err(|_| MalformedMessage)?;
            let length = usize::try_from(length).map_err(|_| MalformedMessage)?;
            let (value, rest) = bytes.split_at_checked(length).ok_or(MalformedMessage)?;
            *bytes = rest;
            Encoded::Bytes(value)
        }
        WireType::StartGroup | WireType::EndGroup => return Err(MalformedMessage),
    })
}

#[expect(clippy::cast_possible_wrap, reason = "the encoding of signed integers")]
const fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn number(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{value}");
}

fn float(value: f64, shortest: impl std::fmt::Display, out: &mut Vec<u8>) {
    if value.is_nan() {
        string("NaN", out);
    } else if value.is_infinite() {
        string(if value > 0.0 { "Infinity" } else { "-Infinity" }, out);
    } else {
        number(shortest, out);
    }
}

fn string(text: &str, out: &mut Vec<u8>) {
    // Writing to memory cannot fail, and every string has a JSON form.
    let _ = serde_json::to_writer(out, text);
}

/// Ends a list whose values have commas behind them.
fn end_list(out: &mut Vec<u8>, bracket: u8) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(bracket);
}
