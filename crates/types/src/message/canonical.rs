//! Canonical digests: messages that differ only in their spelling have the same digest.
//!
//! A caller that sends its whole array repeats messages in another spelling. It moves cache markers, turns a string into
//! a text block, and leaves out empty fields. The digest of the stored content is [`Digest::of_message`].

use super::hasher::{Digest, Hasher};
use super::json_value::{CACHE_MARKER, CacheMarkers, hash_json_value};
use super::{Block, Message, MessageOrigin, ResultContent, Role, Thinking, ToolInput};
use crate::json::{RawJson, UnknownFields};

/// The version of the normal forms. Digests of different versions are not comparable.
///
/// A field of an agent that does not count any more keeps the version: another one would leave all arrays unknown, and here
/// only arrays with this field begin again with the next request.
pub const CANONICAL_VERSION: u8 = 1;

/// Fields of a response that callers may or may not send back.
const RESPONSE_FIELDS: [&str; 5] = [
    "container", "context_management", "stop_details", "stop_reason", "stop_sequence",
];
/// Fields of an item or of its content that callers of the Responses API may or may not send back.
///
/// Codex 0.171 adds `internal_chat_message_metadata_passthrough` to each item.
const ITEM_FIELDS: [&str; 4] = [
    "id",
    "internal_chat_message_metadata_passthrough",
    "logprobs",
    "status",
];
/// The field of a tool call that only streamed chunks need.
const CALL_INDEX: &str = "index";
/// Unknown fields of a response that are content of their own, in the chat format.
const CONTENT_FIELDS: [&str; 2] = ["audio", "function_call"];

/// The canonical digests of a message. Metadata (ids, times, usage) is not part of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CanonicalDigests {
    /// The digest of the role, the blocks and the unknown fields.
    pub strict: Digest,
    /// For a response, the digest of its text as a whole, its calls and its other content, without thinking. Equal to
    /// `strict` for any other message. [`Self::EMPTY`] for a message without content.
    ///
    /// Messages with equal strict digests have equal loose digests.
    pub loose: Digest,
}

impl CanonicalDigests {
    /// The loose digest of a message without content: a blank message, or a response that contains only thinking.
    pub const EMPTY: Digest = Digest::from_bytes([0; 16]);

    /// Computes the digests of a message.
    pub fn of(message: &Message) -> Self {
        let mut hasher = Hasher::new();
        hasher.tag(CANONICAL_VERSION);
        hasher.role(message.role);
        let item_fields = item_fields(message.origin);
        hasher.canonical_blocks(&message.blocks, item_fields);
        // Responses of other APIs have fields such as `stop_reason`. Items of the Responses API have fields of
        // their own.
        let ignored: &[&str] = match message.role {
            Role::Assistant if item_fields.is_empty() => &RESPONSE_FIELDS,
            _ => item_fields,
        };
        hasher.fields(&message.extra, ignored);
        let strict = hasher.finish();
        let is_blank = || {
            message.blocks.iter().all(Block::is_blank)
                && counted(&message.extra, item_fields).is_empty()
        };
        let loose = match message.role {
            Role::Assistant => loose(message),
            _ if is_blank() => Self::EMPTY,
            _ => strict,
        };
        Self { strict, loose }
    }

    /// Computes the strict digest of one block of a message with this origin.
    pub fn of_block(block: &Block, origin: MessageOrigin) -> Digest {
        let mut hasher = Hasher::new();
        hasher.tag(CANONICAL_VERSION);
        hasher.canonical_block(block, item_fields(origin));
        hasher.finish()
    }

    /// Returns the digest by which messages of arrays are compared: the loose one, or the strict one if the message has no
    /// content.
    pub fn key(&self) -> Digest {
        if self.is_optional() {
            self.strict
        } else {
            self.loose
        }
    }

    /// Returns true if the message has no content, so that a caller may leave it out.
    pub fn is_optional(&self) -> bool {
        self.loose == Self::EMPTY
    }
}

/// Returns the fields of an item that do not count.
const fn item_fields(origin: MessageOrigin) -> &'static [&'static str] {
    match origin {
        MessageOrigin::OpenAiResponses => &ITEM_FIELDS,
        MessageOrigin::Typed | MessageOrigin::Anthropic | MessageOrigin::OpenAi => &[],
    }
}

