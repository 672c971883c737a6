//! Sessions that were migrated before and deleted in one of the two stores since.

use std::fmt;
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_store::{Position, SessionHead};

use super::journal::MigratedSession;
use super::{MigrateError, MigrationJournal, PARALLEL, StoreSide};

/// Maximum time for the removal of a deleted session's data.
const REMOVAL_TIMEOUT: Duration = Duration::from_mins(2);
/// Maximum number of sessions that an error lists.
const MAX_NAMED: usize = 10;

/// The treatment of sessions that were deleted in one store since they were moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionPolicy {
    /// Returns an error that lists the sessions. Nothing is migrated.
    #[default]
    Refuse,
    /// Deletes the sessions in the other store too.
    Mirror,
    /// Keeps the sessions. Those of the source are migrated again.
    Keep,
}

/// A session that was in both stores and is now in only one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedSession {
    session: SessionKey,
    /// True if the source is the store that lost the session.
    in_source: bool,
    /// The position in the store that still has the session.
    left: Position,
    /// True if the session changed after its migration.
    has_grown: bool,
}

/// The deleted sessions, for the text of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedSessions(Vec<DeletedSession>);

impl fmt::Display for DeletedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, deleted) in self.0.iter().take(MAX_NAMED).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let store = if deleted.in_source {
                "source"
            } else {
                "target"
            };
            write!(f, "{separator}{} (in the {store})", deleted.session)?;
        }
        match self.0.len().saturating_sub(MAX_NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Finds sessions that were deleted since their migration, and deletes them in the other store if configured. Returns
/// the number of deletions.
pub(super) async fn apply_deletions(
    (from, to): (&StoreSide, &StoreSide),
    project: Option<&ProjectId>,
    record: &MigrationJournal,
    deletions: DeletionPolicy,
) -> Result<u64, MigrateError> {
    let known = record.known();
    let known = known.filter(|(key, _)| project.is_none_or(|it| key.project == *it));
    let looks = known.map(|(key, known)| find_deletion(from, to, key, known));
    let found = stream::iter(looks).buffer_unordered(PARALLEL);
    let found = found.try_filter_map(async |found| Ok(found));
    let mut found: Vec<DeletedSession> = found.try_collect().await?;
    found.sort_by(|a, b| a.session.cmp(&b.session));
    match deletions {
        DeletionPolicy::Keep => return Ok(0),
        DeletionPolicy::Refuse if !found.is_empty() => {
            return Err(MigrateError::Deleted(found.len(), DeletedSessions(found)));
        }
        DeletionPolicy::Refuse | DeletionPolicy::Mirror => {}
    }
    // All sessions are checked before the first deletion, so an error leaves both stores unchanged.
    let grown: Vec<_> = found.iter().filter(|it| it.has_grown).cloned().collect();
    if !grown.is_empty() {
        return Err(MigrateError::ChangedAfterDeletion(
            grown.len(),
            DeletedSessions(grown),
        ));
    }
    for deleted in &found {
        // The store that still has the session is the one to delete from.
        let side = if deleted.in_source { to } else { from };
        delete(side, deleted).await?;
    }
    Ok(found.len() as u64)
}

async fn find_deletion(
    from: &StoreSide,
    to: &StoreSide,
    key: &SessionKey,
    known: MigratedSession,
) -> Result<Option<DeletedSession>, MigrateError> {
    // A session of another incarnation is a new session of the same name. The migrated one counts as deleted.
    let is = |head: &SessionHead, incarnation| head.incarnation == incarnation;
    let source = from
        .log
        .head(key)
        .await?
        .filter(|head| is(head, known.source));
    let target = to
        .log
        .head(key)
        .await?
        .filter(|head| is(head, known.target));
    let deleted = |in_source, left: &SessionHead| DeletedSession {
        session: key.clone(),
        in_source,
        left: left.position(),
        has_grown: left.revision != known.revision,
    };
    Ok(match (source, target) {
        (Some(left), None) => Some(deleted(false, &left)),
        (None, Some(left)) => Some(deleted(true, &left)),
        _ => None,
    })
}

async fn delete(side: &StoreSide, deleted: &DeletedSession) -> Result<(), MigrateError> {
    let key = &deleted.session;
    let failed = |error| MigrateError::Session(key.clone(), error);
    // A hold protects the remaining copy, although the other store has deleted its own.
    let check = |session: &palimpsest_core::session::Session| {
        if session.info().hold.is_empty() {
            return Ok(());
        }
        let what = "is on hold: lift the hold first";
        Err(palimpsest_core::command::Rejection::invalid(
            "session", what,
        ))
    };
    // The position ensures that only the checked state is deleted.
    let gone = side.sessions.delete(key, Some(deleted.left), check);
    gone.await.map_err(failed)?;
    // The other store owns the files and has removed its own.
    if side.blobs.is_read_only() {
        return Ok(());
    }
    if side
        .sessions
        .finish_removal(key, REMOVAL_TIMEOUT)
        .await
        .map_err(failed)?
    {
        return Ok(());
    }
    Err(MigrateError::Changed(key.clone()))
}
