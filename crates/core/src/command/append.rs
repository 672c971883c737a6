//! Appends messages to a session.

use std::collections::HashSet;
use std::sync::Arc;

use super::classifier::MessageClassifier;
use super::create::check_attributes;
use super::decision::{Decided, DecisionContext};
use super::reject::Rejection;
use crate::array::ChainHead;
use crate::event::{Event, MessagesAppended, RequestStamp, Visibility};
use crate::ids::{MessageId, Ordinal, Revision};
use crate::limits::Limits;
use crate::message::{Block, Digest, Message, Role};
use crate::policy::LimitPolicy;
use crate::session::Session;
use crate::tokens::is_credible;

/// Minimum number of equal messages for the warning about a repeated transcript. Fewer messages can be equal by chance.
const MIN_REPEATED: usize = 4;

/// Appends messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Append {
    /// The messages, in order, each with its id.
    pub messages: Vec<Arc<Message>>,
    /// The origin of the messages.
    pub source: AppendSource,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

/// The origin of appended messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AppendSource {
    /// A caller that appends new messages. A resumed client may repeat earlier ones.
    #[default]
    Messages,
    /// A response to the array up to this end. It stays unconfirmed until the caller sends it back.
    Response {
        /// The end of the array that the model got.
        after: ChainHead,
    },
    /// New elements of a caller's array. None of them is a repetition, because they were compared with the known array.
    Array {
        /// The recorded response of which the first messages are the caller's version.
        replaced: Option<ReplacedResponse>,
    },
}

/// The caller's version of a recorded response among appended messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplacedResponse {
    /// The first message of the record.
    pub recorded: Ordinal,
    /// Number of messages in place of the record, from the first.
    pub messages: usize,
}

/// The outcome for one message of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendReceipt {
    /// The message's id.
    pub id: MessageId,
    /// The position in the transcript.
    pub ordinal: Ordinal,
    /// The visibility of the message.
    pub visibility: Visibility,
    /// Estimated tokens.
    pub tokens: u32,
    /// True if the message was stored before this call.
    pub is_duplicate: bool,
}

/// A problem that did not prevent the append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// The reported usage exceeds the context window, so it is ignored.
    UsageOverWindow {
        /// The message with the usage.
        message: MessageId,
        /// The reported tokens.
        tokens: u64,
        /// The context window, in tokens.
        window: u64,
    },
    /// Most messages of the session arrived again under other ids.
    RepeatedTranscript {
        /// Number of messages that were stored before.
        messages: usize,
    },
    /// The message repeats an earlier one, so it is stored and not shown.
    Reemission {
        /// The repeating message.
        message: MessageId,
        /// The repeated message.
        of: Ordinal,
    },
}

impl Append {
    pub(super) fn decide(
        self,
        session: &Session,
        context: DecisionContext<'_>,
    ) -> Result<Decided, Rejection> {
        let own = &session.policy().limits;
        let limits = context.limits.narrowed_by(own);
        let count = (self.messages.len(), limits.max_messages);
        Rejection::at_most(count, "entries", "messages")?;
        // Nothing is written until all messages have passed, so an append is all or nothing.
        for (index, message) in self.messages.iter().enumerate() {
            check_message(index, message, &limits, own)?;
        }
        check_parents(session, &self.messages)?;
        let bytes = self.messages.iter().map(|message| message.content_bytes());
        let mut classifier = MessageClassifier::new(session, bytes.sum());
        match self.source {
            AppendSource::Messages => {}
            AppendSource::Array { .. } => {
                classifier = classifier.with_visibility(Visibility::Visible);
            }
            AppendSource::Response { after } => {
                check_response(&self.messages)?;
                classifier = classifier.with_visibility(response_visibility(session, after));
            }
        }
        for (index, message) in self.messages.into_iter().enumerate() {
            classifier.classify(index, message)?;
        }
        let (mut messages, duplicates) = classifier.finish();
        if let AppendSource::Array {
            replaced: Some(replaced),
        } = self.source
        {
            for message in messages.iter_mut().take(replaced.messages) {
                message.replaces = Some(replaced.recorded);
            }
        }
        // Without a stamp, an append that brings only duplicates writes no event.
        if messages.is_empty() && self.request.is_none() {
            return Ok(Decided::events(Vec::new()));
        }
        Ok(Decided::events(vec![Event::MessagesAppended(
            MessagesAppended {
                messages,
                duplicates,
                keeps_ids: true,
                request: self.request,
            },
        )]))
    }
}

/// Rejects a response with a message of another author. The results of its own calls are allowed: a gateway can run
/// calls within a response.
fn check_response(messages: &[Arc<Message>]) -> Result<(), Rejection> {
    let mut calls: HashSet<&str> = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        let is_own = |block: &Block| match block {
            Block::ToolResult(result) => calls.contains(&*result.tool_use_id),
            _ => false,
        };
        match message.role {
            Role::Assistant => {
                calls.extend(message.blocks.iter().filter_map(|block| match block {
                    Block::ToolUse(call) => Some(&*call.id),
                    _ => None,
                }));
            }
            Role::User if message.blocks.iter().all(is_own) => {}
            _ => {
                let field = format!("messages[{index}]");
                let problem = "must be a message of the model, or results of the response's own calls, in a response \
                               that is recorded for an array";
                return Err(Rejection::invalid(field, problem));
            }
        }
    }
    Ok(())
}

/// Returns the visibility of a response. A response to an earlier end is never sent back.
fn response_visibility(session: &Session, after: ChainHead) -> Visibility {
    let array = session.array();
    if array.is_current() && array.head() == after {
        Visibility::Unconfirmed
    } else {
        Visibility::TranscriptOnly
    }
}

