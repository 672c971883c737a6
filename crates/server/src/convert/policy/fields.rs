//! Every setting of a policy: what configuration, masks and lists of changes go by.

use std::sync::LazyLock;

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};

use super::{POLICY, Shape, prefix};

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
