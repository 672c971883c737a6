//! Simulated recovery of content that left the view. It follows a visible reference or call id to
//! the original, as a model would with its tools.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use palimpsest_core::ids::{CallKey, Ordinal, SpanKey};
use palimpsest_core::levels::recovery::resolve_call_id;
use palimpsest_core::levels::results::{file_content, file_from_reference, is_json};
use palimpsest_core::message::{Block, Message, ToolResult};
use palimpsest_core::policy::ModelTool;
use palimpsest_core::session::{Session, Visibility};
use palimpsest_core::transcript_reader;
use palimpsest_core::view::{Piece, PieceForm, Target, WireBlock, WireMessage, WireResult, wire};
use sha2::{Digest as _, Sha256};

use super::driver::Driver;
use super::needles::Needle;

/// The maximum number of tool calls of a recovery. Content that needs more calls counts as lost.
const MAX_TOOL_CALLS: u32 = 2;
/// The text that precedes the reference in a replacement.
const BEFORE_REFERENCE: &str = "saved to: ";

/// The access of the model to a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reachability {
    /// The view contains the fact.
    Visible,
    /// The view contains a handle that leads to the fact.
    Recoverable,
    /// The fact is neither visible nor recoverable.
    Lost,
}

/// A simulated model that reads a view and uses the tools of the policy.
pub(super) struct SimulatedModel<'d> {
    session: &'d Session,
    target: &'d Target,
    log: &'d [(usize, Arc<Message>)],
    /// The outlines of spans, cached on first use.
    pages: RefCell<HashMap<SpanKey, Rc<[String]>>>,
    /// The complete view, rendered on first use.
    view: OnceCell<Vec<WireMessage<'d>>>,
}

impl<'d> SimulatedModel<'d> {
    pub(super) fn new(driver: &'d Driver) -> Self {
        Self {
            session: &driver.session,
            target: driver.caller.target(),
            log: &driver.log,
            pages: RefCell::default(),
            view: OnceCell::new(),
        }
    }

    /// Returns true if the piece of a block shows the fact.
    pub(super) fn shows(&self, home: &FactLocation, needle: &Needle) -> bool {
        match home {
            FactLocation::Piece(piece) => self
                .rendered(piece)
                .is_some_and(|block| needle.is_shown_in(&block)),
            FactLocation::Left(_) => false,
        }
    }

    /// Returns true if any block of the view shows the fact.
    pub(super) fn shows_anywhere(&self, needle: &Needle) -> bool {
        let view = self.view.get_or_init(|| {
            let pieces = self.session.sealed().pieces();
            wire(self.session, pieces, self.target).unwrap_or_default()
        });
        let mut blocks = view.iter().flat_map(|message| &message.blocks);
        blocks.any(|block| needle.is_shown_in(block))
    }

    /// Returns true if the piece or the replacement of a block leads to the fact.
    pub(super) fn leads_to(&self, home: &FactLocation, needle: &Needle) -> bool {
        match home {
            FactLocation::Piece(piece) => match piece.form {
                // The visible text instructs the model to follow the reference. The reference must
                // therefore work, even though the call id would work too.
                PieceForm::Stored(_) => self.by_reference(piece, needle),
                form => form
                    .answered_call_key()
                    .is_some_and(|call| self.by_call(call, needle)),
            },
            FactLocation::Left(message) => {
                self.by_placeholder(*message, needle) || self.by_summary(*message, needle)
            }
        }
    }

    /// Returns true if the visible reference names a file that contains the fact.
    fn by_reference(&self, piece: &Piece, needle: &Needle) -> bool {
        let found = || {
            let Some(WireBlock::Result {
                content: WireResult::Text(text),
                ..
            }) = self.rendered(piece)
            else {
                return None;
            };
            let (_, rest) = text.split_once(BEFORE_REFERENCE)?;
            let template = &self.session.policy().tool_results.reference_template;
            let file = file_from_reference(template, self.session.key(), rest.lines().next()?)?;
            let stored = self.session.stored_results().find_by_file(file)?;
            if stored.original_only_in_file {
                // The transcript contains only the replacement of such a result, so the stored text
                // is searched.
                return Some(needle.is_in(&stored.replacement, false));
            }
            let original = self.original(stored.call)?;
            let content = file_content(original);
            // A replay stores no files. The digest proves that a server would have stored this content.
            let is_whole = Sha256::digest(content.as_bytes())[..] == stored.sha256;
            Some(is_whole && needle.is_in(&content, is_json(original)))
        };
        self.has_read_tool() && found().unwrap_or(false)
    }

    /// Returns true if the call is visible and its id leads to a result with the fact.
    fn by_call(&self, call: CallKey, needle: &Needle) -> bool {
        let found = || {
            let pieces = self.session.sealed().pieces();
            let shown = pieces
                .iter()
                .find(|piece| piece.form.call_key() == Some(call))?;
            let Some(WireBlock::Call { id, .. }) = self.rendered(shown) else {
                return None;
            };
            let (named, tool_calls) = resolve_call_id(self.session.calls(), &id)?;
            let original = self.original(named)?;
            let says = needle.is_in(&file_content(original), is_json(original));
            Some(tool_calls <= MAX_TOOL_CALLS && says)
        };
        self.has_read_tool() && found().unwrap_or(false)
    }

