//! The name of a conversation, as agents state it.

use http::HeaderMap;
use palimpsest_core::hex;
use palimpsest_core::ids::SessionId;
use palimpsest_core::message::Digest;
use palimpsest_engine::turn::JsonParts;
use serde::Deserialize;

use crate::context::NamedSession;
use crate::search::contains;

/// The header that names a session of Palimpsest.
const OWN_HEADER: &str = "x-palimpsest-session";
/// The headers in which agents name a conversation. The first one that is present wins.
///
/// Claude Code 2.1, Codex 0.171 (a subagent has a thread of its own), pi 1.6 and `OpenCode` 1.18, as of November 2026.
const HEADERS: [&str; 5] = [
    "x-claude-code-session-id",
    "thread-id",
    "session-id",
    "x-session-id",
    "x-session-affinity",
];
/// The text before the session in `metadata.user_id` of older releases of Claude Code.
const SESSION_MARK: &str = "_session_";
/// The name of the field with the user of Claude Code, as clients spell it.
const USER_FIELD: &[u8] = b"\"user_id\"";

/// Returns the session that the headers of a request name.
pub(crate) fn of_headers(headers: &HeaderMap) -> Option<NamedSession> {
    let value = |name: &&str| {
        let text = headers.get(*name)?.to_str().ok()?;
        // An empty name would become its digest, and all such requests would share one session.
        named(text).filter(|_| !text.is_empty())
    };
    if let Some(id) = value(&OWN_HEADER) {
        return Some(NamedSession { id, is_own: true });
    }
    let id = HEADERS.iter().find_map(value)?;
    Some(NamedSession { id, is_own: false })
}

#[derive(Deserialize)]
struct Body {
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    user_id: Option<String>,
}

/// The JSON in `metadata.user_id` of Claude Code.
#[derive(Deserialize)]
struct User {
    session_id: String,
}

/// Returns the session that the body of a request names in `metadata.user_id`.
pub(super) fn of_body(body: &JsonParts) -> Option<NamedSession> {
    // A search is much faster than a parse, and most bodies have no such field.
    if !contains(body.parts(), USER_FIELD) {
        return None;
    }
    let body: Body = serde_json::from_slice(&body.whole()).ok()?;
    let user = body.metadata?.user_id?;
    let id = match serde_json::from_str::<User>(&user) {
        Ok(user) => named(&user.session_id)?,
        // The older form is `user_1a_account_2b_session_3c-4d`.
        Err(_) => named(user.rsplit_once(SESSION_MARK)?.1)?,
    };
    Some(NamedSession { id, is_own: false })
}

/// Returns the session of a name: the name, or its digest if it is no legal name of a session.
pub(crate) fn named(text: &str) -> Option<SessionId> {
    let digest = || hex(Digest::of_bytes(text.as_bytes()).as_bytes());
    let name = SessionId::new(text).or_else(|_| SessionId::new(&digest()));
    name.ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn name(headers: &[(&'static str, &'static str)]) -> Option<String> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let named = of_headers(&headers.collect())?;
        let is_own = if named.is_own { " (own)" } else { "" };
        Some(format!("{}{is_own}", named.id))
    }

    #[test]
    fn headers_name_a_conversation() {
        assert_eq!(name(&[]), None);
        assert_eq!(name(&[("session-id", "")]), None);
        // A subagent of Codex has a thread of its own within the session of its parent.
        let codex = [("session-id", "parent"), ("thread-id", "child")];
        assert_eq!(name(&codex).as_deref(), Some("child"));
        let both = [("x-session-id", "b"), ("x-palimpsest-session", "a")];
        assert_eq!(name(&both).as_deref(), Some("a (own)"));
        let illegal = name(&[("x-session-id", "a/../b")]).unwrap();
        assert!(illegal.len() == 32 && illegal.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn the_user_of_claude_code_names_a_conversation() {
        let name = |user: &str| {
            let user = serde_json::to_string(user).unwrap();
            let body = format!(r#"{{"messages":[],"metadata":{{"user_id":{user}}}}}"#);
            of_body(&Bytes::from(body).into()).map(|named| named.id.to_string())
        };
        let json = r#"{"device_id":"d","session_id":"s-1"}"#;
        assert_eq!(name(json).as_deref(), Some("s-1"));
        let old = "user_1a_account_2b_session_3c-4d";
        assert_eq!(name(old).as_deref(), Some("3c-4d"));
        assert_eq!(name("somebody"), None);
    }
}
