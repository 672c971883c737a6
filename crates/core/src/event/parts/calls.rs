//! The state of a tool call, and the pairing of a result with a call.

use crate::ids::{CallKey, Ordinal};

/// The state of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallState {
    /// The call has no result yet.
    Open,
    /// The call has a result.
    Answered {
        /// The message that contains the result.
        message: Ordinal,
        /// The index of the result's block.
        block: u16,
    },
    /// The call was reported as interrupted to the model. A later result does not change this.
    Interrupted,
    /// The call was reported as interrupted, and its result was appended later.
    Late {
        /// The message that contains the result.
        message: Ordinal,
        /// The index of the result's block.
        block: u16,
    },
    /// The call left the view.
    Gone,
}

/// The pairing of a result with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// The result answers this open call.
    Answer(CallKey),
    /// The result repeats the answer of this call.
    Duplicate(CallKey),
    /// The call was reported as interrupted before the result arrived.
    Late(CallKey),
    /// No call with this id accepts a result.
    Orphan,
}
