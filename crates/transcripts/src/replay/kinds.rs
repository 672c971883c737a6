//! The kinds of facts that a replay looks for.

/// What a probe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// A path in a tool's input.
    Path,
    /// A command that was run.
    Command,
    /// The first line of a failing result.
    Error,
    /// The first sentence of something that a person said.
    Sentence,
}

impl ProbeKind {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Path => "file paths",
            Self::Command => "commands",
            Self::Error => "errors",
            Self::Sentence => "user sentences",
        }
    }
}
