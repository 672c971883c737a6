//! Every message that a session ever had: an index of all of them, and the content of those that
//! the view may still need.
//!
//! A session that was just loaded holds the contents of its end alone, which is enough to go on with.
//! Whoever needs more gets [`ContentNotLoaded`], and asks again when the rest was put in.

use crate::event::Visibility;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ids::{MessageId, Ordinal, Revision};
use crate::message::{Block, Digest, Message, MessageKind, Role};
use crate::policy::TokenEstimator;
use crate::tokens::Size;

/// The content of a message is in the log, and not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("older messages of the session are not in memory")]
pub struct ContentNotLoaded;

/// One message in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptEntry {
    /// Its id.
    pub id: MessageId,
    /// The event that brought it, so that the original can be read back.
    pub revision: Revision,
    /// What it says, in short.
    pub digest: Digest,
    /// Who speaks.
    pub role: Role,
    /// What it is in the life of the session.
    pub kind: MessageKind,
    /// Where it stands with regard to the view.
    pub standing: Visibility,
    /// Its estimated size as it is shown, before calibration. Of messages that a placeholder stands for,
    /// the first has the placeholder's and the others have none.
    pub size: Size,
    /// What it was counted with.
    pub counted_by: TokenEstimator,
    /// Its content, as long as the view may need it; none when it was not read from the log yet.
    pub content: Option<Arc<Message>>,
}

/// The index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    entries: Vec<TranscriptEntry>,
    by_id: HashMap<MessageId, Ordinal>,
    emitted: HashMap<Digest, Ordinal>,
    content_bytes: usize,
    /// How many messages take part in the view whose content is not held.
    unheld: usize,
    /// How many pictures a block holds, where it holds any that a provider takes.
    pictures: BTreeMap<(Ordinal, u16), u16>,
}

impl TranscriptEntry {
    /// What its tokens count as: those of a placeholder are not the messages'.
    pub fn counts_as(&self) -> (MessageKind, Role) {
        match self.standing {
            Visibility::Collapsed => (MessageKind::Summary, Role::User),
            _ => (self.kind, self.role),
        }
    }

    fn is_unheld(&self) -> bool {
        self.standing == Visibility::Visible && self.content.is_none()
    }
}

impl Transcript {
    /// Whether the content of every message that takes part in the view is held.
    pub fn is_whole(&self) -> bool {
        self.unheld == 0
    }

    /// The first event with a content that is not held.
    pub fn first_unheld(&self) -> Option<Revision> {
        let unheld = |entry: &&TranscriptEntry| entry.is_unheld();
        (self.unheld > 0).then(|| self.entries.iter().find(unheld).map(|entry| entry.revision))?
    }

    /// How many pictures a block holds that a provider takes.
    pub(crate) fn pictures_in(&self, message: Ordinal, block: u16) -> u16 {
        self.pictures.get(&(message, block)).copied().unwrap_or(0)
    }

    /// Every block that holds pictures, with their number.
    pub(crate) fn pictures(&self) -> impl Iterator<Item = (Ordinal, u16, u16)> {
        let pictures = self.pictures.iter();
        pictures.map(|(&(message, block), &count)| (message, block, count))
    }

    pub(crate) fn set_pictures(&mut self, pictures: Vec<(Ordinal, u16, u16)>) {
        let pictures = pictures.into_iter();
        self.pictures = pictures
            .map(|(message, block, count)| ((message, block), count))
            .collect();
    }

    /// Puts in contents that were read from the log; those that are not needed are passed over.
    pub fn load_content(&mut self, contents: impl IntoIterator<Item = Arc<Message>>) {
        for message in contents {
            let Some(ordinal) = self.find(message.id) else {
                continue;
            };
            let entry = &mut self.entries[ordinal.index()];
            if entry.is_unheld() {
                self.unheld -= 1;
                self.content_bytes += message.content_bytes();
                entry.content = Some(message);
            }
        }
    }

    /// The bytes of all contents that are held.
    pub fn content_bytes(&self) -> usize {
        self.content_bytes
    }

    /// How many messages there are, shown or not.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// One message, by its place.
    pub fn get(&self, ordinal: Ordinal) -> Option<&TranscriptEntry> {
        self.entries.get(ordinal.index())
    }

