//! The transcript: an index of all messages, and the contents of those that the view may still need.
//!
//! A session that was loaded from a snapshot holds only the latest contents. An operation that needs an older one
//! returns [`ContentNotLoaded`]. The caller loads the missing contents and retries.

use crate::event::Visibility;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ids::{MessageId, Ordinal, Revision};
use crate::message::{Block, Digest, Message, MessageKind, Role};
use crate::policy::TokenEstimator;
use crate::tokens::{TokenLedger, TokenSize};
use crate::view::item_id;

/// Error: the content of a message is stored in the log and not loaded into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("older messages of the session are not in memory")]
pub struct ContentNotLoaded;

/// The index entry of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptEntry {
    /// The message's id.
    pub id: MessageId,
    /// The revision of the event that appended the message. The original can be read back from there.
    pub revision: Revision,
    /// The digest of the content.
    pub digest: Digest,
    /// The author of the message.
    pub role: Role,
    /// The kind of message: ordinary, summary or another kind that the service appends.
    pub kind: MessageKind,
    /// The visibility of the message in the view.
    pub visibility: Visibility,
    /// The estimated size as shown, before calibration. In a collapsed span, the first message has the size of the
    /// placeholder and the others have size 0.
    pub size: TokenSize,
    /// The estimator that the size was counted with.
    pub counted_by: TokenEstimator,
    /// The content. `None` if the view does not need the content or it was not loaded from the log.
    pub content: Option<Arc<Message>>,
}

/// All messages of a session, in the order of arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    entries: Vec<TranscriptEntry>,
    by_id: HashMap<MessageId, Ordinal>,
    by_reemission_key: HashMap<Digest, Ordinal>,
    content_bytes: usize,
    /// Number of messages whose content belongs into memory and is not there.
    unloaded_count: usize,
    /// Number of images per block, for blocks with images in a format that a provider accepts.
    image_counts: BTreeMap<(Ordinal, u16), u16>,
    /// Digests of the ids of items that are sent as received, by message and block.
    item_ids: BTreeMap<(Ordinal, u16), Digest>,
}

impl TranscriptEntry {
    /// Returns the kind and role under which the tokens are counted. A placeholder counts as a summary.
    pub fn counts_as(&self) -> (MessageKind, Role) {
        match self.visibility {
            Visibility::Collapsed => (MessageKind::Summary, Role::User),
            _ => (self.kind, self.role),
        }
    }

    pub(super) fn without_content(&self) -> Self {
        Self {
            content: None,
            ..self.clone()
        }
    }

    fn is_unloaded(&self) -> bool {
        self.visibility.keeps_content() && self.content.is_none()
    }
}

impl Transcript {
    /// Returns true if the content of every visible and every unconfirmed message is in memory.
    pub fn is_fully_loaded(&self) -> bool {
        self.unloaded_count == 0
    }

    /// Returns the revision of the first message whose content belongs into memory and is not there.
    pub fn first_unloaded(&self) -> Option<Revision> {
        let is_unloaded = |entry: &&TranscriptEntry| entry.is_unloaded();
        // The counter avoids the scan when all contents are in memory.
        (self.unloaded_count > 0).then(|| {
            self.entries
                .iter()
                .find(is_unloaded)
                .map(|entry| entry.revision)
        })?
    }

    /// Returns the number of images in a block that a provider accepts.
    pub(crate) fn image_count(&self, message: Ordinal, block: u16) -> u16 {
        self.image_counts
            .get(&(message, block))
            .copied()
            .unwrap_or(0)
    }

    /// Iterates over the blocks with images, as message, block and number of images.
    pub(crate) fn image_counts(&self) -> impl Iterator<Item = (Ordinal, u16, u16)> {
        let image_counts = self.image_counts.iter();
        image_counts.map(|(&(message, block), &count)| (message, block, count))
    }

    pub(crate) fn set_image_counts(&mut self, image_counts: Vec<(Ordinal, u16, u16)>) {
        let image_counts = image_counts.into_iter();
        self.image_counts = image_counts
            .map(|(message, block, count)| ((message, block), count))
            .collect();
    }

