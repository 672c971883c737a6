//! The messages of the contract, compiled for reading and writing JSON.

use std::collections::HashMap;

use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, MessageDescriptor};

use super::well_known::WellKnown;

/// A form of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The JSON mapping of Protocol Buffers, for generated clients.
    Protobuf,
    /// The form of the REST API: names with underscores, short names of enum values, numbers for 64-bit integers, and
    /// JSON of providers as JSON instead of base64.
    Plain,
}

/// Messages whose fields stand in place of the field that contains them, in the plain form. The second list contains the
/// fields of the message that are left out.
const INLINE: [(&str, &[&str]); 2] = [
    (
        "palimpsest.context.v1.SyncContextRequest.payload",
        &["json"],
    ),
    ("palimpsest.context.v1.SyncContextResponse.context", &[]),
];

/// The type of the field that selects typed messages or JSON. The plain form contains JSON only.
const MESSAGE_FORM: &str = "palimpsest.context.v1.MessageForm";

/// The reason for a contract that cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    #[error("cannot read the descriptors of the contract: {0}")]
    Descriptors(#[from] prost_reflect::DescriptorError),
    #[error("{0} has a type without a JSON form")]
    Type(String),
    #[error("{0} has more fields than a reader can track")]
    TooManyFields(String),
    #[error("{0} is the name of two fields")]
    Name(String),
}

/// The position of a message in [`Schema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct MessageIndex(usize);

/// All messages of the contract.
#[derive(Debug)]
pub(crate) struct Schema {
    messages: Vec<Message>,
    enums: Vec<Enum>,
    by_name: HashMap<String, MessageIndex>,
}

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) name: String,
    pub(crate) well_known: Option<WellKnown>,
    /// Sorted by their numbers.
    pub(crate) fields: Vec<Field>,
    protobuf_names: HashMap<String, NamedField>,
    plain_names: HashMap<String, NamedField>,
}

