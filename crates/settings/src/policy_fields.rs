//! Every setting of a policy: what configuration, masks and lists of changes go by.

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

/// The value of a field of a policy.
#[derive(Debug)]
pub enum Shape {
    /// More fields.
    Group(MessageDescriptor),
    /// A list; the contract wraps it, so that an empty one can be told apart from none.
    List(FieldDescriptor),
    /// Values by name.
    Map(FieldDescriptor),
    /// A duration.
    Duration,
    /// One of a few names.
    Choice(EnumDescriptor),
    /// A number, a truth value or a text.
    Plain(Kind),
}

impl Shape {
    /// The shape of a field.
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

/// The prefix that the names of an enum's values share.
pub fn prefix(choices: &EnumDescriptor) -> String {
    let unset = choices.default_value();
    unset.name().trim_end_matches("UNSPECIFIED").to_owned()
}

/// A setting: a field that holds a value and not more fields.
#[derive(Debug)]
pub struct PolicyField {
    /// The names on the way to it.
    pub path: Vec<String>,
    /// What it holds.
    pub kind: FieldKind,
    /// What it means, in a sentence.
    pub doc: String,
}

/// What a setting holds.
#[derive(Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A truth value.
    Bool,
    /// A whole number up to this one.
    Integer(u64),
    /// Any number.
    Number,
    /// A text.
    Text,
    /// A duration as text.
    Duration,
    /// One of these names.
    Choice(Vec<String>),
    /// Texts, or some of these names.
    List(Option<Vec<String>>),
    /// Rules by name.
    Rules,
}

/// Every setting, those of one message side by side and before those of the messages in it.
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
            Shape::Plain(Kind::Uint64) => FieldKind::Integer(i64::MAX as u64),
            Shape::Plain(Kind::Double) => FieldKind::Number,
            Shape::Plain(_) => FieldKind::Text,
        };
        let mut path = path.clone();
        path.push(field.name().to_owned());
        let doc = doc(&field);
        found.push(PolicyField { path, kind, doc });
    }
    for (field, inner) in groups {
        path.push(field.name().to_owned());
        gather(&inner, path, found);
        path.pop();
    }
}

/// The names of an enum's values, without the one for none.
fn names(choices: &EnumDescriptor) -> Vec<String> {
    let prefix = prefix(choices);
    choices
        .values()
        .filter(|value| value.number() != 0)
        .map(|value| value.name().trim_start_matches(&prefix).to_lowercase())
        .collect()
}

/// The first sentence of a field's comment.
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