    /// Iterates over the items that are sent with their ids, as message, block and digest of the id.
    pub(crate) fn item_ids(&self) -> impl Iterator<Item = (Ordinal, u16, Digest)> {
        let item_ids = self.item_ids.iter();
        item_ids.map(|(&(message, block), &id)| (message, block, id))
    }

    pub(crate) fn set_item_ids(&mut self, item_ids: Vec<(Ordinal, u16, Digest)>) {
        let item_ids = item_ids.into_iter();
        self.item_ids = item_ids
            .map(|(message, block, id)| ((message, block), id))
            .collect();
    }

    /// Adds contents that were read from the log. Unknown messages and contents that are not needed are ignored.
    pub fn load_content(&mut self, contents: impl IntoIterator<Item = Arc<Message>>) {
        for message in contents {
            let Some(ordinal) = self.find(message.id) else {
                continue;
            };
            let entry = &mut self.entries[ordinal.index()];
            // An event also contains messages that are hidden, whose contents stay out of memory.
            if entry.is_unloaded() {
                self.unloaded_count -= 1;
                self.content_bytes += message.content_bytes();
                entry.content = Some(message);
            }
        }
    }

    /// Returns the bytes of all contents in memory.
    pub fn content_bytes(&self) -> usize {
        self.content_bytes
    }

    /// Returns the number of messages, visible and hidden.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if no message was appended.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns an entry by its ordinal.
    pub fn get(&self, ordinal: Ordinal) -> Option<&TranscriptEntry> {
        self.entries.get(ordinal.index())
    }

