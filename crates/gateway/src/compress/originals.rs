//! The originals of tool results that replacements refer to.
//!
//! Each original has a session of its own, whose name is the hash of the content. So a replacement depends on nothing but
//! the result: it is the same in each request, in each process and for each caller of the project, and prompts keep their
//! beginning. `GET /v1/retrieve/{hash}` finds the session without an index.

use std::collections::HashSet;
use std::sync::Arc;

use palimpsest_core::command::{CreateSession, DecidePersist, PersistOutcome};
use palimpsest_core::hex;
use palimpsest_core::ids::{ProjectId, SessionId, SessionKey};
use palimpsest_core::levels::results::UnboundResult;
use palimpsest_core::policy::Policy;
use palimpsest_core::session::Session;
use palimpsest_engine::results::{self, CallName, ResultLocation, ResultName};
use palimpsest_engine::sessions::MissingSession;
use palimpsest_engine::{Engine, EngineError};
use sha2::{Digest as _, Sha256};

/// The tool with which a model reads an original. Callers of the contract add it to their requests.
pub(super) const RETRIEVE_TOOL: &str = "headroom_retrieve";
/// The length of a hash in hexadecimal digits. The guardrails accept 12 to 24 digits, and older ones exactly 24.
const DIGITS: usize = 24;
/// The title of the session of an original.
const TITLE: &str = "Tool result of a compression request";

/// The name of an original: the beginning of the SHA-256 of its content.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct OriginalHash(Box<str>);

impl OriginalHash {
    /// Returns the hash of a content.
    pub(super) fn of(content: &[u8]) -> Self {
        Self::of_sha256(&Sha256::digest(content).into())
    }

    fn of_sha256(sha256: &[u8; 32]) -> Self {
        Self(hex(&sha256[..DIGITS / 2]).into())
    }

    /// Reads a hash. Models and callers can spell it in upper case.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_hash = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hash.then(|| Self(text.to_ascii_lowercase().into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn session(&self, project: &ProjectId) -> Option<SessionKey> {
        let id = SessionId::new(&self.0).ok()?;
        Some(SessionKey::new(project.clone(), id))
    }
}

/// Returns the text before the hash in a replacement, and the text after it. Older guardrails search for this form.
const REFERENCE: (&str, &str) = (
    "hash=",
    ". To read it, call headroom_retrieve with this hash",
);

/// Returns the hashes of the replacements in an array, without repetition.
pub(super) fn hashes_in(array: &str) -> Vec<&str> {
    let (before, after) = REFERENCE;
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for part in array.split(before).skip(1) {
        let is_reference = part
            .get(DIGITS..)
            .is_some_and(|rest| rest.starts_with(after));
        // Arrays contain any text. `get` returns `None` where an index would split a character and panic.
        if let Some(hash) = part.get(..DIGITS).filter(|_| is_reference)
            && OriginalHash::parse(hash).is_some()
            && known.insert(hash)
        {
            found.push(hash);
        }
    }
    found
}

/// An original and the call that it answers.
#[derive(Debug)]
pub(super) struct Original {
    pub(super) text: String,
    pub(super) tool: String,
    pub(super) tokens: u32,
}

/// A located original.
#[derive(Debug)]
pub(super) struct FoundOriginal {
    key: SessionKey,
    stored: UnboundResult,
    tool: String,
}

/// The reason for an original that cannot be returned.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The project has no original of this hash.
    NotFound,
    /// The engine failed.
    Engine(EngineError),
}

/// Returns the policy of the sessions of originals: that of the project, with another reference.
pub(super) fn policy_of(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    let (before, after) = REFERENCE;
    // A session has one original, so its name identifies the file. The name of the file would differ after a deletion.
    policy.tool_results.reference_template = format!("{before}{{session}}{after}").into();
    policy
}

