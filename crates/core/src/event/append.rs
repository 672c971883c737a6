//! Events for creation, update, appended messages and served views.

use std::sync::Arc;

use super::parts::{RequestStamp, Visibility};
use crate::ids::{Attributes, MessageId, Ordinal, SessionKey};
use crate::message::{Digest, Message};
use crate::policy::{Policy, WindowHint};
use crate::tokens::{RequestParts, TokenSize};
use crate::view::{Piece, Target};

/// A session was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCreated {
    /// The version of the rules by which commands are decided.
    pub rules_version: u32,
    /// The resolved policy.
    pub policy: Arc<Policy>,
    /// True if the session was created implicitly by the first append.
    pub implicit: bool,
    /// The display title. May be empty.
    pub title: Box<str>,
    /// The project folder. May be empty.
    pub project_path: Box<str>,
    /// The version-control branch. May be empty.
    pub branch: Box<str>,
    /// The reason that prevents deletion. Empty if the session may be deleted.
    pub hold: Box<str>,
    /// The parent session, if this is a subagent session.
    pub parent: Option<SessionKey>,
    /// The origin, if this session is a fork of another one.
    pub forked_from: Option<ForkPoint>,
    /// The scope in which the session is found by the content of its array. `None` if it is found by its name only.
    pub scope: Option<Digest>,
    /// Name and value pairs that the caller stores with the session.
    pub attributes: Attributes,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}

/// The origin of a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkPoint {
    /// The session that was forked. It can be deleted since.
    pub session: SessionKey,
    /// The last message of it that both sessions share.
    pub message: MessageId,
    /// The offset of the names of its turns. Both sessions have equal names, because views contain them.
    pub turn_offset: u64,
}

/// Metadata of the session changed. Unchanged fields are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionUpdated {
    /// The new title.
    pub title: Option<Box<str>>,
    /// The new project folder.
    pub project_path: Option<Box<str>>,
    /// The new branch.
    pub branch: Option<Box<str>>,
    /// The new hold. An empty text removes the hold.
    pub hold: Option<Box<str>>,
    /// The complete new attributes.
    pub attributes: Option<Attributes>,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}

/// Messages were appended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessagesAppended {
    /// The new messages, in order.
    pub messages: Vec<AppendedMessage>,
    /// Duplicates: the index in the call and the id of messages that were stored before.
    pub duplicates: Vec<(u32, MessageId)>,
    /// True if only a call of the view occupies its id. False in older events: there, a call that left the view still
    /// occupies it.
    pub keeps_ids: bool,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}

/// An appended message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedMessage {
    /// The message.
    pub message: Arc<Message>,
    /// The visibility of the message.
    pub visibility: Visibility,
    /// The estimated size, before calibration.
    pub size: TokenSize,
    /// The sizes of the tool results in the message.
    pub results: Vec<ResultSize>,
    /// The recorded response of which this message is the caller's version. The usage of both is the same.
    pub replaces: Option<Ordinal>,
}

/// The size of a tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultSize {
    /// The index of the result's block.
    pub block: u16,
    /// Number of characters. For a result made of blocks, the characters of its JSON.
    pub chars: u64,
    /// Estimated tokens.
    pub tokens: u32,
}

/// The view was served, which sealed its new pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewServed {
    /// The new pieces of the view.
    pub pieces: Vec<Piece>,
    /// The target of the view.
    pub target: Target,
    /// The model's context window, as far as the caller or the table of models states it.
    pub window: WindowHint,
    /// Tokens of the prompt prefix (system prompt and tool definitions), as stated by the caller.
    pub overhead_tokens: u64,
    /// Tokens of the view at that time.
    pub tokens: u64,
    /// The parts of `tokens` by kind of content. Empty in older events.
    pub parts: RequestParts,
    /// Tokens by which the levels have made this request smaller. 0 in older events.
    pub saved_tokens: u64,
    /// Tokens of this request that the provider must write to its cache because the view changed. 0 in older events.
    pub rewritten_tokens: u64,
}
