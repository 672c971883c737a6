//! Messages come in.

use std::collections::HashMap;
use std::sync::Arc;

use super::create::check_attributes;
use super::{Conflict, Context, Decision, Rejection, answered, check_revision};
use crate::event::{Appended, Event, MessagesAppended};
use crate::ids::{MessageId, Ordinal, Revision};
use crate::message::{Block, Digest, Message};
use crate::session::{CallState, RequestStamp, Session, Standing};
use crate::tokens::{estimate_message, is_credible};

/// Add messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Append {
    /// The messages, in order, each with its id.
    pub messages: Vec<Arc<Message>>,
    /// The revision that the caller decided upon.
    pub expected_revision: Option<Revision>,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
}

/// What became of one message of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Its id.
    pub id: MessageId,
    /// Its place.
    pub ordinal: Ordinal,
    /// Where it stands with regard to the view.
    pub standing: Standing,
    /// Its estimated size.
    pub tokens: u32,
    /// Whether it was there before this call.
    pub known: bool,
}

/// What a caller should know, though its messages were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// The reported usage is larger than the window, so it is not believed.
    UsageOverWindow {
        /// The message.
        message: MessageId,
        /// What was reported.
        tokens: u64,
        /// The window.
        window: u64,
    },
    /// The message says again what another said, so it is not shown.
    Reemission {
        /// The message.
        message: MessageId,
        /// The one that it repeats.
        of: Ordinal,
    },
}

impl Append {
    pub(super) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        if let Some(revision) = answered(session, self.request.as_ref(), context)? {
            return Ok(Decision::Answered(revision));
        }
        check_revision(session, self.expected_revision)?;
        let limit = context.limits.max_messages;
        if self.messages.len() > limit {
            return Err(Rejection::TooLarge {
                field: "messages".into(),
                limit,
                actual: self.messages.len(),
            });
        }
        for (index, message) in self.messages.iter().enumerate() {
            check(index, message, context)?;
        }
        let mut intake = Intake::new(session);
        for (index, message) in self.messages.into_iter().enumerate() {
            intake.take(index, message)?;
        }
        let (messages, known) = intake.finish();
        if messages.is_empty() && self.request.is_none() {
            return Ok(Decision::Events(Vec::new()));
        }
        Ok(Decision::Events(vec![Event::MessagesAppended(
            MessagesAppended {
                messages,
                known,
                request: self.request,
            },
        )]))
    }
}

/// Sorts the messages of one call into new, known and re-emitted.
struct Intake<'s> {
    session: &'s Session,
    new: Vec<Appended>,
    digests: HashMap<MessageId, Digest>,
    known: Vec<(u32, MessageId)>,
    last_reemitted: Option<Ordinal>,
}

impl<'s> Intake<'s> {
    fn new(session: &'s Session) -> Self {
        Self {
            session,
            new: Vec::new(),
            digests: HashMap::new(),
            known: Vec::new(),
            last_reemitted: session.last_reemitted(),
        }
    }

    fn take(&mut self, index: usize, message: Arc<Message>) -> Result<(), Rejection> {
        let digest = Digest::of_message(&message);
        let transcript = self.session.transcript();
        let recorded = transcript
            .find(message.id)
            .and_then(|ordinal| transcript.get(ordinal))
            .map(|entry| entry.digest)
            .or_else(|| self.digests.get(&message.id).copied());
        match recorded {
            Some(recorded) if recorded == digest => {
                self.known.push((crate::view::count(index), message.id));
                return Ok(());
            }
            Some(recorded) => {
                return Err(Rejection::Conflict(Conflict::Message {
                    id: message.id,
                    recorded,
                    given: digest,
                }));
            }
            None => {}
        }
        self.digests.insert(message.id, digest);
        let standing = self.standing(&message, digest);
        if let Standing::Reemission(of) = standing {
            self.mark_request_before(of);
        }
        self.last_reemitted = match standing {
            Standing::Reemission(of) => Some(of),
            _ => None,
        };
        self.new.push(Appended {
            size: estimate_message(&message),
            message,
            standing,
        });
        Ok(())
    }

