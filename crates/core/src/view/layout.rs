//! Decides how pending messages continue a view.
//!
//! Providers accept only one shape. The first and the last message are the user's, every call is answered in the next
//! message, and results precede text. Transcripts differ from this shape: one response arrives in fragments with
//! results between them, and results are missing, duplicated, late or orphaned. This module converts the second shape
//! into the first. Each block is placed once, so the cost depends on the pending messages alone. Blocks that cannot be
//! placed yet stay pending.

use std::collections::HashMap;

use super::annotate::annotate_user_input;
use super::repeated_items::FreshBlocks;
use super::tail::{Speaker, ViewTail};
use super::{DropReason, LaterBlocks, MarkerReason, Piece, PieceForm, TextReason};
use crate::event::{CallState, Pairing, PendingMessage};
use crate::ids::Ordinal;
use crate::message::{Block, MediaKind, MediaProblem, Message, MessageOrigin, Role};
use crate::session::{Calls, ContentNotLoaded, Session, Transcript};

/// Maximum number of images in one request. Providers reject more.
const MAX_PICTURES: usize = 100;

/// The continuation of a view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// The pieces that follow the sealed pieces.
    pub pieces: Vec<Piece>,
    /// The end of the view after these pieces.
    pub tail: ViewTail,
    /// True if an appended message cannot be placed yet.
    pub defers_message: bool,
}

/// Returns the continuation of a session's view. With `interrupt`, calls that are still open get an error result
/// even when no message follows them.
///
/// # Errors
///
/// Fails if the content of a pending message is not loaded.
pub fn extend_layout(
    session: &Session,
    interrupt: bool,
    offers_snip: Option<bool>,
) -> Result<Layout, ContentNotLoaded> {
    let (sealed, transcript) = (session.sealed(), session.transcript());
    let tail = ViewTail::of(sealed.pieces(), transcript);
    let fresh = FreshBlocks::of(session)?;
    // All blocks are sorted before the first is written: a result can arrive after messages that follow its response.
    let sorted = PendingBlocks::of(transcript, session.calls(), &fresh, &tail)?;
    let mut writer = LayoutBuilder {
        session,
        offers_snip,
        transcript,
        calls: session.calls(),
        layout: Layout {
            tail,
            ..Layout::default()
        },
        images: sealed.image_count(),
    };
    writer.write(sorted, interrupt)?;
    Ok(writer.layout)
}

/// The pending blocks, grouped by the turn to which they belong.
#[derive(Default)]
struct PendingBlocks {
    /// Pieces that precede all groups: results of sealed calls, and blocks that are dropped.
    early: Vec<(Ordinal, u16, PieceForm)>,
    groups: Vec<NewBlockGroup>,
}

enum NewBlockGroup {
    System(Vec<(Ordinal, u16)>),
    Assistant(Response),
    User(UserContent),
}

/// One response of the model with the results of its calls.
struct Response {
    provider_message_id: Option<Box<str>>,
    /// True if the fragments are items of OpenAI's Responses API.
    has_items: bool,
    blocks: Vec<(Ordinal, u16)>,
    results: Vec<(Ordinal, u16, PieceForm)>,
}

/// Consecutive content of the user, without the tool results that have a call.
#[derive(Default)]
struct UserContent {
    blocks: Vec<(Ordinal, u16, PieceForm)>,
    /// True if a person wrote some of the blocks. The model then cannot continue its previous work.
    real: bool,
}

