//! The active API keys: lookup by id and comparison of hashes in constant time.

use std::collections::HashMap;
use std::sync::Arc;

use palimpsest_core::ids::Timestamp;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::AuthError;
use super::grant::Principal;
use super::key::{KeyHash, KeyId, id_of};
use super::keyfile::{KeyFile, ParsedKey};

/// The keys of one version of the file.
#[derive(Debug, Default)]
pub(super) struct KeyRing(HashMap<KeyId, ActiveKey>);

#[derive(Debug)]
struct ActiveKey {
    hash: KeyHash,
    disabled: bool,
    principal: Arc<Principal>,
    /// Shared by all versions of the file in which the key is unchanged. Dropping the last reference cancels
    /// `Principal::revoked`, which ends open streams of the key.
    guard: Arc<DropGuard>,
}

impl KeyRing {
    /// Parses the text of a file. Keys that are unchanged since `before` stay valid without interruption.
    pub(super) fn read(text: &[u8], before: Option<&Self>) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())?;
        // An editor that truncates the file before it writes it must not lock out all callers.
        if text.is_empty() && before.is_some_and(|before| before.count() > 0) {
            return Err("it is empty: to remove all keys, leave a comment in it".to_owned());
        }
        let keys = KeyFile::read(text)?.checked()?;
        let activate = |key: ParsedKey| {
            let earlier = before.and_then(|before| before.0.get(&key.id));
            // An unchanged key keeps its guard. Dropping the guard would end all streams of the key at every reload.
            let same = earlier.filter(|active| active.is_same_key(&key));
            let active = match same {
                Some(active) => ActiveKey {
                    hash: active.hash,
                    disabled: active.disabled,
                    principal: Arc::clone(&active.principal),
                    guard: Arc::clone(&active.guard),
                },
                None => ActiveKey::new(&key),
            };
            (key.id, active)
        };
        Ok(Self(keys.into_iter().map(activate).collect()))
    }

    /// Returns the number of keys.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Authenticates a key and returns its principal.
    pub(super) fn principal(&self, key: &str, now: Timestamp) -> Result<Arc<Principal>, AuthError> {
        let id = id_of(key).ok_or(AuthError::MalformedKey)?;
        let given = KeyHash::of(key);
        // An unknown id and a wrong secret give the same error, so that ids cannot be probed.
        let active = self.0.get(&id).filter(|active| active.hash == given);
        let active = active.ok_or(AuthError::UnknownKey)?;
        if active.disabled {
            return Err(AuthError::Revoked);
        }
        if active.principal.is_expired(now) {
            return Err(AuthError::Expired);
        }
        Ok(Arc::clone(&active.principal))
    }
}

impl ActiveKey {
    fn new(key: &ParsedKey) -> Self {
        let revoked = CancellationToken::new();
        let principal = Principal {
            name: format!("key {}", key.id).into(),
            grant: key.grant.clone(),
            expires: key.expires,
            revoked: revoked.clone(),
        };
        Self {
            hash: key.hash,
            disabled: key.disabled,
            principal: Arc::new(principal),
            guard: Arc::new(revoked.drop_guard()),
        }
    }

    fn is_same_key(&self, key: &ParsedKey) -> bool {
        self.hash == key.hash
            && self.disabled == key.disabled
            && self.principal.grant == key.grant
            && self.principal.expires == key.expires
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::ProjectId;
    use secrecy::ExposeSecret as _;

    use super::super::key::NewKey;
    use super::super::keyfile::KeyEntry;
    use super::*;

    fn entry(key: &NewKey) -> KeyEntry {
        KeyEntry {
            id: key.id.to_string(),
            label: String::new(),
            hash: key.hash().text(),
            projects: vec!["p".into()],
            rights: vec!["read".into()],
            created: "2026-01-01T00:00:00Z".into(),
            expires: None,
            disabled: false,
        }
    }

    fn keys(entries: Vec<KeyEntry>, before: Option<&KeyRing>) -> KeyRing {
        let file = KeyFile { keys: entries };
        KeyRing::read(file.text().unwrap().as_bytes(), before).unwrap()
    }

    #[test]
    fn a_key_grants_the_projects_of_its_entry_until_it_expires() {
        let (key, other) = (NewKey::random().unwrap(), NewKey::random().unwrap());
        let mut with_end = entry(&key);
        with_end.expires = Some("1970-01-01T00:00:02Z".into());
        let keys = keys(vec![with_end], None);
        let at = |millis| keys.principal(key.text.expose_secret(), Timestamp::from_millis(millis));
        let principal = at(1_999).unwrap();
        let project = |name| ProjectId::new(name).unwrap();
        assert!(principal.grant.projects.contains(&project("p")));
        assert!(!principal.grant.projects.contains(&project("q")));
        assert!(matches!(at(2_000), Err(AuthError::Expired)));
        let unknown = keys.principal(other.text.expose_secret(), Timestamp::default());
        assert!(matches!(unknown, Err(AuthError::UnknownKey)));
        let mistyped = keys.principal("plk_1", Timestamp::default());
        assert!(matches!(mistyped, Err(AuthError::MalformedKey)));
    }

    #[test]
    fn a_truncated_file_removes_no_keys() {
        let keys = keys(vec![entry(&NewKey::random().unwrap())], None);
        assert!(KeyRing::read(b"", Some(&keys)).is_err());
        let none = KeyRing::read(b"# no keys", Some(&keys)).unwrap();
        assert_eq!(none.count(), 0);
        assert!(KeyRing::read(b"", Some(&none)).is_ok());
    }

    #[test]
    fn a_key_with_a_known_id_and_a_wrong_secret_is_rejected() {
        let (key, other) = (NewKey::random().unwrap(), NewKey::random().unwrap());
        // An entry with the id of one key and the hash of another.
        let mut mixed = entry(&key);
        mixed.hash = other.hash().text();
        let keys = keys(vec![mixed], None);
        let given = keys.principal(key.text.expose_secret(), Timestamp::default());
        assert!(matches!(given, Err(AuthError::UnknownKey)));
    }

    #[test]
    fn a_reload_revokes_changed_keys_only() {
        let (stays, goes) = (NewKey::random().unwrap(), NewKey::random().unwrap());
        let first = keys(vec![entry(&stays), entry(&goes)], None);
        let of = |keys: &KeyRing, key: &NewKey| {
            keys.principal(key.text.expose_secret(), Timestamp::default())
        };
        let (staying, going) = (of(&first, &stays).unwrap(), of(&first, &goes).unwrap());
        let mut disabled = entry(&goes);
        disabled.disabled = true;
        let second = keys(vec![entry(&stays), disabled], Some(&first));
        // The guard of the changed key exists only in the first version, so dropping this version revokes the key.
        drop(first);
        assert!(!staying.revoked.is_cancelled());
        assert!(going.revoked.is_cancelled());
        assert!(matches!(of(&second, &goes), Err(AuthError::Revoked)));
        assert!(of(&second, &stays).is_ok());
    }
}