/// A field by its name in JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedField {
    /// The position among the fields with a name.
    pub(super) ordinal: usize,
    pub(super) field: usize,
    /// The field of an inline message that contains the field.
    pub(super) within: Option<(usize, MessageIndex)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// The name in the contract.
    pub(crate) name: String,
    protobuf_name: String,
    plain_name: String,
    pub(crate) kind: Kind,
    pub(crate) cardinality: Cardinality,
    /// The position of the `oneof` of the field, if it is in one.
    pub(super) oneof: Option<u32>,
    /// True if the plain form does not have the field.
    pub(crate) is_hidden: bool,
    /// True if the plain form has the fields of the message in place of this field.
    pub(crate) is_inline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cardinality {
    /// A field that is always present. Zero is its default.
    Implicit,
    /// A field that can be absent.
    Optional,
    List,
    /// A map with keys of the kind.
    Map(Kind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Float,
    Double,
    String,
    Bytes,
    /// Bytes that contain a JSON text.
    Json,
    Enum(usize),
    Message(MessageIndex),
}

#[derive(Debug)]
pub(crate) struct Enum {
    pub(crate) values: Vec<EnumValue>,
}

#[derive(Debug)]
pub(crate) struct EnumValue {
    pub(crate) number: i32,
    name: String,
    plain_name: String,
}

/// Returns the short name of an enum value: `SYNC_OUTCOME_NEW` of `SyncOutcome` is `new`.
pub(crate) fn shown_enum_name(prefix: &str, name: &str) -> String {
    name.strip_prefix(prefix)
        .unwrap_or(name)
        .to_ascii_lowercase()
}

impl Schema {
    /// Compiles all messages of a pool.
    pub(crate) fn new(pool: &DescriptorPool) -> Result<Self, SchemaError> {
        let descriptors: Vec<_> = pool
            .all_messages()
            .filter(|one| !one.is_map_entry())
            .collect();
        let enums: Vec<_> = pool.all_enums().collect();
        let indexes = Indexes {
            messages: indexes(descriptors.iter().map(MessageDescriptor::full_name)),
            enums: indexes(enums.iter().map(EnumDescriptor::full_name)),
        };
        let messages = descriptors.iter().map(|one| message(one, &indexes));
        let mut schema = Self {
            messages: messages.collect::<Result<_, _>>()?,
            enums: enums.iter().map(enumeration).collect(),
            by_name: indexes
                .messages
                .into_iter()
                .map(|(name, index)| (name, MessageIndex(index)))
                .collect(),
        };
        // The names of an inline field are those of another message, so all messages must exist before.
        for index in 0..schema.messages.len() {
            let plain = schema.names(MessageIndex(index), Form::Plain)?;
            let protobuf = schema.names(MessageIndex(index), Form::Protobuf)?;
            schema.messages[index].plain_names = plain;
            schema.messages[index].protobuf_names = protobuf;
        }
        Ok(schema)
    }

    pub(crate) fn find(&self, name: &str) -> Option<MessageIndex> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn message(&self, index: MessageIndex) -> &Message {
        &self.messages[index.0]
    }

    /// Returns a field of a message by its name.
    pub(crate) fn field_named(
        &self,
        index: MessageIndex,
        name: &str,
        form: Form,
    ) -> Option<&Field> {
        let named = self.message(index).named(name, form)?;
        named
            .within
            .is_none()
            .then(|| &self.message(index).fields[named.field])
    }

    pub(crate) fn enumeration(&self, index: usize) -> &Enum {
        &self.enums[index]
    }

    /// Collects the names of a message's fields.
    fn names(
        &self,
        index: MessageIndex,
        form: Form,
    ) -> Result<HashMap<String, NamedField>, SchemaError> {
        let message = self.message(index);
        let mut names = HashMap::new();
        let mut ordinal = 0;
        for (position, field) in message.fields.iter().enumerate() {
            if form == Form::Plain && field.is_inline {
                let Kind::Message(inner) = field.kind else {
                    return Err(SchemaError::Type(format!(
                        "{}.{}",
                        message.name, field.name
                    )));
                };
                let full_name = format!("{}.{}", message.name, field.name);
                for (inside, inner_field) in self.message(inner).fields.iter().enumerate() {
                    if inner_field.is_hidden || is_left_out(&full_name, &inner_field.name) {
                        continue;
                    }
                    let found = NamedField {
                        ordinal,
                        field: inside,
                        within: Some((position, inner)),
                    };
                    add(&mut names, inner_field.name(form), found, &message.name)?;
                    ordinal += 1;
                }
                continue;
            }
            if form == Form::Plain && field.is_hidden {
                continue;
            }
            let found = NamedField {
                ordinal,
                field: position,
                within: None,
            };
            add(&mut names, field.name(form), found, &message.name)?;
            if form == Form::Protobuf && field.name != field.protobuf_name {
                // The mapping of Protocol Buffers accepts both names.
                // They share an ordinal, so an object with both is rejected as a repetition.
                add(&mut names, &field.name, found, &message.name)?;
            }
            ordinal += 1;
        }
        if ordinal > MAX_FIELDS {
            return Err(SchemaError::TooManyFields(message.name.clone()));
        }
        Ok(names)
    }
}

/// The maximum number of fields of a message.
pub(super) const MAX_FIELDS: usize = 128;

/// Returns true if a field of an inline message is left out.
pub(crate) fn is_left_out(inline: &str, field: &str) -> bool {
    INLINE
        .iter()
        .any(|(name, left_out)| *name == inline && left_out.contains(&field))
}

fn add(
    names: &mut HashMap<String, NamedField>,
    name: &str,
    field: NamedField,
    message: &str,
) -> Result<(), SchemaError> {
    match names.insert(name.to_owned(), field) {
        Some(_) => Err(SchemaError::Name(format!("{message}.{name}"))),
        None => Ok(()),
    }
}

impl Message {
    pub(super) fn named(&self, name: &str, form: Form) -> Option<NamedField> {
        let names = match form {
            Form::Protobuf => &self.protobuf_names,
            Form::Plain => &self.plain_names,
        };
        names.get(name).copied()
    }

    /// Returns the position of a field.
    pub(crate) fn numbered(&self, number: u32) -> Option<usize> {
        self.fields
            .binary_search_by_key(&number, |field| field.number)
            .ok()
    }
}

impl Field {
    pub(crate) fn name(&self, form: Form) -> &str {
        match form {
            Form::Protobuf => &self.protobuf_name,
            Form::Plain => &self.plain_name,
        }
    }

    /// Returns the kind in a form of JSON.
    pub(crate) fn kind(&self, form: Form) -> Kind {
        match (self.kind, form) {
            (Kind::Json, Form::Protobuf) => Kind::Bytes,
            (kind, _) => kind,
        }
    }
}

impl Enum {
    pub(super) fn number(&self, name: &str, form: Form) -> Option<i32> {
        let is_named = |value: &&EnumValue| {
            value.name == name || form == Form::Plain && value.plain_name == name
        };
        self.values.iter().find(is_named).map(|value| value.number)
    }

    pub(super) fn name(&self, number: i32, form: Form) -> Option<&str> {
        let value = self.values.iter().find(|value| value.number == number)?;
        Some(value.name(form))
    }
}

impl EnumValue {
    pub(crate) fn name(&self, form: Form) -> &str {
        match form {
            Form::Protobuf => &self.name,
            Form::Plain => &self.plain_name,
        }
    }
}

struct Indexes {
    messages: HashMap<String, usize>,
    enums: HashMap<String, usize>,
}

fn indexes<'a>(names: impl Iterator<Item = &'a str>) -> HashMap<String, usize> {
    names
        .enumerate()
        .map(|(index, name)| (name.to_owned(), index))
        .collect()
}

