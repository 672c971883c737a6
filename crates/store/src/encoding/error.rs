//! The version of the encoding, the error of a decoding, and the lengths that all parts check.

/// The version that is written. All earlier ones are read.
pub const VERSION: u8 = 1;

/// Why bytes cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A later version of this software wrote them.
    #[error(
        "was written by a newer version (format {found}, this one reads up to {VERSION}): upgrade before opening this store"
    )]
    Newer {
        /// The version found.
        found: u8,
    },
    /// They are not what was written.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
}

/// Sixteen bytes at a time.
pub(super) fn sixteens(bytes: &[u8]) -> Result<Vec<[u8; 16]>, DecodeError> {
    let (chunks, rest) = bytes.as_chunks::<16>();
    if rest.is_empty() {
        Ok(chunks.to_vec())
    } else {
        Err(DecodeError::Damaged("a list of ids is cut"))
    }
}

pub(super) fn sixteen(bytes: &[u8]) -> Result<[u8; 16], DecodeError> {
    bytes
        .try_into()
        .map_err(|_| DecodeError::Damaged("an id is cut"))
}
