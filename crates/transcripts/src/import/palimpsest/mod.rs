//! Importer for Palimpsest's own export: a header line, the lines of a whole transcript, and a
//! trailer line with a digest.
//!
//! The file is read completely or not at all, and only its first defect is reported. Messages that
//! had left the view leave it again through ordinary client operations, as far as the lines record
//! how.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use palimpsest_core::codec;
use palimpsest_core::event::Attributes;
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::json::{JsonError, ObjectFields, UnknownFields};
use palimpsest_core::message::{Message, MessageKind, MessageOrigin, Role, Usage};
use palimpsest_core::session::Visibility;
use palimpsest_core::view::Provider;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::imported::{
    ImportDefect, ImportStep, Imported, ImportedCompaction, ImportedMessage, ImportedSession, lines,
};

/// The version of the format.
pub const VERSION: u32 = 1;
/// The value of `palimpsest` in the header, which identifies the format.
pub const WHAT: &str = "transcript";

#[derive(Deserialize)]
struct ExportHeader {
    palimpsest: String,
    version: u32,
    #[serde(default)]
    partial: bool,
    title: Option<Box<str>>,
    #[serde(default)]
    project_path: Box<str>,
    #[serde(default)]
    branch: Box<str>,
    #[serde(default)]
    attributes: BTreeMap<Box<str>, Box<str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportTrailer {
    messages: usize,
    #[serde(default)]
    pending_results: usize,
    sha256: String,
}

/// A stored result that was lost before the export. The message contains its replacement.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LostResult {
    #[serde(rename = "block")]
    _block: u16,
    #[serde(rename = "file")]
    _file: String,
    #[serde(rename = "loss")]
    _loss: String,
}

/// A message line. Unknown fields are rejected, because they would be lost.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportLine<'a> {
    id: String,
    #[serde(rename = "ordinal")]
    _ordinal: u64,
    #[serde(rename = "revision")]
    _revision: u64,
    visibility: ExportVisibility,
    parent_id: Option<String>,
    create_time_ms: Option<i64>,
    provider_message_id: Option<Box<str>>,
    model: Option<Box<str>>,
    usage: Option<Tokens>,
    kind: KindName,
    #[serde(default)]
    origin: OriginName,
    #[serde(default)]
    meta: bool,
    #[serde(default)]
    transcript_only: bool,
    #[serde(default)]
    attributes: BTreeMap<Box<str>, Box<str>>,
    #[serde(default)]
    unreadable_results: Vec<LostResult>,
    #[serde(borrow)]
    message: &'a RawValue,
}

/// The visibility of a message, as the export names it.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum ExportVisibility {
    Visible,
    Compacted,
    Collapsed,
    Snipped,
    Rewound,
    ReEmission,
    TranscriptOnly,
    Withdrawn,
    Unconfirmed,
}

impl From<Visibility> for ExportVisibility {
    fn from(visibility: Visibility) -> Self {
        match visibility {
            Visibility::Visible => Self::Visible,
            Visibility::Compacted => Self::Compacted,
            Visibility::Collapsed => Self::Collapsed,
            Visibility::Snipped => Self::Snipped,
            Visibility::Rewound => Self::Rewound,
            Visibility::Reemission(_) => Self::ReEmission,
            Visibility::TranscriptOnly => Self::TranscriptOnly,
            Visibility::Withdrawn => Self::Withdrawn,
            Visibility::Unconfirmed => Self::Unconfirmed,
        }
    }
}

/// The kind of a message, as the export names it.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum KindName {
    Ordinary,
    Summary,
    Boundary,
    Attachment,
    Hook,
    Synthetic,
}

impl From<MessageKind> for KindName {
    fn from(kind: MessageKind) -> Self {
        match kind {
            MessageKind::Ordinary => Self::Ordinary,
            MessageKind::Summary => Self::Summary,
            MessageKind::Boundary => Self::Boundary,
            MessageKind::Attachment => Self::Attachment,
            MessageKind::Hook => Self::Hook,
            MessageKind::Synthetic => Self::Synthetic,
        }
    }
}

