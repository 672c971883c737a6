//! Groups the pieces of a view into the messages that are sent to a provider.
//!
//! A wire message borrows from the transcript. A codec or the typed contract converts it into bytes.

use std::borrow::Cow;

use super::fixed_texts::{
    CLEARED, FAILED_SILENTLY, GAP, INTERJECTED, INTERRUPTED, NO_INPUT, NO_OUTPUT, NUDGE, OPENING,
    SNIPPED_RESULT, media_marker, result_as_text, snipped_marker,
};
use super::replacements;
use super::system_messages::with_system_messages;
use super::tail::{Speaker, speaker};
use super::{MarkerReason, Piece, PieceForm, Provider, Target, WireRole, count};
use crate::ids::{CallKey, Ordinal, TurnNumber};
use crate::json::{RawJson, UnknownFields};
use crate::message::{
    Block, CallKind, Media, MediaProblem, Message, MessageOrigin, ResultContent, Role, Thinking,
    ToolInput, ToolResult,
};
use crate::session::{Calls, ContentNotLoaded, Session, Transcript};

/// One message in the form that a provider accepts.
#[derive(Debug, Clone, PartialEq)]
pub struct WireMessage<'a> {
    /// The role of the message.
    pub role: WireRole,
    /// The content. Never empty.
    pub blocks: Vec<WireBlock<'a>>,
    /// Unknown fields of the transcript message. `None` if the target does not define them, or if several transcript
    /// messages are combined.
    pub extra: Option<&'a UnknownFields>,
    /// The first transcript message that contributes to this message.
    pub first: Ordinal,
}

/// One block in the form that a provider accepts. `extra` is set only if the provider defines those fields.
#[derive(Debug, Clone, PartialEq)]
pub enum WireBlock<'a> {
    /// Plain text.
    Text {
        /// The content of the block.
        text: Cow<'a, str>,
        /// Unknown fields.
        extra: Option<&'a UnknownFields>,
    },
    /// An image or a document.
    Media {
        /// The image or document.
        media: &'a Media,
        /// Unknown fields.
        extra: Option<&'a UnknownFields>,
    },
    /// A tool call.
    Call {
        /// The kind of the call.
        kind: CallKind,
        /// The id of the call on the wire.
        id: Cow<'a, str>,
        /// The name of the tool.
        name: Cow<'a, str>,
        /// The input as the model wrote it.
        input: &'a ToolInput,
        /// Unknown fields.
        extra: Option<&'a UnknownFields>,
    },
    /// A tool result.
    Result {
        /// The kind of the call that the result answers.
        kind: CallKind,
        /// The wire id of the call that the result answers.
        id: Cow<'a, str>,
        /// The output of the tool.
        content: WireResult<'a>,
        /// True if the tool failed. `None` if the result does not state it.
        is_error: Option<bool>,
        /// Unknown fields.
        extra: Option<&'a UnknownFields>,
    },
    /// Thinking of the model, verbatim.
    Thinking {
        /// The thinking block.
        thinking: &'a Thinking,
        /// Unknown fields.
        extra: Option<&'a UnknownFields>,
    },
    /// A block of an unknown type, verbatim.
    Opaque(&'a RawJson),
}

/// The content of a tool result in the form that a provider accepts.
#[derive(Debug, Clone, PartialEq)]
pub enum WireResult<'a> {
    /// No content.
    None,
    /// A single string.
    Text(Cow<'a, str>),
    /// A list of blocks.
    Blocks(Vec<WireBlock<'a>>),
}

impl<'a> WireBlock<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text {
            text: text.into(),
            extra: None,
        }
    }

    /// Converts a block of the transcript without any repair.
    pub fn from_block(block: &'a Block) -> Self {
        // Every block type is listed, so that a new type cannot be dropped here without a compile error.
        match block {
            Block::Text { text, extra } => Self::Text {
                text: (&**text).into(),
                extra: non_empty(extra),
            },
            Block::Media(media) => Self::Media {
                media,
                extra: non_empty(&media.extra),
            },
            Block::ToolUse(call) => Self::Call {
                kind: call.kind(),
                id: (&*call.id).into(),
                name: (&*call.name).into(),
                input: &call.input,
                extra: non_empty(&call.extra),
            },
            Block::ToolResult(result) => Self::Result {
                kind: result.kind(),
                id: (&*result.tool_use_id).into(),
                content: match &result.content {
                    ResultContent::None => WireResult::None,
                    ResultContent::Text(text) => WireResult::Text((&**text).into()),
                    ResultContent::Blocks(blocks) => {
                        WireResult::Blocks(blocks.iter().map(Self::from_block).collect())
                    }
                },
                is_error: result.is_error,
                extra: non_empty(&result.extra),
            },
            Block::Thinking(thinking) => Self::Thinking {
                thinking,
                extra: non_empty(thinking.extra()),
            },
            Block::Opaque { json, .. } => Self::Opaque(json),
        }
    }
}

