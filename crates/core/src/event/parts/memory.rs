//! The author and the digest of a version of session memory.

/// The first 16 bytes of the SHA-256 of a version's text.
pub type TextDigest = [u8; 16];

/// The author of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Author {
    /// The service: headings without content.
    Template,
    /// A model.
    Model,
    /// The service, by extraction from the structure of the messages.
    Extractive,
    /// A person who edited the file.
    Person,
}
