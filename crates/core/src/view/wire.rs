//! Pieces grouped into the messages that go over the wire.
//!
//! A wire message borrows from the transcript; a codec or the typed contract turns it into bytes.

use std::borrow::Cow;

use super::tail::{Speaker, side};
use super::words::{
    CLEARED, FAILED_SILENTLY, GAP, INTERJECTED, INTERRUPTED, NO_INPUT, NO_OUTPUT, NUDGE, OPENING,
    SNIPPED_RESULT, kind_name, marker, snipped, told_in_words,
};
use super::{MarkerReason, Piece, PieceForm, Provider, Target, WireRole, count};
use crate::ids::{CallKey, Ordinal, TurnNumber};
use crate::json::{RawJson, UnknownFields};
use crate::message::{
    Block, Media, MediaKind, MediaProblem, MediaSource, Message, MessageOrigin, ResultContent,
    Role, Thinking, ToolInput, ToolResult,
};
use crate::session::{Calls, ContentNotLoaded, Session, Transcript};

/// One message as a provider takes it.
#[derive(Debug, Clone, PartialEq)]
pub struct WireMessage<'a> {
    /// Who speaks.
    pub role: WireRole,
    /// What is said; never empty.
    pub blocks: Vec<WireBlock<'a>>,
    /// Unknown fields of the message, where it stands for exactly one.
    pub extra: Option<&'a UnknownFields>,
    /// The first message of the transcript that it comes from.
    pub first: Ordinal,
}

/// One block as a provider takes it. `extra` is there only when the provider knows those fields.
#[derive(Debug, Clone, PartialEq)]
pub enum WireBlock<'a> {
    /// Words.
    Text {
        /// The words.
        text: Cow<'a, str>,
        /// Unknown fields.
        extra: Option<&'a UnknownFields>,
    },
    /// A picture or a document.
    Media {
        /// Which.
        media: &'a Media,
        /// Unknown fields.
        extra: Option<&'a UnknownFields>,
    },
    /// A call.
    Call {
        /// Its id on the wire.
        id: Cow<'a, str>,
        /// The tool.
        name: Cow<'a, str>,
        /// What the model wrote.
        input: &'a ToolInput,
        /// Unknown fields.
        extra: Option<&'a UnknownFields>,
    },
    /// A result.
    Result {
        /// The id of its call on the wire.
        id: Cow<'a, str>,
        /// What the tool said.
        content: WireResult<'a>,
        /// Whether it failed.
        is_error: Option<bool>,
        /// Unknown fields.
        extra: Option<&'a UnknownFields>,
    },
    /// Reasoning, verbatim.
    Thinking {
        /// The reasoning.
        thinking: &'a Thinking,
        /// Unknown fields.
        extra: Option<&'a UnknownFields>,
    },
    /// A block that we do not know.
    Opaque(&'a RawJson),
}

