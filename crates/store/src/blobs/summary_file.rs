//! Reads and writes of a session's `summary.md`. Its path is constant, its content changes, and people
//! may edit it.
//!
//! A write therefore replaces the file only if it still has the content that the writer has read.
//! Buckets compare the object's tag.
//!
//! In a local folder, the new file is exchanged atomically with the old one. If the old one turns out
//! to be edited, the exchange is reverted. Readers always see a complete file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use object_store::{Error, ObjectStoreExt, PutMode, UpdateVersion};
use palimpsest_core::ids::{SessionKey, Timestamp};

use super::error::{BlobError, lacks_conditional_writes};
use super::folders::run_blocking;
use super::paths::session_dir;
use super::store::Blobs;
use crate::crash_point;

/// The age at which a temporary file is considered the leftover of a dead process.
const LEFTOVER: Duration = Duration::from_mins(10);
/// The prefix of temporary file names.
pub(super) const NEW: &str = "summary.md.new-";

/// The maximum size of a summary file, in bytes. Larger files are not read.
const MAX_SUMMARY_FILE_BYTES: u64 = 4 << 20;

/// A summary file with its version.
#[derive(Debug, Clone)]
pub struct SummaryFile {
    /// The content.
    pub text: Bytes,
    /// The time of the last write.
    pub written: Timestamp,
    version: UpdateVersion,
}

/// The outcome of replacing a summary file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceOutcome {
    /// The file contains the new text.
    Written,
    /// The file was changed by another writer and is not modified.
    Changed,
}

/// Returns the path of a session's summary file.
pub fn summary_path(session: &SessionKey) -> String {
    format!("{}session-memory/summary.md", session_dir(session))
}

impl Blobs {
    /// Reads a session's summary file. Returns `None` if it does not exist. Fails with
    /// [`BlobError::TooLarge`] above 4 MiB.
    #[tracing::instrument(
        target = "palimpsest::span",
        level = "debug",
        name = "blob.get",
        skip_all
    )]
    pub async fn summary(&self, session: &SessionKey) -> Result<Option<SummaryFile>, BlobError> {
        // Another log's summary would be mistaken for a user's edit.
        if self.marker.is_some() {
            self.verify().await?;
        }
        let found = match self.store.get(&self.path(&summary_path(session))?).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(BlobError::Store(error)),
        };
        let meta = found.meta.clone();
        // People can replace this file, so its size is checked before the content is read.
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

    /// Removes a session's summary file. A missing file is not an error.
    pub async fn remove_summary(&self, session: &SessionKey) -> Result<(), BlobError> {
        self.verify().await?;
        self.delete(&summary_path(session)).await
    }

    /// Replaces a session's summary file if it is unchanged since it was read. After a power loss, the file
    /// is complete, but it may contain the previous text.
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
            // A local file has no tag, so its content is compared.
            let (file, found) = (folders.file(&path), found.map(|found| found.text.clone()));
            return run_blocking(move || {
                let replaced = replace(&file, found.as_deref(), &text)?;
                // The folders may exist without being durable, for example after a kill of the process that created
                // them.
                folders.sync(&path)?;
                Ok(replaced)
            })
            .await;
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
                // `NotFound` means that the object was removed after it was read.
                Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. },
            ) => Ok(ReplaceOutcome::Changed),
            // Without conditional writes, a change between this read and the write is lost.
            Err(error) if lacks_conditional_writes(&error) => {
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
    // Temporary files of dead processes would accumulate otherwise.
    remove_leftovers(folder);
    // Write and sync the new text before it becomes visible.
    let new = TemporaryFile::write(folder, text)?;
    crash_point("summary.written");
    let replaced = match found {
        None => create(&new.0, file)?,
        Some(found) => exchange(&new.0, file, found)?,
    };
    crash_point("summary.placed");
    drop(new);
    // An existing file's directory entry already leads to a complete text, so only a new one needs a sync.
    if found.is_none() {
        crate::fs::sync_dir(folder)?;
    }
    Ok(replaced)
}

/// Creates the file unless it exists. Linking is atomic and never overwrites.
fn create(new: &FilePath, file: &FilePath) -> io::Result<ReplaceOutcome> {
    match fs::hard_link(new, file) {
        Ok(()) => Ok(ReplaceOutcome::Written),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(ReplaceOutcome::Changed),
        Err(error) => Err(error),
    }
}

/// Replaces the file by an atomic exchange, and reverts the exchange if the file was edited.
fn exchange(new: &FilePath, file: &FilePath, found: &[u8]) -> io::Result<ReplaceOutcome> {
    match crate::fs::exchange_paths(new, file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(ReplaceOutcome::Changed);
        }
        // Without atomic exchange, an edit between this read and the rename is lost.
        Err(error) if crate::fs::cannot_exchange(&error) => {
            if fs::read(file)? != found {
                return Ok(ReplaceOutcome::Changed);
            }
            fs::rename(new, file)?;
            return Ok(ReplaceOutcome::Written);
        }
        swapped => swapped?,
    }
    // After the exchange, the temporary path contains the previous file.
    if fs::read(new)? == found {
        return Ok(ReplaceOutcome::Written);
    }
    crate::fs::exchange_paths(new, file)?;
    Ok(ReplaceOutcome::Changed)
}

/// A temporary file that is removed on drop.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn write(folder: &FilePath, text: &[u8]) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // The number separates concurrent writes of one process, which would otherwise use the same temporary file.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{NEW}{}-{number}", std::process::id()));
        let mut file = File::create(&path)?;
        let new = Self(path);
        file.write_all(text)?;
        file.sync_all()?;
        Ok(new)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // The file does not exist any more if it was renamed.
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes temporary files of killed processes.
fn remove_leftovers(folder: &FilePath) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(NEW);
        let age = entry.metadata().and_then(|meta| meta.modified());
        let is_old = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > LEFTOVER));
        if is_ours && is_old {
            // A leftover costs only a little space, and the next write tries again.
            let _ = fs::remove_file(entry.path());
        }
    }
}
