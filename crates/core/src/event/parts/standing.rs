//! The standing of a message with regard to the view.

use crate::ids::Ordinal;

/// Where a message stands with regard to the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// It takes part in the view.
    Visible,
    /// It is kept for the record alone, as the caller asked.
    TranscriptOnly,
    /// It says again what another message said: a resumed client sent its history once more.
    Reemission(Ordinal),
    /// A rewind took it out of the view.
    Rewound,
    /// It was snipped out of the view.
    Snipped,
    /// A placeholder stands for it, and for others with it.
    Collapsed,
    /// A summary stands for it, and for all before it.
    Compacted,
    /// It was made by a change of the view that was taken back.
    Withdrawn,
}

impl Visibility {
    /// Whether it is in the view, as itself or in what a placeholder stands for.
    pub const fn takes_part(self) -> bool {
        matches!(self, Self::Visible | Self::Collapsed)
    }

    /// Whether what it says still holds, shown or not: nobody has taken it back.
    pub const fn holds(self) -> bool {
        matches!(self, Self::Visible | Self::Collapsed | Self::Compacted)
    }
}
