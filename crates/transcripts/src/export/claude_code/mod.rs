//! Claude Code's session format: one line for each message. Data without a field in this format is left out.
//!
//! Claude Code sends the messages of a chain of parents, which is the view of the session. Records of the changes of the
//! view stand beside it, from which an import derives the view.

mod chain;
mod records;

use std::collections::{BTreeMap, HashSet};

use palimpsest_core::ids::{MessageId, SessionId, Timestamp};
use palimpsest_core::message::{
    Block, Message, MessageKind, MessageOrigin, ResultContent, Role, Usage,
};
use palimpsest_core::session::{Session, Visibility};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::chain::{Chain, LineId, is_withdrawn};
use self::records::RecordHead;
use super::line;
use super::messages::{original_blocks, without_cache_markers};
use super::original::OriginalMessage;
use crate::import::is_user_input;
use crate::utc;

/// The writer of one session. It links each line to an earlier one.
#[derive(Debug)]
pub struct ClaudeCodeWriter {
    session: String,
    /// The chain of the view. `None` for a part of the messages, which cannot be resumed.
    chain: Option<Chain>,
    /// The message of the previous line.
    last: Option<MessageId>,
    /// The last message that no rewind removed.
    kept: Option<MessageId>,
    /// True if the chain does not contain the message of the previous line.
    last_is_outside: bool,
    /// True if a line of a message is outside the chain.
    has_others: bool,
    /// The time of the previous line.
    at: Option<Timestamp>,
    /// The messages that an import of the lines so far shows, in order.
    imported: Vec<MessageId>,
    /// The number of rewound messages at the end of `imported` that form one abandoned branch, and the parent of the
    /// branch.
    branch: Option<(usize, Option<MessageId>)>,
}

impl ClaudeCodeWriter {
    /// Creates the writer for a part of a session's messages.
    pub fn new(session: &SessionId) -> Self {
        Self {
            session: session.to_string(),
            chain: None,
            last: None,
            kept: None,
            last_is_outside: false,
            has_others: false,
            at: None,
            imported: Vec::new(),
            branch: None,
        }
    }

    /// Creates the writer for all messages of a session.
    pub fn of(session: &Session) -> Self {
        Self {
            chain: Some(Chain::of(session)),
            ..Self::new(&session.key().session)
        }
    }

    /// Returns the lines of a message.
    pub fn message(&mut self, original: &OriginalMessage) -> Vec<u8> {
        // The chain is moved out, because the methods that read it also change the writer.
        let Some(chain) = self.chain.take() else {
            return self.line(&original.message, original.entry.visibility);
        };
        self.at = original.message.at.or(self.at);
        let lines = self.lines_in_chain(&chain, original);
        self.chain = Some(chain);
        lines
    }

    /// Returns the lines after all messages: the records of changes that no line before records.
    pub fn end(&mut self) -> Vec<u8> {
        let Some(chain) = self.chain.take() else {
            return Vec::new();
        };
        let mut out = Vec::new();
        let (recorded, others) = chain.recordable_spans(&self.imported);
        let collapsed = recorded.iter().flat_map(|span| &span.messages);
        let collapsed: HashSet<&MessageId> = collapsed.collect();
        let removed = self.imported.iter();
        let removed = removed.filter(|id| !chain.in_view.contains(id) && !collapsed.contains(id));
        let removed: Vec<MessageId> = removed.copied().collect();
        if let Some(first) = removed.first() {
            let id = LineId::Removal.of(*first);
            out.extend(self.record().removal(id, &removed));
        }
        for (number, span) in recorded.into_iter().enumerate() {
            out.extend(self.record().collapse(number + 1, span));
            out.extend(self.record().placeholder(span));
            self.last = Some(span.id);
        }
        // An import takes the placeholder for a message, and the messages of the span are removed.
        for span in others {
            out.extend(self.record().placeholder(span));
            self.last = Some(span.id);
        }
        // Without this record, Claude Code continues the latest message that no other message follows.
        let is_ambiguous = self.has_others || self.last != chain.leaf;
        let leaf = chain.leaf.filter(|_| is_ambiguous);
        if let Some(leaf) = leaf {
            out.extend(self.record().leaf(leaf));
        }
        self.chain = Some(chain);
        out
    }

