//! Events of the session itself: creation, incoming messages and served views.

use std::sync::Arc;

use super::parts::{RequestStamp, Visibility};
use crate::ids::{Attributes, MessageId, SessionKey};
use crate::message::Message;
use crate::policy::{Policy, WindowHint};
use crate::tokens::Size;
use crate::view::{Piece, Target};

/// The session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCreated {
    /// The rules by which its decisions are taken.
    pub rules: u32,
    /// The resolved policy.
    pub policy: Arc<Policy>,
    /// Whether a first write made it, and nobody asked for it by itself.
    pub implicit: bool,
    /// A name for people.
    pub title: Box<str>,
    /// The folder that the work is in.
    pub project_path: Box<str>,
    /// The branch that the work is on.
    pub branch: Box<str>,
    /// Why it must be kept; empty when it may go.
    pub hold: Box<str>,
    /// The session that this one is a subagent of.
    pub parent: Option<SessionKey>,
    /// The caller's own notes.
    pub attributes: Attributes,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// The title or the attributes changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionUpdated {
    /// The new title.
    pub title: Option<Box<str>>,
    /// The new folder.
    pub project_path: Option<Box<str>>,
    /// The new branch.
    pub branch: Option<Box<str>>,
    /// The new reason to keep it.
    pub hold: Option<Box<str>>,
    /// The new attributes, all of them.
    pub attributes: Option<Attributes>,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// Messages came in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessagesAppended {
    /// Those that are new, in order.
    pub messages: Vec<AppendedMessage>,
    /// Those that were there already: their index in the call, and their id.
    pub known: Vec<(u32, MessageId)>,
    /// The request that brought them.
    pub request: Option<RequestStamp>,
}

/// A message that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedMessage {
    /// The message.
    pub message: Arc<Message>,
    /// Where it stands with regard to the view.
    pub standing: Visibility,
    /// Its estimated size, before calibration.
    pub size: Size,
    /// The sizes of the results in it.
    pub results: Vec<ResultSize>,
}

/// How large a tool's result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultSize {
    /// The block that holds it.
    pub block: u16,
    /// Its characters; those of its JSON when it is made of blocks.
    pub chars: u64,
    /// Its estimated tokens.
    pub tokens: u32,
}

/// What had not been served yet was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewServed {
    /// The pieces that are new in the view.
    pub pieces: Vec<Piece>,
    /// For whom it was served.
    pub target: Target,
    /// What the caller said about its model.
    pub window: WindowHint,
    /// What the caller said its system prompt and its tools have.
    pub overhead_tokens: u64,
    /// What the view had then, as far as it was known.
    pub tokens: u64,
}
