//! The identity of a log: what tells it from every other one, and its blobs from another log's.

use std::fmt;
use std::str::FromStr;

use crate::StoreError;

/// A log's own random number. It is made once, when the log is created, and never changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreId(u128);

impl StoreId {
    /// A new one.
    pub fn random() -> Result<Self, StoreError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| StoreError::Read(error.to_string()))?;
        Ok(Self::from_bytes(bytes))
    }

    /// The number in big-endian bytes, for an engine's own record.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Reads [`Self::to_bytes`] back.
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

/// A text that is no store id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a store id has 32 hex digits")]
pub struct NotAStoreId;

impl FromStr for StoreId {
    type Err = NotAStoreId;

    fn from_str(text: &str) -> Result<Self, NotAStoreId> {
        let is_hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = is_hex.then(|| u128::from_str_radix(text, 16).ok());
        number.flatten().map(Self).ok_or(NotAStoreId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_from_its_text_and_its_bytes() {
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