impl PendingBlocks {
    fn of(
        transcript: &Transcript,
        calls: &Calls,
        fresh: &FreshBlocks<'_>,
        tail: &ViewTail,
    ) -> Result<Self, ContentNotLoaded> {
        let mut sorted = Self::default();
        let repeated = PieceForm::Dropped(DropReason::RepeatedItem);
        let drop = |(message, block)| (message, block, repeated);
        sorted
            .early
            .extend(fresh.repeated.iter().copied().map(drop));
        // A result finds the response with its call through `group_of`, even if other groups follow that response.
        let mut group_of: HashMap<Ordinal, usize> = HashMap::new();
        for item in fresh.pending.iter() {
            let message = transcript.require_content(item.message)?;
            match message.role {
                Role::Assistant => {
                    let group = sorted.response(message);
                    group_of.insert(item.message, group);
                    // `response` returns the index of a response, so the other case does not occur.
                    let NewBlockGroup::Assistant(response) = &mut sorted.groups[group] else {
                        continue;
                    };
                    let blocks = item.blocks.iter().map(|(block, _)| (item.message, *block));
                    response.blocks.extend(blocks);
                }
                Role::User => sorted.user(item, message, calls, tail, &group_of),
                Role::System | Role::Developer => sorted.system(item, tail),
            }
        }
        Ok(sorted)
    }

    /// Returns the index of the response to which a fragment belongs. A fragment joins the last group if that group is
    /// a response with the same provider id. Results of its own calls do not open a group, so they do not separate
    /// fragments.
    fn response(&mut self, message: &Message) -> usize {
        let is_item = message.origin == MessageOrigin::OpenAiResponses;
        if let Some(NewBlockGroup::Assistant(last)) = self.groups.last() {
            let has_id = message.provider_message_id.is_some();
            let is_same = last.provider_message_id == message.provider_message_id;
            // Items that a caller sends back have no provider id. They belong together until a result follows.
            if is_same && (has_id || is_item && last.has_items && last.results.is_empty()) {
                return self.groups.len() - 1;
            }
        }
        self.groups.push(NewBlockGroup::Assistant(Response {
            provider_message_id: message.provider_message_id.clone(),
            has_items: is_item,
            blocks: Vec::new(),
            results: Vec::new(),
        }));
        self.groups.len() - 1
    }

    fn user(
        &mut self,
        item: &PendingMessage,
        message: &Message,
        calls: &Calls,
        tail: &ViewTail,
        group_of: &HashMap<Ordinal, usize>,
    ) {
        // Results join the group of their call, whatever arrived in between. All other shown blocks keep the order of
        // arrival.
        for (block, pairing) in &item.blocks {
            let (at, block) = (item.message, *block);
            let drop = |reason| (at, block, PieceForm::Dropped(reason));
            match pairing {
                Some(Pairing::Answer(call)) => {
                    let result = (at, block, PieceForm::Result(*call));
                    // A call may be sealed while thinking that follows it in the same message is pending.
                    if tail.open_calls.contains(call) {
                        self.early.push(result);
                        continue;
                    }
                    // The call was snipped before it was served, so its result has nothing to answer.
                    if calls.state(*call) == CallState::Gone {
                        self.early.push(drop(DropReason::Snipped));
                        continue;
                    }
                    let group = calls
                        .get(*call)
                        .and_then(|call| group_of.get(&call.message))
                        .and_then(|group| self.groups.get_mut(*group));
                    match group {
                        Some(NewBlockGroup::Assistant(response)) => response.results.push(result),
                        _ => self.words((at, block, PieceForm::Text(TextReason::Orphan))),
                    }
                }
                // Providers accept one result per call. The first one may have been served, so the second is dropped.
                Some(Pairing::Duplicate(call)) => {
                    self.early.push(drop(DropReason::DuplicateResult(*call)));
                }
                // The call has left the view, so a text about its late result would refer to nothing.
                Some(Pairing::Late(call)) if calls.state(*call) == CallState::Gone => {
                    self.early.push(drop(DropReason::LateResult(*call)));
                }
                // The error result was served in place of this one and is sealed. The real output can follow only as
                // text.
                Some(Pairing::Late(call)) => {
                    self.words((at, block, PieceForm::Text(TextReason::Late(*call))));
                }
                Some(Pairing::Orphan) => {
                    self.words((at, block, PieceForm::Text(TextReason::Orphan)));
                }
                None => match &message.blocks[usize::from(block)] {
                    // Providers accept calls and thinking only in messages of the model.
                    Block::ToolUse(_) | Block::Thinking(_) => {
                        self.early.push(drop(DropReason::WrongRole));
                    }
                    block_ if block_.is_blank() => self.early.push(drop(DropReason::Blank)),
                    _ => self.words((at, block, PieceForm::Block)),
                },
            }
        }
        // Only a message that added blocks counts: its text may have been dropped as blank.
        if let Some(NewBlockGroup::User(words)) = self.groups.last_mut() {
            words.real |= message.is_real_user_input()
                && words.blocks.iter().any(|(at, ..)| *at == item.message);
        }
    }

