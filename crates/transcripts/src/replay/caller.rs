//! A simulated caller: it keeps the prefix that each reply names, appends the new messages, and
//! compares the result with the complete view.
//!
//! The views of a transcript differ mostly at their ends. Each block or message is therefore encoded
//! only once. It is recognized by the memory address of its content, which a replay never frees. An
//! id then represents its bytes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use palimpsest_core::codec;
use palimpsest_core::message::Digest;
use palimpsest_core::session::{Session, View};
use palimpsest_core::tokens::{Calibration, MESSAGE_TOKENS, TokenCounter};
use palimpsest_core::validate::{ParsedMessage, Violation, validate_parsed};
use palimpsest_core::view::{
    Etag, Provider, RepairKind, Target, WireBlock, WireMessage, WireResult, WireRole, wire_tokens,
};

/// The id of a block in a view. It represents the role and the bytes.
pub(super) type BlockId = u32;

/// The result of checking one view.
#[derive(Debug, Default)]
pub(super) struct ViewCheck {
    pub(super) sendable: bool,
    /// The violations that a provider would report. Empty for a view that is not sendable.
    pub(super) violations: Vec<Violation>,
    /// True if the view continues the previous one, or if a view-changing event lies between them.
    pub(super) extends_previous: bool,
    /// True if the caller's array equals the complete view.
    pub(super) matches_full: bool,
    pub(super) repairs: Vec<RepairKind>,
    pub(super) bytes: usize,
}

/// The state of the simulated caller: its array and its latest etag.
pub(super) struct SimulatedCaller {
    target: Target,
    blocks: BlockRegistry,
    /// The messages of the array, by id.
    array: Vec<usize>,
    etag: Option<Etag>,
    flat: Vec<BlockId>,
    epoch: u32,
}

impl SimulatedCaller {
    pub(super) fn new(target: Target, counter: TokenCounter) -> Self {
        Self {
            target,
            blocks: BlockRegistry::new(counter),
            array: Vec::new(),
            etag: None,
            flat: Vec::new(),
            epoch: 0,
        }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the blocks of the last view in the order that prompt caches use.
    pub(super) fn flat(&self) -> &[BlockId] {
        &self.flat
    }

    /// Returns the tokens of a prefix of a view.
    pub(super) fn tokens(&self, part: &[BlockId], calibration: Calibration) -> u64 {
        let mut tokens = 0;
        let mut role = None;
        for block in part {
            let block = &self.blocks.blocks[*block as usize];
            // Adjacent blocks of one role form one message.
            if role != Some(block.role) {
                role = Some(block.role);
                tokens += MESSAGE_TOKENS;
            }
            tokens += u64::from(block.tokens);
        }
        calibration.apply(tokens)
    }

    /// Applies the delta of a session's view to the array, and checks the complete view.
    pub(super) fn check_view(&mut self, session: &Session) -> ViewCheck {
        let held = "a session that was never unloaded holds its messages";
        let delta = session.view(&self.target, self.etag).expect(held);
        let full = session.view(&self.target, None).expect(held);
        self.array.truncate(delta.keep as usize);
        let new = self.blocks.messages(self.target.provider, &delta.messages);
        self.array.extend(new);
        let whole = self.blocks.messages(self.target.provider, &full.messages);
        let flat = self.blocks.flat(self.target.provider, &full);
        let epoch = session.sealed().epoch().get();
        let mut look = ViewCheck {
            sendable: full.not_sendable.is_none(),
            violations: Vec::new(),
            // A new epoch may rewrite the prefix. Within an epoch it must not change.
            extends_previous: epoch != self.epoch || flat.starts_with(&self.flat),
            matches_full: self.array == whole,
            repairs: delta.repairs.iter().map(|repair| repair.kind).collect(),
            bytes: self.parsed().map(ParsedMessage::bytes).sum(),
        };
        // A view that is not sendable may contain open calls, which the validator would report.
        if look.sendable {
            look.violations = validate_parsed(&self.target, self.parsed());
        }
        // The next delta is requested relative to this view.
        (self.flat, self.epoch, self.etag) = (flat, epoch, Some(full.etag));
        look
    }

    fn parsed(&self) -> impl Iterator<Item = &ParsedMessage> {
        self.array.iter().map(|at| &self.blocks.parsed[*at])
    }
}

/// A registry of all blocks and messages that were ever shown, without duplicates.
struct BlockRegistry {
    counter: TokenCounter,
    blocks: Vec<KnownBlock>,
    /// The blocks by memory address of their content. `block_of` maps them by their bytes.
    block_at: HashMap<u64, BlockId>,
    block_of: HashMap<Digest, BlockId>,
    parsed: Vec<ParsedMessage>,
    /// The messages by memory address of their content. `message_of` maps them by their bytes.
    message_at: HashMap<u64, usize>,
    message_of: HashMap<Digest, usize>,
}

/// A block that was shown.
struct KnownBlock {
    role: u8,
    tokens: u32,
}

impl BlockRegistry {
    fn new(counter: TokenCounter) -> Self {
        Self {
            counter,
            blocks: Vec::new(),
            block_at: HashMap::new(),
            block_of: HashMap::new(),
            parsed: Vec::new(),
            message_at: HashMap::new(),
            message_of: HashMap::new(),
        }
    }

