//! A session's `summary.md`: one path whose contents change, and which people may edit.
//!
//! So it is only ever replaced when it still holds what the writer has read. A bucket does that by the
//! object's tag. In a local folder the new file is put in place by exchanging it with the old one in one
//! step, and what came out is looked at: was it edited a moment ago, it goes back. Readers see a whole
//! file at any time. Not here: what is written, and what becomes of an edit.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use object_store::{Error, ObjectStoreExt, PutMode, UpdateVersion};
use palimpsest_core::ids::{SessionKey, Timestamp};
use tokio::task::spawn_blocking;

use super::error::{BlobError, knows_no_conditions};
use super::paths::session_dir;
use super::store::Blobs;
use crate::crash_point;

/// A file that was being written longer ago than this was left by a process that died.
const LEFTOVER: Duration = Duration::from_mins(10);
/// What the name of a file begins with that is being written.
pub(super) const NEW: &str = "summary.md.new-";

/// No summary that a person edits is larger; what is, is not read.
const MAX_SUMMARY_FILE_BYTES: u64 = 4 << 20;

/// A summary as it was found.
#[derive(Debug, Clone)]
pub struct SummaryFile {
    /// What it holds.
    pub text: Bytes,
    /// When it was last written.
    pub written: Timestamp,
    version: UpdateVersion,
}

/// What came of replacing a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceOutcome {
    /// It holds the new text.
    Written,
    /// It was not what was found any more, and is as somebody else left it.
    Changed,
}

/// Where a session's summary is, within the store.
pub fn summary_path(session: &SessionKey) -> String {
    format!("{}session-memory/summary.md", session_dir(session))
}

impl Blobs {
    /// A session's summary; none when there is no file.
    #[tracing::instrument(
        target = "palimpsest::span",
        level = "debug",
        name = "blob.get",
        skip_all
    )]
    pub async fn summary(&self, session: &SessionKey) -> Result<Option<SummaryFile>, BlobError> {
        // Another log's summary would pass for a person's edit of this one's.
        if self.marker.is_some() {
            self.verify().await?;
        }
        let found = match self.store.get(&self.path(&summary_path(session))?).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(BlobError::Store(error)),
        };
        let meta = found.meta.clone();
        if meta.size > MAX_SUMMARY_FILE_BYTES {
            return Err(BlobError::TooLarge {
                path: summary_path(session),
                bytes: meta.size,
            });
        }
        Ok(Some(SummaryFile {
            text: found.bytes().await.map_err(BlobError::Store)?,
            written: Timestamp::from_millis(meta.last_modified.timestamp_millis()),
            version: UpdateVersion {
                e_tag: meta.e_tag,
                version: meta.version,
            },
        }))
    }

    /// Removes a session's summary; that there is none is no failure.
    pub async fn remove_summary(&self, session: &SessionKey) -> Result<(), BlobError> {
        self.verify().await?;
        self.delete(&summary_path(session)).await
    }

    /// Replaces a session's summary if it still is as it was found. What it then holds is all there after a loss of
    /// power, though it may be the text before this one.
    #[tracing::instrument(
        target = "palimpsest::span",
        level = "debug",
        name = "blob.put",
        skip_all
    )]
    pub async fn replace_summary(
        &self,
        session: &SessionKey,
        found: Option<&SummaryFile>,
        text: Bytes,
    ) -> Result<ReplaceOutcome, BlobError> {
        self.verify().await?;
        let path = summary_path(session);
        if let Some(folders) = self.folders.clone() {
            let (file, found) = (folders.file(&path), found.map(|found| found.text.clone()));
            let replaced = spawn_blocking(move || {
                let replaced = replace(&file, found.as_deref(), &text)?;
                folders.sync(&path)?;
                Ok(replaced)
            });
            let replaced = replaced.await.map_err(io::Error::other).flatten();
            return replaced.map_err(BlobError::Folder);
        }
        let at = self.path(&path)?;
        let mode = found.map_or(PutMode::Create, |it| PutMode::Update(it.version.clone()));
        match self
            .store
            .put_opts(&at, text.clone().into(), mode.into())
            .await
        {
            Ok(_) => Ok(ReplaceOutcome::Written),
            Err(
                Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. },
            ) => Ok(ReplaceOutcome::Changed),
            // The bucket cannot compare: the moment between looking and writing is all that is left.
            Err(error) if knows_no_conditions(&error) => {
                let now = self.summary(session).await?.map(|now| now.text);
                if now.as_deref() != found.map(|found| &*found.text) {
                    return Ok(ReplaceOutcome::Changed);
                }
                self.overwrite(&path, text).await?;
                Ok(ReplaceOutcome::Written)
            }
            Err(error) => Err(BlobError::Store(error)),
        }
    }
}

fn replace(file: &FilePath, found: Option<&[u8]>, text: &[u8]) -> io::Result<ReplaceOutcome> {
    let folder = crate::fs::parent(file);
    crate::fs::create_dir(folder)?;
    remove_leftovers(folder);
    let new = Temporary::write(folder, text)?;
    crash_point("summary.written");
    let replaced = match found {
        None => create(&new.0, file)?,
        Some(found) => exchange(&new.0, file, found)?,
    };
    crash_point("summary.placed");
    drop(new);
    // Where there was one, its name leads to a whole text already.
    if found.is_none() {
        crate::fs::sync_dir(folder)?;
    }
    Ok(replaced)
}

/// Puts a file where there was none.
fn create(new: &FilePath, file: &FilePath) -> io::Result<ReplaceOutcome> {
    match fs::hard_link(new, file) {
        Ok(()) => Ok(ReplaceOutcome::Written),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(ReplaceOutcome::Changed),
        Err(error) => Err(error),
    }
}

fn exchange(new: &FilePath, file: &FilePath, found: &[u8]) -> io::Result<ReplaceOutcome> {
    match crate::fs::exchange(new, file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(ReplaceOutcome::Changed);
        }
        // Not every file system can.
        Err(error) if crate::fs::cannot_exchange(&error) => {
            if fs::read(file)? != found {
                return Ok(ReplaceOutcome::Changed);
            }
            fs::rename(new, file)?;
            return Ok(ReplaceOutcome::Written);
        }
        swapped => swapped?,
    }
    if fs::read(new)? == found {
        return Ok(ReplaceOutcome::Written);
    }
    crate::fs::exchange(new, file)?;
    Ok(ReplaceOutcome::Changed)
}

/// A file that is being written; what is left under its name goes.
struct Temporary(PathBuf);

impl Temporary {
    fn write(folder: &FilePath, text: &[u8]) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{NEW}{}-{number}", std::process::id()));
        let mut file = File::create(&path)?;
        let new = Self(path);
        file.write_all(text)?;
        file.sync_all()?;
        Ok(new)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It is gone already when it was renamed.
        let _ = fs::remove_file(&self.0);
    }
}

/// What processes left that were killed while they wrote.
fn remove_leftovers(folder: &FilePath) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(NEW);
        let age = entry.metadata().and_then(|meta| meta.modified());
        let is_old = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > LEFTOVER));
        if is_ours && is_old {
            let _ = fs::remove_file(entry.path());
        }
    }
}
