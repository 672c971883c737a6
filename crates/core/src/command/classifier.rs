//! Sorts the messages of one append into new ones, duplicates and re-emissions.
//!
//! A call may contain the complete history of a resumed client. Each message is therefore compared with the session
//! and with the earlier messages of the same call. Limits are checked in `append`.

use std::collections::HashMap;
use std::sync::Arc;

use super::reject::Rejection;
use crate::event::{AppendedMessage, CallState, ResultSize, Visibility};
use crate::ids::{MessageId, Ordinal};
use crate::levels::results::result_chars;
use crate::message::{Block, Digest, Message, Role};
use crate::session::{Session, reemission_key};
use crate::tokens::{TokenSize, TokenTally};

/// The messages of one append that were sorted so far.
pub(super) struct MessageClassifier<'s> {
    session: &'s Session,
    /// Counts the tokens of new messages.
    tally: TokenTally,
    new: Vec<AppendedMessage>,
    /// Digests of the new messages, in order.
    digests: Vec<Digest>,
    by_id: HashMap<MessageId, Digest>,
    by_reemission_key: HashMap<Digest, Ordinal>,
    /// Per id: the calls that the new messages open, minus those that they answer.
    opened_calls: HashMap<Box<str>, i64>,
    duplicates: Vec<(u32, MessageId)>,
    last_reemitted: Option<Ordinal>,
    /// The visibility of all messages, if it does not depend on their contents.
    fixed: Option<Visibility>,
}

impl<'s> MessageClassifier<'s> {
    /// Creates a classifier. `bytes` is the total content size of the append and determines the counting method.
    pub(super) fn new(session: &'s Session, bytes: usize) -> Self {
        Self {
            session,
            tally: session.counter().tally(bytes),
            new: Vec::new(),
            digests: Vec::new(),
            by_id: HashMap::new(),
            by_reemission_key: HashMap::new(),
            opened_calls: HashMap::new(),
            duplicates: Vec::new(),
            // A resumed client may send its history in several calls, so a run of re-emissions continues from the last
            // append.
            last_reemitted: session.last_reemitted(),
            fixed: None,
        }
    }

    /// Gives all messages the same visibility, so that none of them is a re-emission.
    pub(super) fn with_visibility(mut self, visibility: Visibility) -> Self {
        self.fixed = Some(visibility);
        self
    }

    /// Sorts the next message of the append.
    ///
    /// # Errors
    ///
    /// Returns a conflict if another message with the same id has different content.
    pub(super) fn classify(
        &mut self,
        index: usize,
        message: Arc<Message>,
    ) -> Result<(), Rejection> {
        let digest = Digest::of_message(&message);
        match self.recorded_digest(message.id) {
            Some(stored) if stored == digest => {
                self.duplicates
                    .push((crate::view::count(index), message.id));
                return Ok(());
            }
            Some(stored) => {
                return Err(Rejection::MessageConflict {
                    id: message.id,
                    stored,
                    given: digest,
                });
            }
            None => {}
        }
        // Any other message ends a run of re-emissions.
        let visibility = self.visibility_of(&message, digest);
        self.last_reemitted = match visibility {
            Visibility::Reemission(of) => {
                // A user input has no key of its own. The repeated response after it shows that the input is a
                // repetition too.
                self.mark_reemitted_request(of);
                Some(of)
            }
            _ => None,
        };
        if visibility == Visibility::Visible {
            self.count_calls(&message);
            if let Some(key) = reemission_key(&message, digest) {
                let ordinal = self.next_ordinal();
                self.by_reemission_key.entry(key).or_insert(ordinal);
            }
        }
        self.by_id.insert(message.id, digest);
        self.digests.push(digest);
        let (size, results) = measure(&mut self.tally, &message);
        self.new.push(AppendedMessage {
            message,
            visibility,
            size,
            results,
            replaces: None,
        });
        Ok(())
    }

