//! The part of the conversation that a summary replaces.

/// The part of the conversation that a summary replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SummaryPart {
    /// Everything that has happened, except recent messages that the policy keeps.
    #[default]
    Whole,
    /// The messages up to a given one. Later messages stay.
    Beginning,
    /// The messages from a given one on. Earlier messages stay.
    End,
}
