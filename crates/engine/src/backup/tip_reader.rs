//! The tips of a restored session. A backup contains no index of arrays, so the index is built from the log.

use bytes::Bytes;
use palimpsest_core::array::ArrayTips;
use palimpsest_core::event::Event;
use palimpsest_core::ids::SessionKey;
use palimpsest_store::encoding::decode_frame;
use palimpsest_store::{SessionTips, error_chain};

/// Collects the tips of a session from its log.
#[derive(Debug, Default)]
pub(super) struct TipReader {
    tips: ArrayTips,
    has_read: bool,
}

impl TipReader {
    pub(super) fn read(&mut self, key: &SessionKey, frame: &Bytes) {
        // The first event states if the session has tips. Other sessions are restored without being decoded.
        let is_indexed = self.tips.scope.is_some();
        if std::mem::replace(&mut self.has_read, true) && !is_indexed {
            return;
        }
        match decode_frame(frame) {
            Ok(events) => {
                for recorded in events {
                    self.add(&recorded.event);
                }
            }
            // A session whose events cannot be decoded is restored as it is.
            Err(error) => {
                tracing::warn!(session = %key, error = %error_chain(&error), "failed to read events of a restored session; it is found by its name only");
                self.tips = ArrayTips::default();
            }
        }
    }

    /// Adds the tip of an event. The tips of a whole log are those of the session.
    fn add(&mut self, event: &Event) {
        match event {
            Event::SessionCreated(created) => self.tips = ArrayTips::new(created.scope),
            Event::ArraySynced(synced) => {
                if let Some(tip) = synced.tip {
                    self.tips.push(tip);
                }
            }
            _ => {}
        }
    }

    pub(super) fn tips(&self) -> Option<SessionTips> {
        Some(SessionTips {
            scope: self.tips.scope?,
            digests: self.tips.digests.clone(),
        })
    }
}
