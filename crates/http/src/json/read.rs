//! Reads a JSON text into the binary form of a message.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::scalar::{ScalarVisitor, put_bytes};
use super::schema::{Cardinality, Field, Form, Kind, MAX_FIELDS, MessageIndex, Schema};
use super::well_known::WellKnown;

/// An error in a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonError {
    /// The path of the value, such as `messages[2].id`. Empty for the whole text.
    pub(crate) path: String,
    /// The problem. It contains no value of the text.
    pub(crate) problem: String,
}

/// Reads a JSON text. Appends the binary form of the message to `out`.
pub(crate) fn read(
    schema: &Schema,
    message: MessageIndex,
    form: Form,
    text: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), JsonError> {
    read_without(schema, message, form, (text, None), out)
}

/// Reads a JSON text that must not have a field: another part of the request contains it.
pub(crate) fn read_without(
    schema: &Schema,
    message: MessageIndex,
    form: Form,
    (text, excluded): (&[u8], Option<&'static str>),
    out: &mut Vec<u8>,
) -> Result<(), JsonError> {
    let at_start = |problem: &str| JsonError {
        path: String::new(),
        problem: problem.to_owned(),
    };
    let text = std::str::from_utf8(text).map_err(|_| at_start("must be UTF-8"))?;
    let reader = Reader {
        schema,
        form,
        excluded,
        path: RefCell::default(),
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let seed = MessageSeed {
        reader: &reader,
        message,
        out,
    };
    let read = seed.deserialize(&mut deserializer);
    read.and_then(|()| deserializer.end())
        .map_err(|error| JsonError {
            path: reader.path(),
            // Errors of data are those of this file. Their position is in the path.
            problem: if error.is_data() {
                problem_of(&error.to_string())
            } else {
                format!(
                    "must be valid JSON (line {}, column {})",
                    error.line(),
                    error.column()
                )
            },
        })
}

/// Returns the problem in the text of an error of data.
fn problem_of(text: &str) -> String {
    // serde_json appends ` at line 1 column 2`. The path of the error replaces this position.
    let end = text.rfind(" at line ").unwrap_or(text.len());
    let text = &text[..end];
    // The text about another type contains the value of the caller.
    let expected = text
        .starts_with("invalid type: ")
        .then(|| text.rsplit_once(", expected "));
    match expected.flatten() {
        Some((_, expected)) => format!("must be {expected}"),
        None => text.to_owned(),
    }
}

struct Reader<'a> {
    schema: &'a Schema,
    form: Form,
    /// The field that the message must not have.
    excluded: Option<&'static str>,
    /// The path of the value that is read. It keeps the path of an error.
    path: RefCell<Vec<Segment>>,
}

enum Segment {
    Name(String),
    Index(usize),
}

impl Reader<'_> {
    fn path(&self) -> String {
        let mut path = String::new();
        for segment in self.path.borrow().iter() {
            match segment {
                Segment::Name(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
                Segment::Index(index) => drop(write!(path, "[{index}]")),
            }
        }
        path
    }

    /// Reads a value below a segment of the path.
    fn below<T, E>(&self, segment: Segment, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.path.borrow_mut().push(segment);
        // After an error, the segment stays. The path of the error is read when the whole reading has ended.
        let read = read()?;
        self.path.borrow_mut().pop();
        Ok(read)
    }
}

/// A message.
struct MessageSeed<'r, 'a> {
    reader: &'r Reader<'a>,
    message: MessageIndex,
    out: &'r mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.reader.schema.message(self.message).well_known {
            None => deserializer.deserialize_map(self),
            Some(WellKnown::Any) => {
                let raw = <&RawValue>::deserialize(deserializer)?;
                self.any(raw).map_err(Error::custom)
            }
            Some(kind) => {
                let text = deserializer.deserialize_str(TextVisitor(kind.expected()))?;
                let bytes = kind.of_text(&text);
                let bytes = bytes
                    .ok_or_else(|| Error::custom(format_args!("must be {}", kind.expected())))?;
                self.out.extend_from_slice(&bytes);
                Ok(())
            }
        }
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self {
            reader,
            message,
            out,
        } = self;
        let descriptor = reader.schema.message(message);
        let mut present = [false; MAX_FIELDS];
        let mut oneofs = 0_u64;
        while let Some(name) = map.next_key_seed(NameSeed)? {
            let name: &str = &name;
            let Some(named) = descriptor.named(name, reader.form) else {
                reader
                    .path
                    .borrow_mut()
                    .push(Segment::Name(name.to_owned()));
                return Err(Error::custom("is not a field of the request"));
            };
            let segment = Segment::Name(name.to_owned());
            let is_outermost = reader.path.borrow().is_empty();
            reader.below(segment, || {
                if is_outermost && reader.excluded == Some(name) {
                    return Err(Error::custom("is a part of the path; leave it out here"));
                }
                // A decoder would replace or extend the first value without an error.
                if std::mem::replace(&mut present[named.ordinal], true) {
                    return Err(Error::custom("appears twice"));
                }
                let (within, inner) = match named.within {
                    None => (None, descriptor),
                    Some((outer, inner)) => (
                        Some(&descriptor.fields[outer]),
                        reader.schema.message(inner),
                    ),
                };
                let field = &inner.fields[named.field];
                // The fields of an inline message follow its number and length, so they are collected first.
                let mut nested = Vec::new();
                let seed = FieldSeed {
                    reader,
                    field,
                    out: if within.is_some() {
                        &mut nested
                    } else {
                        &mut *out
                    },
                };
                let is_set = map.next_value_seed(seed)?;
                // A field of an inline message belongs to the choices of that message, which are not compared here.
                if let Some(oneof) = field.oneof.filter(|_| is_set && within.is_none()) {
                    // A shift by 64 or more would overflow. No message of the contract has so many choices.
                    let bit = 1 << oneof.min(63);
                    if oneofs & bit != 0 {
                        return Err(Error::custom(
                            "cannot be set together with another field of the same choice",
                        ));
                    }
                    oneofs |= bit;
                }
                // Occurrences of a message are merged by its decoder.
                if let Some(within) = within.filter(|_| is_set) {
                    put_bytes(within.number, &nested, out);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl MessageSeed<'_, '_> {
    /// Reads a message with its type.
    fn any(self, raw: &RawValue) -> Result<(), String> {
        let expected = || format!("must be {}", WellKnown::Any.expected());
        let mut fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(raw.get()).map_err(|_| expected())?;
        let Some(serde_json::Value::String(url)) = fields.remove("@type") else {
            return Err(expected());
        };
        let name = url.rsplit('/').next().unwrap_or_default();
        let schema = self.reader.schema;
        let inner = schema.find(name).ok_or("has a type that is not known")?;
        // A well-known type has its text in `value`: `{"@type": "…/google.protobuf.Duration", "value": "1s"}`.
        let value = match schema.message(inner).well_known {
            Some(_) => fields.remove("value").unwrap_or_default(),
            None => fields.into(),
        };
        let mut message = Vec::new();
        let text = value.to_string();
        read(
            schema,
            inner,
            self.reader.form,
            text.as_bytes(),
            &mut message,
        )
        .map_err(|error| format!("has an invalid {}: {}", error.path, error.problem))?;
        put_bytes(1, url.as_bytes(), self.out);
        put_bytes(2, &message, self.out);
        Ok(())
    }
}

/// The name of a field.
struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = std::borrow::Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(TextVisitor("a name"))
    }
}

/// A text.
struct TextVisitor(&'static str);

impl<'de> Visitor<'de> for TextVisitor {
    type Value = std::borrow::Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(text.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.to_owned().into())
    }
}

/// The value of a field. Returns false for `null`, which sets nothing.
struct FieldSeed<'r, 'a> {
    reader: &'r Reader<'a>,
    field: &'r Field,
    out: &'r mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_none<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        let Self { reader, field, out } = self;
        let (number, kind) = (field.number, field.kind(reader.form));
        match field.cardinality {
            Cardinality::Implicit | Cardinality::Optional => {
                let seed = ValueSeed {
                    reader,
                    kind,
                    number,
                    out,
                };
                seed.deserialize(deserializer)?;
            }
            Cardinality::List => {
                deserializer.deserialize_seq(ListVisitor(ValueSeed {
                    reader,
                    kind,
                    number,
                    out,
                }))?;
            }
            Cardinality::Map(key) => {
                deserializer.deserialize_map(EntriesVisitor {
                    reader,
                    key,
                    kind,
                    number,
                    out,
                })?;
            }
        }
        Ok(true)
    }
}

/// The values of a list, of which each is read like the first one.
struct ListVisitor<'r, 'a>(ValueSeed<'r, 'a>);

impl<'de> Visitor<'de> for ListVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        let Self(value) = self;
        for index in 0.. {
            let is_read = value.reader.below(Segment::Index(index), || {
                let seed = ValueSeed {
                    out: &mut *value.out,
                    ..value
                };
                values.next_element_seed(seed)
            })?;
            if is_read.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// The entries of a map.
struct EntriesVisitor<'r, 'a> {
    reader: &'r Reader<'a>,
    key: Kind,
    kind: Kind,
    number: u32,
    out: &'r mut Vec<u8>,
}

impl<'de> Visitor<'de> for EntriesVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self {
            reader,
            key,
            kind,
            number,
            out,
        } = self;
        while let Some(name) = map.next_key_seed(NameSeed)? {
            reader.below(Segment::Name(name.clone().into_owned()), || {
                let mut entry = Vec::new();
                let seed = ValueSeed {
                    reader,
                    kind: key,
                    number: 1,
                    out: &mut entry,
                };
                let visitor = seed.scalar();
                // The names in a JSON object are strings, even for a map with booleans or numbers as keys.
                if key == Kind::Bool {
                    let is_true = name
                        .parse()
                        .map_err(|_| Error::custom("must be true or false"))?;
                    visitor.visit_bool(is_true)?;
                } else {
                    visitor.visit_str(&name)?;
                }
                let seed = ValueSeed {
                    reader,
                    kind,
                    number: 2,
                    out: &mut entry,
                };
                map.next_value_seed(seed)?;
                put_bytes(number, &entry, out);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// One value, with the number of its field.
struct ValueSeed<'r, 'a> {
    reader: &'r Reader<'a>,
    kind: Kind,
    number: u32,
    out: &'r mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.kind {
            Kind::Message(message) => {
                let mut nested = Vec::new();
                let seed = MessageSeed {
                    reader: self.reader,
                    message,
                    out: &mut nested,
                };
                seed.deserialize(deserializer)?;
                put_bytes(self.number, &nested, self.out);
                Ok(())
            }
            Kind::Json => {
                let raw = <&RawValue>::deserialize(deserializer)?;
                put_bytes(self.number, raw.get().as_bytes(), self.out);
                Ok(())
            }
            Kind::Bool => deserializer.deserialize_bool(self.scalar()),
            Kind::String | Kind::Bytes => deserializer.deserialize_str(self.scalar()),
            _ => deserializer.deserialize_any(self.scalar()),
        }
    }
}

impl<'r> ValueSeed<'r, '_> {
    fn scalar(self) -> ScalarVisitor<'r> {
        ScalarVisitor {
            schema: self.reader.schema,
            form: self.reader.form,
            kind: self.kind,
            number: self.number,
            out: self.out,
        }
    }
}