/// A result's content as a provider takes it.
#[derive(Debug, Clone, PartialEq)]
pub enum WireResult<'a> {
    /// Nothing.
    None,
    /// A string.
    Text(Cow<'a, str>),
    /// Blocks.
    Blocks(Vec<WireBlock<'a>>),
}

impl<'a> WireBlock<'a> {
    fn say(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text {
            text: text.into(),
            extra: None,
        }
    }

    /// A block of the transcript as it stands, without any repair.
    pub fn plain(block: &'a Block) -> Self {
        match block {
            Block::Text { text, extra } => Self::Text {
                text: (&**text).into(),
                extra: some(extra),
            },
            Block::Media(media) => Self::Media {
                media,
                extra: some(&media.extra),
            },
            Block::ToolUse(call) => Self::Call {
                id: (&*call.id).into(),
                name: (&*call.name).into(),
                input: &call.input,
                extra: some(&call.extra),
            },
            Block::ToolResult(result) => Self::Result {
                id: (&*result.tool_use_id).into(),
                content: match &result.content {
                    ResultContent::None => WireResult::None,
                    ResultContent::Text(text) => WireResult::Text((&**text).into()),
                    ResultContent::Blocks(blocks) => {
                        WireResult::Blocks(blocks.iter().map(Self::plain).collect())
                    }
                },
                is_error: result.is_error,
                extra: some(&result.extra),
            },
            Block::Thinking(thinking) => Self::Thinking {
                thinking,
                extra: some(thinking.extra()),
            },
            Block::Opaque { json, .. } => Self::Opaque(json),
        }
    }
}

fn some(extra: &UnknownFields) -> Option<&UnknownFields> {
    (!extra.is_empty()).then_some(extra)
}

/// Groups pieces into wire messages. Where the provider takes the operator's words apart from the
/// array, messages of the role [`WireRole::System`] lead and are to be taken out.
pub fn wire<'a>(
    session: &'a Session,
    pieces: &[Piece],
    target: &Target,
) -> Result<Vec<WireMessage<'a>>, ContentNotLoaded> {
    let render = Renderer::new(session, target);
    let mut messages: Vec<WireMessage<'a>> = Vec::new();
    let mut last_key = None;
    for piece in pieces {
        let Some((key, block)) = render.piece(piece)? else {
            continue;
        };
        if last_key == Some(key)
            && let Some(message) = messages.last_mut()
        {
            message.blocks.push(block);
            if message.first != piece.message {
                message.extra = None;
            }
        } else {
            messages.push(WireMessage {
                role: key.role,
                blocks: vec![block],
                extra: render.message_extra(piece),
                first: piece.message,
            });
            last_key = Some(key);
        }
    }
    Ok(messages)
}

/// What must be equal for two neighbouring pieces to share a wire message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupKey {
    /// Who speaks.
    pub(super) role: WireRole,
    /// Where neighbours of one role stay apart: the message, or the call.
    apart: Option<(Ordinal, u16)>,
}

