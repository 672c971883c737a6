//! Names, ids, times and small enums.

use palimpsest_core::ids::{CallKey, MessageId, Ordinal, ProjectId, SessionKey, Timestamp};
use palimpsest_core::message::{MessageKind, MessageOrigin, Role};
use palimpsest_core::session::Session;
use palimpsest_core::view::Provider;
pub use palimpsest_engine::compaction::MessageForm;
use palimpsest_proto::context::v1;

use super::{FieldError, required};

/// The valid seconds of a `google.protobuf.Timestamp`.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Validates the resource name of a session.
pub fn session_key(name: &str, field: &str) -> Result<SessionKey, FieldError> {
    SessionKey::parse(required(name, field)?)
        .map_err(|error| FieldError::invalid(field, error.to_string()))
}

/// Validates the resource name of a project, `projects/{project}`.
pub fn project(name: &str, field: &str) -> Result<ProjectId, FieldError> {
    let id = required(name, field)?
        .strip_prefix("projects/")
        .ok_or_else(|| FieldError::invalid(field, "must have the form projects/{project}"))?;
    ProjectId::new(id).map_err(|error| FieldError::invalid(field, error.to_string()))
}

/// Validates a message id.
pub fn message_id(id: &str, field: &str) -> Result<MessageId, FieldError> {
    MessageId::parse(required(id, field)?)
        .ok_or_else(|| FieldError::invalid(field, "must be a UUID"))
}

/// Validates a call key.
pub fn call_key(key: &str, field: &str) -> Result<CallKey, FieldError> {
    CallKey::parse(required(key, field)?)
        .ok_or_else(|| FieldError::invalid(field, "is not a key that this service gives"))
}

/// Validates a time. It is truncated to milliseconds.
pub fn timestamp(time: prost_types::Timestamp, field: &str) -> Result<Timestamp, FieldError> {
    if !SECONDS.contains(&time.seconds) {
        return Err(FieldError::invalid(
            field,
            "must lie between the years 1 and 9999",
        ));
    }
    if !(0..1_000_000_000).contains(&time.nanos) {
        return Err(FieldError::invalid(
            field,
            "must have nanos between 0 and 999,999,999",
        ));
    }
    Ok(Timestamp::from_millis(
        // Nanoseconds count forward also before 1970, so the sum is right for negative seconds too.
        time.seconds * 1_000 + i64::from(time.nanos / 1_000_000),
    ))
}

/// Validates an optional time.
pub fn optional_timestamp(
    time: Option<prost_types::Timestamp>,
    field: &str,
) -> Result<Option<Timestamp>, FieldError> {
    time.map(|time| timestamp(time, field)).transpose()
}

/// Returns the id of a message, or an empty text without a message.
pub(super) fn export_message_id(session: &Session, message: impl Into<Option<Ordinal>>) -> String {
    let entry = message.into().and_then(|at| session.transcript().get(at));
    entry.map(|entry| entry.id.to_string()).unwrap_or_default()
}

/// Converts a time. Values outside the range of the contract are clamped.
pub fn export_timestamp(time: Timestamp) -> prost_types::Timestamp {
    let millis = time.as_millis();
    // Euclidean division keeps the nanoseconds non-negative for times before 1970.
    let seconds = millis.div_euclid(1_000);
    let nanos = i32::try_from(millis.rem_euclid(1_000) * 1_000_000).unwrap_or_default();
    if SECONDS.contains(&seconds) {
        return prost_types::Timestamp { seconds, nanos };
    }
    let seconds = seconds.clamp(*SECONDS.start(), *SECONDS.end());
    prost_types::Timestamp { seconds, nanos: 0 }
}

/// Validates an optional duration from 0 to `most`.
pub fn duration_up_to(
    duration: Option<prost_types::Duration>,
    field: &str,
    most: std::time::Duration,
) -> Result<Option<std::time::Duration>, FieldError> {
    let Some(duration) = duration else {
        return Ok(None);
    };
    // A negative duration cannot be converted, and gets the same error as one that is too long.
    let given = std::time::Duration::try_from(duration).ok();
    let given = given.filter(|given| *given <= most).ok_or_else(|| {
        let what = format!("must be from 0 to {} seconds", most.as_secs());
        FieldError::invalid(field, what)
    });
    given.map(Some)
}

/// Converts a duration in milliseconds.
pub(super) fn export_millis(millis: u64) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(millis / 1_000).unwrap_or(i64::MAX),
        // Less than a second in nanoseconds fits `i32`, so the default is never used.
        nanos: i32::try_from(millis % 1_000 * 1_000_000).unwrap_or_default(),
    }
}

/// Validates a message form. The default is JSON.
pub fn form(form: i32, field: &str) -> Result<MessageForm, FieldError> {
    match v1::MessageForm::try_from(form) {
        Ok(v1::MessageForm::Unspecified | v1::MessageForm::Json) => Ok(MessageForm::Json),
        Ok(v1::MessageForm::Typed) => Ok(MessageForm::Typed),
        Err(_) => Err(unknown(field)),
    }
}