#[derive(Deserialize, Clone, Copy, Default)]
enum OriginName {
    #[default]
    #[serde(rename = "TYPED")]
    Typed,
    #[serde(rename = "ANTHROPIC_MESSAGES")]
    Anthropic,
    #[serde(rename = "OPENAI_CHAT")]
    OpenAi,
    #[serde(rename = "OPENAI_RESPONSES")]
    OpenAiResponses,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct Tokens {
    #[serde(rename = "input_tokens")]
    input: u64,
    #[serde(rename = "output_tokens")]
    output: u64,
    #[serde(rename = "cache_read_tokens")]
    cache_read: u64,
    #[serde(rename = "cache_write_tokens")]
    cache_write: u64,
}

pub(super) fn read(bytes: &[u8]) -> Imported<'_> {
    let mut imported = Imported {
        is_atomic: true,
        ..Imported::default()
    };
    match verify_export(bytes).and_then(ExportReader::read) {
        Ok(reader) => {
            imported.sessions.push(reader.session);
            imported.skipped = reader.skipped.into_iter().collect();
        }
        Err(defect) => imported.defects.push(defect),
    }
    imported
}

fn defect(line: usize, problem: impl Into<String>) -> ImportDefect {
    let problem = problem.into();
    ImportDefect { line, problem }
}

type NumberedLines<'a> = Vec<(usize, &'a [u8])>;

/// The parts of a file with a valid digest.
struct VerifiedExport<'a> {
    head: ExportHeader,
    messages: NumberedLines<'a>,
    /// The number of stored results whose messages never arrived.
    pending_results: usize,
}

/// Validates header, trailer and digest. Returns the header and the message lines.
fn verify_export(bytes: &[u8]) -> Result<VerifiedExport<'_>, ImportDefect> {
    let mut all: NumberedLines<'_> = lines(bytes).collect();
    let foreign = "is no beginning of a file that `palimpsest export` wrote";
    let Some((number, first)) = all.first().copied() else {
        return Err(defect(1, "is missing: the file is empty"));
    };
    let head: ExportHeader = serde_json::from_slice(first).map_err(|_| defect(number, foreign))?;
    if head.palimpsest != WHAT {
        return Err(defect(number, foreign));
    }
    if head.version != VERSION {
        let version = head.version;
        let problem = format!(
            "has version {version} of the format, and this program reads version {VERSION}: use a program that reads it"
        );
        return Err(defect(number, problem));
    }
    // In a file of one line, the header is the last line, which is then rejected as a trailer.
    let (number, last) = all.pop().unwrap_or((number, first));
    let Ok(end) = serde_json::from_slice::<ExportTrailer>(last) else {
        let problem = "is not the end of an export: the file was cut off; export the session again";
        return Err(defect(number, problem));
    };
    // The digest covers all bytes before the trailer line.
    // Both slices are parts of the same file, so the difference of their addresses is an offset.
    let at = last.as_ptr().addr() - bytes.as_ptr().addr();
    let digest = Sha256::digest(bytes.get(..at).unwrap_or_default());
    let found = digest.iter().map(|byte| format!("{byte:02x}"));
    // Beside these lines, the file has a header.
    // The counts come from the file, so their sums saturate.
    let expected = end.messages.saturating_add(end.pending_results);
    if found.collect::<String>() != end.sha256 || all.len() != expected.saturating_add(1) {
        let problem =
            "does not fit the lines before it: the file was changed; export the session again";
        return Err(defect(number, problem));
    }
    // A partial export is valid, but importing it would lose messages silently.
    if head.partial {
        let problem =
            "is a part of a session, exported with a filter or without its stored results";
        return Err(defect(1, problem));
    }
    // Stored results without a message follow the messages. An import leaves them out.
    all.remove(0);
    all.truncate(end.messages);
    Ok(VerifiedExport {
        head,
        messages: all,
        pending_results: end.pending_results,
    })
}

