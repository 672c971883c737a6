//! The kinds of facts that a replay searches for.

/// The kind of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// A path in a tool's input.
    Path,
    /// A command that was run.
    Command,
    /// The first line of a failed result.
    Error,
    /// The first sentence of a user input.
    Sentence,
}

impl ProbeKind {
    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Path => "file paths",
            Self::Command => "commands",
            Self::Error => "errors",
            Self::Sentence => "user sentences",
        }
    }
}