    /// Returns the line of a message of a part of the session.
    fn line(&mut self, message: &Message, standing: Visibility) -> Vec<u8> {
        let is_rewound = is_abandoned(message, standing);
        // In this format, two inputs with the same parent mean that the first one was abandoned.
        let before = if is_rewound { self.last } else { self.kept };
        let parent = message.parent.or(before);
        self.last = Some(message.id);
        if !is_rewound {
            self.kept = self.last;
        }
        self.message_line(message, message.id, parent, false)
    }

    fn lines_in_chain(&mut self, chain: &Chain, original: &OriginalMessage) -> Vec<u8> {
        let (entry, message) = (&original.entry, &*original.message);
        if entry.kind == MessageKind::Boundary {
            return self.boundary(chain, original);
        }
        // The chain contains the caller's version of a response. A second version would double its content for a program
        // that reads all lines.
        if is_withdrawn(entry.kind, entry.visibility) || original.is_superseded_response() {
            return Vec::new();
        }
        let is_summary = entry.kind == MessageKind::Summary;
        let Some(link) = chain.link(original.ordinal) else {
            let parent = self.parent_outside(chain, original);
            self.last = Some(message.id);
            self.last_is_outside = true;
            self.has_others = true;
            self.imported.push(message.id);
            return self.message_line(message, message.id, parent, is_summary);
        };
        let replaced = chain.replaced.get(&original.ordinal);
        // An original with replaced results has no parent in the file, so an import finds no rewind there.
        self.end_branch(message, link.parent.filter(|_| replaced.is_none()));
        self.imported.push(message.id);
        self.last = Some(link.id);
        self.last_is_outside = false;
        let Some(replaced) = replaced else {
            return self.message_line(message, message.id, link.parent, is_summary);
        };
        // The original is outside the chain, and its copy has the results of the view.
        self.has_others = true;
        let mut out = self.message_line(message, message.id, None, false);
        let (copy, calls) = with_replaced(message, replaced);
        // An import skips the copy, because the record before it lists the calls of its results.
        let id = LineId::Replaced.of(message.id);
        out.extend(self.record().replaced(id, &calls));
        out.extend(self.message_line(&copy, link.id, link.parent, false));
        out
    }

    /// Returns the line of a compaction, or nothing if it was undone.
    fn boundary(&mut self, chain: &Chain, original: &OriginalMessage) -> Vec<u8> {
        let Some(compaction) = chain.compactions.get(&original.ordinal) else {
            return Vec::new();
        };
        let id = original.entry.id;
        let line = self.record().boundary(id, self.last, compaction);
        // An import lets the summary replace all other messages.
        let kept: HashSet<&MessageId> = compaction.kept.iter().collect();
        self.imported.retain(|id| kept.contains(id));
        self.branch = None;
        self.last = Some(id);
        self.last_is_outside = true;
        line
    }

    /// Returns the parent of a message outside the chain. It must not let an import see a rewind where there is none.
    fn parent_outside(&mut self, chain: &Chain, original: &OriginalMessage) -> Option<MessageId> {
        if original.entry.visibility != Visibility::Rewound {
            self.branch = None;
            // Earlier messages of a compaction keep their order. A line of the chain has one successor only.
            return self.last.filter(|_| self.last_is_outside);
        }
        if let Some((messages, _)) = &mut self.branch {
            *messages += 1;
            return self.last;
        }
        let parent = chain.parent_after(original.ordinal);
        if is_input(&original.message) {
            self.branch = Some((1, parent));
        }
        parent
    }

    /// Lets an import abandon the branch before a line of the chain, if it finds a rewind there.
    fn end_branch(&mut self, message: &Message, parent: Option<MessageId>) {
        let Some((messages, of_branch)) = self.branch.take() else {
            return;
        };
        if parent.is_some() && parent == of_branch && is_input(message) {
            let left = self.imported.len().saturating_sub(messages);
            self.imported.truncate(left);
        }
    }

    fn record(&self) -> RecordHead<'_> {
        RecordHead {
            session: &self.session,
            at: self.at,
        }
    }

    fn message_line(
        &self,
        message: &Message,
        id: MessageId,
        parent: Option<MessageId>,
        is_summary: bool,
    ) -> Vec<u8> {
        let mut head = json!({
            "parentUuid": parent.map(|id| id.to_string()),
            "isSidechain": false,
            "sessionId": self.session,
            "type": role(message.role),
            "uuid": id.to_string(),
        });
        if let Some(head) = head.as_object_mut() {
            add_metadata(message, head);
            if is_summary {
                head.remove("isMeta");
                head.insert("isCompactSummary".into(), json!(true));
                head.insert("isVisibleInTranscriptOnly".into(), json!(true));
            }
        }
        line::line(&head, &payload(message))
    }
}

