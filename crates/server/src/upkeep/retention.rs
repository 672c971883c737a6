//! Sessions past their retention: which they are, what keeps them, and how they go.

use palimpsest_core::command::Rejection;
use palimpsest_core::ids::{ProjectId, SessionKey, Timestamp};
use palimpsest_core::session::Session;
use palimpsest_store::blobs::BlobError;
use palimpsest_store::{MAX_LIST, crash_point, told};

use super::families::{Family, Row, families};
use super::{Upkeep, export};
use crate::config::Keep;
use crate::sessions::SessionsError;

#[derive(Debug, thiserror::Error)]
pub(super) enum RetentionError {
    #[error(transparent)]
    Sessions(#[from] SessionsError),
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

impl Upkeep {
    /// Looks at every session once, project after project. What it holds in memory is one project's
    /// rows, a few hundred bytes each.
    pub(super) async fn retention_pass(&self) -> Result<(), RetentionError> {
        let mut after = None;
        while let Some(project) = self.next_project(after.as_ref()).await? {
            let keep = self.retention.of(&project);
            if keep.is_limited() {
                self.project_pass(&project, keep).await?;
            }
            after = Some(project);
        }
        Ok(())
    }

    /// The project after one, in the order of names, that has a session.
    async fn next_project(
        &self,
        after: Option<&ProjectId>,
    ) -> Result<Option<ProjectId>, RetentionError> {
        let mut from: Option<SessionKey> = None;
        loop {
            // From the first session of the last project on; most projects fit one page.
            let rows = match (&from, after) {
                (None, Some(after)) => {
                    let last = self.sessions.list(Some(after), None, 1).await?;
                    let first = last.into_iter().next().map(|(key, ..)| key);
                    self.sessions.list(None, first.as_ref(), MAX_LIST).await?
                }
                _ => self.sessions.list(None, from.as_ref(), MAX_LIST).await?,
            };
            let found = rows.iter().map(|(key, ..)| &key.project);
            let mut found = found.filter(|project| after.is_none_or(|after| *project > after));
            if let Some(project) = found.next() {
                return Ok(Some(project.clone()));
            }
            let Some((last, ..)) = rows.last() else {
                return Ok(None);
            };
            from = Some(last.clone());
        }
    }

    async fn project_pass(&self, project: &ProjectId, keep: Keep) -> Result<(), RetentionError> {
        let rows = self.rows(project, keep).await?;
        let (mut sessions, mut bytes) = (rows.len() as u64, rows.iter().map(|r| r.bytes).sum());
        let oldest = self.sessions.clock().now().as_millis();
        let oldest = Timestamp::from_millis(oldest.saturating_sub(keep.max_age.as_millis()));
        let is_limited = keep.max_age.is_limited();
        for family in families(rows, self.retention.subagents_alone) {
            let by_age = is_limited && family.modified() <= oldest;
            let is_over = |limit: u64, has: u64| limit > 0 && has > limit;
            let is_over = is_over(keep.max_sessions, sessions) || is_over(keep.max_bytes, bytes);
            if !by_age && !is_over {
                // Those after it are younger still.
                break;
            }
            let (members, size) = (family.members.len() as u64, family.bytes());
            if self.pace().work(self.retire(family, by_age)).await {
                sessions -= members;
                bytes = u64::saturating_sub(bytes, size);
            }
        }
        Ok(())
    }

    async fn rows(&self, project: &ProjectId, keep: Keep) -> Result<Vec<Row>, RetentionError> {
        let (mut rows, mut from) = (Vec::new(), None);
        let tempo = self.pace();
        loop {
            let page = self.sessions.list(Some(project), from.as_ref(), MAX_LIST);
            let page = tempo.work(page).await?;
            let is_last = page.len() < MAX_LIST;
            from = page.last().map(|(key, ..)| key.clone());
            for (key, head, about) in page {
                let mut bytes = head.log_bytes + head.snapshot.map_or(0, |mark| mark.bytes);
                if keep.max_bytes > 0 {
                    bytes += tempo.work(self.blobs.stored_bytes(&key)).await?;
                }
                rows.push(Row {
                    parent: about.parent,
                    modified: about.modified,
                    revision: head.revision,
                    incarnation: head.incarnation,
                    bytes,
                    is_held: !about.hold.is_empty(),
                    key,
                });
            }
            if is_last {
                return Ok(rows);
            }
        }
    }

    /// Exports and deletes a family, unless something keeps it. True when all of it is deleted.
    async fn retire(&self, family: Family, by_age: bool) -> bool {
        let is_in_use = |row: &Row| self.sessions.is_in_use(&row.key);
        if family.is_held() || family.members.iter().any(is_in_use) {
            self.stats.spare();
            return false;
        }
        if let Some(place) = &self.exports {
            for row in &family.members {
                let exported = export::export(&self.service, place, row).await;
                self.stats.export(exported.is_ok());
                if let Err(error) = exported {
                    tracing::warn!(session = %row.key, error = %told(&error), "failed to export a session whose retention is over; it is not deleted, and tried again");
                    self.stats.spare();
                    return false;
                }
                crash_point("retention.exported");
            }
        }
        for row in &family.members {
            match self.delete(row).await {
                Ok(true) => {
                    self.stats.deleted(by_age);
                    tracing::info!(
                        session = %row.key,
                        revision = %row.revision,
                        exported = self.exports.is_some(),
                        reason = if by_age { "age" } else { "quota" },
                        "deleted a session whose retention is over"
                    );
                }
                // Somebody wrote to it, watches it or has put it on hold just now.
                Ok(false) => {
                    self.stats.spare();
                    return false;
                }
                Err(error) => {
                    self.stats.failed();
                    tracing::warn!(session = %row.key, error = %told(&error), "failed to delete a session whose retention is over; it is tried again");
                    return false;
                }
            }
        }
        true
    }

    /// Deletes a session if it is as it was looked at. The rest of it goes in the background.
    async fn delete(&self, row: &Row) -> Result<bool, SessionsError> {
        if self.sessions.is_in_use(&row.key) {
            return Ok(false);
        }
        let check = |session: &Session| {
            let current = session.revision();
            if current != row.revision || !session.about().hold.is_empty() {
                return Err(Rejection::RevisionMoved {
                    expected: row.revision,
                    current,
                });
            }
            Ok(())
        };
        match self.sessions.delete(&row.key, check).await {
            Err(SessionsError::Rejected(_)) => Ok(false),
            // Somebody else has deleted it.
            Ok(_) => Ok(true),
            Err(error) => Err(error),
        }
    }
}
