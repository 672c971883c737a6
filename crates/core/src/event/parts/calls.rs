//! The state of a tool call, and the call that a result belongs to.

use crate::ids::{CallKey, Ordinal};

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallState {
    /// It waits for its result.
    Open,
    /// It has its result.
    Answered {
        /// The message that holds it.
        message: Ordinal,
        /// The block within the message.
        block: u16,
    },
    /// It was reported as interrupted. That is final.
    Interrupted,
    /// The same, and then its result came after all.
    Late {
        /// The message that holds it.
        message: Ordinal,
        /// The block within the message.
        block: u16,
    },
    /// A rewind took it out of the view.
    Gone,
}

/// What a result belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// The call that it answers.
    Answer(CallKey),
    /// A call that had its answer.
    Duplicate(CallKey),
    /// A call that was reported as interrupted.
    Late(CallKey),
    /// No call has this id.
    Orphan,
}
