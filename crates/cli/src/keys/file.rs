//! Atomic changes of the key file. One command changes the file at a time, and a reader reads the old or the new file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use palimpsest_edge::access::keyfile::{KeyFile, MAX_KEYS};
use tempfile::NamedTempFile;

/// Reads the key file. A missing file has no keys.
pub(super) fn read(path: &Path) -> anyhow::Result<KeyFile> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            return Err(error).with_context(|| format!("failed to read {}", path.display()));
        }
    };
    KeyFile::read(&text).map_err(|what| anyhow!("{}: {what}", path.display()))
}

/// Changes the key file. Returns the result of `change` after the file is synced to disk.
pub(super) fn change<T>(
    path: &Path,
    change: impl FnOnce(&mut KeyFile) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    // A symbolic link stays, and its target is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let writing = || format!("failed to write {}", target.display());
    // Without a lock, one of two concurrent commands would overwrite the change of the other. The lock is on the
    // folder, because every change replaces the file.
    let lock = File::open(&folder).with_context(writing)?;
    lock.lock().with_context(writing)?;
    let mut file = read(&target)?;
    let outcome = change(&mut file)?;
    if file.keys.len() > MAX_KEYS {
        return Err(anyhow!(
            "{} would have more than {MAX_KEYS} keys: remove revoked keys with `palimpsest keys remove`",
            target.display()
        ));
    }
    // A temporary file has the mode 0600, so only its owner can read the hashes.
    let mut new = NamedTempFile::new_in(&folder).with_context(writing)?;
    new.write_all(file.text()?.as_bytes())
        .with_context(writing)?;
    // Without this sync, a crash after the rename could leave an empty key file.
    new.as_file().sync_all().with_context(writing)?;
    new.persist(&target).with_context(writing)?;
    // The rename is durable only after a sync of its folder.
    lock.sync_all().with_context(writing)?;
    Ok(outcome)
}
