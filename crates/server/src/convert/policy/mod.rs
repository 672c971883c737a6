//! Policies between the contract and the domain: [`overlay`] inward, [`policy`] outward.
//!
//! A setting has one name in the contract, in the domain and in configuration files, so all of this
//! goes by the descriptors of `message Policy`: a new field needs no line here.

mod change;
mod fields;
mod inward;
mod outward;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use palimpsest_core::policy::OverlayError;
use palimpsest_proto::FILE_DESCRIPTOR_SET;
use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};

pub use change::PolicyChange;
pub(super) use change::masked_path;
pub use fields::{FieldKind, PolicyField, policy_fields};
pub use inward::overlay;
pub use outward::{changed_paths, policy};

use super::FieldError;

/// Where requests have overrides.
pub(super) const OVERRIDES: &str = "session.policy_overrides";

static POLICY: LazyLock<MessageDescriptor> = LazyLock::new(|| {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET)
        .ok()
        .and_then(|pool| pool.get_message_by_name("palimpsest.context.v1.Policy"))
        .expect("the descriptors are those of the contract")
});

/// What a field of a policy holds.
enum Shape {
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
    fn of(field: &FieldDescriptor) -> Self {
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

/// What the names of an enum's values begin with.
fn prefix(choices: &EnumDescriptor) -> String {
    let unset = choices.default_value();
    unset.name().trim_end_matches("UNSPECIFIED").to_owned()
}

/// The path in a request of a field of a resolved policy, as the domain names it.
pub fn in_overrides(path: &str) -> String {
    let inner = path.strip_prefix("policy").unwrap_or(path);
    let inner = inner.strip_prefix('.').unwrap_or(inner);
    match inner {
        "" => OVERRIDES.to_owned(),
        inner => format!("{OVERRIDES}.{inner}"),
    }
}

/// What is wrong with overrides of a request that make no policy.
pub fn bad_overrides(error: OverlayError) -> FieldError {
    FieldError::invalid(in_overrides(&error.path), error.what)
}