/// Computes the loose digest of a response.
fn loose(message: &Message) -> Digest {
    let texts = trimmed_texts(&message.blocks);
    let is_other = |block: &&Block| !matches!(block, Block::Text { .. } | Block::Thinking(_));
    let others: Vec<_> = message.blocks.iter().filter(is_other).collect();
    // Of the unknown fields, only those with content count. Callers may drop others, such as `phase`.
    let mut content = counted(&message.extra, &[]);
    content.retain(|(name, _)| CONTENT_FIELDS.contains(name));
    if texts.is_empty() && others.is_empty() && content.is_empty() {
        return CanonicalDigests::EMPTY;
    }
    let mut hasher = Hasher::new();
    hasher.tag(CANONICAL_VERSION);
    // No message has this role, so the digest equals no strict digest.
    hasher.tag(u8::MAX);
    // The texts are hashed as one, so their split into blocks does not count.
    hasher.length(texts.iter().map(|text| text.len()).sum());
    for text in texts {
        hasher.update(text.as_bytes());
    }
    hasher.length(others.len());
    for block in others {
        match block {
            // Gateways add fields to calls, such as signatures, which clients may drop.
            Block::ToolUse(call) => hasher.call(&call.id, &call.name, &call.input),
            _ => hasher.canonical_block(block, item_fields(message.origin)),
        }
    }
    hasher.sorted(content);
    hasher.finish()
}

/// Returns the texts of a message. Their concatenation neither begins nor ends with white space.
fn trimmed_texts(blocks: &[Block]) -> Vec<&str> {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text { text, .. } if !block.is_blank() => Some(&**text),
        _ => None,
    });
    let mut texts: Vec<&str> = texts.collect();
    if let Some(last) = texts.last_mut() {
        *last = last.trim_end();
    }
    if let Some(first) = texts.first_mut() {
        *first = first.trim_start();
    }
    texts
}

/// Returns the unknown fields that count.
fn counted<'a>(extra: &'a UnknownFields, ignored: &[&str]) -> Vec<(&'a str, &'a RawJson)> {
    let counts = |(name, value): &(&str, &RawJson)| {
        *name != CACHE_MARKER && !ignored.contains(name) && !is_empty(value)
    };
    extra.iter().filter(counts).collect()
}

/// Returns true for `null`, an empty string and an empty array. Such a field equals an absent one.
fn is_empty(value: &RawJson) -> bool {
    let text = value.as_str();
    let array = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    matches!(text, "null" | "\"\"") || array.is_some_and(|inner| inner.trim().is_empty())
}

impl Hasher {
    fn fields(&mut self, extra: &UnknownFields, ignored: &[&str]) {
        self.sorted(counted(extra, ignored));
    }

    /// Hashes fields in the order of their names.
    fn sorted(&mut self, mut fields: Vec<(&str, &RawJson)>) {
        fields.sort_by_key(|(name, _)| *name);
        self.length(fields.len());
        for (name, value) in fields {
            self.text(name);
            hash_json_value(value, CacheMarkers::Ignored, self);
        }
    }