/// Stores the original of a result if the project does not have it. Returns its replacement, or `None` if the result has
/// to stay in the array.
pub(super) async fn store(
    engine: &Engine,
    project: &ProjectId,
    policy: &Arc<Policy>,
    hash: &OriginalHash,
    offer: &DecidePersist,
) -> Option<UnboundResult> {
    let key = hash.session(project)?;
    let missing = MissingSession::Create(CreateSession {
        policy: Arc::clone(policy),
        implicit: true,
        title: TITLE.into(),
        ..CreateSession::default()
    });
    let answer = |_: &Session, outcome: &PersistOutcome| outcome.stored.clone();
    let persisting = results::persist(engine, &key, &missing, (offer, false), answer);
    match persisting.await {
        // Another caller can have created a session of this name. The reference of its policy has no hash.
        Ok(Some(stored)) => {
            let has_hash = hashes_in(&stored.replacement).contains(&hash.as_str());
            has_hash.then_some(stored)
        }
        Ok(None) => {
            tracing::warn!(session = %key, "did not store a tool result, which stays in its array");
            None
        }
        Err(error) => {
            tracing::warn!(session = %key, %error, "cannot store a tool result, which stays in its array");
            None
        }
    }
}

/// Finds an original in a project.
pub(super) async fn find(
    engine: &Engine,
    project: &ProjectId,
    hash: &OriginalHash,
) -> Result<FoundOriginal, ReadError> {
    let key = hash.session(project).ok_or(ReadError::NotFound)?;
    let name = ResultName::Call(CallName {
        key: None,
        tool_use_id: hash.as_str().to_owned(),
    });
    let locate = |session: &Session| {
        let found = results::locate(session, &name).ok()?;
        let ResultLocation::File { file, sha256 } = found.location else {
            return None;
        };
        let decision = session.persist_decisions().find_by_file(&file)?;
        let stored = decision.stored.clone()?;
        // Only the content itself proves that the session is that of this original.
        let is_own = OriginalHash::of_sha256(&sha256) == *hash;
        is_own.then_some((stored, found.tool_name))
    };
    match engine.sessions.read(&key, locate).await {
        Ok(Some((stored, tool))) => Ok(FoundOriginal { key, stored, tool }),
        // A deleted original is stored again by the next request that contains its result.
        Ok(None) | Err(EngineError::SessionNotFound(_) | EngineError::SessionDeleting(_)) => {
            Err(ReadError::NotFound)
        }
        Err(error) => Err(ReadError::Engine(error)),
    }
}

impl FoundOriginal {
    /// Returns the size of the content in bytes.
    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.stored.bytes).unwrap_or(usize::MAX)
    }

    /// Reads the content.
    pub(super) async fn read(self, engine: &Engine) -> Result<Original, EngineError> {
        let (file, sha256) = (&self.stored.file, &self.stored.sha256);
        let (text, _is_json) = results::in_file(engine, &self.key, file, sha256).await?;
        Ok(Original {
            text,
            tool: self.tool,
            tokens: self.stored.tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_found_in_replacements_only() {
        let hash = OriginalHash::of(b"content");
        assert_eq!(hash.as_str().len(), 24);
        let hash = hash.as_str();
        let (before, after) = REFERENCE;
        let reference = format!("{before}{hash}{after}");
        let array = format!(
            "[\"saved to: {reference}\", \"{before}{hash}\", \"{reference}\", \"{before}\u{e9}\"]"
        );
        assert_eq!(hashes_in(&array), [hash]);
        assert!(hashes_in("hash=").is_empty());
    }

    #[test]
    fn a_hash_has_24_digits() {
        assert_eq!(
            OriginalHash::parse("0123456789ABCDEF01234567")
                .unwrap()
                .as_str(),
            "0123456789abcdef01234567"
        );
        for text in [
            "",
            "0123456789abcdef0123456",
            "0123456789abcdef0123456/",
            "stats",
        ] {
            assert_eq!(OriginalHash::parse(text), None, "{text}");
        }
    }
}
