//! The author and the digest of a version of the session memory.

/// The digest by which a version's text is known again.
pub type TextDigest = [u8; 16];

/// Who wrote a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Author {
    /// The service: the headings, and nothing under them.
    Template,
    /// A model.
    Model,
    /// The service, from the structure of the messages.
    Extractive,
    /// A person, in the file.
    Person,
}
