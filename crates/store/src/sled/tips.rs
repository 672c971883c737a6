//! The index of arrays. Each tip of a session is a record of its own. One more record lists the tips of the session, so
//! that they can be replaced and removed.

use ::sled::Db;
use palimpsest_core::ids::{ProjectId, SessionId, SessionKey};
use palimpsest_core::message::Digest;

use super::group::WriteGroup;
use super::keys;
use super::read::failed;
use super::shared::Shared;
use crate::head_record::HeadRecord;
use crate::{SessionTips, StoreError};

/// The tips of a session, each with the number that orders the sessions with this tip.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct StoredTips {
    scope: Digest,
    numbered: Vec<(Digest, u64)>,
}

impl StoredTips {
    /// Returns the tips after a change. New tips get `number`.
    pub(super) fn changed(&self, tips: &SessionTips, number: u64) -> Self {
        let known = |digest: &Digest| {
            let mut numbered = self.numbered.iter();
            let found = numbered.find(|(known, _)| known == digest);
            found.filter(|_| self.scope == tips.scope).copied()
        };
        let numbered = tips.digests.iter();
        Self {
            scope: tips.scope,
            numbered: numbered
                .map(|digest| known(digest).unwrap_or((*digest, number)))
                .collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.numbered.len()
    }

    /// Returns the keys of the records of the tips.
    pub(super) fn keys(&self, project: &ProjectId, incarnation: u64) -> Vec<Vec<u8>> {
        let numbered = self.numbered.iter();
        let keys = numbered.map(|(digest, number)| {
            let sessions = keys::tip(project, self.scope, *digest);
            keys::tip_of(&sessions, *number, incarnation)
        });
        keys.collect()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.scope.as_bytes().to_vec();
        for (digest, number) in &self.numbered {
            out.extend_from_slice(digest.as_bytes());
            out.extend_from_slice(&number.to_be_bytes());
        }
        out
    }

    /// Decodes a list of tips. Returns `None` for an invalid record.
    fn decode(value: &[u8]) -> Option<Self> {
        let (scope, rest) = value.split_first_chunk::<16>()?;
        // An entry is a digest of 16 bytes and a number of 8 bytes.
        let (entries, []) = rest.as_chunks::<24>() else {
            return None;
        };
        let entry = |entry: &[u8; 24]| {
            let (digest, number) = entry.split_first_chunk::<16>()?;
            let number = u64::from_be_bytes(number.try_into().ok()?);
            Some((Digest::from_bytes(*digest), number))
        };
        Some(Self {
            scope: Digest::from_bytes(*scope),
            numbered: entries.iter().map(entry).collect::<Option<_>>()?,
        })
    }
}

impl WriteGroup<'_> {
    /// Returns the tips of a session, including earlier changes of this group.
    pub(super) fn tips(&self, incarnation: u64) -> Result<StoredTips, StoreError> {
        match self.tips.get(&incarnation) {
            Some(tips) => Ok(tips.clone()),
            None => stored(self.db, incarnation),
        }
    }

    /// Replaces the tips of a session. `record` is the head with which the new ones become visible.
    pub(super) fn set_tips(
        &mut self,
        key: &SessionKey,
        record: &HeadRecord,
        old: &StoredTips,
        new: StoredTips,
    ) {
        let keys = |tips: &StoredTips| tips.keys(&key.project, record.incarnation);
        let (old_keys, new_keys) = (keys(old), keys(&new));
        for gone in old_keys.iter().filter(|key| !new_keys.contains(key)) {
            self.remove(gone.clone());
        }
        // A tip that stays keeps its revision too.
        for added in new_keys.iter().filter(|key| !old_keys.contains(key)) {
            let value = encode_tip(record.revision, &key.session);
            self.insert(added.clone(), &value);
        }
        let list = keys::session_tips(record.incarnation);
        match (old.len(), new.len()) {
            (0, 0) => return,
            (_, 0) => self.remove(list),
            _ => self.insert(list, &new.encode()),
        }
        self.tips.insert(record.incarnation, new);
    }
}

/// Returns the tips of a session from the tree, durable or not.
fn stored(db: &Db, incarnation: u64) -> Result<StoredTips, StoreError> {
    let value = db.get(keys::session_tips(incarnation));
    let value = value.map_err(|e| failed(&e))?;
    // The tips of an unreadable list stay as they are. A lookup compares each of them with the head of its session.
    Ok(value
        .and_then(|value| StoredTips::decode(&value))
        .unwrap_or_default())
}

/// The value of a tip's record: the revision of the session with the tip, and the name of the session.
fn encode_tip(revision: u64, session: &SessionId) -> Vec<u8> {
    [&revision.to_be_bytes(), session.as_str().as_bytes()].concat()
}

fn decode_tip(value: &[u8]) -> Option<(u64, SessionId)> {
    let (revision, name) = value.split_first_chunk::<8>()?;
    let session = SessionId::new(std::str::from_utf8(name).ok()?).ok()?;
    Some((u64::from_be_bytes(*revision), session))
}

/// Implements [`crate::ArrayIndex::find_by_tip`].
pub(super) fn find(
    shared: &Shared,
    project: &ProjectId,
    scope: Digest,
    digests: &[Digest],
) -> Result<Option<SessionKey>, StoreError> {
    let db = shared.db()?;
    for digest in digests {
        // The session that got the tip last is the first one.
        for found in db.scan_prefix(keys::tip(project, scope, *digest)) {
            let (key, value) = found.map_err(|e| failed(&e))?;
            let tip = keys::parse_tip_incarnation(&key).zip(decode_tip(&value));
            let Some((incarnation, (revision, session))) = tip else {
                continue;
            };
            let key = SessionKey::new(project.clone(), session);
            match shared.record(&key) {
                // The durable head does not have the tip yet while the group of the append waits for its sync. An earlier
                // release left tips of sessions that it deleted.
                Ok(Some(record))
                    if record.incarnation == incarnation && record.revision >= revision =>
                {
                    return Ok(Some(key));
                }
                Ok(_) | Err(StoreError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tips_survive_a_round_trip_and_keep_their_numbers() {
        let digest = |byte: u8| Digest::from_bytes([byte; 16]);
        let tips = |scope: u8, digests: &[u8]| SessionTips {
            scope: digest(scope),
            digests: digests.iter().map(|byte| digest(*byte)).collect(),
        };
        let first = StoredTips::default().changed(&tips(1, &[2, 3]), 7);
        let next = first.changed(&tips(1, &[3, 4]), 9);
        assert_eq!(next.numbered, [(digest(3), 7), (digest(4), 9)]);
        let moved = next.changed(&tips(2, &[3]), 10);
        assert_eq!(moved.numbered, [(digest(3), 10)]);
        for tips in [StoredTips::default(), first, next] {
            assert_eq!(StoredTips::decode(&tips.encode()), Some(tips));
        }
        assert_eq!(StoredTips::decode(&[0; 17]), None);
    }
}
