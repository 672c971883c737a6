//! Content from the log that the comparison of an array needs, and that is not in memory.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use palimpsest_core::array::KnownContent;
use palimpsest_core::command::Rejection;
use palimpsest_core::ids::{MessageId, Ordinal, SessionKey};
use palimpsest_core::message::Message;
use palimpsest_core::session::{ContentNotLoaded, Session};

use crate::originals::contents;
use crate::sessions::PastSession;
use crate::{Engine, EngineError};

/// Number of originals that one read loads.
const ORIGINALS_PER_READ: usize = 256;

/// Content from the log that a plan or its steps need, and that is not in memory.
#[derive(Default)]
pub(super) struct Past {
    /// The layout from before the collapse of the message to which a plan rewinds.
    pub(super) layout: Option<(MessageId, PastSession)>,
    /// Messages that are not in the view.
    originals: HashMap<MessageId, Arc<Message>>,
    bytes: usize,
}

impl Past {
    /// Loads the original of a message and of those that follow it. The comparison probably needs them too.
    pub(super) async fn load_originals(
        &mut self,
        engine: &Engine,
        key: &SessionKey,
        id: MessageId,
    ) -> Result<(), EngineError> {
        // The originals stay in memory until the end of the turn, so they have the same limit as a request.
        let limit = engine.sessions.limits().max_request_bytes;
        if self.originals.contains_key(&id) || self.bytes > limit {
            let what = "has too many messages for a comparison with an array: use a new session";
            return Err(Rejection::invalid("session".to_owned(), what).into());
        }
        let pick = |session: &Session| {
            let transcript = session.transcript();
            let from = transcript.find(id)?;
            let entries = transcript.entries().skip(from.index());
            let entries = entries.filter(|(_, entry)| entry.content.is_none());
            let entries = entries.take(ORIGINALS_PER_READ);
            Some(entries.map(|(at, entry)| (at, entry.clone())).collect())
        };
        let entries = engine.sessions.read(key, pick).await?;
        let entries = entries.ok_or(Rejection::MessageNotFound { id })?;
        for original in contents(engine, key, entries).await? {
            self.bytes += original.message.content_bytes();
            self.originals.insert(original.entry.id, original.message);
        }
        Ok(())
    }
}

/// The messages of a session and the loaded originals.
pub(super) struct Known<'a> {
    session: &'a Session,
    past: &'a Past,
    missing: Cell<Option<MessageId>>,
}

impl KnownContent for Known<'_> {
    fn message(&self, ordinal: Ordinal) -> Result<Arc<Message>, ContentNotLoaded> {
        if let Some(message) = self.session.transcript().content(ordinal) {
            return Ok(Arc::clone(message));
        }
        let entry = self.session.transcript().get(ordinal);
        let id = entry.map(|entry| entry.id).ok_or(ContentNotLoaded)?;
        let original = self.past.originals.get(&id).cloned();
        original.ok_or_else(|| {
            self.missing.set(Some(id));
            ContentNotLoaded
        })
    }
}

impl<'a> Known<'a> {
    pub(super) fn new(session: &'a Session, past: &'a Past) -> Self {
        Self {
            session,
            past,
            missing: Cell::default(),
        }
    }

    pub(super) fn rejection(&self, error: ContentNotLoaded) -> Rejection {
        // The contents of the view are loaded all at once.
        let is_loaded = self.session.transcript().is_fully_loaded();
        match self.missing.get().filter(|_| is_loaded) {
            Some(id) => Rejection::OriginalNotLoaded { id },
            None => error.into(),
        }
    }
}
