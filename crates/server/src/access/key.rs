//! API keys: how they look, how they are made, and what is kept of them.
//!
//! A key is `plk_<id>_<secret><checksum>`, all in small hexadecimal digits: `plk_[0-9a-f]{16}_[0-9a-f]{72}`
//! finds one wherever it was left. The id may be known to everybody; the secret has 256 random bits; the
//! checksum tells a key that was cut or mistyped from one that was revoked, before anything is looked up.
//!
//! What is kept is one SHA-256. The slow hashes that passwords need (argon2, scrypt) protect what can be
//! guessed; 256 random bits cannot, and a slow hash on every call would be a way to overload the server.

use std::fmt;

use palimpsest_store::archive::hex;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// What every key begins with.
pub const PREFIX: &str = "plk_";
/// Hexadecimal digits of an id: 64 bits.
const ID: usize = 16;
/// Hexadecimal digits of a secret: 256 bits.
const SECRET: usize = 64;
/// Hexadecimal digits of a checksum: 32 bits.
const CHECKSUM: usize = 8;
/// What a stored hash begins with: another way of hashing would have another name.
const HASH_PREFIX: &str = "sha256:";

/// The public part of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(Box<str>);

impl KeyId {
    /// Reads one.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == ID && is_hex(text)).then(|| Self(text.into()))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is kept of a key.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Of a whole key.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// Reads one, as [`Self::text`] writes it.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(HASH_PREFIX)?;
        if digits.len() != 64 || !is_hex(digits) {
            return None;
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// It as text.
    pub fn text(&self) -> String {
        format!("{HASH_PREFIX}{}", hex(&self.0))
    }
}

impl PartialEq for KeyHash {
    /// Takes as long wherever they differ.
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

/// A key that was just made: the only time that its text is there.
#[derive(Debug)]
pub struct NewKey {
    /// Its public part.
    pub id: KeyId,
    /// All of it.
    pub text: SecretString,
}

impl NewKey {
    /// Makes one of the system's random numbers.
    pub fn random() -> Result<Self, getrandom::Error> {
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

    /// What is kept of it.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(self.text.expose_secret())
    }
}

/// The id of a key that is well formed; nothing for one that was cut or mistyped.
pub fn id_of(key: &str) -> Option<KeyId> {
    let (id, rest) = key.strip_prefix(PREFIX)?.split_once('_')?;
    if rest.len() != SECRET + CHECKSUM || !is_hex(rest) {
        return None;
    }
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
    fn a_key_has_its_form_and_its_id() {
        let key = NewKey::random().unwrap();
        let text = key.text.expose_secret();
        let form = regex::Regex::new("^plk_[0-9a-f]{16}_[0-9a-f]{72}$").unwrap();
        assert!(form.is_match(text));
        assert_eq!(id_of(text), Some(key.id.clone()));
        let again = KeyHash::parse(&key.hash().text());
        assert!(again == Some(KeyHash::of(text)));
        assert_ne!(key.id, NewKey::random().unwrap().id);
        assert!(!format!("{key:?}").contains(&text[21..40]));
    }

    #[test]
    fn a_key_with_any_character_changed_or_missing_is_none() {
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
    fn hashes_that_are_none_are_refused() {
        let good = KeyHash::of("x").text();
        assert!(KeyHash::parse(&good).is_some());
        for bad in [&good[1..], &good[..70], &good.to_uppercase(), ""] {
            assert!(KeyHash::parse(bad).is_none(), "{bad}");
        }
    }
}
