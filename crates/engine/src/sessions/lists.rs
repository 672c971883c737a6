//! Lists of sessions, read from their rows alone. An unreadable row is skipped and reported, so it does not hide
//! other sessions.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_core::session::SessionInfo;
use palimpsest_store::encoding::decode_list_row;
use palimpsest_store::{MAX_LIST, SessionHead, StoreError, check_complete};
use tokio::task::spawn_blocking;

use super::{Sessions, load};
use crate::EngineError;

/// Number of unreadable rows that are remembered. Each remembered row is logged once and counted.
const MAX_UNREADABLE: usize = 10_000;

/// A page of sessions, ordered by name, with the data of their rows.
#[derive(Debug, Default)]
pub struct SessionPage {
    /// The sessions whose rows are readable.
    pub sessions: Vec<(SessionKey, SessionHead, SessionInfo)>,
    /// Number of unreadable rows in this page.
    pub unreadable: u64,
    /// The parts of the store that did not answer. Their sessions are missing.
    pub left_out: Vec<Box<str>>,
    /// The name after which the next page begins, or `None` on the last page.
    pub next: Option<SessionKey>,
}

/// Rows that were unreadable since the process started and were not read successfully later.
#[derive(Debug, Default)]
pub(super) struct UnreadableRows(Mutex<HashSet<SessionKey>>);

impl UnreadableRows {
    fn note(&self, key: &SessionKey, error: &StoreError) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Bounded, because a damaged store can contain any number of unreadable rows.
        if known.len() < MAX_UNREADABLE && known.insert(key.clone()) {
            tracing::error!(session = %key, %error, "the row of a session cannot be read: lists and retention pass over the session. Run `palimpsest verify-store`");
        }
    }

    /// Removes rows that were read successfully.
    fn forget<'a>(&self, read: impl Iterator<Item = &'a SessionKey>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.is_empty() {
            for key in read {
                known.remove(key);
            }
        }
    }

    fn count(&self) -> usize {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.len()
    }
}

impl Sessions {
    /// Returns up to `limit` sessions after a name, ordered by name, of one project or of all. Returns fewer only at
    /// the end of the list. Fails if a part of the store does not answer.
    pub async fn list(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<(SessionKey, SessionHead, SessionInfo)>, EngineError> {
        let limit = limit.min(MAX_LIST);
        let mut page = self.list_step(project, after, limit).await?;
        check_complete(&page.left_out)?;
        let mut sessions = std::mem::take(&mut page.sessions);
        while let Some(next) = page.next.take().filter(|_| sessions.len() < limit) {
            // Skipped rows are replaced by rows of the next page.
            let wanted = limit - sessions.len();
            page = self.list_step(project, Some(&next), wanted).await?;
            check_complete(&page.left_out)?;
            sessions.append(&mut page.sessions);
        }
        Ok(sessions)
    }

    /// Reads one page of such a list. `limit` counts all rows, including unreadable ones. Rows are decoded on a
    /// blocking thread.
    pub async fn list_step(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<SessionPage, EngineError> {
        let limit = limit.min(MAX_LIST);
        let listing = self.log.list_rows(project, after, limit).await?;
        let is_last = listing.rows.len() < limit;
        let last = listing.rows.last().map(|(key, _)| key.clone());
        let listed = listing.rows;
        let decode = move || {
            let rows = listed.into_iter();
            let decoded = rows.map(|(key, head)| {
                let row = head.and_then(|head| match decode_list_row(&head.list_row) {
                    Ok(about) => Ok((head, about)),
                    Err(error) => Err(StoreError::Read(format!("its row {error}"))),
                });
                (key, row)
            });
            decoded.collect::<Vec<_>>()
        };
        // A short page is the end of the list. Unreadable rows count as read, so they cannot end the list early.
        let mut page = SessionPage {
            unreadable: listing.nameless,
            left_out: listing.left_out,
            next: last.filter(|_| !is_last),
            ..SessionPage::default()
        };
        for (key, row) in load::join_blocking(spawn_blocking(decode)).await {
            match row {
                Ok((head, about)) => page.sessions.push((key, head, about)),
                Err(error) => {
                    page.unreadable += 1;
                    self.unreadable_rows.note(&key, &error);
                }
            }
        }
        let read = page.sessions.iter().map(|(key, ..)| key);
        self.unreadable_rows.forget(read);
        Ok(page)
    }

    /// The number of sessions with rows that lists found unreadable.
    pub fn unreadable_rows(&self) -> usize {
        self.unreadable_rows.count()
    }
}
