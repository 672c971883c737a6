//! Intents of files: announcements of blobs that are about to be stored.

use async_trait::async_trait;
use palimpsest_core::ids::{SessionKey, Timestamp};

use crate::StoreError;

/// The maximum number of files that one append may name for the first time. [`FileIntents::declare_intents`] has
/// the same limit per call.
pub const MAX_FILES: usize = 4096;

/// The maximum length of a file name, in bytes.
pub const MAX_FILE_BYTES: usize = 160;

/// A file that is about to be stored, or that was stored and is not named by any event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileIntent {
    /// The session whose events may name the file.
    pub key: SessionKey,
    /// The file's name among the session's results.
    pub file: Box<str>,
    /// The time of the intent.
    pub at: Timestamp,
    /// True after a sweep has revoked the intent. No append can name it any more.
    pub is_revoked: bool,
}

/// A page of intents, ordered by session and file. An empty page means that no more follow.
#[derive(Debug, Default)]
pub struct IntentPage {
    /// The readable intents.
    pub intents: Vec<FileIntent>,
    /// The number of unreadable intents that this page skips. Their files stay.
    pub unreadable: u64,
}

/// Collects the records of a page.
#[derive(Debug, Default)]
pub(crate) struct IntentCollector {
    page: IntentPage,
    /// Unreadable records after the last readable one. The next page begins there and counts them.
    trailing: u64,
}

impl IntentCollector {
    /// Adds a record, or counts an unreadable one.
    pub(crate) fn push(&mut self, intent: Option<FileIntent>) {
        match intent {
            Some(intent) => {
                self.page.intents.push(intent);
                self.page.unreadable += std::mem::take(&mut self.trailing);
            }
            None => self.trailing += 1,
        }
    }

    /// Returns the number of readable intents.
    pub(crate) fn len(&self) -> usize {
        self.page.intents.len()
    }

    /// Returns the page. No page follows an empty one, so it counts all its unreadable records.
    pub(crate) fn page(mut self) -> IntentPage {
        if self.page.intents.is_empty() {
            self.page.unreadable = self.trailing;
        }
        self.page
    }
}

/// The intents of all files that no event names yet.
#[async_trait]
pub trait FileIntents: Send + Sync + 'static {
    /// Announces files that are about to be stored for a session. The intents are durable on return, so
    /// that a sweep can find files whose event was never appended. Announcing a file again updates the time
    /// of its intent.
    ///
    /// Fails with [`StoreError::IntentRevoked`] if a sweep has revoked the intent of one of the files.
    async fn declare_intents(
        &self,
        key: &SessionKey,
        files: Vec<Box<str>>,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Returns up to `limit` intents after `after`, ordered by session and file. Unreadable intents are skipped and
    /// counted, so that they do not hide others.
    async fn list_intents(
        &self,
        after: Option<(&SessionKey, &str)>,
        limit: usize,
    ) -> Result<IntentPage, StoreError>;

    /// Revokes an intent that is older than `before`. No append can end it afterwards, so its file may be
    /// deleted. Returns true if the intent is revoked now, by this call or an earlier one.
    async fn revoke_intent(
        &self,
        key: &SessionKey,
        file: &str,
        before: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Ends an intent without an event. A missing intent is not an error.
    async fn complete_intent(&self, key: &SessionKey, file: &str) -> Result<(), StoreError>;
}