/// Validates a provider's message format. Returns `None` if unspecified, whose meaning depends on the field.
pub fn payload_format(format: i32, field: &str) -> Result<Option<Provider>, FieldError> {
    match v1::Format::try_from(format) {
        Ok(v1::Format::Unspecified) => Ok(None),
        Ok(v1::Format::AnthropicMessages) => Ok(Some(Provider::Anthropic)),
        Ok(v1::Format::OpenaiChat) => Ok(Some(Provider::OpenAi)),
        Ok(v1::Format::OpenaiResponses) => Ok(Some(Provider::OpenAiResponses)),
        Ok(v1::Format::PalimpsestJsonl | v1::Format::ClaudeCodeJsonl | v1::Format::CodexJsonl) => {
            Err(FieldError::invalid(
                field,
                "must be FORMAT_ANTHROPIC_MESSAGES, FORMAT_OPENAI_CHAT or FORMAT_OPENAI_RESPONSES",
            ))
        }
        Err(_) => Err(unknown(field)),
    }
}

/// Returns the format of messages with this origin.
pub(super) const fn export_origin(origin: MessageOrigin) -> v1::Format {
    match origin {
        MessageOrigin::Typed => v1::Format::Unspecified,
        MessageOrigin::Anthropic => v1::Format::AnthropicMessages,
        MessageOrigin::OpenAi => v1::Format::OpenaiChat,
        MessageOrigin::OpenAiResponses => v1::Format::OpenaiResponses,
    }
}

/// Returns the error for an enum number that the contract does not have.
pub(super) fn unknown(field: &str) -> FieldError {
    FieldError::invalid(field, "is a value that this version does not know")
}

pub(super) fn role(role: i32, field: &str) -> Result<Role, FieldError> {
    match v1::Role::try_from(role) {
        Ok(v1::Role::Unspecified) => Err(FieldError::missing(field)),
        Ok(v1::Role::User) => Ok(Role::User),
        Ok(v1::Role::Assistant) => Ok(Role::Assistant),
        Ok(v1::Role::System) => Ok(Role::System),
        Err(_) => Err(unknown(field)),
    }
}

/// Converts a role.
pub const fn export_role(role: Role) -> v1::Role {
    match role {
        Role::User => v1::Role::User,
        Role::Assistant => v1::Role::Assistant,
        Role::System | Role::Developer => v1::Role::System,
    }
}

convert_enum! {
    /// Converts the kind of a message.
    pub fn export_kind(MessageKind) -> v1::MessageKind {
        Ordinary, Summary, Boundary, Attachment, Hook, Synthetic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_resource_names_are_rejected_with_their_field() {
        let said = |result: Result<SessionKey, FieldError>| result.unwrap_err().to_string();
        assert_eq!(said(session_key("", "session")), "session must be set");
        assert_eq!(
            said(session_key("projects/p", "session")),
            "session must have the form projects/{project}/sessions/{session}"
        );
        assert!(session_key("projects/p/sessions/s", "session").is_ok());
        assert!(project("projects/p", "parent").is_ok());
        for bad in ["", "p", "projects/", "projects/p/sessions/s", "projects/.."] {
            assert_eq!(project(bad, "parent").unwrap_err().path, "parent", "{bad}");
        }
        assert!(message_id("x", "id").is_err());
        assert!(call_key("c01", "call.call_key").is_err());
    }

    #[test]
    fn timestamps_are_validated_and_survive_a_round_trip() {
        for (seconds, nanos) in [
            (-62_135_596_800, 0),
            (-1, 999_000_000),
            (253_402_300_799, 0),
        ] {
            let time = prost_types::Timestamp { seconds, nanos };
            assert_eq!(export_timestamp(timestamp(time, "t").unwrap()), time);
        }
        for (seconds, nanos) in [
            (-62_135_596_801, 0),
            (253_402_300_800, 0),
            (i64::MAX, 0),
            (0, -1),
            (0, 1_000_000_000),
        ] {
            assert!(timestamp(prost_types::Timestamp { seconds, nanos }, "t").is_err());
        }
        let far = export_timestamp(Timestamp::from_millis(i64::MAX));
        assert_eq!(far.seconds, 253_402_300_799);
    }

    #[test]
    fn unknown_enum_numbers_are_rejected() {
        assert_eq!(form(0, "form"), Ok(MessageForm::Json));
        assert_eq!(form(2, "form"), Ok(MessageForm::Typed));
        assert!(form(3, "form").is_err());
        assert_eq!(payload_format(0, "f"), Ok(None));
        assert_eq!(payload_format(2, "f"), Ok(Some(Provider::OpenAi)));
        assert!(payload_format(3, "f").is_err());
        assert!(payload_format(99, "f").is_err());
        assert_eq!(role(0, "role"), Err(FieldError::missing("role")));
        assert!(role(4, "role").is_err());
    }
}
