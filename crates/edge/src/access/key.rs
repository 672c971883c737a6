//! API keys: format, creation and stored form.
//!
//! A key is `plk_<id>_<secret><checksum>` in lowercase hexadecimal digits. The pattern
//! `plk_[0-9a-f]{16}_[0-9a-f]{72}` finds leaked keys. The id is public, and the secret has 256 random bits. The
//! checksum distinguishes a truncated or mistyped key from a revoked one without a lookup.
//!
//! Only a SHA-256 hash is stored. Slow password hashes (argon2, scrypt) protect guessable secrets. A secret of 256
//! random bits cannot be guessed, and a slow hash on every call would make the server easy to overload.

use std::fmt;

use palimpsest_store::archive::hex;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The prefix of every key.
pub const PREFIX: &str = "plk_";
/// The number of hexadecimal digits of an id: 64 bits.
const ID: usize = 16;
/// The number of hexadecimal digits of a secret: 256 bits.
const SECRET: usize = 64;
/// The number of hexadecimal digits of a checksum: 32 bits.
const CHECKSUM: usize = 8;
/// The prefix of a stored hash. It names the hash function, so that another one can be added.
const HASH_PREFIX: &str = "sha256:";

/// The public part of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(Box<str>);

impl KeyId {
    /// Parses an id of 16 lowercase hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == ID && is_hex(text)).then(|| Self(text.into()))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The stored hash of a key. Comparison takes constant time.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hashes a complete key.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Parses the output of [`Self::text`].
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(HASH_PREFIX)?;
        if digits.len() != 64 || !is_hex(digits) {
            return None;
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            // Hexadecimal digits are ASCII, so each pair is a valid slice.
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// Returns the hash as text with its prefix.
    pub fn text(&self) -> String {
        format!("{HASH_PREFIX}{}", hex(&self.0))
    }
}

impl PartialEq for KeyHash {
    /// Compares in constant time, so that timing does not reveal a matching prefix.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for KeyHash {}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash")
    }
}

/// A new key. Its text exists only in this value and cannot be recovered later.
#[derive(Debug)]
pub struct NewKey {
    /// The public id.
    pub id: KeyId,
    /// The complete key.
    pub text: SecretString,
}

impl NewKey {
    /// Creates a key from the random numbers of the operating system.
    pub fn random() -> Result<Self, getrandom::Error> {
        // Two digits per byte.
        let mut bytes = [0; ID / 2 + SECRET / 2];
        getrandom::fill(&mut bytes)?;
        let (id, secret) = bytes.split_at(ID / 2);
        let id = hex(id);
        let body = format!("{PREFIX}{id}_{}", hex(secret));
        let text = format!("{body}{}", checksum(&body));
        Ok(Self {
            id: KeyId(id.into()),
            text: text.into(),
        })
    }

    /// Returns the hash to store.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(self.text.expose_secret())
    }
}

/// Returns the id of a well-formed key. Returns `None` for a truncated or mistyped one.
pub fn id_of(key: &str) -> Option<KeyId> {
    let (id, rest) = key.strip_prefix(PREFIX)?.split_once('_')?;
    if rest.len() != SECRET + CHECKSUM || !is_hex(rest) {
        return None;
    }
    // The slice is safe: the checks above ensure ASCII digits at the end.
    let (body, given) = key.split_at(key.len() - CHECKSUM);
    if checksum(body) != given {
        return None;
    }
    KeyId::parse(id)
}

fn checksum(body: &str) -> String {
    let mut digits = hex(&Sha256::digest(body.as_bytes()));
    digits.truncate(CHECKSUM);
    digits
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_documented_form_and_contains_its_id() {
        let key = NewKey::random().unwrap();
        let text = key.text.expose_secret();
        let form = regex::Regex::new("^plk_[0-9a-f]{16}_[0-9a-f]{72}$").unwrap();
        assert!(form.is_match(text));
        assert_eq!(id_of(text), Some(key.id.clone()));
        let again = KeyHash::parse(&key.hash().text());
        assert!(again == Some(KeyHash::of(text)));
        assert_ne!(key.id, NewKey::random().unwrap().id);
        // Bytes 21 to 39 are a part of the secret, after `plk_`, the id and its `_`.
        assert!(!format!("{key:?}").contains(&text[21..40]));
    }

    #[test]
    fn a_key_with_a_changed_or_missing_character_is_invalid() {
        let key = NewKey::random().unwrap();
        let text = key.text.expose_secret();
        for at in 0..text.len() {
            let mut other = text.to_owned();
            let new = if &text[at..=at] == "0" { "1" } else { "0" };
            other.replace_range(at..=at, new);
            assert_eq!(id_of(&other), None, "at {at}");
            other.replace_range(at..=at, "");
            assert_eq!(id_of(&other), None, "without {at}");
        }
        for bad in ["", "plk_", "plk__", "plk_é_", "sk-1"] {
            assert_eq!(id_of(bad), None);
        }
    }

    #[test]
    fn invalid_hashes_are_rejected() {
        let good = KeyHash::of("x").text();
        assert!(KeyHash::parse(&good).is_some());
        for bad in [&good[1..], &good[..70], &good.to_uppercase(), ""] {
            assert!(KeyHash::parse(bad).is_none(), "{bad}");
        }
    }
}
