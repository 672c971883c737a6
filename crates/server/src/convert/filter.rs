//! Filters for messages of a transcript.

use palimpsest_core::ids::Ordinal;
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{MessageKind, Role};
use palimpsest_core::session::Visibility;
use palimpsest_engine::filter::MessageFilter;
use palimpsest_proto::context::v1;

use super::scalars::{message_id, optional_timestamp, unknown};
use super::{FieldError, WithFieldPath as _, check_count, check_length};

/// The maximum number of values in one condition. Each message or session is compared with all of them.
pub(super) const MAX_VALUES: usize = 64;

/// Validates the field `filter`.
pub fn message_filter(
    filter: Option<v1::MessageFilter>,
    limits: &Limits,
) -> Result<MessageFilter, FieldError> {
    let filter = filter.unwrap_or_default();
    // The number of values is limited, because each message is compared with all of them.
    check_count(filter.tool_names.len(), MAX_VALUES, "filter.tool_names")?;
    for (index, name) in filter.tool_names.iter().enumerate() {
        check_length(name, limits.max_id_bytes, "").at("filter.tool_names", index)?;
    }
    check_length(
        &filter.collapse_id, limits.max_id_bytes, "filter.collapse_id",
    )?;
    let id = |id: &str, field: &str| match id {
        "" => Ok(None),
        id => message_id(id, field).map(Some),
    };
    let roles = known(&filter.roles, "filter.roles")?;
    let kinds = known(&filter.kinds, "filter.kinds")?;
    let visibilities = known(&filter.visibilities, "filter.visibilities")?;
    Ok(MessageFilter {
        roles: roles.into_iter().flat_map(import_role).copied().collect(),
        kinds: kinds.into_iter().filter_map(import_kind).collect(),
        visibilities: visibilities
            .into_iter()
            .filter_map(import_visibility)
            .collect(),
        first_id: id(&filter.first_message_id, "filter.first_message_id")?,
        last_id: id(&filter.last_message_id, "filter.last_message_id")?,
        // An unset ordinal is 0 and has the same effect as 1.
        first: filter.first_ordinal.saturating_sub(1),
        last: filter.last_ordinal.map(|last| last.saturating_sub(1)),
        // Ordinals of the contract start at 1, so a last ordinal of 0 matches nothing.
        nothing: filter.last_ordinal == Some(0),
        span: (!filter.collapse_id.is_empty()).then(|| filter.collapse_id.into()),
        from: optional_timestamp(filter.from_time, "filter.from_time")?,
        before: optional_timestamp(filter.before_time, "filter.before_time")?,
        tool_names: filter.tool_names,
        user_turns_only: filter.user_turns_only,
    })
}

/// Validates a repeated enum field. Unspecified and unknown values are rejected.
pub(super) fn known<T: TryFrom<i32>>(values: &[i32], field: &str) -> Result<Vec<T>, FieldError> {
    check_count(values.len(), MAX_VALUES, field)?;
    values
        .iter()
        .enumerate()
        .map(|(index, value)| match T::try_from(*value) {
            Ok(known) if *value != 0 => Ok(known),
            Ok(_) => Err(FieldError::missing(format!("{field}[{index}]"))),
            Err(_) => Err(unknown(&format!("{field}[{index}]"))),
        })
        .collect()
}

/// Returns the roles that the contract shows as one.
const fn import_role(role: v1::Role) -> &'static [Role] {
    match role {
        v1::Role::Unspecified => &[],
        v1::Role::User => &[Role::User],
        v1::Role::Assistant => &[Role::Assistant],
        v1::Role::System => &[Role::System, Role::Developer],
    }
}

const fn import_kind(kind: v1::MessageKind) -> Option<MessageKind> {
    Some(match kind {
        v1::MessageKind::Unspecified => return None,
        v1::MessageKind::Ordinary => MessageKind::Ordinary,
        v1::MessageKind::Summary => MessageKind::Summary,
        v1::MessageKind::Boundary => MessageKind::Boundary,
        v1::MessageKind::Attachment => MessageKind::Attachment,
        v1::MessageKind::Hook => MessageKind::Hook,
        v1::MessageKind::Synthetic => MessageKind::Synthetic,
    })
}

const fn import_visibility(visibility: v1::Visibility) -> Option<Visibility> {
    Some(match visibility {
        v1::Visibility::Unspecified => return None,
        v1::Visibility::Visible => Visibility::Visible,
        v1::Visibility::Compacted => Visibility::Compacted,
        v1::Visibility::Collapsed => Visibility::Collapsed,
        v1::Visibility::Snipped => Visibility::Snipped,
        v1::Visibility::Rewound => Visibility::Rewound,
        // The filter ignores the message that a re-emission repeats.
        v1::Visibility::ReEmission => Visibility::Reemission(Ordinal::new(0)),
        v1::Visibility::TranscriptOnly => Visibility::TranscriptOnly,
        v1::Visibility::Withdrawn => Visibility::Withdrawn,
        v1::Visibility::Unconfirmed => Visibility::Unconfirmed,
    })
}
