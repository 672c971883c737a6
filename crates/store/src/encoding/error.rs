//! The version of the encoding, the decoding error, and checked conversions of ids.

/// The version of newly encoded records. All earlier versions can be decoded.
pub const VERSION: u8 = 1;

/// The reason why a record cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A newer release wrote the record.
    #[error(
        "was written by a newer version (format {found}, this one reads up to {VERSION}): upgrade before opening this store"
    )]
    Newer {
        /// The version of the record.
        found: u8,
    },
    /// The record is damaged.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
}

/// Splits bytes into ids of 16 bytes. Fails if a rest remains.
pub(super) fn split_ids(bytes: &[u8]) -> Result<Vec<[u8; 16]>, DecodeError> {
    // Lists of ids are stored as one byte string, which is smaller than one field per id.
    let (chunks, rest) = bytes.as_chunks::<16>();
    if rest.is_empty() {
        Ok(chunks.to_vec())
    } else {
        Err(DecodeError::Damaged("a list of ids is cut"))
    }
}