#[derive(Default)]
struct ExportReader<'a> {
    session: ImportedSession<'a>,
    skipped: BTreeMap<String, usize>,
    seen: HashSet<MessageId>,
    /// The last message that no rewind removed.
    last: Option<MessageId>,
    /// True if the latest messages were removed by a rewind.
    is_abandoned: bool,
    /// The messages that remained in the view.
    shown: Vec<MessageId>,
    snipped: Vec<MessageId>,
}

impl<'a> ExportReader<'a> {
    fn read(checked: VerifiedExport<'a>) -> Result<Self, ImportDefect> {
        let VerifiedExport {
            head,
            messages,
            pending_results,
        } = checked;
        let mut reader = Self::default();
        reader.skip("stored result without a message", pending_results);
        let session = &mut reader.session;
        session.title = head.title;
        session.project_path = head.project_path;
        session.branch = head.branch;
        session.attributes = head.attributes.into_iter().collect();
        let end = messages.last().map_or(1, |(number, _)| *number);
        for (number, bytes) in messages {
            let read = reader.line(number, bytes);
            read.map_err(|problem| defect(number, problem))?;
        }
        // The messages at the end can belong to an abandoned branch.
        reader.leave_branch();
        if !reader.snipped.is_empty() {
            let messages = std::mem::take(&mut reader.snipped);
            let line = end;
            let removed = ImportStep::Removed { line, messages };
            reader.session.steps.push(removed);
        }
        Ok(reader)
    }

    fn skip(&mut self, kind: &str, count: usize) {
        if count > 0 {
            *self.skipped.entry(kind.to_owned()).or_default() += count;
        }
    }

    fn line(&mut self, number: usize, bytes: &'a [u8]) -> Result<(), String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8")?;
        let line: ExportLine<'a> = serde_json::from_str(text).map_err(|error| {
            let column = error.column();
            format!("is no message of this format (column {column})")
        })?;
        let message = line.whole()?;
        let (id, kind) = (message.id, line.kind);
        if !self.seen.insert(id) {
            return Err("repeats the id of an earlier line".to_owned());
        }
        if matches!(kind, KindName::Boundary | KindName::Synthetic)
            || line.visibility == ExportVisibility::Withdrawn
            || (kind == KindName::Summary && line.visibility == ExportVisibility::Rewound)
        {
            // The service writes its own messages of this kind, so an imported copy would be a
            // duplicate.
            self.skip("made by the service", 1);
            // Later lines must not keep a message that is not imported as their parent.
            self.seen.remove(&id);
            return Ok(());
        }
        let lost = line.unreadable_results.len();
        self.skip("stored result that was lost before the export", lost);
        let abandoned = line.visibility == ExportVisibility::Rewound;
        if !abandoned {
            self.leave_branch();
            self.last = Some(id);
        }
        self.is_abandoned |= abandoned;
        match line.visibility {
            ExportVisibility::Snipped => self.snipped.push(id),
            // The messages of a collapsed span stay in the view until they are collapsed again. A response that waits
            // for its confirmation continues the conversation.
            ExportVisibility::Visible
            | ExportVisibility::Collapsed
            | ExportVisibility::Unconfirmed => self.shown.push(id),
            _ => {}
        }
        let imported = self.imported(number, &line, message);
        self.session.steps.push(if kind == KindName::Summary {
            // Snipped messages are removed after the last line, and only visible messages can be removed.
            let kept = self.shown.iter().chain(&self.snipped);
            ImportStep::Compacted(ImportedCompaction {
                kept: kept.copied().filter(|kept| *kept != id).collect(),
                summary: imported,
                first: None,
                last: None,
                manual: false,
                before_tokens: None,
            })
        } else {
            ImportStep::Message(imported)
        });
        Ok(())
    }

    fn imported(
        &self,
        line: usize,
        of: &ExportLine<'a>,
        mut message: Message,
    ) -> ImportedMessage<'a> {
        // The parent may be a message of the service, which is not imported.
        message.parent = message.parent.filter(|parent| self.seen.contains(parent));
        ImportedMessage {
            line,
            id: Some(message.id),
            provider: Provider::Anthropic,
            payload: Cow::Borrowed(of.message),
            parent: message.parent,
            at: message.at,
            machine_generated: message.machine_generated,
            transcript_only: message.transcript_only,
            attributes: message.attributes.clone(),
            model: None,
            usage: None,
            decoded: Some(Box::new(message)),
        }
    }

    /// Adds a rewind if the preceding messages were abandoned.
    fn leave_branch(&mut self) {
        if std::mem::take(&mut self.is_abandoned) {
            self.session.steps.push(ImportStep::Rewind(self.last));
        }
    }
}