    /// Iterates over all entries in the order of arrival.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (Ordinal, &TranscriptEntry)> {
        self.entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (Ordinal::new(crate::view::count(index)), entry))
    }

    /// Returns the ordinal of a message id.
    pub fn find(&self, id: MessageId) -> Option<Ordinal> {
        self.by_id.get(&id).copied()
    }

    /// Returns the ordinal of the next message.
    pub fn next(&self) -> Ordinal {
        Ordinal::new(crate::view::count(self.entries.len()))
    }

    /// Returns the role of a message.
    ///
    /// # Panics
    ///
    /// Panics if the message does not exist. Pieces refer only to existing messages.
    pub(crate) fn role(&self, ordinal: Ordinal) -> Role {
        self.entries[ordinal.index()].role
    }

    /// Returns the content digest of a message.
    ///
    /// # Panics
    ///
    /// Panics if the message does not exist.
    pub(crate) fn digest(&self, ordinal: Ordinal) -> Digest {
        self.entries[ordinal.index()].digest
    }

    /// Returns the content of a message, if it is in memory.
    pub fn content(&self, ordinal: Ordinal) -> Option<&Arc<Message>> {
        self.get(ordinal)?.content.as_ref()
    }

    /// Returns true if the message is visible.
    pub fn is_in_view(&self, ordinal: Ordinal) -> bool {
        let entry = self.get(ordinal);
        entry.is_some_and(|entry| entry.visibility == Visibility::Visible)
    }

    /// Returns a block of a message, if the message's content is in memory.
    pub fn block(&self, ordinal: Ordinal, block: u16) -> Option<&Block> {
        self.content(ordinal)?.blocks.get(usize::from(block))
    }

    /// Returns the content of a message, or an error if the content is not in memory.
    pub(crate) fn require_content(
        &self,
        ordinal: Ordinal,
    ) -> Result<&Arc<Message>, ContentNotLoaded> {
        self.content(ordinal).ok_or(ContentNotLoaded)
    }

    /// Returns the earlier message with the same content and the same provider's message id.
    pub(crate) fn find_reemitted(&self, message: &Message, digest: Digest) -> Option<Ordinal> {
        self.by_reemission_key
            .get(&reemission_key(message, digest)?)
            .copied()
    }

    pub(crate) fn push(&mut self, entry: TranscriptEntry, message: &Message) -> Ordinal {
        let key = reemission_key(message, entry.digest);
        let visible = entry.visibility == Visibility::Visible;
        let ordinal = self.push_with(entry, key);
        // A message that is hidden when it is appended has no blocks in the view.
        if visible {
            self.index_blocks(ordinal, message);
        }
        ordinal
    }

    /// Records the images and the ids of items of a message that is or becomes visible.
    pub(crate) fn index_blocks(&mut self, ordinal: Ordinal, message: &Message) {
        for (block, content) in (0_u16..).zip(&message.blocks) {
            let count = content.image_count();
            if count > 0 {
                self.image_counts.insert((ordinal, block), count);
            }
            if let Some(id) = item_id(message, content) {
                self.item_ids.insert((ordinal, block), id);
            }
        }
    }

    /// Replaces an entry by another one of the same message.
    pub(crate) fn replace(&mut self, ordinal: Ordinal, entry: TranscriptEntry) {
        // Hiding the old entry releases its content and subtracts it from both counters.
        self.set_visibility(ordinal, Visibility::TranscriptOnly);
        let stored = &mut self.entries[ordinal.index()];
        self.content_bytes += entry.content.as_deref().map_or(0, Message::content_bytes);
        self.unloaded_count += usize::from(entry.is_unloaded());
        *stored = entry;
    }

    /// Appends an entry whose re-emission key was computed before.
    pub(crate) fn push_with(
        &mut self,
        entry: TranscriptEntry,
        emission: Option<Digest>,
    ) -> Ordinal {
        let ordinal = self.next();
        self.by_id.insert(entry.id, ordinal);
        self.content_bytes += entry.content.as_deref().map_or(0, Message::content_bytes);
        self.unloaded_count += usize::from(entry.is_unloaded());
        // The first message with a key is the original, so a later one does not replace it.
        if let Some(emission) = emission {
            self.by_reemission_key.entry(emission).or_insert(ordinal);
        }
        self.entries.push(entry);
        ordinal
    }

    /// Iterates over the re-emission keys.
    pub(crate) fn reemission_keys(&self) -> impl Iterator<Item = (Ordinal, Digest)> {
        self.by_reemission_key
            .iter()
            .map(|(key, ordinal)| (*ordinal, *key))
    }

    /// Sets the visibility of a message. The content of a message that becomes hidden is released. The content of
    /// one that becomes visible again must be loaded from the log.
    pub(crate) fn set_visibility(&mut self, ordinal: Ordinal, visibility: Visibility) {
        let Some(entry) = self.entries.get_mut(ordinal.index()) else {
            return;
        };
        // The counter depends on visibility and content, so it is adjusted around the change.
        self.unloaded_count -= usize::from(entry.is_unloaded());
        entry.visibility = visibility;
        if !visibility.keeps_content() {
            let content = entry.content.take();
            self.content_bytes -= content.as_deref().map_or(0, Message::content_bytes);
        }
        self.unloaded_count += usize::from(entry.is_unloaded());
    }

    /// Changes a count to another size of a message. Returns false if the message does not exist.
    pub(super) fn recount(
        &self,
        ledger: &mut TokenLedger,
        ordinal: Ordinal,
        size: TokenSize,
    ) -> bool {
        let Some(entry) = self.get(ordinal) else {
            return false;
        };
        ledger.resize(ordinal, entry.counts_as(), entry.size, size);
        true
    }

    /// Sets the size of a message as it is shown now.
    pub(crate) fn resize(&mut self, ordinal: Ordinal, size: TokenSize) {
        if let Some(entry) = self.entries.get_mut(ordinal.index()) {
            entry.size = size;
        }
    }
}

/// Returns the key by which a re-emission is recognized: the content and the provider's message id. Only responses
/// have a key, because a user may deliberately send the same text twice.
pub(crate) fn reemission_key(message: &Message, digest: Digest) -> Option<Digest> {
    let id = message.provider_message_id.as_deref()?;
    (message.role == Role::Assistant).then(|| digest.chain(id.as_bytes()))
}
