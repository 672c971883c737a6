//! What goes when a session goes, and what nobody needs any more.
//!
//! Everything here can be repeated: that something is gone already is no failure. Not here: which
//! files an event names.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use futures::TryStreamExt;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use palimpsest_core::ids::{ProjectId, SessionId, SessionKey, Timestamp};
use tokio::task::spawn_blocking;

use super::{BlobEntry, BlobError, Blobs, MIN_SWEEP_AGE_MILLIS, session_dir, tool_results};
use crate::crash_point;

/// How much was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// How many files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Removed {
    fn count(&mut self, entry: &BlobEntry) {
        self.files += 1;
        self.bytes += entry.bytes;
    }
}

impl std::ops::AddAssign for Removed {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

impl Blobs {
    /// Deletes everything of a session: results, `summary.md`, and in a local folder what a process
    /// that was killed had begun to write. Whoever calls it must see to it that nobody writes there.
    pub async fn remove_session(&self, session: &SessionKey) -> Result<Removed, BlobError> {
        let mut removed = Removed::default();
        for entry in self.list(session).await? {
            self.delete(&entry.path).await?;
            crash_point("blob.deleted");
            removed.count(&entry);
        }
        if let Some(folders) = self.folders.clone() {
            let dir = folders.file(&session_dir(session));
            let gone = spawn_blocking(move || remove_dir(&dir)).await;
            gone.map_err(io::Error::other)
                .flatten()
                .map_err(BlobError::Folder)?;
            folders.forget();
        }
        Ok(removed)
    }

    /// The projects that have something here, in the order of their names. What else lies beside them
    /// is not ours.
    pub async fn projects(&self) -> Result<Vec<ProjectId>, BlobError> {
        let names = self.folder_names("").await?;
        let ids = names.iter().filter_map(|name| ProjectId::new(name).ok());
        Ok(ids.collect())
    }

    /// The sessions of a project that have something here, in the order of their names.
    pub async fn sessions(&self, project: &ProjectId) -> Result<Vec<SessionKey>, BlobError> {
        let names = self.folder_names(project.as_str()).await?;
        let ids = names.iter().filter_map(|name| SessionId::new(name).ok());
        let keys = ids.map(|session| SessionKey::new(project.clone(), session));
        Ok(keys.collect())
    }

    /// Deletes a session's tool results that no event names and that were written before
    /// `older_than`, and says how much that was. Never one younger than a day: `older_than` is cut to
    /// that.
    pub async fn sweep(
        &self,
        session: &SessionKey,
        referenced: &HashSet<String>,
        older_than: Timestamp,
        now: Timestamp,
    ) -> Result<Removed, BlobError> {
        let swept = self.entries(&tool_results(session)).await?.into_iter();
        let swept = swept.filter(|entry| !referenced.contains(&entry.path));
        self.sweep_entries(swept.collect(), older_than, now).await
    }

    /// The same for all that lies where a session is that does not exist.
    pub async fn sweep_session(
        &self,
        session: &SessionKey,
        older_than: Timestamp,
        now: Timestamp,
    ) -> Result<Removed, BlobError> {
        let swept = self.list(session).await?;
        self.sweep_entries(swept, older_than, now).await
    }

    /// Deletes what a process that was killed had begun to write of a session's files and no listing
    /// shows; in a local folder alone, because a bucket has no such thing.
    pub async fn sweep_leftovers(
        &self,
        session: &SessionKey,
        older_than: Timestamp,
        now: Timestamp,
    ) -> Result<Removed, BlobError> {
        let Some(folders) = self.folders.clone() else {
            return Ok(Removed::default());
        };
        let dirs = [
            folders.file(&tool_results(session)),
            folders.file(&format!("{}session-memory", session_dir(session))),
        ];
        let age = now.millis_since(not_younger(older_than, now));
        let age = Duration::from_millis(age);
        let swept = spawn_blocking(move || {
            let mut removed = Removed::default();
            for dir in dirs {
                removed += remove_leftovers(&dir, age)?;
            }
            Ok(removed)
        });
        let swept = swept.await.map_err(io::Error::other).flatten();
        swept.map_err(BlobError::Folder)
    }

    async fn sweep_entries(
        &self,
        mut entries: Vec<BlobEntry>,
        older_than: Timestamp,
        now: Timestamp,
    ) -> Result<Removed, BlobError> {
        let older_than = not_younger(older_than, now);
        entries.retain(|entry| entry.written < older_than);
        let mut removed = Removed::default();
        for entry in entries {
            let _alone = self.sweeping.write().await;
            // A put may have written it again since it was listed.
            let Ok(meta) = self.store.head(&self.path(&entry.path)?).await else {
                continue;
            };
            if self.entry(&meta).written < older_than {
                self.delete(&entry.path).await?;
                removed.count(&entry);
            }
        }
        Ok(removed)
    }

    async fn folder_names(&self, dir: &str) -> Result<Vec<String>, BlobError> {
        let within = self.path(dir)?;
        let listed = self.store.list_with_delimiter(Some(&within)).await;
        let folders = listed.map_err(BlobError::Store)?.common_prefixes;
        let mut names: Vec<_> = folders
            .iter()
            .filter_map(|folder| folder.filename().map(ToOwned::to_owned))
            .collect();
        names.sort();
        Ok(names)
    }

    /// How many bytes all blobs of a session have.
    pub async fn stored_bytes(&self, session: &SessionKey) -> Result<u64, BlobError> {
        let within = self.path(&session_dir(session))?;
        let sizes = self.store.list(Some(&within)).map_ok(|meta| meta.size);
        let total = sizes.try_fold(0, async |sum: u64, size| Ok(sum.saturating_add(size)));
        total.await.map_err(BlobError::Store)
    }
}

/// The event that names a file may not be written yet, so a day is the least.
fn not_younger(older_than: Timestamp, now: Timestamp) -> Timestamp {
    let newest = now.as_millis().saturating_sub(MIN_SWEEP_AGE_MILLIS);
    older_than.min(Timestamp::from_millis(newest))
}

/// Removes a folder with all that is in it, so that it stays away after a power loss.
fn remove_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // The folder above may have gone too, with the last session in it.
    let above = dir.ancestors().skip(1).find(|folder| folder.exists());
    above.map_or(Ok(()), crate::fs::sync_dir)
}

/// Files under the names that `object_store` and [`super::summary`] write under before they rename.
fn remove_leftovers(dir: &Path, age: Duration) -> io::Result<Removed> {
    let mut removed = Removed::default();
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(removed),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(meta) = entry.metadata() else { continue };
        let is_old = meta
            .modified()
            .is_ok_and(|at| at.elapsed().is_ok_and(|it| it > age));
        if is_old && meta.is_file() && is_leftover(&name) {
            fs::remove_file(entry.path())?;
            removed.files += 1;
            removed.bytes += meta.len();
        }
    }
    Ok(removed)
}

fn is_leftover(name: &str) -> bool {
    let is_number = |end: &str| !end.is_empty() && end.bytes().all(|b| b.is_ascii_digit());
    name.starts_with(super::summary::NEW)
        || name.rsplit_once('#').is_some_and(|(_, end)| is_number(end))
}