    /// Returns the new messages, and the index and id of each duplicate.
    pub(super) fn finish(self) -> (Vec<AppendedMessage>, Vec<(u32, MessageId)>) {
        (self.new, self.duplicates)
    }

    fn next_ordinal(&self) -> Ordinal {
        let before = self.session.transcript().next().get();
        Ordinal::new(before + crate::view::count(self.new.len()))
    }

    fn recorded_digest(&self, id: MessageId) -> Option<Digest> {
        let transcript = self.session.transcript();
        transcript
            .find(id)
            .and_then(|ordinal| transcript.get(ordinal))
            .map(|entry| entry.digest)
            .or_else(|| self.by_id.get(&id).copied())
    }

    /// Returns the digest and the visibility of a message of the session or of this append.
    fn entry(&self, ordinal: Ordinal) -> Option<(Digest, Visibility)> {
        let transcript = self.session.transcript();
        if let Some(entry) = transcript.get(ordinal) {
            return Some((entry.digest, entry.visibility));
        }
        // Ordinals beyond the transcript belong to messages of this append.
        let index = ordinal.index().checked_sub(transcript.len())?;
        Some((*self.digests.get(index)?, self.new.get(index)?.visibility))
    }

    fn visibility_of(&self, message: &Message, digest: Digest) -> Visibility {
        if message.transcript_only {
            return Visibility::TranscriptOnly;
        }
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        let transcript = self.session.transcript();
        let original = transcript.find_reemitted(message, digest).or_else(|| {
            let key = reemission_key(message, digest)?;
            self.by_reemission_key.get(&key).copied()
        });
        // Content that left the view may be sent again, so only a visible original counts.
        if let Some(of) = original
            && matches!(self.entry(of), Some((_, Visibility::Visible)))
        {
            return Visibility::Reemission(of);
        }
        // A message after a re-emission is also a re-emission if it equals the message after the original.
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

    /// Marks the user input before a re-emitted response as a re-emission, if it equals the message before the original
    /// response.
    fn mark_reemitted_request(&mut self, of: Ordinal) {
        let Some(before) = of.get().checked_sub(1).map(Ordinal::new) else {
            return;
        };
        let says = self.entry(before).map(|(says, _)| says);
        // The last new message must not be marked as a repetition of itself.
        let is_itself = before.get() + 1 == self.next_ordinal().get();
        if let (Some(last), Some(digest)) = (self.new.last_mut(), self.digests.last())
            && !is_itself
            && says == Some(*digest)
            && last.visibility == Visibility::Visible
            && last.message.is_real_user_input()
        {
            last.visibility = Visibility::Reemission(before);
        }
    }

    fn count_calls(&mut self, message: &Message) {
        for block in &message.blocks {
            match (message.role, block) {
                (Role::Assistant, Block::ToolUse(call)) => {
                    *self.opened_calls.entry(call.id.clone()).or_default() += 1;
                }
                (Role::User, Block::ToolResult(result)) if self.is_open(&result.tool_use_id) => {
                    // The count may become negative, because the result can answer a call of an earlier append.
                    *self
                        .opened_calls
                        .entry(result.tool_use_id.clone())
                        .or_default() -= 1;
                }
                _ => {}
            }
        }
    }

    /// Returns true if the message answers an open call. Callers reuse ids, so a result with known content can answer a
    /// new call.
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
        let with_this_call = self.opened_calls.get(id).copied().unwrap_or_default();
        i64::try_from(before).unwrap_or(i64::MAX) + with_this_call > 0
    }
}

/// Counts a message and its tool results.
fn measure(tally: &mut TokenTally, message: &Message) -> (TokenSize, Vec<ResultSize>) {
    let mut results = Vec::new();
    let size = tally.message_with_results(message, |block, result, tokens| {
        results.push(ResultSize {
            block,
            chars: result_chars(result),
            tokens,
        });
    });
    (size, results)
}
