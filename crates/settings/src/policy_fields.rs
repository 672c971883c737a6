//! The fields of a policy, read from the contract. Configuration, field masks and change lists use them.

use std::sync::LazyLock;

use palimpsest_proto::FILE_DESCRIPTOR_SET;
use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};

/// The descriptor of `message Policy`.
pub static POLICY: LazyLock<MessageDescriptor> = LazyLock::new(|| {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET)
        .ok()
        .and_then(|pool| pool.get_message_by_name("palimpsest.context.v1.Policy"))
        .expect("the descriptors are those of the contract")
});

/// The type of a policy field.
#[derive(Debug)]
pub enum Shape {
    /// A message with further fields.
    Group(MessageDescriptor),
    /// A list. The contract wraps it in a message, so that an empty list differs from no list.
    List(FieldDescriptor),
    /// A map from names to values.
    Map(FieldDescriptor),
    /// A duration.
    Duration,
    /// An enum.
    Choice(EnumDescriptor),
    /// A number, a boolean or a text.
    Plain(Kind),
}

impl Shape {
    /// Returns the shape of a field.
    pub fn of(field: &FieldDescriptor) -> Self {
        match field.kind() {
            Kind::Message(entry) if field.is_map() => Self::Map(entry.map_entry_value_field()),
            Kind::Message(message) if message.full_name() == "google.protobuf.Duration" => {
                Self::Duration
            }
            Kind::Message(message) => {
                let only = message.fields().next().filter(FieldDescriptor::is_list);
                match only {
                    Some(only) if message.fields().len() == 1 => Self::List(only),
                    _ => Self::Group(message),
                }
            }
            Kind::Enum(choices) => Self::Choice(choices),
            kind => Self::Plain(kind),
        }
    }
}

/// Returns the common prefix of the names of an enum's values.
pub fn prefix(choices: &EnumDescriptor) -> String {
    let unset = choices.default_value();
    // The lint of the contract requires this ending for the first value of an enum.
    unset.name().trim_end_matches("UNSPECIFIED").to_owned()
}

/// A field that contains a value instead of further fields.
#[derive(Debug)]
pub struct PolicyField {
    /// The names from the root to the field.
    pub path: Vec<String>,
    /// The type of the value.
    pub kind: FieldKind,
    /// The first sentence of the field's documentation.
    pub doc: String,
}

/// The type of a setting.
#[derive(Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A boolean.
    Bool,
    /// An integer from 0 to this maximum.
    Integer(u64),
    /// Any finite number.
    Number,
    /// A text.
    Text,
    /// A duration as text, such as `90s`.
    Duration,
    /// One of these names.
    Choice(Vec<String>),
    /// A list of texts, or of these names.
    List(Option<Vec<String>>),
    /// Rules by tool name.
    Rules,
}

/// Returns all fields. The fields of a message precede those of its nested messages.
pub fn policy_fields() -> &'static [PolicyField] {
    static FIELDS: LazyLock<Vec<PolicyField>> = LazyLock::new(|| {
        let mut found = Vec::new();
        gather(&POLICY, &mut Vec::new(), &mut found);
        found
    });
    &FIELDS
}

fn gather(message: &MessageDescriptor, path: &mut Vec<String>, found: &mut Vec<PolicyField>) {
    let mut groups = Vec::new();
    for field in message.fields() {
        let kind = match Shape::of(&field) {
            Shape::Group(inner) => {
                groups.push((field, inner));
                continue;
            }
            Shape::Map(_) => FieldKind::Rules,
            Shape::Duration => FieldKind::Duration,
            Shape::Choice(choices) => FieldKind::Choice(names(&choices)),
            Shape::List(of) => FieldKind::List(match Shape::of(&of) {
                Shape::Choice(choices) => Some(names(&choices)),
                _ => None,
            }),
            Shape::Plain(Kind::Bool) => FieldKind::Bool,
            Shape::Plain(Kind::Uint32) => FieldKind::Integer(u32::MAX.into()),
            // TOML integers are signed, so larger values cannot be written.
            Shape::Plain(Kind::Uint64) => FieldKind::Integer(i64::MAX as u64),
            Shape::Plain(Kind::Double) => FieldKind::Number,
            Shape::Plain(_) => FieldKind::Text,
        };
        let mut path = path.clone();
        path.push(field.name().to_owned());
        let doc = doc(&field);
        found.push(PolicyField { path, kind, doc });
    }
    // Nested messages follow after the plain fields, because a TOML section ends where the next one begins.
    for (field, inner) in groups {
        path.push(field.name().to_owned());
        gather(&inner, path, found);
        path.pop();
    }
}

/// Returns the names of an enum's values without the unspecified one.
fn names(choices: &EnumDescriptor) -> Vec<String> {
    let prefix = prefix(choices);
    choices
        .values()
        .filter(|value| value.number() != 0)
        .map(|value| value.name().trim_start_matches(&prefix).to_lowercase())
        .collect()
}

/// Returns the first sentence of a field's comment in the contract.
fn doc(field: &FieldDescriptor) -> String {
    let file = field.parent_file();
    let locations = file.file_descriptor_proto().source_code_info.as_ref();
    let comment = locations
        .and_then(|info| info.location.iter().find(|at| at.path == field.path()))
        .map(|at| at.leading_comments().split_whitespace().collect::<Vec<_>>())
        .unwrap_or_default()
        .join(" ");
    match comment.split_once(". ") {
        Some((first, _)) => format!("{first}."),
        None => comment,
    }
}