/// Returns true if the message belongs to an abandoned branch: it was rewound, or it is a response whose caller sent
/// another version back.
fn is_abandoned(message: &Message, standing: Visibility) -> bool {
    let is_superseded = standing == Visibility::TranscriptOnly && !message.transcript_only;
    standing == Visibility::Rewound || is_superseded
}

/// Returns true if an import takes the message for the input of a person.
fn is_input(message: &Message) -> bool {
    // The codec writes valid UTF-8, so the default is never used.
    let payload = String::from_utf8(payload(message)).unwrap_or_default();
    let payload = RawValue::from_string(payload);
    message.role == Role::User
        && !message.machine_generated
        && payload.is_ok_and(|payload| is_user_input(&payload))
}

/// Returns a message with the results of the view, and the calls of the replaced results.
fn with_replaced<'m>(
    message: &'m Message,
    texts: &BTreeMap<u16, Box<str>>,
) -> (Message, Vec<&'m str>) {
    let mut copy = message.clone();
    let mut calls = Vec::new();
    for (block, text) in texts {
        let index = usize::from(*block);
        if let Some(Block::ToolResult(original)) = message.blocks.get(index) {
            calls.push(&*original.tool_use_id);
        }
        if let Some(Block::ToolResult(result)) = copy.blocks.get_mut(index) {
            result.content = ResultContent::Text(text.clone());
        }
    }
    (copy, calls)
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        // `developer` is OpenAI's name for the system role.
        Role::System | Role::Developer => "system",
    }
}

/// Adds the time and the attributes that the format has fields for.
fn add_metadata(message: &Message, head: &mut Map<String, Value>) {
    if let Some(at) = message.at {
        head.insert("timestamp".into(), json!(utc::format(at)));
    }
    if message.machine_generated {
        head.insert("isMeta".into(), json!(true));
    }
    for (name, value) in &message.attributes {
        let value = match &**name {
            "cwd" | "gitBranch" | "version" | "permissionMode" => json!(value),
            // The only attribute that the format stores as JSON.
            "todos" => match serde_json::from_str(value) {
                Ok(todos @ Value::Array(_)) => todos,
                _ => continue,
            },
            _ => continue,
        };
        head.insert(name.to_string(), value);
    }
}

/// Returns the message in Anthropic's format. Unknown fields of other providers and cache markers are left out, because
/// Anthropic would reject them in a request that a reader builds from the file.
fn payload(message: &Message) -> Vec<u8> {
    let message = &without_cache_markers(message);
    let is_accepted = matches!(
        message.origin,
        MessageOrigin::Typed | MessageOrigin::Anthropic
    );
    let extra = is_accepted.then(|| message.extra.to_object()).flatten();
    let mut head = json!({"role": role(message.role)});
    if let Some(head) = head.as_object_mut() {
        let mut known = |name: &str, value: Option<Value>| {
            head.extend(value.map(|value| (name.to_owned(), value)));
        };
        let is_response = message.role == Role::Assistant;
        known(
            "id",
            message.provider_message_id.as_deref().map(Value::from),
        );
        known("model", message.model.as_deref().map(Value::from));
        known("usage", message.usage.map(usage));
        known("type", is_response.then(|| json!("message")));
    }
    let mut out = head.to_string().into_bytes();
    // The object stays open for the content, which is written in its original bytes.
    out.pop();
    out.extend_from_slice(b",\"content\":");
    line::content(original_blocks(message), &mut out);
    let has_reason = extra.is_some() && message.extra.get("stop_reason").is_some();
    // The API always returns `stop_reason` in a response, so the field is `null` if no value was stored.
    if message.role == Role::Assistant && !has_reason {
        out.extend_from_slice(b",\"stop_reason\":null");
    }
    if let Some(extra) = extra {
        out.push(b',');
        // The first byte is the opening brace of an object that continues the one written so far.
        out.extend_from_slice(&extra.as_bytes()[1..]);
    } else {
        out.push(b'}');
    }
    out
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    })
}

#[cfg(test)]
mod resume_tests;
#[cfg(test)]
mod tests;
