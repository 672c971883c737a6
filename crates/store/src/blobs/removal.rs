//! Removal of a deleted session's files, and of orphaned blobs.
//!
//! All operations are idempotent: a missing file is not an error. Files are removed by name, and a name
//! is never reused, so a late removal affects no other file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use futures::TryStreamExt as _;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use palimpsest_core::ids::{ProjectId, SessionId, SessionKey};

use super::error::BlobError;
use super::folders::{Folders, run_blocking};
use super::paths::{check_name, result_path, session_dir, tool_results};
use super::store::{BlobEntry, Blobs};
use super::summary_file::summary_path;
use crate::crash_point;

/// The number and size of removed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemovalCount {
    /// The number of files.
    pub files: u64,
    /// The size of the files, in bytes.
    pub bytes: u64,
}

impl RemovalCount {
    fn count(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

impl std::ops::AddAssign for RemovalCount {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// The files of a session at one time.
#[derive(Debug)]
pub struct SessionFiles {
    session: SessionKey,
    entries: Vec<BlobEntry>,
    /// Temporary files of killed processes, which listings omit. Only in a local folder.
    leftovers: Vec<PathBuf>,
}

impl Blobs {
    /// Lists all files of a session: tool results, `summary.md`, and temporary files of killed processes.
    pub async fn list_session_files(
        &self,
        session: &SessionKey,
    ) -> Result<SessionFiles, BlobError> {
        self.verify().await?;
        let mut found = SessionFiles {
            session: session.clone(),
            entries: self.list(session).await?,
            leftovers: Vec::new(),
        };
        if let Some(folders) = self.folders.clone() {
            // `object_store` hides temporary files from listings, so read the folders directly.
            let dirs = folders_of(session).map(|dir| folders.file(&dir));
            found.leftovers = run_blocking(move || {
                let found = dirs.iter().map(|dir| leftovers(dir, is_leftover));
                found.collect::<io::Result<Vec<_>>>()
            })
            .await?
            .concat();
        }
        Ok(found)
    }

    /// Removes the listed files, and none that were added since. Tool results of a new session with the
    /// same name have other names. `summary.md` has the same path, so it is removed only if it is unchanged
    /// right before.
    pub async fn remove_listed(&self, found: SessionFiles) -> Result<RemovalCount, BlobError> {
        self.verify().await?;
        let (mut removed, summary) = (RemovalCount::default(), summary_path(&found.session));
        for entry in found.entries {
            // A changed summary belongs to a new session of the same name.
            if entry.path == summary && !self.is_unchanged(&entry).await? {
                continue;
            }
            self.delete(&entry.path).await?;
            crash_point("blob.deleted");
            removed.count(entry.bytes);
        }
        if let Some(folders) = self.folders.clone() {
            let (session, files) = (found.session, found.leftovers);
            let more = run_blocking(move || {
                let removed = remove_files(&files)?;
                remove_empty(&folders, &session)?;
                Ok(removed)
            });
            removed += more.await?;
        }
        Ok(removed)
    }

    async fn is_unchanged(&self, listed: &BlobEntry) -> Result<bool, BlobError> {
        match self.store.head(&self.path(&listed.path)?).await {
            Ok(meta) => Ok(self.entry(&meta) == *listed),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(BlobError::Store(error)),
        }
    }

    /// Returns the projects with blobs, ordered by name. Folders that are no legal project names are
    /// ignored.
    pub async fn projects(&self) -> Result<Vec<ProjectId>, BlobError> {
        let names = self.folder_names("").await?;
        Ok(names
            .into_iter()
            .filter_map(|name| ProjectId::new(&name).ok())
            .collect())
    }

    /// Returns the sessions of a project with blobs, ordered by name.
    pub async fn sessions(&self, project: &ProjectId) -> Result<Vec<SessionKey>, BlobError> {
        let names = self.folder_names(project.as_str()).await?.into_iter();
        let ids = names.filter_map(|name| SessionId::new(&name).ok());
        let keys = ids.map(|session| SessionKey::new(project.clone(), session));
        Ok(keys.collect())
    }

    /// Removes one tool result and its temporary files.
    pub async fn remove_result(
        &self,
        session: &SessionKey,
        file: &str,
    ) -> Result<RemovalCount, BlobError> {
        check_name(file)?;
        self.verify().await?;
        let (mut removed, path) = (RemovalCount::default(), result_path(session, file)?);
        // A deletion does not report the size of the file, so it is read first.
        match self.store.head(&self.path(&path)?).await {
            Ok(meta) => {
                self.delete(&path).await?;
                removed.count(meta.size);
            }
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(BlobError::Store(error)),
        }
        if let Some(folders) = self.folders.clone() {
            let (dir, file) = (folders.file(&tool_results(session)), file.to_owned());
            let more = run_blocking(move || {
                let of_this = |name: &str| is_leftover(name) && is_of(name, &file);
                remove_files(&leftovers(&dir, of_this)?)
            });
            removed += more.await?;
        }
        Ok(removed)
    }

    /// Returns the size of all blobs of a session, in bytes.
    pub async fn stored_bytes(&self, session: &SessionKey) -> Result<u64, BlobError> {
        let within = self.path(&session_dir(session))?;
        let sizes = self.store.list(Some(&within)).map_ok(|meta| meta.size);
        let total = sizes.try_fold(0, async |sum: u64, size| Ok(sum.saturating_add(size)));
        total.await.map_err(BlobError::Store)
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
}

/// Returns the folders of a session's files.
fn folders_of(session: &SessionKey) -> [String; 2] {
    let summaries = format!("{}session-memory/", session_dir(session));
    [tool_results(session), summaries]
}

/// Removes the empty folders of a session durably.
fn remove_empty(folders: &Folders, session: &SessionKey) -> io::Result<()> {
    let [results, summaries] = folders_of(session);
    let project = session.project.to_string();
    let mut last = None;
    // Inner folders come first, because only an empty folder can be removed.
    for dir in [results, summaries, session_dir(session), project] {
        let dir = folders.file(&dir);
        match fs::remove_dir(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A file was added meanwhile.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => continue,
            Err(error) => return Err(error),
        }
        last = Some(dir);
    }
    // A later put must sync the folders again, because they may be recreated.
    folders.forget();
    // The removals are durable after the parent of the last removed folder was synced.
    let Some(last) = last else { return Ok(()) };
    let above = last.ancestors().skip(1).find(|folder| folder.exists());
    above.map_or(Ok(()), crate::fs::sync_dir)
}

/// Returns the temporary files in a folder. `object_store` and [`super::summary_file`] write under such
/// names before they rename.
fn leftovers(dir: &Path, is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_wanted(&name) && entry.file_type()?.is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn remove_files(files: &[PathBuf]) -> io::Result<RemovalCount> {
    let mut removed = RemovalCount::default();
    for file in files {
        let bytes = file.metadata().map_or(0, |meta| meta.len());
        match fs::remove_file(file) {
            Ok(()) => removed.count(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

fn is_leftover(name: &str) -> bool {
    let is_number = |end: &str| !end.is_empty() && end.bytes().all(|b| b.is_ascii_digit());
    // `object_store` names its temporary files with `#` and a number at the end.
    name.starts_with(super::summary_file::NEW)
        || name.rsplit_once('#').is_some_and(|(_, end)| is_number(end))
}

/// Returns true if a temporary file belongs to `file`.
fn is_of(name: &str, file: &str) -> bool {
    name.rsplit_once('#')
        .is_some_and(|(begun, _)| begun == file)
}