    fn system(&mut self, item: &PendingMessage, tail: &ViewTail) {
        // Anthropic's APIs have no system messages inside the conversation, so later system text gets another form.
        let leads = tail.last.is_none()
            && self
                .groups
                .iter()
                .all(|group| matches!(group, NewBlockGroup::System(_)));
        let blocks = item.blocks.iter().map(|(block, _)| *block);
        if leads {
            let blocks = blocks.map(|block| (item.message, block)).collect();
            self.groups.push(NewBlockGroup::System(blocks));
        } else {
            for block in blocks {
                self.words((item.message, block, PieceForm::Operator));
            }
        }
    }

    fn words(&mut self, piece: (Ordinal, u16, PieceForm)) {
        if !matches!(self.groups.last(), Some(NewBlockGroup::User(_))) {
            self.groups
                .push(NewBlockGroup::User(UserContent::default()));
        }
        if let Some(NewBlockGroup::User(words)) = self.groups.last_mut() {
            words.blocks.push(piece);
        }
    }
}

struct LayoutBuilder<'a> {
    session: &'a Session,
    /// True if the model has the tool to snip turns. `None` if the call names no tools.
    offers_snip: Option<bool>,
    transcript: &'a Transcript,
    calls: &'a Calls,
    layout: Layout,
    /// The number of images that the view contains.
    images: usize,
}