fn non_empty(extra: &UnknownFields) -> Option<&UnknownFields> {
    (!extra.is_empty()).then_some(extra)
}

/// Groups pieces into wire messages. Some providers take the system prompt outside the `messages` array. For these
/// providers, messages of the role [`WireRole::System`] come first, and the caller removes them from the array.
pub fn wire<'a>(
    session: &'a Session,
    pieces: &[Piece],
    target: &Target,
) -> Result<Vec<WireMessage<'a>>, ContentNotLoaded> {
    let render = Renderer::new(session, target);
    let mut grouped = GroupedMessages::default();
    if target.takes_system_messages() {
        for shown in with_system_messages(&render, pieces)? {
            let piece = &pieces[shown.index];
            grouped.add(&render, piece, shown.key, shown.block);
        }
        return Ok(grouped.messages);
    }
    for piece in pieces {
        if let Some((key, block)) = render.piece(piece)? {
            grouped.add(&render, piece, key, block);
        }
    }
    Ok(grouped.messages)
}

/// The messages of the pieces so far.
#[derive(Default)]
struct GroupedMessages<'a> {
    messages: Vec<WireMessage<'a>>,
    last_key: Option<GroupKey>,
}

impl<'a> GroupedMessages<'a> {
    fn add(
        &mut self,
        render: &Renderer<'a, '_>,
        piece: &Piece,
        key: GroupKey,
        block: WireBlock<'a>,
    ) {
        // A piece that the target does not see leaves `last_key` as it is, so it separates no messages.
        if self.last_key == Some(key)
            && let Some(message) = self.messages.last_mut()
        {
            message.blocks.push(block);
            // Unknown fields of a message cannot be merged, so a combined message has none.
            if message.first != piece.message {
                message.extra = None;
            }
        } else {
            self.messages.push(WireMessage {
                role: key.role,
                blocks: vec![block],
                extra: render.message_extra(piece, key.role),
                first: piece.message,
            });
            self.last_key = Some(key);
        }
    }
}

/// The key that two neighbouring pieces must share to become part of one wire message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupKey {
    /// The role of the wire message.
    pub(super) role: WireRole,
    /// Separates neighbours of the same role: the message, or the call of a tool result.
    pub(super) apart: Option<(Ordinal, u16)>,
}

/// Returns the key of a piece. `None` if the target does not see the piece.
///
/// The key of an operator message is that of the user, whatever the target takes. Messages with this key belong to one
/// turn of the user, of which `system_messages` separates those of the operator.
pub(crate) fn group_key(
    session: &Session,
    piece: &Piece,
    target: &Target,
) -> Result<Option<GroupKey>, ContentNotLoaded> {
    let render = Renderer::new(session, target);
    Ok(render.piece(piece)?.map(|(key, _)| key))
}

pub(super) struct Renderer<'a, 't> {
    session: &'a Session,
    transcript: &'a Transcript,
    calls: &'a Calls,
    target: &'t Target,
}

impl<'a, 't> Renderer<'a, 't> {
    pub(super) fn new(session: &'a Session, target: &'t Target) -> Self {
        Self {
            session,
            transcript: session.transcript(),
            calls: session.calls(),
            target,
        }
    }

    pub(super) fn piece(
        &self,
        piece: &Piece,
    ) -> Result<Option<(GroupKey, WireBlock<'a>)>, ContentNotLoaded> {
        let speaker = speaker(piece, self.transcript);
        // The texts of these forms are constants or part of the session state, so their messages need not be loaded.
        let block = match piece.form {
            PieceForm::Dropped(_) => return Ok(None),
            PieceForm::Opening => WireBlock::text(OPENING),
            PieceForm::Gap => WireBlock::text(GAP),
            PieceForm::Nudge => WireBlock::text(NUDGE),
            PieceForm::Placeholder(span) => {
                let placeholder = self.session.spans().placeholder(span);
                WireBlock::text(placeholder.map_or(GAP, |one| &one.text))
            }
            PieceForm::Tag(turn) => WireBlock::text(self.tag(turn)),
            PieceForm::Interrupted(call) => self.fixed_result(call, INTERRUPTED, Some(true)),
            PieceForm::Cleared(call) => self.fixed_result(call, CLEARED, None),
            PieceForm::SnippedResult(call) => self.fixed_result(call, SNIPPED_RESULT, None),
            PieceForm::Stored(call) => self.fixed_result(call, self.stored_text(piece, call), None),
            _ => match self.block(
                piece,
                speaker,
                self.transcript.require_content(piece.message)?,
            ) {
                Some(block) => block,
                None => return Ok(None),
            },
        };
        Ok(Some((self.key(piece, speaker, &block), block)))
    }

