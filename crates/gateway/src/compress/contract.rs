//! The JSON of a compression request, as the compression guardrails of gateways send it.

use std::ops::Range;

use bytes::Bytes;
use palimpsest_core::json::{self, ObjectFields};
use serde_json::value::RawValue;

/// The maximum length of a session's name in `config.session_id`, in characters.
const MAX_SESSION_CHARS: usize = 256;
/// The mode of a caller that can read originals.
const MODE_WITH_ORIGINALS: &str = "ccr";
/// The modes of callers that cannot read originals.
const MODES_WITHOUT_ORIGINALS: [&str; 2] = ["lossy_inline", "lossless_then_lossy"];

/// A compression request.
#[derive(Debug, Clone)]
pub(super) struct CompressionRequest {
    pub(super) body: Bytes,
    /// The position of the array in the body.
    pub(super) array: Range<usize>,
    /// True if the body has a system prompt beside the array, as in Anthropic's API.
    pub(super) has_system: bool,
    /// True if the body defines tools.
    pub(super) has_tools: bool,
    /// True if the caller can read originals with `GET /v1/retrieve/{hash}`.
    pub(super) reads_originals: bool,
    /// The number of messages at the start that must stay as they are. Default: 0.
    pub(super) frozen_messages: usize,
    /// The name of the conversation in the configuration of the request.
    pub(super) session: Option<Box<str>>,
}

/// The reason for a body that is no compression request. The text completes the sentence "the body …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidRequest {
    /// The body is no JSON object, or a field occurs twice.
    #[error("is not a valid JSON object")]
    Json,
    /// The body has no array `messages`.
    #[error("has no array `messages`")]
    Messages,
    /// The connection ended before the end of the body.
    #[error("ended early")]
    Incomplete,
    /// The mode is unknown.
    #[error("has an unknown `config.mode`: use \"ccr\", or omit it")]
    Mode,
    /// The number of frozen messages is not a number.
    #[error("has a `config.frozen_message_count` that is no integer from 0")]
    FrozenMessages,
    /// The name of the session is not usable.
    #[error("has a `config.session_id` that is no text of 1 to 256 characters")]
    Session,
}

impl CompressionRequest {
    /// Reads a body.
    pub(super) fn read(body: Bytes) -> Result<Self, InvalidRequest> {
        let text = std::str::from_utf8(&body).map_err(|_| InvalidRequest::Json)?;
        let mut fields = ObjectFields::read_str(text).map_err(|_| InvalidRequest::Json)?;
        let mut take = |field| fields.take(field).map_err(|_| InvalidRequest::Json);
        let messages = take("messages")?.filter(|array| array.get().starts_with('['));
        let messages = messages.ok_or(InvalidRequest::Messages)?.get();
        let has_system = take("system")?.is_some();
        let has_tools = take("tools")?.is_some_and(|tools| tools.get() != "[]");
        let config = take("config")?;
        // `messages` borrows from `text`, so its address gives its position.
        let start = messages.as_ptr().addr() - text.as_ptr().addr();
        let mut request = Self {
            array: start..start + messages.len(),
            has_system,
            has_tools,
            reads_originals: false,
            frozen_messages: 0,
            session: None,
            body: Bytes::new(),
        };
        if let Some(config) = config {
            request.configure(config)?;
        }
        // Moved last, because `config` borrows from the body.
        request.body = body;
        Ok(request)
    }

    /// Applies `config`. Its other fields tune the compressors of other services and are ignored.
    fn configure(&mut self, config: &RawValue) -> Result<(), InvalidRequest> {
        // The contract treats a configuration that is no object as an empty one.
        let Ok(mut fields) = ObjectFields::read(config) else {
            return Ok(());
        };
        let mut take = |field| fields.take(field).map_err(|_| InvalidRequest::Json);
        if let Some(mode) = take("mode")? {
            let mode = json::string(mode).map_err(|_| InvalidRequest::Mode)?;
            self.reads_originals = *mode == *MODE_WITH_ORIGINALS;
            if !self.reads_originals && !MODES_WITHOUT_ORIGINALS.contains(&&*mode) {
                return Err(InvalidRequest::Mode);
            }
        }
        if let Some(frozen) = take("frozen_message_count")? {
            let frozen = frozen.get().parse();
            self.frozen_messages = frozen.map_err(|_| InvalidRequest::FrozenMessages)?;
        }
        if let Some(session) = take("session_id")? {
            let session = json::string(session).map_err(|_| InvalidRequest::Session)?;
            if session.trim().is_empty() || session.chars().count() > MAX_SESSION_CHARS {
                return Err(InvalidRequest::Session);
            }
            self.session = Some(session);
        }
        Ok(())
    }

    /// Returns the array as JSON.
    pub(super) fn array(&self) -> &str {
        // The range was found in the text of the body, so it is text.
        std::str::from_utf8(&self.body[self.array.clone()]).unwrap_or("[]")
    }

    /// Returns the body with another array.
    pub(super) fn with_array(&self, array: &str) -> Bytes {
        let (head, tail) = (&self.body[..self.array.start], &self.body[self.array.end..]);
        [head, array.as_bytes(), tail].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<CompressionRequest, InvalidRequest> {
        CompressionRequest::read(Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn the_array_keeps_its_bytes() {
        let request = read(r#" {"model":"m", "messages": [ {"role":"user"} ] ,"x":1}"#).unwrap();
        assert_eq!(request.array(), r#"[ {"role":"user"} ]"#);
        let changed = request.with_array("[]");
        assert_eq!(changed, r#" {"model":"m", "messages": [] ,"x":1}"#);
        assert!(!request.reads_originals && request.frozen_messages == 0);
    }

    #[test]
    fn the_configuration_is_read() {
        let body = r#"{"messages":[],"system":"s","tools":[{}],
            "config":{"mode":"ccr","frozen_message_count":3,"session_id":"a b","target_ratio":0.5}}"#;
        let request = read(body).unwrap();
        assert!(request.reads_originals && request.has_system && request.has_tools);
        assert_eq!(request.frozen_messages, 3);
        assert_eq!(request.session.as_deref(), Some("a b"));
    }

    #[test]
    fn invalid_bodies_are_rejected() {
        let check = |body: &str, expected| assert_eq!(read(body).unwrap_err(), expected, "{body}");
        check("[]", InvalidRequest::Json);
        check(r#"{"messages":[],"messages":[]}"#, InvalidRequest::Json);
        check(r#"{"messages":[}"#, InvalidRequest::Json);
        check("{}", InvalidRequest::Messages);
        check(r#"{"messages":{}}"#, InvalidRequest::Messages);
        let config = |config: &str| format!(r#"{{"messages":[],"config":{config}}}"#);
        check(&config(r#"{"mode":"lossless"}"#), InvalidRequest::Mode);
        check(
            &config(r#"{"frozen_message_count":-1}"#),
            InvalidRequest::FrozenMessages,
        );
        check(
            &config(r#"{"frozen_message_count":true}"#),
            InvalidRequest::FrozenMessages,
        );
        check(&config(r#"{"session_id":" "}"#), InvalidRequest::Session);
        assert!(read(&config("7")).is_ok());
    }
}
