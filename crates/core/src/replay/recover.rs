//! Goes the ways by which a model finds again what left its view, as its tools would: from a reference
//! or a call's id that it can see, to the original.

use std::cell::OnceCell;

use sha2::{Digest as _, Sha256};

use super::driver::Driver;
use super::facts::Needle;
use super::probes::Home;
use crate::ids::CallKey;
use crate::levels::results::{file_content, file_of, is_json};
use crate::message::{Block, ToolResult};
use crate::policy::ModelTool;
use crate::session::{Calls, Session};
use crate::view::{Form, Piece, Target, WireBlock, WireMessage, WireResult, wire};

/// More calls of tools than these are no way back.
const MAX_TOOL_CALLS: u32 = 2;
/// What stands before the reference in a replacement.
const BEFORE_REFERENCE: &str = "saved to: ";

/// Whether the model can get at something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// It stands in the view.
    Visible,
    /// Something in the view leads to it.
    Recoverable,
    /// Neither.
    Lost,
}

/// A model that reads a view, and has the tools that the policy gives it.
pub(super) struct Reader<'d> {
    session: &'d Session,
    target: &'d Target,
    /// All of the view, when somebody asked for all of it.
    view: OnceCell<Vec<WireMessage<'d>>>,
}

impl<'d> Reader<'d> {
    pub(super) fn new(driver: &'d Driver) -> Self {
        Self {
            session: &driver.session,
            target: driver.caller.target(),
            view: OnceCell::new(),
        }
    }

    /// Whether what stands for a block shows it.
    pub(super) fn shows(&self, home: &Home, needle: &Needle) -> bool {
        match home {
            Home::Piece(piece) => self
                .rendered(piece)
                .is_some_and(|block| needle.is_shown_in(&block)),
            Home::Left => false,
        }
    }

    /// Whether any block of the view shows it.
    pub(super) fn shows_anywhere(&self, needle: &Needle) -> bool {
        let view = self.view.get_or_init(|| {
            let pieces = self.session.sealed().pieces();
            wire(self.session, pieces, self.target).unwrap_or_default()
        });
        let mut blocks = view.iter().flat_map(|message| &message.blocks);
        blocks.any(|block| needle.is_shown_in(block))
    }

    /// Whether what stands for a block leads to it.
    pub(super) fn leads_to(&self, home: &Home, needle: &Needle) -> bool {
        match home {
            Home::Piece(piece) => match piece.form {
                // What is shown tells the model to follow the reference, so it has to lead there,
                // though the call's id would too.
                Form::Stored(_) => self.by_reference(piece, needle),
                form => form
                    .answers()
                    .is_some_and(|call| self.by_call(call, needle)),
            },
            // Messages that left whole leave nothing in the view that leads to them. When a
            // placeholder stands for a span of them, its way to the transcript begins here.
            Home::Left => false,
        }
    }

    /// The reference that is shown names a file, and the file says it.
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
            let file = file_of(template, self.session.key(), rest.lines().next()?)?;
            let stored = self.session.stored().in_file(file)?;
            if stored.only_file {
                // The transcript has never said more than what stands in the result's place.
                return Some(needle.is_in(&stored.text, false));
            }
            let original = self.original(stored.call)?;
            let content = file_content(original);
            let is_whole = Sha256::digest(content.as_bytes())[..] == stored.sha256;
            Some(is_whole && needle.is_in(&content, is_json(original)))
        };
        self.has_reader() && found().unwrap_or(false)
    }

    /// The call is shown, and its id leads to the result.
    fn by_call(&self, call: CallKey, needle: &Needle) -> bool {
        let found = || {
            let pieces = self.session.sealed().pieces();
            let shown = pieces
                .iter()
                .find(|piece| piece.form.calls() == Some(call))?;
            let Some(WireBlock::Call { id, .. }) = self.rendered(shown) else {
                return None;
            };
            let (named, tool_calls) = resolve(self.session.calls(), &id)?;
            let original = self.original(named)?;
            let says = needle.is_in(&file_content(original), is_json(original));
            Some(tool_calls <= MAX_TOOL_CALLS && says)
        };
        self.has_reader() && found().unwrap_or(false)
    }

    fn has_reader(&self) -> bool {
        let tools = &self.session.policy().model_tools.enabled_tools;
        tools.contains(&ModelTool::ReadToolResult)
    }

    /// What a piece looks like on the wire.
    fn rendered(&self, piece: &Piece) -> Option<WireBlock<'d>> {
        let one = std::slice::from_ref(piece);
        let messages = wire(self.session, one, self.target).ok()?;
        messages.into_iter().next()?.blocks.into_iter().next()
    }

    /// A call's result as it came.
    fn original(&self, call: CallKey) -> Option<&'d ToolResult> {
        let (message, block) = self.session.calls().get(call)?.result()?;
        let message = self.session.transcript().content(message)?;
        match message.blocks.get(usize::from(block))? {
            Block::ToolResult(result) => Some(result),
            _ => None,
        }
    }
}

/// The call that an id in the view leads to, and in how many calls of a tool: an id that the caller has
/// used again is refused with its candidates, and then the right one is named by its key.
fn resolve(calls: &Calls, id: &str) -> Option<(CallKey, u32)> {
    match calls.with_id(id) {
        // An id of our own making holds the key.
        [] => Some((CallKey::parse(id.rsplit_once('_')?.1)?, 1)),
        [only] => Some((*only, 1)),
        candidates => {
            let goes_by_it = |call: &&CallKey| calls.get(**call).is_some_and(|call| !call.mapped);
            Some((*candidates.iter().find(goes_by_it)?, 2))
        }
    }
}