    fn key(&self, piece: &Piece, speaker: Speaker, block: &WireBlock<'_>) -> GroupKey {
        let message = self.transcript.role(piece.message);
        let role = match (self.target.provider, speaker) {
            // The order of the arms matters: a developer message keeps its role even where it leads the view.
            (_, Speaker::Assistant) => WireRole::Assistant,
            (provider, _) if !provider.is_anthropic() && message == Role::Developer => {
                WireRole::Developer
            }
            (_, Speaker::System) => WireRole::System,
            (provider, _) if !provider.is_anthropic() && piece.form == PieceForm::Operator => {
                WireRole::System
            }
            (provider, _)
                if !provider.is_anthropic() && matches!(block, WireBlock::Result { .. }) =>
            {
                WireRole::Tool
            }
            (_, Speaker::User) => WireRole::User,
        };
        // Anthropic's APIs require alternating roles, so neighbours of one role are merged. `OpenAI` accepts
        // consecutive user messages, and requires one tool message for each result. Each item of its Responses API is a
        // message of its own.
        let apart = match (self.target.provider, role) {
            (Provider::OpenAi, WireRole::Assistant)
            | (Provider::Anthropic | Provider::Bedrock, _) => None,
            // Interruptions of several calls share a message and block 0. The call distinguishes them.
            (Provider::OpenAi | Provider::OpenAiResponses, WireRole::Tool) => {
                match piece.form.answered_call_key() {
                    // A message has at most `u16::MAX` blocks, so no block has this index.
                    Some(call) => Some((Ordinal::new(call.get()), u16::MAX)),
                    None => Some((piece.message, piece.block)),
                }
            }
            (Provider::OpenAiResponses, _) if !block.is_content() => {
                // 0 is the key of the item with the content blocks of a message, so other items begin at 1.
                Some((piece.message, piece.block.saturating_add(1)))
            }
            (Provider::OpenAi | Provider::OpenAiResponses, _) => Some((piece.message, 0)),
        };
        GroupKey { role, apart }
    }

