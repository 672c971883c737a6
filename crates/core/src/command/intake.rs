//! Sorts the messages of one call into new, known and re-emitted.
//!
//! A call may bring the whole history of a resumed client, so every question is asked of the session
//! and of what the same call brought before. Not here: limits, and what an append answers.

use std::collections::HashMap;
use std::sync::Arc;

use super::reject::{Conflict, Rejection};
use crate::event::{AppendedMessage, CallState, ResultSize, Visibility};
use crate::ids::{MessageId, Ordinal};
use crate::levels::results::chars_of;
use crate::message::{Block, Digest, Message, Role};
use crate::session::{Session, emission};
use crate::tokens::{Size, TokenTally};

/// The messages of one call, as far as they are sorted.
pub(super) struct Intake<'s> {
    session: &'s Session,
    /// Counts what is new.
    tally: TokenTally,
    new: Vec<AppendedMessage>,
    /// What the new messages say, in their order.
    digests: Vec<Digest>,
    by_id: HashMap<MessageId, Digest>,
    emitted: HashMap<Digest, Ordinal>,
    /// How many calls with an id the new messages open, less those that they answer.
    opened: HashMap<Box<str>, i64>,
    known: Vec<(u32, MessageId)>,
    last_reemitted: Option<Ordinal>,
}

impl<'s> Intake<'s> {
    /// For so many bytes of content.
    pub(super) fn new(session: &'s Session, bytes: usize) -> Self {
        Self {
            session,
            tally: session.counter().tally(bytes),
            new: Vec::new(),
            digests: Vec::new(),
            by_id: HashMap::new(),
            emitted: HashMap::new(),
            opened: HashMap::new(),
            known: Vec::new(),
            last_reemitted: session.last_reemitted(),
        }
    }

    /// Takes the next message of the call.
    pub(super) fn take(&mut self, index: usize, message: Arc<Message>) -> Result<(), Rejection> {
        let digest = Digest::of_message(&message);
        match self.recorded(message.id) {
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
        let standing = self.standing(&message, digest);
        self.last_reemitted = match standing {
            Visibility::Reemission(of) => {
                self.mark_request_before(of);
                Some(of)
            }
            _ => None,
        };
        if standing == Visibility::Visible {
            self.count_calls(&message);
            if let Some(key) = emission(&message, digest) {
                let ordinal = self.next_ordinal();
                self.emitted.entry(key).or_insert(ordinal);
            }
        }
        self.by_id.insert(message.id, digest);
        self.digests.push(digest);
        let (size, results) = sized(&mut self.tally, &message);
        self.new.push(AppendedMessage {
            message,
            standing,
            size,
            results,
        });
        Ok(())
    }

    /// The new messages, and the places and ids of those that were there already.
    pub(super) fn finish(self) -> (Vec<AppendedMessage>, Vec<(u32, MessageId)>) {
        (self.new, self.known)
    }

    fn next_ordinal(&self) -> Ordinal {
        let before = self.session.transcript().next().get();
        Ordinal::new(before + crate::view::count(self.new.len()))
    }

    fn recorded(&self, id: MessageId) -> Option<Digest> {
        let transcript = self.session.transcript();
        transcript
            .find(id)
            .and_then(|ordinal| transcript.get(ordinal))
            .map(|entry| entry.digest)
            .or_else(|| self.by_id.get(&id).copied())
    }

    /// What a message says and where it stands, whether it came before this call or with it.
    fn entry(&self, ordinal: Ordinal) -> Option<(Digest, Visibility)> {
        let transcript = self.session.transcript();
        if let Some(entry) = transcript.get(ordinal) {
            return Some((entry.digest, entry.standing));
        }
        let index = ordinal.index().checked_sub(transcript.len())?;
        Some((*self.digests.get(index)?, self.new.get(index)?.standing))
    }

    fn standing(&self, message: &Message, digest: Digest) -> Visibility {
        if message.transcript_only {
            return Visibility::TranscriptOnly;
        }
        let transcript = self.session.transcript();
        let original = transcript.emitted(message, digest).or_else(|| {
            let key = emission(message, digest)?;
            self.emitted.get(&key).copied()
        });
        if let Some(of) = original
            && matches!(self.entry(of), Some((_, Visibility::Visible)))
        {
            return Visibility::Reemission(of);
        }
        // What follows a re-emitted message and says what followed the original is re-emitted too.
        let next = self.last_reemitted.map(|of| Ordinal::new(of.get() + 1));
        match next.and_then(|next| Some((next, self.entry(next)?))) {
            Some((next, (says, Visibility::Visible)))
                if says == digest && !self.answers_open_call(message) =>
            {
                Visibility::Reemission(next)
            }
            _ => Visibility::Visible,
        }
    }

    /// The user's message before a re-emitted response, when it says what stood before the original.
    fn mark_request_before(&mut self, of: Ordinal) {
        let Some(before) = of.get().checked_sub(1).map(Ordinal::new) else {
            return;
        };
        let says = self.entry(before).map(|(says, _)| says);
        let is_itself = before.get() + 1 == self.next_ordinal().get();
        if let (Some(last), Some(digest)) = (self.new.last_mut(), self.digests.last())
            && !is_itself
            && says == Some(*digest)
            && last.standing == Visibility::Visible
            && last.message.is_real_user_input()
        {
            last.standing = Visibility::Reemission(before);
        }
    }

    fn count_calls(&mut self, message: &Message) {
        for block in &message.blocks {
            match (message.role, block) {
                (Role::Assistant, Block::ToolUse(call)) => {
                    *self.opened.entry(call.id.clone()).or_default() += 1;
                }
                (Role::User, Block::ToolResult(result)) if self.is_open(&result.tool_use_id) => {
                    *self.opened.entry(result.tool_use_id.clone()).or_default() -= 1;
                }
                _ => {}
            }
        }
    }

    /// Callers reuse ids: the same words may answer a new call.
    fn answers_open_call(&self, message: &Message) -> bool {
        message.blocks.iter().any(|block| match block {
            Block::ToolResult(result) => self.is_open(&result.tool_use_id),
            _ => false,
        })
    }

    fn is_open(&self, id: &str) -> bool {
        let calls = self.session.calls();
        let before = calls
            .with_id(id)
            .iter()
            .filter(|call| calls.state(**call) == CallState::Open)
            .count();
        let with_this_call = self.opened.get(id).copied().unwrap_or_default();
        i64::try_from(before).unwrap_or(i64::MAX) + with_this_call > 0
    }
}

/// The size of a message, and those of the results in it.
fn sized(tally: &mut TokenTally, message: &Message) -> (Size, Vec<ResultSize>) {
    let mut results = Vec::new();
    let size = tally.sized(message, |block, result, tokens| {
        results.push(ResultSize {
            block,
            chars: chars_of(result),
            tokens,
        });
    });
    (size, results)
}
