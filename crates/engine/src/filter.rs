//! Filters for messages of a transcript.

use std::mem::discriminant;

use palimpsest_core::command::Rejection;
use palimpsest_core::ids::{MessageId, Ordinal, SpanKey, Timestamp};
use palimpsest_core::message::{Block, Message, MessageKind, Role};
use palimpsest_core::session::{CallState, Session, TranscriptEntry, Visibility};

/// The conditions for messages. A message must match all of them. Unset conditions match every message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageFilter {
    /// The accepted roles.
    pub roles: Vec<Role>,
    /// The accepted kinds.
    pub kinds: Vec<MessageKind>,
    /// The accepted visibilities. The message that a re-emission repeats is ignored.
    pub visibilities: Vec<Visibility>,
    /// The first message.
    pub first_id: Option<MessageId>,
    /// The last message, inclusive.
    pub last_id: Option<MessageId>,
    /// The first ordinal, starting at 0.
    pub first: u64,
    /// The last ordinal, inclusive, starting at 0.
    pub last: Option<u64>,
    /// True if no message can match.
    pub nothing: bool,
    /// The id of a collapsed span.
    pub span: Option<Box<str>>,
    /// The earliest creation time.
    pub from: Option<Timestamp>,
    /// The exclusive end of the creation times.
    pub before: Option<Timestamp>,
    /// The names of the tools that a message calls or answers.
    pub tool_names: Vec<String>,
    /// True to accept only input of the user.
    pub user_turns_only: bool,
}

impl MessageFilter {
    /// Resolves the message and span ids of the filter.
    ///
    /// # Errors
    ///
    /// Fails if a message or a span does not exist.
    pub fn resolve(mut self, session: &Session) -> Result<ResolvedFilter, Rejection> {
        let transcript = session.transcript();
        let messages = match self.span.take() {
            Some(id) => {
                let messages = messages_of_span(session, &id);
                Some(messages.ok_or(Rejection::SpanNotFound { id })?)
            }
            None => None,
        };
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
        Ok(ResolvedFilter {
            filter: self,
            messages,
        })
    }
}

/// A filter for the messages of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedFilter {
    /// The conditions. Ids are replaced by ordinals.
    filter: MessageFilter,
    /// The messages of the span.
    messages: Option<Vec<Ordinal>>,
}

impl ResolvedFilter {
    /// Returns the range of ordinals that can match in a transcript of `len` messages.
    pub fn range(&self, len: usize) -> std::ops::Range<usize> {
        let filter = &self.filter;
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(len);
        let last = filter.last;
        let end = last.map_or(len, |last| place(last.saturating_add(1)));
        if filter.nothing {
            return 0..0;
        }
        // The span bounds the range. `admits` excludes messages inside the range that are not part of the span.
        if let Some((span_first, span_last)) = self.messages.as_deref().and_then(first_and_last) {
            let end = end.min(span_last.index() + 1);
            return place(filter.first).max(span_first.index()).min(end)..end;
        }
        place(filter.first).min(end)..end
    }

    /// Returns true if a message matches by its index entry alone. The caller must also check the content if
    /// [`Self::needs_content`] is true.
    pub fn admits(&self, ordinal: Ordinal, entry: &TranscriptEntry) -> bool {
        let filter = &self.filter;
        let place = u64::from(ordinal.get());
        // A re-emission contains an ordinal, which is no part of the condition.
        let mut visibilities = filter.visibilities.iter().map(discriminant);
        let is_shown_so = filter.visibilities.is_empty()
            || visibilities.any(|wanted| wanted == discriminant(&entry.visibility));
        !filter.nothing
            && place >= filter.first
            && filter.last.is_none_or(|last| place <= last)
            // The messages of a span are sorted when the span is selected, so a binary search finds them.
            && self
                .messages
                .as_ref()
                .is_none_or(|span| span.binary_search(&ordinal).is_ok())
            && is_among(&filter.roles, &entry.role)
            && is_shown_so
            // Other roles are excluded before their content is loaded. `matches` then tells user input from inserted
            // texts.
            && !(filter.user_turns_only && entry.role != Role::User)
    }

    /// Returns true if the filter depends on the content of messages.
    pub fn needs_content(&self) -> bool {
        let filter = &self.filter;
        !filter.kinds.is_empty()
            || !filter.tool_names.is_empty()
            || filter.user_turns_only
            || filter.from.is_some()
            || filter.before.is_some()
    }

    /// Returns true if a message matches.
    pub fn matches(
        &self,
        session: &Session,
        (ordinal, entry): (Ordinal, &TranscriptEntry),
        message: &Message,
    ) -> bool {
        let filter = &self.filter;
        self.admits(ordinal, entry)
            && is_among(&filter.kinds, &message.kind)
            && filter
                .from
                .is_none_or(|from| message.at.is_some_and(|at| at >= from))
            && filter
                .before
                .is_none_or(|before| message.at.is_some_and(|at| at < before))
            && (!filter.user_turns_only || message.is_real_user_input())
            && (filter.tool_names.is_empty() || self.names_tool(session, ordinal, message))
    }

    fn names_tool(&self, session: &Session, ordinal: Ordinal, message: &Message) -> bool {
        let tools = &self.filter.tool_names;
        let wanted = |name: &str| tools.iter().any(|wanted| wanted == name);
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
    // Several calls can share the provider's id. The call that this very block answered is preferred.
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

fn first_and_last(messages: &[Ordinal]) -> Option<(Ordinal, Ordinal)> {
    Some((*messages.first()?, *messages.last()?))
}

fn is_among<T: PartialEq>(wanted: &[T], value: &T) -> bool {
    wanted.is_empty() || wanted.contains(value)
}