    /// Hashes the blocks that are not blank. Providers reject blank blocks, so clients leave them out.
    fn canonical_blocks(&mut self, blocks: &[Block], ignored: &'static [&'static str]) {
        let counted = || blocks.iter().filter(|block| !block.is_blank());
        self.length(counted().count());
        for block in counted() {
            self.canonical_block(block, ignored);
        }
    }

    fn canonical_block(&mut self, block: &Block, ignored: &'static [&'static str]) {
        match block {
            Block::Text { text, extra } => self.canonical_text(text, extra, ignored),
            Block::Media(media) => {
                self.media_source(media, |hasher, json| {
                    hash_json_value(json, CacheMarkers::Ignored, hasher);
                });
                self.fields(&media.extra, &[]);
            }
            Block::ToolUse(call) => {
                self.call(&call.id, &call.name, &call.input);
                let ignored: &[&str] = if ignored.is_empty() {
                    &[CALL_INDEX]
                } else {
                    ignored
                };
                self.fields(&call.extra, ignored);
            }
            Block::ToolResult(result) => {
                self.tag(3);
                self.text(&result.tool_use_id);
                match &result.content {
                    // A string equals a list with one text block, because callers turn one into the other.
                    ResultContent::Text(text) if !text.trim().is_empty() => {
                        self.length(1);
                        self.canonical_text(text, &UnknownFields::default(), &[]);
                    }
                    ResultContent::None | ResultContent::Text(_) => self.length(0),
                    ResultContent::Blocks(blocks) => self.canonical_blocks(blocks, ignored),
                }
                self.tag(u8::from(result.is_error == Some(true)));
                self.fields(&result.extra, ignored);
            }
            Block::Thinking(Thinking::Plain {
                thinking,
                signature,
                extra,
            }) => {
                self.tag(4);
                self.text(thinking);
                self.text(signature.as_deref().unwrap_or_default());
                self.fields(extra, ignored);
            }
            Block::Thinking(Thinking::Redacted { data, extra }) => {
                self.tag(5);
                self.text(data);
                self.fields(extra, ignored);
            }
            Block::Opaque { kind, json } => {
                self.tag(6);
                self.text(kind);
                // An item of the Responses API has optional fields. A block of another API is hashed as a whole.
                let item = (!ignored.is_empty())
                    .then(|| UnknownFields::from_object(json.as_str()).ok())
                    .flatten();
                match item {
                    Some(item) => self.fields(&item, ignored),
                    None => hash_json_value(json, CacheMarkers::Ignored, self),
                }
            }
        }
    }

    fn canonical_text(&mut self, text: &str, extra: &UnknownFields, ignored: &[&str]) {
        self.tag(0);
        self.text(text);
        self.fields(extra, ignored);
    }

    fn call(&mut self, id: &str, name: &str, input: &ToolInput) {
        self.tag(2);
        self.text(id);
        self.text(name);
        match input {
            // Arguments are data of the tool: a key that is named like a cache marker counts.
            ToolInput::Object(json) => {
                self.tag(0);
                hash_json_value(json, CacheMarkers::Counted, self);
            }
            ToolInput::Text(text) => {
                self.tag(1);
                self.text(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MessageId;
    use crate::message::{ToolResult, ToolUse};

    fn of(role: Role, blocks: Vec<Block>) -> CanonicalDigests {
        CanonicalDigests::of(&Message::new(
            MessageId::new(uuid::Uuid::nil()),
            role,
            blocks,
        ))
    }

    fn fields(json: &str) -> UnknownFields {
        UnknownFields::from_object(json).unwrap()
    }

    fn text(text: &str, extra: &str) -> Block {
        Block::Text {
            text: text.into(),
            extra: fields(extra),
        }
    }

    fn call(input: &str) -> Block {
        Block::ToolUse(ToolUse {
            id: "a".into(),
            name: "t".into(),
            input: ToolInput::parse(input),
            extra: UnknownFields::default(),
        })
    }

    fn result(content: ResultContent, is_error: Option<bool>) -> Block {
        Block::ToolResult(ToolResult {
            tool_use_id: "a".into(),
            content,
            is_error,
            extra: UnknownFields::default(),
        })
    }

    fn thinking() -> Block {
        Block::Thinking(Thinking::Plain {
            thinking: "hm".into(),
            signature: Some("s".into()),
            extra: UnknownFields::default(),
        })
    }

    #[track_caller]
    fn check(role: Role, blocks: Vec<Block>, other: Vec<Block>, are_equal: bool) {
        assert_eq!(of(role, blocks).strict == of(role, other).strict, are_equal);
    }

    #[test]
    fn spellings_that_callers_change_do_not_count() {
        let user = |one, other| check(Role::User, vec![one], vec![other], true);
        user(
            text(
                "a",
                r#"{"cache_control":{"type":"ephemeral"},"citations":null}"#,
            ),
            text("a", "{}"),
        );
        // Providers reject a blank block, so callers leave it out.
        check(
            Role::User,
            vec![text(" \n", "{}"), text("a", "{}")],
            vec![text("a", "{}")],
            true,
        );
        // `is_error: false` equals an absent field, and a string equals a text block.
        user(
            result(ResultContent::Text("x".into()), Some(false)),
            result(
                ResultContent::Blocks(vec![text("x", r#"{"cache_control":{}}"#)]),
                None,
            ),
        );
        user(
            result(ResultContent::None, None),
            result(ResultContent::Text("".into()), None),
        );
        user(
            result(ResultContent::None, None),
            result(ResultContent::Blocks(Vec::new()), None),
        );
        // Clients parse arguments and write them again.
        user(
            call(r#"{"a":1,"b":[2]}"#),
            call(r#"{ "b" : [2.0], "a" : 1e0 }"#),
        );
        let opaque = |json| Block::Opaque {
            kind: "k".into(),
            json: RawJson::parse(json).unwrap(),
        };
        user(
            opaque(r#"{"type":"k","in":[{"x":1,"cache_control":{}}]}"#),
            opaque(r#"{"in":[{"x":1}],"type":"k"}"#),
        );
    }

    #[test]
    fn content_counts() {
        let user = |one, other| check(Role::User, vec![one], vec![other], false);
        user(text("a", "{}"), text("a ", "{}"));
        user(text("a", r#"{"citations":[1]}"#), text("a", "{}"));
        user(
            result(ResultContent::None, Some(true)),
            result(ResultContent::None, None),
        );
        user(
            call(r#"{"cache_control":1}"#),
            call(r#"{"cache_control":2}"#),
        );
        user(call(r#"{"a":1}"#), call(r#"{"a":"1"}"#));
        check(
            Role::User,
            vec![text("ab", "{}")],
            vec![text("a", "{}"), text("b", "{}")],
            false,
        );
        assert_ne!(
            of(Role::User, vec![text("a", "{}")]).strict,
            of(Role::System, vec![text("a", "{}")]).strict
        );
    }

    #[test]
    fn the_loose_digest_ignores_thinking_and_the_split_into_blocks() {
        let full = of(
            Role::Assistant,
            vec![thinking(), text(" a", "{}"), text("b\n", "{}"), call("{}")],
        );
        let echo = of(Role::Assistant, vec![text("ab", "{}"), call("{}")]);
        assert_ne!(full.strict, echo.strict);
        assert_eq!(full.loose, echo.loose);
        assert_ne!(
            full.loose,
            of(Role::Assistant, vec![text("ab", "{}")]).loose
        );
        assert_ne!(full.loose, full.strict);
        let user = of(Role::User, vec![text("ab", "{}")]);
        assert_eq!(user.loose, user.strict);
    }

    #[test]
    fn a_message_without_content_is_optional() {
        assert!(of(Role::Assistant, vec![thinking()]).is_optional());
        assert!(of(Role::User, vec![text("\n", "{}")]).is_optional());
        assert!(!of(Role::User, vec![text("a", "{}")]).is_optional());
        assert!(!of(Role::Assistant, vec![thinking(), call("{}")]).is_optional());
        let mut message = Message::new(MessageId::new(uuid::Uuid::nil()), Role::System, Vec::new());
        message.extra = fields(r#"{"output_config":{"effort":"high"}}"#);
        assert!(!CanonicalDigests::of(&message).is_optional());
        message.role = Role::Assistant;
        message.extra = fields(r#"{"function_call":{"name":"f","arguments":"{}"}}"#);
        assert!(!CanonicalDigests::of(&message).is_optional());
    }

    #[test]
    fn fields_of_a_response_do_not_count() {
        let mut message = Message::new(
            MessageId::new(uuid::Uuid::nil()),
            Role::Assistant,
            Vec::new(),
        );
        message.blocks.push(text("a", "{}"));
        let plain = CanonicalDigests::of(&message);
        message.extra = fields(r#"{"stop_reason":"end_turn","annotations":[ ],"refusal":null}"#);
        message.provider_message_id = Some("m".into());
        assert_eq!(CanonicalDigests::of(&message), plain);
        message.extra = fields(r#"{"phase":"final"}"#);
        assert_ne!(CanonicalDigests::of(&message).strict, plain.strict);
        assert_eq!(CanonicalDigests::of(&message).loose, plain.loose);
        // Claude Code does not send this field back.
        message.extra = fields(r#"{"context_management":{"applied_edits":[]}}"#);
        assert_eq!(CanonicalDigests::of(&message), plain);
    }

    #[test]
    fn fields_of_an_item_do_not_count() {
        let mut message = Message::new(
            MessageId::new(uuid::Uuid::nil()),
            Role::Assistant,
            vec![text("a", "{}")],
        );
        message.origin = MessageOrigin::OpenAiResponses;
        let plain = CanonicalDigests::of(&message);
        let field = "internal_chat_message_metadata_passthrough";
        message.extra = fields(&format!(
            r#"{{"id":"i","status":"completed","{field}":{{"a":1}}}}"#
        ));
        assert_eq!(CanonicalDigests::of(&message), plain);
    }
}