/// The key of a piece; `None` when the target does not see it.
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
        let side = side(piece, self.transcript);
        let block = match piece.form {
            PieceForm::Dropped(_) => return Ok(None),
            PieceForm::Opening => WireBlock::say(OPENING),
            PieceForm::Gap => WireBlock::say(GAP),
            PieceForm::Nudge => WireBlock::say(NUDGE),
            PieceForm::Placeholder(span) => {
                let placeholder = self.session.spans().placeholder(span);
                WireBlock::say(placeholder.map_or(GAP, |one| &one.text))
            }
            PieceForm::Tag(turn) => WireBlock::say(self.tag(turn)),
            PieceForm::Interrupted(call) => self.marked(call, INTERRUPTED, Some(true)),
            PieceForm::Cleared(call) => self.marked(call, CLEARED, None),
            PieceForm::SnippedResult(call) => self.marked(call, SNIPPED_RESULT, None),
            PieceForm::Stored(call) => self.marked(call, self.stored_text(piece, call), None),
            _ => match self.block(piece, side, self.transcript.held(piece.message)?) {
                Some(block) => block,
                None => return Ok(None),
            },
        };
        Ok(Some((self.key(piece, side, &block), block)))
    }

    fn key(&self, piece: &Piece, side: Speaker, block: &WireBlock<'_>) -> GroupKey {
        let message = self.transcript.role(piece.message);
        let role = match (self.target.provider, side) {
            (_, Speaker::Assistant) => WireRole::Assistant,
            (Provider::OpenAi, _) if message == Role::Developer => WireRole::Developer,
            (_, Speaker::System) => WireRole::System,
            (Provider::OpenAi, _) if piece.form == PieceForm::Operator => WireRole::System,
            (Provider::OpenAi, _) if matches!(block, WireBlock::Result { .. }) => WireRole::Tool,
            (_, Speaker::User) => WireRole::User,
        };
        let apart = match (self.target.provider, role) {
            (Provider::OpenAi, WireRole::Assistant)
            | (Provider::Anthropic | Provider::Bedrock, _) => None,
            // Results of one message, and interruptions, which all have block 0, stay apart.
            (Provider::OpenAi, WireRole::Tool) => match piece.form.answers() {
                Some(call) => Some((Ordinal::new(call.get()), u16::MAX)),
                None => Some((piece.message, piece.block)),
            },
            (Provider::OpenAi, _) => Some((piece.message, 0)),
        };
        GroupKey { role, apart }
    }

    fn message_extra(&self, piece: &Piece) -> Option<&'a UnknownFields> {
        let message = self.transcript.content(piece.message)?;
        let from_openai =
            self.target.provider == Provider::OpenAi && message.origin == MessageOrigin::OpenAi;
        (from_openai
            && matches!(
                piece.form,
                PieceForm::Block | PieceForm::Call(_) | PieceForm::Result(_)
            ))
        .then(|| some(&message.extra))
        .flatten()
    }

    fn id(&self, call: CallKey) -> Cow<'a, str> {
        self.calls
            .wire_id(call, self.target.provider.max_call_id_len())
    }

    fn block(&self, piece: &Piece, side: Speaker, message: &'a Message) -> Option<WireBlock<'a>> {
        let block = message.blocks.get(usize::from(piece.block))?;
        let extra = |extra: &'a UnknownFields| {
            (self.target.takes_extra_of(message.origin))
                .then(|| some(extra))
                .flatten()
        };
        Some(match (block, piece.form) {
            (Block::ToolResult(result), PieceForm::Text(reason)) => {
                WireBlock::say(told_in_words(result, reason, self.calls))
            }
            (Block::Media(media), PieceForm::Marker(MarkerReason::Media(problem))) => {
                WireBlock::say(marker(media, problem))
            }
            (block, PieceForm::Marker(_)) => WireBlock::say(snipped(block)),
            (Block::ToolResult(result), PieceForm::Result(call)) => {
                self.result(result, call, true, extra(&result.extra), message.origin)
            }
            (Block::ToolResult(result), PieceForm::ResultWithoutMedia(call)) => {
                self.result(result, call, false, extra(&result.extra), message.origin)
            }
            (Block::ToolUse(call), PieceForm::Call(key)) => WireBlock::Call {
                id: self.id(key),
                name: legal_name(&call.name),
                input: &call.input,
                extra: extra(&call.extra),
            },
            (Block::ToolUse(call), PieceForm::SnippedCall(key)) => WireBlock::Call {
                id: self.id(key),
                name: legal_name(&call.name),
                input: &NO_INPUT,
                extra: extra(&call.extra),
            },
            (Block::Text { text, extra: e }, _) if side == Speaker::System => WireBlock::Text {
                text: (&**text).into(),
                extra: extra(e),
            },
            (Block::Text { text, .. }, PieceForm::Operator)
                if self.target.provider.is_anthropic() =>
            {
                WireBlock::say(format!("<system-reminder>\n{text}\n</system-reminder>"))
            }
            (Block::Text { text, extra: e }, PieceForm::Input { turn, interjected }) => {
                WireBlock::Text {
                    text: self.dressed(text, turn, interjected).into(),
                    extra: extra(e),
                }
            }
            (Block::Text { text, extra: e }, _) => WireBlock::Text {
                text: (&**text).into(),
                extra: extra(e),
            },
            (Block::Media(media), _) => self.media(media, extra(&media.extra)),
            (Block::Thinking(thinking), _) => {
                if !self.target.takes_thinking_of(message) {
                    return None;
                }
                WireBlock::Thinking {
                    thinking,
                    extra: extra(thinking.extra()),
                }
            }
            (Block::Opaque { kind, json }, _) => self.opaque(kind, json, message.origin, side)?,
            (Block::ToolUse(_) | Block::ToolResult(_), _) => return None,
        })
    }

    /// What stands in the place of a result. It goes by its own block: a call that a rewind opened
    /// again may have had another result before.
    fn stored_text(&self, piece: &Piece, call: CallKey) -> &'a str {
        let stored = self.session.stored();
        let here = stored.at(piece.message, piece.block);
        here.or_else(|| stored.get(call))
            .map_or("", |stored| &stored.text)
    }

    /// A result that is no more than a few words.
    fn marked(&self, call: CallKey, words: &'a str, is_error: Option<bool>) -> WireBlock<'a> {
        WireBlock::Result {
            id: self.id(call),
            content: WireResult::Text(words.into()),
            is_error,
            extra: None,
        }
    }

    fn tag(&self, turn: TurnNumber) -> String {
        format!("[id:{}]", self.session.turns().name(turn))
    }

    fn dressed(&self, text: &str, turn: Option<TurnNumber>, interjected: bool) -> String {
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
        if matches!(&content, WireResult::Blocks(blocks) if blocks.is_empty()) {
            content = WireResult::None;
        }
        if content == WireResult::None {
            let words = if failed { FAILED_SILENTLY } else { NO_OUTPUT };
            content = WireResult::Text(words.into());
        }
        WireBlock::Result {
            id: self.id(call),
            content,
            is_error: result.is_error,
            extra,
        }
    }

    /// A block inside a result.
    fn nested(
        &self,
        block: &'a Block,
        with_media: bool,
        origin: MessageOrigin,
    ) -> Option<WireBlock<'a>> {
        let takes_extra = self.target.takes_extra_of(origin);
        Some(match block {
            Block::Media(media) => match media.problem() {
                Some(problem) => WireBlock::say(marker(media, problem)),
                None if !with_media => WireBlock::say(marker(media, MediaProblem::TooMany)),
                None if self.target.provider == Provider::OpenAi => WireBlock::say(format!(
                    "[{}: this provider takes none in a tool's result]",
                    kind_name(media)
                )),
                None => WireBlock::Media {
                    media,
                    extra: takes_extra.then(|| some(&media.extra)).flatten(),
                },
            },
            Block::Text { text, extra } => WireBlock::Text {
                text: (&**text).into(),
                extra: takes_extra.then(|| some(extra)).flatten(),
            },
            Block::Opaque { kind, json } => self.opaque(kind, json, origin, Speaker::User)?,
            Block::ToolUse(_) | Block::ToolResult(_) | Block::Thinking(_) => return None,
        })
    }

    fn media(&self, media: &'a Media, extra: Option<&'a UnknownFields>) -> WireBlock<'a> {
        let foreign = self.target.provider == Provider::OpenAi
            && match (&media.source, media.kind) {
                (MediaSource::Other(_), _) | (MediaSource::Url(_), MediaKind::Document) => true,
                (MediaSource::Base64 { media_type, .. }, MediaKind::Document) => {
                    &**media_type != "application/pdf"
                }
                _ => false,
            };
        if foreign {
            WireBlock::say(format!(
                "[{}: this provider does not take it in this form]",
                kind_name(media)
            ))
        } else {
            WireBlock::Media { media, extra }
        }
    }

    /// A block that we do not know goes to whoever wrote it; another provider would refuse it.
    fn opaque(
        &self,
        kind: &str,
        json: &'a RawJson,
        origin: MessageOrigin,
        side: Speaker,
    ) -> Option<WireBlock<'a>> {
        if self.target.takes_extra_of(origin) {
            return Some(WireBlock::Opaque(json));
        }
        (side != Speaker::Assistant)
            .then(|| WireBlock::say(format!("[{kind}: this provider does not take it]")))
    }
}

/// Providers take letters, digits, `_` and `-` in the name of a tool, and at most 128 of them.
fn legal_name(name: &str) -> Cow<'_, str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.len() <= 128 && name.chars().all(legal) {
        return name.into();
    }
    let mapped: String = name
        .chars()
        .take(128)
        .map(|c| if legal(c) { c } else { '_' })
        .collect();
    if mapped.is_empty() {
        "unnamed_tool".into()
    } else {
        mapped.into()
    }
}

/// How many of some wire messages stand in the provider's array: where the operator's words go apart
/// from it, they do not count.
pub fn in_array(messages: &[WireMessage<'_>], target: &Target) -> u32 {
    let inside = |message: &&WireMessage<'_>| !target.takes_apart(message.role);
    count(messages.iter().filter(inside).count())
}
