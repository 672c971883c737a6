//! Lists of sessions, of their rows alone. A row that cannot be read is passed over and reported: it hides nobody else's.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_core::session::About;
use palimpsest_store::encoding::decode_about;
use palimpsest_store::{MAX_LIST, SessionHead, StoreError};
use tokio::task::spawn_blocking;

use super::{Sessions, SessionsError, load};

/// So many names of unreadable rows are remembered: each is logged once, and all of them are counted.
const REMEMBERED: usize = 10_000;

/// Sessions in the order of their names, with what their rows say.
#[derive(Debug, Default)]
pub struct SessionPage {
    /// Those whose rows can be read.
    pub sessions: Vec<(SessionKey, SessionHead, About)>,
    /// Rows that were passed over between them.
    pub unreadable: u64,
    /// After which name to go on; none when nothing follows.
    pub next: Option<SessionKey>,
}

/// Rows that could not be read since the process began and have not been read since.
#[derive(Debug, Default)]
pub(super) struct UnreadableRows(Mutex<HashSet<SessionKey>>);

impl UnreadableRows {
    fn note(&self, key: &SessionKey, error: &StoreError) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < REMEMBERED && known.insert(key.clone()) {
            tracing::error!(session = %key, %error, "the row of a session cannot be read: lists and retention pass over the session. Run `palimpsest verify-store`");
        }
    }

    /// Forgets those that can be read again.
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
    /// Up to `limit` sessions of a project, or of all, after a name and in the order of names. Fewer only where nothing
    /// follows.
    pub async fn list(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<(SessionKey, SessionHead, About)>, SessionsError> {
        let limit = limit.min(MAX_LIST);
        let mut page = self.list_step(project, after, limit).await?;
        let mut sessions = std::mem::take(&mut page.sessions);
        while let Some(next) = page.next.take().filter(|_| sessions.len() < limit) {
            let wanted = limit - sessions.len();
            page = self.list_step(project, Some(&next), wanted).await?;
            sessions.append(&mut page.sessions);
        }
        Ok(sessions)
    }

    /// One step of such a list: so many rows are read, whether or not they can be. They are decoded off the threads that
    /// answer calls.
    pub async fn list_step(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<SessionPage, SessionsError> {
        let limit = limit.min(MAX_LIST);
        let listing = self.log.rows(project, after, limit).await?;
        let is_last = listing.rows.len() < limit;
        let last = listing.rows.last().map(|(key, _)| key.clone());
        let decode = move || {
            let rows = listing.rows.into_iter();
            let decoded = rows.map(|(key, head)| {
                let row = head.and_then(|head| match decode_about(&head.summary) {
                    Ok(about) => Ok((head, about)),
                    Err(error) => Err(StoreError::Read(format!("its row {error}"))),
                });
                (key, row)
            });
            decoded.collect::<Vec<_>>()
        };
        let mut page = SessionPage {
            unreadable: listing.nameless,
            next: last.filter(|_| !is_last),
            ..SessionPage::default()
        };
        for (key, row) in load::joined(spawn_blocking(decode)).await {
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

    /// The number of sessions whose rows lists have found unreadable.
    pub fn unreadable_rows(&self) -> usize {
        self.unreadable_rows.count()
    }
}