/// Returns the outcome for each message of the call that an event answers, in the order of the call. `session` can be
/// any state after the event.
pub fn receipts(session: &Session, event: &MessagesAppended) -> Vec<AppendReceipt> {
    let mut new = event
        .messages
        .iter()
        .map(|appended| (appended.message.id, false));
    let mut is_duplicate = event.duplicates.iter().peekable();
    let total = event.messages.len() + event.duplicates.len();
    let transcript = session.transcript();
    (0..crate::view::count(total))
        .filter_map(|index| {
            // Indexes that are not listed as duplicates belong to the new messages, in order.
            let (id, is_duplicate) = match is_duplicate.next_if(|(at, _)| *at == index) {
                Some((_, id)) => (*id, true),
                None => new.next()?,
            };
            let ordinal = transcript.find(id)?;
            let entry = transcript.get(ordinal)?;
            Some(AppendReceipt {
                id,
                ordinal,
                visibility: entry.visibility,
                tokens: entry.size.tokens,
                is_duplicate,
            })
        })
        .collect()
}

/// Returns the warnings for the caller of an append.
pub fn warnings(session: &Session, event: &MessagesAppended) -> Vec<Warning> {
    let window = session.thresholds().window;
    let mut warnings = Vec::new();
    if let Some(messages) = repeated(session, event) {
        warnings.push(Warning::RepeatedTranscript { messages });
    }
    for appended in &event.messages {
        let message = appended.message.id;
        if let Visibility::Reemission(of) = appended.visibility {
            warnings.push(Warning::Reemission { message, of });
        }
        if let Some(usage) = appended.message.usage {
            let tokens = usage.total_tokens();
            if tokens > 0 && !is_credible(&usage, window) {
                warnings.push(Warning::UsageOverWindow {
                    message,
                    tokens,
                    window,
                });
            }
        }
    }
    warnings
}

/// Returns the number of messages that an append repeats, if it repeats most of the earlier ones. The caller probably
/// sends whole arrays. The work is at most that of the append, because a smaller append cannot repeat most messages.
fn repeated(session: &Session, event: &MessagesAppended) -> Option<usize> {
    let transcript = session.transcript();
    let given = event.messages.len();
    let earlier = transcript.len().checked_sub(given)?;
    // An append of at most half of the earlier messages cannot repeat most of them, so it is not digested.
    if earlier < MIN_REPEATED || given * 2 <= earlier {
        return None;
    }
    let shown = |visibility| matches!(visibility, Visibility::Visible);
    let new = event.messages.iter().filter(|one| shown(one.visibility));
    let new: HashSet<_> = new.map(|one| Digest::of_message(&one.message)).collect();
    let before = transcript.entries().take(earlier);
    let before = before.filter(|(_, entry)| entry.visibility.is_in_effect());
    let repeated = before.filter(|(_, entry)| new.contains(&entry.digest));
    let count = repeated.count();
    (count >= MIN_REPEATED && count * 2 > earlier).then_some(count)
}

/// Rejects messages whose parent is neither in the session nor earlier in the same call. Duplicates are not checked,
/// because they change nothing.
pub(super) fn check_parents(session: &Session, messages: &[Arc<Message>]) -> Result<(), Rejection> {
    let transcript = session.transcript();
    let mut new = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        let parent = message.parent.filter(|parent| !new.contains(parent));
        let missing = parent.filter(|parent| transcript.find(*parent).is_none());
        if let Some(id) = missing.filter(|_| transcript.find(message.id).is_none()) {
            return Err(Rejection::ParentNotFound { index, id });
        }
        // The id is added after the check, so a message cannot be its own parent.
        new.insert(message.id);
    }
    Ok(())
}

pub(super) fn check_message(
    index: usize,
    message: &Message,
    limits: &Limits,
    own: &LimitPolicy,
) -> Result<(), Rejection> {
    let field = |name: &str| format!("messages[{index}].{name}");
    let within = |name: &str, actual: usize, limit: usize| {
        if actual <= limit {
            return Ok(());
        }
        Err(Rejection::TooLarge {
            field: field(name),
            limit,
            actual,
        })
    };
    // Block indexes are stored as `u16`, which limits the number of blocks regardless of the configuration.
    let most = limits.max_blocks.min(usize::from(u16::MAX));
    Rejection::at_most((message.blocks.len(), most), "blocks", field("content"))?;
    within("content", message.content_bytes(), limits.max_message_bytes)?;
    let names = [
        (
            "provider_message_id",
            message.provider_message_id.as_deref(),
        ),
        ("model", message.model.as_deref()),
    ];
    for (name, text) in names {
        within(name, text.map_or(0, str::len), limits.max_id_bytes)?;
    }
    // The server limits ids in bytes, the policy limits them in characters.
    let own_id_chars = own.max_tool_use_id_chars as usize;
    let within_id = |name: &str, id: &str| {
        within(name, id.len(), limits.max_id_bytes)?;
        let count = (id.chars().count(), own_id_chars);
        Rejection::at_most(count, "characters", field(name))
    };
    for (at, block) in message.blocks.iter().enumerate() {
        match block {
            Block::ToolUse(call) => {
                within_id(&format!("content[{at}].id"), &call.id)?;
                within(
                    &format!("content[{at}].name"),
                    call.name.len(),
                    limits.max_id_bytes,
                )?;
            }
            Block::ToolResult(result) => {
                let name = format!("content[{at}].tool_use_id");
                within_id(&name, &result.tool_use_id)?;
            }
            _ => {}
        }
    }
    check_attributes(&field("attributes"), &message.attributes, limits, own)
}