fn message(descriptor: &MessageDescriptor, indexes: &Indexes) -> Result<Message, SchemaError> {
    let well_known = WellKnown::named(descriptor.full_name());
    let fields = descriptor.fields().map(|one| field(&one, indexes));
    let mut fields: Vec<Field> = fields.collect::<Result<_, _>>()?;
    fields.sort_by_key(|field| field.number);
    // A typed field beside a field with JSON has the same content, and the plain form contains JSON only.
    let json: Vec<String> = fields
        .iter()
        .filter(|field| field.kind == Kind::Json)
        .map(|field| field.plain_name.clone())
        .collect();
    for field in &mut fields {
        field.is_hidden |= field.kind != Kind::Json && json.contains(&field.plain_name);
    }
    Ok(Message {
        name: descriptor.full_name().to_owned(),
        well_known,
        fields,
        protobuf_names: HashMap::new(),
        plain_names: HashMap::new(),
    })
}

fn field(descriptor: &FieldDescriptor, indexes: &Indexes) -> Result<Field, SchemaError> {
    let full_name = descriptor.full_name();
    let (value, cardinality) = match descriptor.kind() {
        prost_reflect::Kind::Message(entry) if descriptor.is_map() => {
            let key = kind(&entry.map_entry_key_field(), indexes)?;
            (entry.map_entry_value_field(), Cardinality::Map(key))
        }
        _ if descriptor.is_list() => (descriptor.clone(), Cardinality::List),
        _ if descriptor.supports_presence() => (descriptor.clone(), Cardinality::Optional),
        _ => (descriptor.clone(), Cardinality::Implicit),
    };
    let kind = kind(&value, indexes)?;
    let name = descriptor.name();
    let is_of_contract = full_name.starts_with("palimpsest.");
    let has_json =
        is_of_contract && kind == Kind::Bytes && (name == "json" || name.ends_with("_json"));
    // An `optional` field is in a synthetic `oneof` of its own, which excludes no other field.
    let oneof = descriptor
        .containing_oneof()
        .filter(|oneof| !oneof.is_synthetic());
    let oneof = oneof.and_then(|oneof| {
        let position = descriptor
            .parent_message()
            .oneofs()
            .position(|one| one == oneof)?;
        u32::try_from(position).ok()
    });
    let selects_form = matches!(descriptor.kind(), prost_reflect::Kind::Enum(one) if one.full_name() == MESSAGE_FORM);
    Ok(Field {
        number: descriptor.number(),
        name: name.to_owned(),
        protobuf_name: descriptor.json_name().to_owned(),
        // `messages_json` is `messages` in the plain form.
        plain_name: name
            .strip_suffix("_json")
            .filter(|_| has_json)
            .unwrap_or(name)
            .to_owned(),
        kind: if has_json { Kind::Json } else { kind },
        cardinality,
        oneof,
        is_hidden: selects_form,
        is_inline: INLINE.iter().any(|(inline, _)| *inline == full_name),
    })
}

fn kind(descriptor: &FieldDescriptor, indexes: &Indexes) -> Result<Kind, SchemaError> {
    use prost_reflect::Kind as Of;
    let unknown = || SchemaError::Type(descriptor.full_name().to_owned());
    Ok(match descriptor.kind() {
        Of::Bool => Kind::Bool,
        Of::Int32 => Kind::Int32,
        Of::Int64 => Kind::Int64,
        Of::Uint32 => Kind::Uint32,
        Of::Uint64 => Kind::Uint64,
        Of::Sint32 => Kind::Sint32,
        Of::Sint64 => Kind::Sint64,
        Of::Fixed32 => Kind::Fixed32,
        Of::Fixed64 => Kind::Fixed64,
        Of::Sfixed32 => Kind::Sfixed32,
        Of::Sfixed64 => Kind::Sfixed64,
        Of::Float => Kind::Float,
        Of::Double => Kind::Double,
        Of::String => Kind::String,
        Of::Bytes => Kind::Bytes,
        Of::Enum(one) => Kind::Enum(*indexes.enums.get(one.full_name()).ok_or_else(unknown)?),
        Of::Message(one) => {
            let index = indexes.messages.get(one.full_name()).ok_or_else(unknown)?;
            Kind::Message(MessageIndex(*index))
        }
    })
}

fn enumeration(descriptor: &EnumDescriptor) -> Enum {
    let prefix = enum_prefix(descriptor.name());
    let values = descriptor.values().map(|value| EnumValue {
        number: value.number(),
        name: value.name().to_owned(),
        plain_name: shown_enum_name(&prefix, value.name()),
    });
    Enum {
        values: values.collect(),
    }
}

/// Returns the beginning of the names of an enum's values: `SyncOutcome` has `SYNC_OUTCOME_`.
pub(crate) fn enum_prefix(name: &str) -> String {
    let mut prefix = String::new();
    for (position, character) in name.char_indices() {
        if position > 0 && character.is_ascii_uppercase() {
            prefix.push('_');
        }
        prefix.push(character.to_ascii_uppercase());
    }
    prefix.push('_');
    prefix
}