    /// Returns true if the placeholder of the message leads to the fact: through the outline of its
    /// span, or through content that the outline names.
    fn by_placeholder(&self, message: Ordinal, needle: &Needle) -> bool {
        // An outline shows texts unchanged and tool inputs as JSON.
        let says = |text: &str| needle.is_in(text, false) || needle.is_in(text, true);
        let found = || {
            let placeholder = self.session.placeholder_of(message)?;
            let key = placeholder.span.key;
            // The placeholder must state the key of its span, or the model cannot read the span.
            if !placeholder.text.contains(&format!("\"{key}\"")) {
                return None;
            }
            let span = &placeholder.span;
            let known = self.pages.borrow().get(&key).cloned();
            let pages = known.unwrap_or_else(|| {
                let pages: Rc<[String]> = self.outline(&span.messages).into();
                self.pages.borrow_mut().insert(key, Rc::clone(&pages));
                pages
            });
            if pages.iter().any(|page| says(page)) {
                return Some(true);
            }
            let whole = self.original_message(message)?;
            let first = pages.first()?;
            if !first.contains(&whole.id.to_string()) {
                return None;
            }
            let max = self.max_bytes();
            let (text, _) =
                transcript_reader::render_message((message, whole), self.session.calls(), 0, max);
            let results = whole.blocks.iter().filter_map(|block| match block {
                Block::ToolResult(result) => Some(result),
                _ => None,
            });
            // Search tools find a line in a result of any size.
            let mut results =
                results.map(|result| needle.is_in(&file_content(result), is_json(result)));
            Some(says(&text) || (self.has_read_tool() && results.any(|says| says)))
        };
        found().unwrap_or(false)
    }

    /// Returns true if a summary replaces the message and names the tools with which the model finds
    /// and reads it.
    fn by_summary(&self, message: Ordinal, needle: &Needle) -> bool {
        let found = || {
            let entry = self.session.transcript().get(message)?;
            let tools = &self.session.policy().model_tools;
            let search = tools.name_of(ModelTool::SearchTranscript)?;
            let read = tools.name_of(ModelTool::ReadTranscript)?;
            let mut pieces = self.session.sealed().pieces().iter();
            let summary = pieces.rfind(|piece| piece.form == PieceForm::Summary)?;
            let Some(WireBlock::Text { text, .. }) = self.rendered(summary) else {
                return None;
            };
            // The summary must name both tools.
            let is_told = [search, read]
                .iter()
                .all(|tool| text.contains(&format!("`{tool}`")));
            let whole = self.original_message(message)?;
            let mut texts = whole.blocks.iter().map(transcript_reader::block_text);
            let says = texts.any(|text| needle.is_in(&text, false) || needle.is_in(&text, true));
            Some(entry.visibility == Visibility::Compacted && is_told && says)
        };
        found().unwrap_or(false)
    }

    /// Returns the first pages of an outline, at most as many as the allowed tool calls.
    fn outline(&self, messages: &[Ordinal]) -> Vec<String> {
        let mut pages = Vec::new();
        let mut from = messages.first().copied();
        while let Some(first) = from.filter(|_| pages.len() < MAX_TOOL_CALLS as usize) {
            let rest = messages.iter().filter(|message| **message >= first);
            let rest =
                rest.filter_map(|message| Some((*message, self.original_message(*message)?)));
            let tools = &self.session.policy().model_tools;
            let page =
                transcript_reader::outline(rest, self.session.calls(), tools, self.max_bytes());
            pages.push(page.text);
            from = page.next;
        }
        pages
    }

    fn original_message(&self, message: Ordinal) -> Option<&'d Message> {
        let (_, content) = self.log.get(message.index())?;
        Some(content)
    }

    fn max_bytes(&self) -> usize {
        self.session.policy().model_tools.max_answer_bytes as usize
    }

    fn has_read_tool(&self) -> bool {
        let tools = &self.session.policy().model_tools;
        tools.name_of(ModelTool::ReadToolResult).is_some()
    }

    /// Returns the wire form of a piece.
    fn rendered(&self, piece: &Piece) -> Option<WireBlock<'d>> {
        let one = std::slice::from_ref(piece);
        let messages = wire(self.session, one, self.target).ok()?;
        messages.into_iter().next()?.blocks.into_iter().next()
    }

    /// Returns the original result of a call.
    fn original(&self, call: CallKey) -> Option<&'d ToolResult> {
        let (message, block) = self.session.calls().get(call)?.result()?;
        let message = self.session.transcript().content(message)?;
        match message.blocks.get(usize::from(block))? {
            Block::ToolResult(result) => Some(result),
            _ => None,
        }
    }
}

/// The location of a block with a fact: its piece in the view, or its message if the message left.
pub(super) enum FactLocation {
    /// The block has a piece in the view.
    Piece(Piece),
    /// The message left the view.
    Left(Ordinal),
}
