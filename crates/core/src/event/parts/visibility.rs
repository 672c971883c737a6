//! The visibility of a message in the view.

use crate::ids::Ordinal;

/// The visibility of a message in the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// The message takes part in the view.
    Visible,
    /// The caller stores the message for the record only.
    TranscriptOnly,
    /// The message repeats the given message. A resumed client sends its history again.
    Reemission(Ordinal),
    /// A rewind removed the message.
    Rewound,
    /// A snip removed the message.
    Snipped,
    /// A placeholder replaces the message and the rest of its span.
    Collapsed,
    /// A summary replaces the message.
    Compacted,
    /// The message was added by a view-changing event that was undone.
    Withdrawn,
    /// A response that the caller of whole arrays has not sent back yet. See
    /// [`CallerArray::responses`](crate::array::CallerArray::responses).
    Unconfirmed,
}

impl Visibility {
    /// Returns true if the message is in the view, as itself or as part of a collapsed span.
    pub const fn is_in_view(self) -> bool {
        matches!(self, Self::Visible | Self::Collapsed)
    }

    /// Returns true if the content stays in memory. All other content is read from the log on demand.
    pub const fn keeps_content(self) -> bool {
        matches!(self, Self::Visible | Self::Unconfirmed)
    }

    /// Returns true if the content is still valid, shown or not: it was neither rewound, snipped nor withdrawn.
    pub const fn is_in_effect(self) -> bool {
        matches!(self, Self::Visible | Self::Collapsed | Self::Compacted)
    }
}
