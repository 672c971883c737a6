//! The random identity of a log, which distinguishes its blobs from those of other logs.

use std::fmt;
use std::str::FromStr;

use crate::StoreError;

/// The random identity of a log. It is generated when the log is created and never changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreId(u128);

impl StoreId {
    /// Generates a new identity. Fails if the system has no random numbers.
    pub fn random() -> Result<Self, StoreError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| StoreError::Read(error.to_string()))?;
        Ok(Self::from_bytes(bytes))
    }

    /// Returns the identity as big-endian bytes, for an engine's own record.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Parses the result of [`Self::to_bytes`].
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreId({self})")
    }
}

/// The error for a text that is not a store id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a store id has 32 hex digits")]
pub struct NotAStoreId;

impl FromStr for StoreId {
    type Err = NotAStoreId;

    fn from_str(text: &str) -> Result<Self, NotAStoreId> {
        // `from_str_radix` accepts a leading sign, so check the digits first.
        let is_hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = is_hex.then(|| u128::from_str_radix(text, 16).ok());
        number.flatten().map(Self).ok_or(NotAStoreId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_id_survives_a_round_trip_as_text_and_bytes() {
        let id = StoreId::from_bytes([7; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(StoreId::from_bytes(id.to_bytes()), id);
        for bad in [
            "",
            "07",
            "zz070707070707070707070707070707",
            &"0".repeat(33),
        ] {
            assert_eq!(bad.parse::<StoreId>(), Err(NotAStoreId), "{bad}");
        }
        assert_ne!(StoreId::random().unwrap(), StoreId::random().unwrap());
    }
}
