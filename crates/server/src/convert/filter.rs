//! Filters for messages of a transcript.

use palimpsest_core::command::Rejection;
use palimpsest_core::ids::{MessageId, Ordinal, SpanKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Block, Message, Role};
use palimpsest_core::session::{CallState, Session, TranscriptEntry};
use palimpsest_proto::context::v1;

use super::scalars::{export_kind, export_role, message_id, optional_timestamp, unknown};
use super::transcript::visibility;
use super::{FieldError, Under as _, at_most, short};

/// The maximum number of values in one condition. Each message or session is compared with all of them.
pub(super) const MAX_VALUES: usize = 64;

/// A message filter. A message must match all conditions. Unset conditions match every message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    roles: Vec<v1::Role>,
    kinds: Vec<v1::MessageKind>,
    visibilities: Vec<v1::Visibility>,
    first_id: Option<MessageId>,
    last_id: Option<MessageId>,
    /// The first and last ordinal, inclusive, starting at 0.
    first: u64,
    last: Option<u64>,
    /// True if no message can match.
    nothing: bool,
    span: Option<Box<str>>,
    /// The messages of the span, after [`Filter::resolve`].
    messages: Option<Vec<Ordinal>>,
    from: Option<Timestamp>,
    before: Option<Timestamp>,
    tool_names: Vec<String>,
    user_turns_only: bool,
}

/// Validates the field `filter`.
pub fn message_filter(
    filter: Option<v1::MessageFilter>,
    limits: &Limits,
) -> Result<Filter, FieldError> {
    let filter = filter.unwrap_or_default();
    // The number of values is limited, because each message is compared with all of them.
    at_most(filter.tool_names.len(), MAX_VALUES, "filter.tool_names")?;
    for (index, name) in filter.tool_names.iter().enumerate() {
        short(name, limits.max_id_bytes, "").at("filter.tool_names", index)?;
    }
    short(
        &filter.collapse_id,
        limits.max_id_bytes,
        "filter.collapse_id",
    )?;
    let id = |id: &str, field: &str| match id {
        "" => Ok(None),
        id => message_id(id, field).map(Some),
    };
    Ok(Filter {
        roles: known(&filter.roles, "filter.roles")?,
        kinds: known(&filter.kinds, "filter.kinds")?,
        visibilities: known(&filter.visibilities, "filter.visibilities")?,
        first_id: id(&filter.first_message_id, "filter.first_message_id")?,
        last_id: id(&filter.last_message_id, "filter.last_message_id")?,
        first: filter.first_ordinal.saturating_sub(1),
        last: filter.last_ordinal.map(|last| last.saturating_sub(1)),
        // Ordinals of the contract start at 1, so a last ordinal of 0 matches nothing.
        nothing: filter.last_ordinal == Some(0),
        span: (!filter.collapse_id.is_empty()).then(|| filter.collapse_id.into()),
        messages: None,
        from: optional_timestamp(filter.from_time, "filter.from_time")?,
        before: optional_timestamp(filter.before_time, "filter.before_time")?,
        tool_names: filter.tool_names,
        user_turns_only: filter.user_turns_only,
    })
}