impl ExportLine<'_> {
    /// Decodes the message with all fields of its line.
    fn whole(&self) -> Result<Message, String> {
        let id = MessageId::parse(&self.id).ok_or("has an id that is no UUID")?;
        let parent = match &self.parent_id {
            Some(parent) => {
                Some(MessageId::parse(parent).ok_or("has a parent_id that is no UUID")?)
            }
            None => None,
        };
        let decoded = match self.origin {
            OriginName::OpenAiResponses => item(self.message, id),
            _ => content(self.message, id),
        };
        let mut message =
            decoded.map_err(|error| format!("has a message that cannot be read: {error}"))?;
        message.parent = parent;
        message.at = self.create_time_ms.map(Timestamp::from_millis);
        message
            .provider_message_id
            .clone_from(&self.provider_message_id);
        message.model.clone_from(&self.model);
        message.usage = self.usage.map(|tokens| Usage {
            input_tokens: tokens.input,
            cache_read_tokens: tokens.cache_read,
            cache_write_tokens: tokens.cache_write,
            output_tokens: tokens.output,
        });
        message.kind = match self.kind {
            // The summary is imported as an ordinary message. It becomes a summary when the
            // compaction is applied.
            KindName::Ordinary | KindName::Summary => MessageKind::Ordinary,
            KindName::Attachment => MessageKind::Attachment,
            KindName::Hook => MessageKind::Hook,
            KindName::Boundary => MessageKind::Boundary,
            KindName::Synthetic => MessageKind::Synthetic,
        };
        message.machine_generated = self.meta;
        // A response whose caller sent another version back is in the transcript only, without the caller's mark.
        message.transcript_only =
            self.transcript_only || self.visibility == ExportVisibility::TranscriptOnly;
        message.origin = match self.origin {
            OriginName::Typed => MessageOrigin::Typed,
            OriginName::Anthropic => MessageOrigin::Anthropic,
            OriginName::OpenAi => MessageOrigin::OpenAi,
            OriginName::OpenAiResponses => MessageOrigin::OpenAiResponses,
        };
        let attributes: Attributes = self.attributes.clone().into_iter().collect();
        message.attributes = attributes;
        Ok(message)
    }
}

/// Decodes an item of OpenAI's Responses API.
fn item(raw: &RawValue, id: MessageId) -> Result<Message, codec::CodecError> {
    let json = raw.get().as_bytes();
    let mut read = codec::read(Provider::OpenAiResponses, json, &mut || id)?;
    let expected = "one item";
    read.pop().ok_or(JsonError::Kind { expected }.into())
}

/// Decodes the field `message`: Anthropic's blocks with four roles, of which Anthropic's API lacks
/// two.
fn content(raw: &RawValue, id: MessageId) -> Result<Message, codec::CodecError> {
    let mut fields = ObjectFields::read(raw)?;
    let role = match &*fields.require_string("role")? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        "developer" => Role::Developer,
        _ => {
            let expected = "`user`, `assistant`, `system` or `developer` as its role";
            return Err(JsonError::Kind { expected }.into());
        }
    };
    let field = "content";
    let content = fields.take(field)?.ok_or(JsonError::Missing { field })?;
    let extra = fields.take("extra")?;
    // Anthropic's codec does not accept all four roles, so it decodes the content as a user message.
    let json = format!(r#"{{"role":"user","content":{}}}"#, content.get());
    let mut read = codec::read(Provider::Anthropic, json.as_bytes(), &mut || id)?;
    let expected = "one message";
    let mut message = read.pop().ok_or(JsonError::Kind { expected })?;
    message.role = role;
    if let Some(extra) = extra {
        message.extra = UnknownFields::from_object(extra.get())?;
    }
    Ok(message)
}
