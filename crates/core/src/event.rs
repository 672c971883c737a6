//! Everything that can happen to a session. The log is a list of these; all else is a function of it.
//!
//! An event holds what was decided, not what led to it, so that it means the same for ever: which
//! form a block takes in the view is written down, and is not worked out again on replay. Events of
//! later levels join here; how events are stored is the store's business.

use std::sync::Arc;

use crate::ids::{MessageId, Ordinal, SessionKey, Timestamp};
use crate::message::Message;
use crate::policy::{Policy, WindowHint};
use crate::session::{RequestStamp, Standing};
use crate::tokens::Size;
use crate::view::{Piece, Target, count};

/// The version of the rules by which new decisions are taken. A session keeps the rules it has until
/// a view-changing event moves it to newer ones.
pub const RULES_VERSION: u32 = 1;

/// An event, and when it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The server's clock.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The session began. Always the first event, and only that.
    SessionCreated(SessionCreated),
    /// Its title or its attributes changed.
    SessionUpdated(SessionUpdated),
    /// Messages came in.
    MessagesAppended(MessagesAppended),
    /// What had not been served yet was served, and is sealed.
    ViewServed(ViewServed),
    /// Later messages left the view. View-changing.
    Rewound(Rewound),
}

/// The session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCreated {
    /// The rules by which its decisions are taken.
    pub rules: u32,
    /// The resolved policy.
    pub policy: Policy,
    /// Whether a first write made it, and nobody asked for it by itself.
    pub implicit: bool,
    /// A name for people.
    pub title: Box<str>,
    /// The folder that the work is in.
    pub project_path: Box<str>,
    /// The branch that the work is on.
    pub branch: Box<str>,
    /// The session that this one is a subagent of.
    pub parent: Option<SessionKey>,
    /// The caller's own notes.
    pub attributes: Attributes,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// Names and values of the caller's own.
pub type Attributes = Vec<(Box<str>, Box<str>)>;

/// The title or the attributes changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionUpdated {
    /// The new title.
    pub title: Option<Box<str>>,
    /// The new folder.
    pub project_path: Option<Box<str>>,
    /// The new branch.
    pub branch: Option<Box<str>>,
    /// The new attributes, all of them.
    pub attributes: Option<Attributes>,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// Messages came in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessagesAppended {
    /// Those that are new, in order.
    pub messages: Vec<Appended>,
    /// Those that were there already: their index in the call, and their id.
    pub known: Vec<(u32, MessageId)>,
    /// The request that brought them.
    pub request: Option<RequestStamp>,
}

/// A message that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The message.
    pub message: Arc<Message>,
    /// Where it stands with regard to the view.
    pub standing: Standing,
    /// Its estimated size, before calibration.
    pub size: Size,
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

/// Later messages left the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewound {
    /// The last message that stays; none stays when there is none.
    pub to: Option<Ordinal>,
    /// The messages that leave the view with it; those that an earlier rewind took are not among them.
    pub left: Vec<Ordinal>,
    /// What the view had before, in tokens.
    pub before_tokens: u64,
    /// What becomes of the view.
    pub change: LayoutChange,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}

/// What a view-changing event makes of the sealed pieces: the first `keep` stay as they are, and
/// `then` follows. Every view-changing event carries one, so that all of them replay in one way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutChange {
    /// How many pieces stay.
    pub keep: u32,
    /// What follows them.
    pub then: Vec<Piece>,
}

impl LayoutChange {
    /// What makes `after` of `before`.
    pub fn between(before: &[Piece], after: &[Piece]) -> Self {
        let same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
        Self {
            keep: count(same),
            then: after[same..].to_vec(),
        }
    }
}

impl Event {
    /// Whether sealed bytes of the view may change.
    pub fn changes_view(&self) -> bool {
        self.layout_change().is_some()
    }

    /// What it makes of the sealed pieces.
    pub fn layout_change(&self) -> Option<&LayoutChange> {
        match self {
            Self::Rewound(rewound) => Some(&rewound.change),
            _ => None,
        }
    }

    /// The request that it answers.
    pub fn request(&self) -> Option<&RequestStamp> {
        match self {
            Self::SessionCreated(event) => event.request.as_ref(),
            Self::SessionUpdated(event) => event.request.as_ref(),
            Self::MessagesAppended(event) => event.request.as_ref(),
            Self::Rewound(event) => event.request.as_ref(),
            Self::ViewServed(_) => None,
        }
    }
}
