//! Every message that a session ever had: an index of all of them, and the content of those that
//! the view may still need.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ids::{MessageId, Ordinal, Revision};
use crate::message::{Digest, Message, Role};
use crate::tokens::Size;

/// Where a message stands with regard to the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It takes part in the view.
    Visible,
    /// It is kept for the record alone, as the caller asked.
    TranscriptOnly,
    /// It says again what another message said: a resumed client sent its history once more.
    Reemission(Ordinal),
    /// A rewind took it out of the view.
    Rewound,
}

/// One message in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: MessageId,
    /// The event that brought it, so that the original can be read back.
    pub revision: Revision,
    /// What it says, in short.
    pub digest: Digest,
    /// Who speaks.
    pub role: Role,
    /// Where it stands with regard to the view.
    pub standing: Standing,
    /// Its estimated size, before calibration.
    pub size: Size,
    /// Its content, as long as the view may need it.
    pub content: Option<Arc<Message>>,
}

/// The index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    entries: Vec<Entry>,
    by_id: HashMap<MessageId, Ordinal>,
    emitted: HashMap<Digest, Ordinal>,
    content_bytes: usize,
}

impl Transcript {
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
    pub fn get(&self, ordinal: Ordinal) -> Option<&Entry> {
        self.entries.get(ordinal.index())
    }

    /// All of them, in order.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (Ordinal, &Entry)> {
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

    /// A message's content. It is there for every message that is visible.
    pub fn content(&self, ordinal: Ordinal) -> Option<&Arc<Message>> {
        self.get(ordinal)?.content.as_ref()
    }

    /// The message that said the same under the same provider's id.
    pub(crate) fn emitted(&self, message: &Message, digest: Digest) -> Option<Ordinal> {
        self.emitted.get(&emission(message, digest)?).copied()
    }

    pub(crate) fn push(&mut self, entry: Entry, message: &Message) -> Ordinal {
        let emission = emission(message, entry.digest);
        self.push_with(entry, emission)
    }

    /// The same where the key of re-emissions is known already.
    pub(crate) fn push_with(&mut self, entry: Entry, emission: Option<Digest>) -> Ordinal {
        let ordinal = self.next();
        self.by_id.insert(entry.id, ordinal);
        self.content_bytes += entry.content.as_deref().map_or(0, Message::content_bytes);
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

    /// Takes every message after `last` out of the view; all of them when there is none.
    pub(crate) fn rewind(&mut self, last: Option<Ordinal>) {
        let from = last.map_or(0, |last| last.index() + 1);
        for entry in self.entries.iter_mut().skip(from) {
            if entry.standing == Standing::Visible {
                entry.standing = Standing::Rewound;
                let content = entry.content.take();
                self.content_bytes -= content.as_deref().map_or(0, Message::content_bytes);
            }
        }
    }
}

/// The key under which a re-emission is recognised: what the model said, and the provider's name for
/// it. The user may say the same thing twice and mean it.
pub(crate) fn emission(message: &Message, digest: Digest) -> Option<Digest> {
    let id = message.provider_message_id.as_deref()?;
    (message.role == Role::Assistant).then(|| digest.chain(id.as_bytes()))
}