/// Validates a repeated enum field. Unspecified and unknown values are rejected.
pub(super) fn known<T: TryFrom<i32>>(values: &[i32], field: &str) -> Result<Vec<T>, FieldError> {
    at_most(values.len(), MAX_VALUES, field)?;
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

impl Filter {
    /// Resolves the message and span ids of the filter.
    ///
    /// # Errors
    ///
    /// Fails if a message or a span does not exist.
    pub fn resolve(mut self, session: &Session) -> Result<Self, Rejection> {
        let transcript = session.transcript();
        if let Some(id) = self.span.take() {
            let messages = messages_of_span(session, &id);
            self.messages = Some(messages.ok_or(Rejection::SpanNotFound { id })?);
        }
        let place = |id: MessageId| match transcript.find(id) {
            Some(ordinal) => Ok(u64::from(ordinal.get())),
            None => Err(Rejection::MessageNotFound { id }),
        };
        if let Some(id) = self.first_id.take() {
            self.first = self.first.max(place(id)?);
        }
        if let Some(id) = self.last_id.take() {
            let last = place(id)?;
            self.last = Some(self.last.map_or(last, |before| before.min(last)));
        }
        Ok(self)
    }

    /// Returns the range of ordinals that can match in a transcript of `len` messages.
    pub fn range(&self, len: usize) -> std::ops::Range<usize> {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(len);
        let end = self.last.map_or(len, |last| place(last.saturating_add(1)));
        if self.nothing {
            return 0..0;
        }
        // The span bounds the range. `admits` excludes messages inside the range that are not part of the span.
        if let Some((span_first, span_last)) = self.messages.as_deref().and_then(ends) {
            let end = end.min(span_last.index() + 1);
            return place(self.first).max(span_first.index()).min(end)..end;
        }
        place(self.first).min(end)..end
    }

    /// Returns true if a message matches by its index entry alone. The caller must also check the content if
    /// [`Self::needs_content`] is true.
    pub fn admits(&self, ordinal: Ordinal, entry: &TranscriptEntry) -> bool {
        let place = u64::from(ordinal.get());
        !self.nothing
            && place >= self.first
            && self.last.is_none_or(|last| place <= last)
            && self
                .messages
                .as_ref()
                .is_none_or(|span| span.binary_search(&ordinal).is_ok())
            && is_among(&self.roles, &export_role(entry.role))
            && is_among(&self.visibilities, &visibility(entry.standing))
            && !(self.user_turns_only && entry.role != Role::User)
    }

    /// Returns true if the filter depends on the content of messages.
    pub fn needs_content(&self) -> bool {
        !self.kinds.is_empty()
            || !self.tool_names.is_empty()
            || self.user_turns_only
            || self.from.is_some()
            || self.before.is_some()
    }

    /// Returns true if a message matches. `arrived` is the time of its append.
    pub fn matches(
        &self,
        session: &Session,
        (ordinal, entry): (Ordinal, &TranscriptEntry),
        message: &Message,
        arrived: Timestamp,
    ) -> bool {
        let said = message.at.unwrap_or(arrived);
        self.admits(ordinal, entry)
            && is_among(&self.kinds, &export_kind(message.kind))
            && self.from.is_none_or(|from| said >= from)
            && self.before.is_none_or(|before| said < before)
            && (!self.user_turns_only || message.is_real_user_input())
            && (self.tool_names.is_empty() || self.names_tool(session, ordinal, message))
    }

    fn names_tool(&self, session: &Session, ordinal: Ordinal, message: &Message) -> bool {
        let wanted = |name: &str| self.tool_names.iter().any(|wanted| wanted == name);
        (0_u16..)
            .zip(&message.blocks)
            .any(|(index, block)| match block {
                Block::ToolUse(call) => wanted(&call.name),
                Block::ToolResult(result) => {
                    answered_tool(session, ordinal, index, &result.tool_use_id).is_some_and(wanted)
                }
                _ => false,
            })
    }
}

/// Returns the name of the tool whose result a block contains.
fn answered_tool<'s>(
    session: &'s Session,
    message: Ordinal,
    block: u16,
    id: &str,
) -> Option<&'s str> {
    let calls = session.calls();
    let answer = CallState::Answered { message, block };
    let same = calls.with_id(id);
    let key = same
        .iter()
        .find(|key| calls.state(**key) == answer)
        .or_else(|| same.last())?;
    Some(&calls.get(*key)?.name)
}

/// Returns the messages of a collapsed span, by the id in its placeholder.
pub fn messages_of_span(session: &Session, id: &str) -> Option<Vec<Ordinal>> {
    let placeholder = session.spans().placeholder(SpanKey::parse(id)?)?;
    Some(placeholder.span.messages.clone())
}

fn ends(messages: &[Ordinal]) -> Option<(Ordinal, Ordinal)> {
    Some((*messages.first()?, *messages.last()?))
}

fn is_among<T: PartialEq>(wanted: &[T], value: &T) -> bool {
    wanted.is_empty() || wanted.contains(value)
}