    /// All of them, in order.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (Ordinal, &TranscriptEntry)> {
        self.entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (Ordinal::new(crate::view::count(index)), entry))
    }

    /// A message's place, by its id.
    pub fn find(&self, id: MessageId) -> Option<Ordinal> {
        self.by_id.get(&id).copied()
    }

    /// The place that the next message will have.
    pub fn next(&self) -> Ordinal {
        Ordinal::new(crate::view::count(self.entries.len()))
    }

    /// Who speaks in a message. Pieces only ever name messages that are there.
    pub(crate) fn role(&self, ordinal: Ordinal) -> Role {
        self.entries[ordinal.index()].role
    }

    /// What a message says, in short.
    pub(crate) fn digest(&self, ordinal: Ordinal) -> Digest {
        self.entries[ordinal.index()].digest
    }

    /// A message's content, when it is held.
    pub fn content(&self, ordinal: Ordinal) -> Option<&Arc<Message>> {
        self.get(ordinal)?.content.as_ref()
    }

    /// Whether a message takes part in the view.
    pub fn is_visible(&self, ordinal: Ordinal) -> bool {
        let entry = self.get(ordinal);
        entry.is_some_and(|entry| entry.standing == Visibility::Visible)
    }

    /// A block of a message, when its content is held.
    pub(crate) fn block(&self, ordinal: Ordinal, block: u16) -> Option<&Block> {
        self.content(ordinal)?.blocks.get(usize::from(block))
    }

    /// The content of a message that takes part in the view.
    pub(crate) fn held(&self, ordinal: Ordinal) -> Result<&Arc<Message>, ContentNotLoaded> {
        self.content(ordinal).ok_or(ContentNotLoaded)
    }

    /// The message that said the same under the same provider's id.
    pub(crate) fn emitted(&self, message: &Message, digest: Digest) -> Option<Ordinal> {
        self.emitted.get(&emission(message, digest)?).copied()
    }

    pub(crate) fn push(&mut self, entry: TranscriptEntry, message: &Message) -> Ordinal {
        let emission = emission(message, entry.digest);
        let visible = entry.standing == Visibility::Visible;
        let ordinal = self.push_with(entry, emission);
        for (block, content) in (0_u16..).zip(&message.blocks) {
            let count = content.pictures();
            if visible && count > 0 {
                self.pictures.insert((ordinal, block), count);
            }
        }
        ordinal
    }

    /// The same where the key of re-emissions is known already.
    pub(crate) fn push_with(
        &mut self,
        entry: TranscriptEntry,
        emission: Option<Digest>,
    ) -> Ordinal {
        let ordinal = self.next();
        self.by_id.insert(entry.id, ordinal);
        self.content_bytes += entry.content.as_deref().map_or(0, Message::content_bytes);
        self.unheld += usize::from(entry.is_unheld());
        if let Some(emission) = emission {
            self.emitted.entry(emission).or_insert(ordinal);
        }
        self.entries.push(entry);
        ordinal
    }

    /// The keys under which re-emissions are recognised.
    pub(crate) fn emissions(&self) -> impl Iterator<Item = (Ordinal, Digest)> {
        self.emitted.iter().map(|(key, ordinal)| (*ordinal, *key))
    }

    /// Moves a message. The content of one that leaves the view is let go; that of one that comes back
    /// is to be read from the log.
    pub(crate) fn stand(&mut self, ordinal: Ordinal, standing: Visibility) {
        let Some(entry) = self.entries.get_mut(ordinal.index()) else {
            return;
        };
        self.unheld -= usize::from(entry.is_unheld());
        entry.standing = standing;
        if standing != Visibility::Visible {
            let content = entry.content.take();
            self.content_bytes -= content.as_deref().map_or(0, Message::content_bytes);
        }
        self.unheld += usize::from(entry.is_unheld());
    }

    /// Says what a message has as it is shown now.
    pub(crate) fn resize(&mut self, ordinal: Ordinal, size: Size) {
        if let Some(entry) = self.entries.get_mut(ordinal.index()) {
            entry.size = size;
        }
    }
}

/// The key under which a re-emission is recognised: what the model said, and the provider's name for
/// it. The user may say the same thing twice and mean it.
pub(crate) fn emission(message: &Message, digest: Digest) -> Option<Digest> {
    let id = message.provider_message_id.as_deref()?;
    (message.role == Role::Assistant).then(|| digest.chain(id.as_bytes()))
}