    fn message_extra(&self, piece: &Piece, role: WireRole) -> Option<&'a UnknownFields> {
        let message = self.transcript.content(piece.message)?;
        // A system message inside Anthropic's array has fields of its own, such as `clear_at`. Other messages have
        // none.
        if role == WireRole::Operator {
            let is_own = message.origin == self.target.provider.origin();
            return is_own.then(|| non_empty(&message.extra)).flatten();
        }
        // Anthropic's APIs reject unknown fields of messages.
        let provider = self.target.provider;
        let is_own = !provider.is_anthropic() && message.origin == provider.origin();
        // Other forms replace or change the content, so the original fields no longer describe it.
        (is_own
            && matches!(
                piece.form,
                PieceForm::Block | PieceForm::Call(_) | PieceForm::Result(_)
            ))
        .then(|| non_empty(&message.extra))
        .flatten()
    }

    fn id(&self, call: CallKey) -> Cow<'a, str> {
        self.calls
            .wire_id(call, self.target.provider.max_call_id_len())
    }

    fn block(
        &self,
        piece: &Piece,
        speaker: Speaker,
        message: &'a Message,
    ) -> Option<WireBlock<'a>> {
        let block = message.blocks.get(usize::from(piece.block))?;
        // Another provider rejects fields that it does not define.
        let extra = |extra: &'a UnknownFields| {
            (self.target.accepts_unknown_fields_of(message.origin))
                .then(|| non_empty(extra))
                .flatten()
        };
        Some(match (block, piece.form) {
            (Block::ToolResult(result), PieceForm::Text(reason)) => {
                WireBlock::text(result_as_text(result, reason, |call| self.id(call)))
            }
            (Block::Media(media), PieceForm::Marker(MarkerReason::Media(problem))) => {
                WireBlock::text(media_marker(media, problem))
            }
            (block, PieceForm::Marker(_)) => WireBlock::text(snipped_marker(block)),
            (Block::ToolResult(result), PieceForm::Result(call)) => {
                self.result(result, call, true, extra(&result.extra), message.origin)
            }
            (Block::ToolResult(result), PieceForm::ResultWithoutMedia(call)) => {
                self.result(result, call, false, extra(&result.extra), message.origin)
            }
            (Block::ToolUse(call), PieceForm::Call(key)) => WireBlock::Call {
                kind: self.calls.kind(key),
                id: self.id(key),
                name: legal_name(&call.name, self.target.provider.max_tool_name_len()),
                input: &call.input,
                extra: extra(&call.extra),
            },
            // The result of the call stays in the view and needs its call, so only the input leaves.
            (Block::ToolUse(call), PieceForm::SnippedCall(key)) => WireBlock::Call {
                kind: self.calls.kind(key),
                id: self.id(key),
                name: legal_name(&call.name, self.target.provider.max_tool_name_len()),
                input: &NO_INPUT,
                extra: extra(&call.extra),
            },
            (Block::Text { text, extra: e }, _) if speaker == Speaker::System => WireBlock::Text {
                text: (&**text).into(),
                extra: extra(e),
            },
            (Block::Text { text, .. }, PieceForm::Operator)
                if self.target.provider.is_anthropic() =>
            {
                // Not every request may have system messages inside the conversation. The tag shows that no user wrote the
                // text.
                WireBlock::text(format!("<system-reminder>\n{text}\n</system-reminder>"))
            }
            (Block::Text { text, extra: e }, PieceForm::Input { turn, interjected }) => {
                WireBlock::Text {
                    text: self.annotated_text(text, turn, interjected).into(),
                    extra: extra(e),
                }
            }
            (Block::Text { text, extra: e }, _) => WireBlock::Text {
                text: (&**text).into(),
                extra: extra(e),
            },
            (Block::Media(media), _) => self.media(media, extra(&media.extra)),
            (Block::Thinking(thinking), _) => {
                if !self.target.accepts_thinking_of(message) {
                    return None;
                }
                WireBlock::Thinking {
                    thinking,
                    extra: extra(thinking.extra()),
                }
            }
            (Block::Opaque { kind, json }, _) => {
                self.opaque(kind, json, message.origin, speaker)?
            }
            (Block::ToolUse(_) | Block::ToolResult(_), _) => return None,
        })
    }

    /// Returns the text of an operator message without a tag, for a message of its own.
    pub(super) fn operator_text(
        &self,
        piece: &Piece,
    ) -> Result<Option<WireBlock<'a>>, ContentNotLoaded> {
        let message = self.transcript.require_content(piece.message)?;
        Ok(match message.blocks.get(usize::from(piece.block)) {
            Some(Block::Text { text, extra }) => Some(WireBlock::Text {
                text: (&**text).into(),
                extra: (self.target.accepts_unknown_fields_of(message.origin))
                    .then(|| non_empty(extra))
                    .flatten(),
            }),
            _ => None,
        })
    }

    /// Returns the text that replaces a stored result. The block has priority over the call: a call that a rewind
    /// opened again may have had another result before.
    fn stored_text(&self, piece: &Piece, call: CallKey) -> &'a str {
        let stored = self.session.stored_results();
        let here = stored.at(piece.message, piece.block);
        here.or_else(|| stored.get(call))
            .map_or("", |stored| &stored.replacement)
    }

    /// Returns a result whose content is a fixed text.
    fn fixed_result(&self, call: CallKey, words: &'a str, is_error: Option<bool>) -> WireBlock<'a> {
        WireBlock::Result {
            kind: self.calls.kind(call),
            id: self.id(call),
            content: WireResult::Text(words.into()),
            is_error,
            extra: None,
        }
    }

    fn tag(&self, turn: TurnNumber) -> String {
        format!("[id:{}]", self.session.turns().name(turn))
    }

    fn annotated_text(&self, text: &str, turn: Option<TurnNumber>, interjected: bool) -> String {
        let mut words = if interjected {
            format!("<system-reminder>\n{INTERJECTED}\n{text}\n</system-reminder>")
        } else {
            text.to_owned()
        };
        if let Some(turn) = turn {
            words.push('\n');
            words.push_str(&self.tag(turn));
        }
        words
    }

    fn result(
        &self,
        result: &'a ToolResult,
        call: CallKey,
        with_media: bool,
        extra: Option<&'a UnknownFields>,
        origin: MessageOrigin,
    ) -> WireBlock<'a> {
        // Providers reject an empty failed result, so a fixed text replaces an empty result.
        let failed = result.is_error == Some(true);
        let mut content = match &result.content {
            ResultContent::None => WireResult::None,
            ResultContent::Text(text) if text.trim().is_empty() => WireResult::None,
            ResultContent::Text(text) => WireResult::Text((&**text).into()),
            ResultContent::Blocks(blocks) => WireResult::Blocks(
                blocks
                    .iter()
                    .filter(|block| !block.is_blank())
                    .filter_map(|block| self.nested(block, with_media, origin))
                    .collect(),
            ),
        };
        // Results whose blocks were all blank count as empty too.
        if matches!(&content, WireResult::Blocks(blocks) if blocks.is_empty()) {
            content = WireResult::None;
        }
        if content == WireResult::None {
            let words = if failed { FAILED_SILENTLY } else { NO_OUTPUT };
            content = WireResult::Text(words.into());
        }
        WireBlock::Result {
            kind: self.calls.kind(call),
            id: self.id(call),
            content,
            is_error: result.is_error,
            extra,
        }
    }

    /// Returns a block inside a tool result. `None` for block types that a result cannot contain.
    fn nested(
        &self,
        block: &'a Block,
        with_media: bool,
        origin: MessageOrigin,
    ) -> Option<WireBlock<'a>> {
        let takes_extra = self.target.accepts_unknown_fields_of(origin);
        Some(match block {
            // Media with a problem of their own get the marker that names this problem, in the next arm.
            Block::Media(media) if !with_media && media.problem().is_none() => {
                WireBlock::text(media_marker(media, MediaProblem::TooMany))
            }
            Block::Media(media) => match replacements::of_nested_media(self.target, media) {
                Some(text) => WireBlock::text(text),
                None => WireBlock::Media {
                    media,
                    extra: takes_extra.then(|| non_empty(&media.extra)).flatten(),
                },
            },
            Block::Text { text, extra } => WireBlock::Text {
                text: (&**text).into(),
                extra: takes_extra.then(|| non_empty(extra)).flatten(),
            },
            Block::Opaque { kind, json } => self.opaque(kind, json, origin, Speaker::User)?,
            Block::ToolUse(_) | Block::ToolResult(_) | Block::Thinking(_) => return None,
        })
    }

    fn media(&self, media: &'a Media, extra: Option<&'a UnknownFields>) -> WireBlock<'a> {
        match replacements::of_media(self.target, media) {
            Some(text) => WireBlock::text(text),
            None => WireBlock::Media { media, extra },
        }
    }

    /// Returns a block of an unknown type. Another provider than its author's would reject the block, so that provider
    /// gets a text instead, and nothing if the model wrote the block.
    fn opaque(
        &self,
        kind: &str,
        json: &'a RawJson,
        origin: MessageOrigin,
        speaker: Speaker,
    ) -> Option<WireBlock<'a>> {
        let Some(text) = replacements::of_opaque(self.target, (kind, json), origin) else {
            return Some(WireBlock::Opaque(json));
        };
        let is_own = self.target.accepts_unknown_fields_of(origin);
        (is_own || speaker != Speaker::Assistant).then(|| WireBlock::text(text))
    }
}

/// Maps the name of a tool to a legal name. Providers accept 1 to `max_len` letters, digits, `_` and `-`.
fn legal_name(name: &str, max_len: usize) -> Cow<'_, str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.len() <= max_len && name.chars().all(legal) {
        return name.into();
    }
    // The mapping is deterministic, so the call has the same name in every view.
    let mapped: String = name
        .chars()
        .take(max_len)
        .map(|c| if legal(c) { c } else { '_' })
        .collect();
    // Only an empty name results in an empty text, because each illegal character becomes `_`.
    if mapped.is_empty() {
        "unnamed_tool".into()
    } else {
        mapped.into()
    }
}

/// Returns the number of wire messages inside the provider's array. Messages that the provider takes separately, such
/// as the system prompt, do not count.
pub fn array_length(messages: &[WireMessage<'_>], target: &Target) -> u32 {
    let inside = |message: &&WireMessage<'_>| !target.sends_separately(message.role);
    count(messages.iter().filter(inside).count())
}