impl LayoutBuilder<'_> {
    fn write(&mut self, sorted: PendingBlocks, interrupt: bool) -> Result<(), ContentNotLoaded> {
        // Results of sealed calls close the open calls of the view. They precede everything that a new group adds.
        for (message, block, form) in sorted.early {
            self.result(message, block, form);
        }
        let mut groups = sorted.groups.into_iter().peekable();
        while let Some(group) = groups.next() {
            let is_last = groups.peek().is_none();
            match group {
                NewBlockGroup::System(blocks) => {
                    for (message, block) in blocks {
                        self.operator(message, block, PieceForm::Block);
                    }
                }
                NewBlockGroup::Assistant(response) => {
                    if is_last && !interrupt && self.continues_open_response(&response)? {
                        self.layout.defers_message = true;
                        break;
                    }
                    self.response(response, is_last);
                }
                NewBlockGroup::User(words) => {
                    // An open call is interrupted only when a person writes, when more content follows, or on request.
                    // In all other cases the result is probably in transit.
                    let closes = words.real || !is_last || interrupt;
                    if !self.layout.tail.open_calls.is_empty() && !closes {
                        self.layout.defers_message = true;
                        break;
                    }
                    self.words(words);
                }
            }
        }
        if interrupt && !self.layout.defers_message {
            self.interrupt_open(None);
        }
        Ok(())
    }

    /// Returns true if a response contains more fragments of a response with open calls. A provider accepts these
    /// fragments only after every result. The results are probably in transit, so the fragments stay pending.
    fn continues_open_response(&self, response: &Response) -> Result<bool, ContentNotLoaded> {
        let open = self.layout.tail.open_calls.first();
        let Some(open) = open.and_then(|call| self.calls.get(*call)) else {
            return Ok(false);
        };
        let of_open = &self
            .transcript
            .require_content(open.message)?
            .provider_message_id;
        Ok(self.layout.tail.last == Some(Speaker::User)
            && of_open.is_some()
            && *of_open == response.provider_message_id)
    }

    fn response(&mut self, response: Response, is_last: bool) {
        // Results and later groups close the message of the model. Thinking at its end can then wait for no further
        // fragment.
        let ended = !is_last || !response.results.is_empty();
        let trailing = self.trailing_thinking(&response.blocks);
        let shows_more = response.blocks.iter().any(|(message, block)| {
            let thinks = self.block(*message, *block).is_some_and(Block::is_thinking);
            self.assistant_form(*message, *block).is_shown() && !thinks
        });
        if shows_more && self.layout.tail.last == Some(Speaker::User) {
            // After a tool result, a provider rejects text of the model until every call has a result.
            self.interrupt_open(response.blocks.first().map(|(message, _)| *message));
        }
        for (index, (message, block)) in response.blocks.into_iter().enumerate() {
            // Providers reject a message that ends with thinking. Thinking at the end of a response waits while more
            // fragments may arrive, and is dropped when the response has ended.
            let mut form = self.assistant_form(message, block);
            if trailing.contains(&index) {
                if !ended {
                    self.layout.defers_message = true;
                    continue;
                }
                form = PieceForm::Dropped(DropReason::TrailingThinking);
            }
            if form.is_shown() {
                self.insert_opening(message);
                self.layout.tail.last = Some(Speaker::Assistant);
            }
            if let PieceForm::Call(call) = form {
                self.layout.tail.open_calls.push(call);
            }
            self.push(message, block, form);
        }
        for (message, block, form) in response.results {
            self.result(message, block, form);
        }
    }

    /// Returns the indexes of thinking without the block that must follow it in the same response.
    fn trailing_thinking(&self, blocks: &[(Ordinal, u16)]) -> Vec<usize> {
        let mut trailing = Vec::new();
        let mut later = LaterBlocks::default();
        // The blocks are visited backwards, because the shown blocks after a thinking block decide about it.
        for (index, (message, block)) in blocks.iter().enumerate().rev() {
            let piece = Piece {
                message: *message,
                block: *block,
                form: self.assistant_form(*message, *block),
            };
            match self.block(*message, *block) {
                _ if !piece.form.is_shown() => {}
                Some(Block::Thinking(_)) if later.follow(&piece, self.transcript) => {}
                Some(Block::Thinking(_)) => trailing.push(index),
                _ => later.add(&piece, self.transcript),
            }
        }
        trailing
    }

    /// Returns the form of a block that the model wrote. The neighbours of the block are ignored.
    fn assistant_form(&self, message: Ordinal, block: u16) -> PieceForm {
        match self.block(message, block) {
            Some(Block::ToolUse(_)) => match self.calls.find_at(message, block) {
                Some(call) => PieceForm::Call(call),
                None => PieceForm::Dropped(DropReason::WrongRole),
            },
            // Providers accept neither images nor results in a message of the model.
            Some(Block::ToolResult(_) | Block::Media(_)) | None => {
                PieceForm::Dropped(DropReason::WrongRole)
            }
            Some(Block::Thinking(thinking)) if !thinking.is_returnable() => {
                PieceForm::Dropped(DropReason::UnsignedThinking)
            }
            Some(block) if block.is_blank() => PieceForm::Dropped(DropReason::Blank),
            Some(_) => PieceForm::Block,
        }
    }

    fn result(&mut self, message: Ordinal, block: u16, form: PieceForm) {
        let PieceForm::Result(call) = form else {
            self.push(message, block, form);
            return;
        };
        let pictures = self.transcript.image_count(message, block);
        // Only images that are shown count against the limit. A stored result shows none.
        let form = if self.session.stored_results().at(message, block).is_some() {
            PieceForm::Stored(call)
        } else if self.reserve_images(pictures) {
            form
        } else {
            PieceForm::ResultWithoutMedia(call)
        };
        self.layout.tail.open_calls.retain(|open| *open != call);
        self.layout.tail.last = Some(Speaker::User);
        self.push(message, block, form);
    }

    fn words(&mut self, words: UserContent) {
        // The state must be read before `interrupt_open` closes the open calls.
        let at_work = self.is_mid_turn();
        let written = self.layout.pieces.len();
        let first = words.blocks.first().map(|(message, ..)| *message);
        self.interrupt_open(first);
        for (message, block, form) in words.blocks {
            let form = match self.block(message, block) {
                _ if form == PieceForm::Operator => {
                    self.operator(message, block, form);
                    continue;
                }
                Some(Block::Media(media)) => match media.problem() {
                    Some(problem) => PieceForm::Marker(MarkerReason::Media(problem)),
                    None if media.kind == MediaKind::Image && !self.reserve_images(1) => {
                        PieceForm::Marker(MarkerReason::Media(MediaProblem::TooMany))
                    }
                    None => form,
                },
                _ => form,
            };
            self.layout.tail.last = Some(Speaker::User);
            self.push(message, block, form);
        }
        let options = (at_work, self.offers_snip);
        annotate_user_input(&mut self.layout.pieces, written, self.session, options);
    }

    /// Returns true if the model is in the middle of its work: a tool result is the last shown piece, or a call is
    /// open.
    fn is_mid_turn(&self) -> bool {
        let sealed = self.session.sealed().pieces().iter();
        let mut latest = sealed.chain(&self.layout.pieces).rev();
        let last = latest.find(|piece| piece.form.is_shown());
        !self.layout.tail.open_calls.is_empty()
            || last.is_some_and(|piece| piece.form.answered_call_key().is_some())
    }

    /// Adds a block of the operator. Only text can be passed on to a provider.
    fn operator(&mut self, message: Ordinal, block: u16, form: PieceForm) {
        let form = match self.block(message, block) {
            Some(Block::Text { .. }) if self.is_blank(message, block) => {
                PieceForm::Dropped(DropReason::Blank)
            }
            // Nothing that precedes this text is shown, so the text leads the view.
            Some(Block::Text { .. }) if self.layout.tail.last.is_none() => PieceForm::Block,
            Some(Block::Text { .. }) => form,
            _ => PieceForm::Dropped(DropReason::WrongRole),
        };
        if form == PieceForm::Operator {
            self.layout.tail.last = Some(Speaker::User);
        }
        self.push(message, block, form);
    }

    fn interrupt_open(&mut self, because_of: Option<Ordinal>) {
        // The message that forced the interruption is recorded. Without one, the message of the call is.
        for call in std::mem::take(&mut self.layout.tail.open_calls) {
            let of_call = self.calls.get(call).map(|call| call.message);
            let Some(message) = because_of.or(of_call) else {
                continue;
            };
            self.layout.tail.last = Some(Speaker::User);
            self.push(message, 0, PieceForm::Interrupted(call));
        }
    }

    fn insert_opening(&mut self, because_of: Ordinal) {
        // Providers require that the first message is the user's.
        if self.layout.tail.last.is_none() {
            self.push(because_of, 0, PieceForm::Opening);
        }
    }

    fn push(&mut self, message: Ordinal, block: u16, form: PieceForm) {
        self.layout.pieces.push(Piece {
            message,
            block,
            form,
        });
    }

    /// Returns true if the view can contain `more` additional images, and adds them to the count in that case.
    fn reserve_images(&mut self, more: u16) -> bool {
        let with = self.images + usize::from(more);
        // A block without images keeps its content, even if the view has too many images.
        let fits = more == 0 || with <= MAX_PICTURES;
        if fits {
            self.images = with;
        }
        fits
    }

    fn block(&self, message: Ordinal, block: u16) -> Option<&Block> {
        self.transcript.block(message, block)
    }

    fn is_blank(&self, message: Ordinal, block: u16) -> bool {
        self.block(message, block).is_some_and(Block::is_blank)
    }
}