    fn standing(&self, message: &Message, digest: Digest) -> Standing {
        if message.transcript_only {
            return Standing::TranscriptOnly;
        }
        let transcript = self.session.transcript();
        if let Some(of) = transcript.emitted(message, digest)
            && transcript
                .get(of)
                .is_some_and(|entry| entry.standing == Standing::Visible)
        {
            return Standing::Reemission(of);
        }
        // What follows a re-emitted message and says what followed the original is re-emitted too.
        let next = self.last_reemitted.map(|of| Ordinal::new(of.get() + 1));
        match next.and_then(|next| Some((next, transcript.get(next)?))) {
            Some((next, entry))
                if entry.digest == digest
                    && entry.standing == Standing::Visible
                    && !self.answers_open_call(message) =>
            {
                Standing::Reemission(next)
            }
            _ => Standing::Visible,
        }
    }

    /// The user's message before a re-emitted response, when it says what stood before the original.
    fn mark_request_before(&mut self, of: Ordinal) {
        let transcript = self.session.transcript();
        let before = of.get().checked_sub(1).map(Ordinal::new);
        let original = before.and_then(|before| Some((before, transcript.get(before)?)));
        if let (Some(last), Some((before, original))) = (self.new.last_mut(), original)
            && last.standing == Standing::Visible
            && self.digests.get(&last.message.id) == Some(&original.digest)
            && last.message.is_real_user_input()
        {
            last.standing = Standing::Reemission(before);
        }
    }

    /// Callers reuse ids: the same words may answer a new call.
    fn answers_open_call(&self, message: &Message) -> bool {
        let calls = self.session.calls();
        message.blocks.iter().any(|block| match block {
            Block::ToolResult(result) => calls
                .with_id(&result.tool_use_id)
                .iter()
                .any(|call| calls.state(*call) == CallState::Open),
            _ => false,
        })
    }

    fn finish(self) -> (Vec<Appended>, Vec<(u32, MessageId)>) {
        (self.new, self.known)
    }
}

/// What became of each message of the call that an event answers, in the call's order. `session` is
/// the session after the event, however much later.
pub fn receipts(session: &Session, event: &MessagesAppended) -> Vec<Receipt> {
    let mut new = event
        .messages
        .iter()
        .map(|appended| (appended.message.id, false));
    let mut known = event.known.iter().peekable();
    let total = event.messages.len() + event.known.len();
    let transcript = session.transcript();
    (0..crate::view::count(total))
        .filter_map(|index| {
            let (id, known) = match known.next_if(|(at, _)| *at == index) {
                Some((_, id)) => (*id, true),
                None => new.next()?,
            };
            let ordinal = transcript.find(id)?;
            let entry = transcript.get(ordinal)?;
            Some(Receipt {
                id,
                ordinal,
                standing: entry.standing,
                tokens: entry.size.tokens,
                known,
            })
        })
        .collect()
}

/// What the caller of an append should know.
pub fn warnings(session: &Session, event: &MessagesAppended) -> Vec<Warning> {
    let window = session.thresholds().window;
    let mut warnings = Vec::new();
    for appended in &event.messages {
        let message = appended.message.id;
        if let Standing::Reemission(of) = appended.standing {
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

fn check(index: usize, message: &Message, context: Context<'_>) -> Result<(), Rejection> {
    let limits = context.limits;
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
    within(
        "content",
        message.blocks.len(),
        limits.max_blocks.min(usize::from(u16::MAX)),
    )?;
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
    for (at, block) in message.blocks.iter().enumerate() {
        match block {
            Block::ToolUse(call) => {
                within(
                    &format!("content[{at}].id"),
                    call.id.len(),
                    limits.max_id_bytes,
                )?;
                within(
                    &format!("content[{at}].name"),
                    call.name.len(),
                    limits.max_id_bytes,
                )?;
            }
            Block::ToolResult(result) => {
                let name = format!("content[{at}].tool_use_id");
                within(&name, result.tool_use_id.len(), limits.max_id_bytes)?;
            }
            _ => {}
        }
    }
    check_attributes(&field("attributes"), &message.attributes, context)
}