    fn messages(&mut self, provider: Provider, messages: &[WireMessage<'_>]) -> Vec<usize> {
        let number = |message| self.message(provider, message);
        messages.iter().map(number).collect()
    }

    fn message(&mut self, provider: Provider, message: &WireMessage<'_>) -> usize {
        let place = hash_of(|hasher| {
            (message.role as u8).hash(hasher);
            message.extra.map(std::ptr::from_ref).hash(hasher);
            for block in &message.blocks {
                hash_block(block, hasher);
            }
        });
        if let Some(known) = self.message_at.get(&place) {
            return *known;
        }
        let mut json = Vec::new();
        codec::write(provider, message, &mut json);
        let next = self.parsed.len();
        let known = *self
            .message_of
            .entry(Digest::of_bytes(&json))
            .or_insert(next);
        if known == next {
            self.parsed.push(ParsedMessage::new(&json));
        }
        self.message_at.insert(place, known);
        known
    }

    /// Returns a view as the sequence of blocks that prompt caches use. System messages come first.
    fn flat(&mut self, provider: Provider, view: &View<'_>) -> Vec<BlockId> {
        let messages = view.system.iter().chain(&view.messages);
        let blocks =
            messages.flat_map(|message| message.blocks.iter().map(|block| (message.role, block)));
        blocks
            .map(|(role, block)| self.block(provider, role, block))
            .collect()
    }

    fn block(&mut self, provider: Provider, role: WireRole, block: &WireBlock<'_>) -> BlockId {
        let role = role as u8;
        let place = hash_of(|hasher| {
            role.hash(hasher);
            hash_block(block, hasher);
        });
        if let Some(known) = self.block_at.get(&place) {
            return *known;
        }
        let mut bytes = vec![role];
        codec::write_block(provider, block, &mut bytes);
        let next = palimpsest_core::view::count(self.blocks.len());
        let known = *self
            .block_of
            .entry(Digest::of_bytes(&bytes))
            .or_insert(next);
        if known == next {
            self.blocks.push(KnownBlock {
                role,
                tokens: wire_tokens(self.counter, block),
            });
        }
        self.block_at.insert(place, known);
        known
    }
}

fn hash_of(write: impl FnOnce(&mut DefaultHasher)) -> u64 {
    let mut hasher = DefaultHasher::new();
    write(&mut hasher);
    hasher.finish()
}

/// Hashes a text. A borrowed text has a stable address. A text that was created for the view is
/// hashed by content.
#[expect(
    clippy::ptr_arg,
    reason = "whether the words are borrowed is what matters"
)]
fn hash_words(words: &Cow<'_, str>, hasher: &mut DefaultHasher) {
    match words {
        // The first element keeps an address distinct from a content.
        Cow::Borrowed(words) => (0_u8, std::ptr::from_ref::<str>(words)).hash(hasher),
        Cow::Owned(words) => (1_u8, words).hash(hasher),
    }
}

fn hash_block(block: &WireBlock<'_>, hasher: &mut DefaultHasher) {
    // Blocks of different types may refer to the same content.
    std::mem::discriminant(block).hash(hasher);
    match block {
        WireBlock::Text { text, extra } => {
            hash_words(text, hasher);
            extra.map(std::ptr::from_ref).hash(hasher);
        }
        WireBlock::Media { media, extra } => {
            std::ptr::from_ref(*media).hash(hasher);
            extra.map(std::ptr::from_ref).hash(hasher);
        }
        WireBlock::Call {
            kind,
            id,
            name,
            input,
            extra,
        } => {
            kind.hash(hasher);
            hash_words(id, hasher);
            hash_words(name, hasher);
            std::ptr::from_ref(*input).hash(hasher);
            extra.map(std::ptr::from_ref).hash(hasher);
        }
        WireBlock::Result {
            kind,
            id,
            content,
            is_error,
            extra,
        } => {
            kind.hash(hasher);
            hash_words(id, hasher);
            hash_result(content, hasher);
            is_error.hash(hasher);
            extra.map(std::ptr::from_ref).hash(hasher);
        }
        WireBlock::Thinking { thinking, extra } => {
            std::ptr::from_ref(*thinking).hash(hasher);
            extra.map(std::ptr::from_ref).hash(hasher);
        }
        WireBlock::Opaque(json) => std::ptr::from_ref(*json).hash(hasher),
    }
}

fn hash_result(content: &WireResult<'_>, hasher: &mut DefaultHasher) {
    match content {
        WireResult::None => 0_u8.hash(hasher),
        WireResult::Text(text) => hash_words(text, hasher),
        WireResult::Blocks(blocks) => {
            blocks.len().hash(hasher);
            for block in blocks {
                hash_block(block, hasher);
            }
        }
    }
}
