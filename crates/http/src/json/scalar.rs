//! Reads a value that is no message into the binary form of its field.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::encoding::{WireType, encode_key, encode_varint};
use serde::de::{Error, Visitor};

use super::schema::{Form, Kind, Schema};

/// The value of a field, which is appended with the number of the field.
pub(super) struct ScalarVisitor<'r> {
    pub(super) schema: &'r Schema,
    pub(super) form: Form,
    pub(super) kind: Kind,
    pub(super) number: u32,
    pub(super) out: &'r mut Vec<u8>,
}

impl Visitor<'_> for ScalarVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Bool => "true or false",
            Kind::String => "a string",
            Kind::Bytes => "a string in base64",
            Kind::Enum(_) => "the name of a value",
            Kind::Float | Kind::Double => "a number",
            _ => "an integer",
        })
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        if self.kind != Kind::Bool {
            return Err(self.mismatch());
        }
        self.varint(value.into());
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.integer(i128::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.integer(i128::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        if matches!(self.kind, Kind::Float | Kind::Double) {
            self.float(value);
            return Ok(());
        }
        // The mapping of Protocol Buffers accepts integers with an exponent or an empty fraction.
        if value.fract() != 0.0 || value.abs() >= 9_007_199_254_740_992.0 {
            return Err(self.mismatch());
        }
        #[expect(clippy::cast_possible_truncation, reason = "an integer below 2^53")]
        self.integer(value as i128)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.kind {
            Kind::String => put_bytes(self.number, text.as_bytes(), self.out),
            Kind::Bytes => match of_base64(text) {
                Some(bytes) => put_bytes(self.number, &bytes, self.out),
                None => return Err(self.mismatch()),
            },
            Kind::Enum(index) => match self.schema.enumeration(index).number(text, self.form) {
                Some(number) => return self.integer(number.into()),
                None => return Err(Error::custom("is not the name of a value")),
            },
            Kind::Float | Kind::Double => {
                let value = match text {
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    "-Infinity" => f64::NEG_INFINITY,
                    // `parse` accepts `inf` and `nan` too, which the mapping of Protocol Buffers does not have.
                    _ => match text.parse::<f64>() {
                        Ok(value) if value.is_finite() => value,
                        _ => return Err(self.mismatch()),
                    },
                };
                self.float(value);
            }
            Kind::Bool | Kind::Json | Kind::Message(_) => return Err(self.mismatch()),
            _ => match text.parse::<i128>() {
                Ok(value) => return self.integer(value),
                Err(_) => return Err(self.mismatch()),
            },
        }
        Ok(())
    }
}

impl ScalarVisitor<'_> {
    fn mismatch<E: Error>(&self) -> E {
        struct Expected<'r, 's>(&'r ScalarVisitor<'s>);
        impl fmt::Display for Expected<'_, '_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("must be ")?;
                self.0.expecting(f)
            }
        }
        E::custom(Expected(self))
    }

    fn varint(self, value: u64) {
        encode_key(self.number, WireType::Varint, self.out);
        encode_varint(value, self.out);
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the field has this precision"
    )]
    fn float(self, value: f64) {
        if self.kind == Kind::Float {
            encode_key(self.number, WireType::ThirtyTwoBit, self.out);
            self.out.extend_from_slice(&(value as f32).to_le_bytes());
        } else {
            encode_key(self.number, WireType::SixtyFourBit, self.out);
            self.out.extend_from_slice(&value.to_le_bytes());
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the ranges are checked, and negative integers are stored as their two's complement"
    )]
    fn integer<E: Error>(self, value: i128) -> Result<(), E> {
        let range = match self.kind {
            Kind::Float | Kind::Double => {
                self.float(value as f64);
                return Ok(());
            }
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Enum(_) => {
                i128::from(i32::MIN)..=i128::from(i32::MAX)
            }
            Kind::Uint32 | Kind::Fixed32 => 0..=i128::from(u32::MAX),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                i128::from(i64::MIN)..=i128::from(i64::MAX)
            }
            Kind::Uint64 | Kind::Fixed64 => 0..=i128::from(u64::MAX),
            _ => return Err(self.mismatch()),
        };
        if !range.contains(&value) {
            return Err(Error::custom(format_args!(
                "must be from {} to {}",
                range.start(),
                range.end()
            )));
        }
        match self.kind {
            Kind::Sint32 | Kind::Sint64 => {
                // Zigzag: 0, -1, 1, -2 become 0, 1, 2, 3, so that small negative numbers stay short.
                let value = value as i64;
                self.varint(((value << 1) ^ (value >> 63)) as u64);
            }
            Kind::Fixed32 | Kind::Sfixed32 => {
                encode_key(self.number, WireType::ThirtyTwoBit, self.out);
                self.out.extend_from_slice(&(value as u32).to_le_bytes());
            }
            Kind::Fixed64 | Kind::Sfixed64 => {
                encode_key(self.number, WireType::SixtyFourBit, self.out);
                self.out.extend_from_slice(&(value as u64).to_le_bytes());
            }
            // The binary form extends a negative `int32` to 64 bits.
            _ => self.varint(value as i64 as u64),
        }
        Ok(())
    }
}

/// Appends a field with bytes.
pub(crate) fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Decodes base64 with either alphabet, with or without padding.
fn of_base64(text: &str) -> Option<Vec<u8>> {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const ENGINE: GeneralPurpose = GeneralPurpose::new(&STANDARD, CONFIG);
    const URL_ENGINE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, CONFIG);
    if text.contains(['-', '_']) {
        URL_ENGINE.decode(text).ok()
    } else {
        ENGINE.decode(text).ok()
    }
}
