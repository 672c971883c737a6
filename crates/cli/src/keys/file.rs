//! Changes the key file in one step: one command at a time, and a reader sees the old file or the new one.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use palimpsest_server::access::keyfile::{KeyFile, MAX_KEYS};
use tempfile::NamedTempFile;

/// Reads the file. One that is not there has no keys.
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

/// Changes the file: what `change` gives is given back once the file is safe on disk.
pub(super) fn change<T>(
    path: &Path,
    change: impl FnOnce(&mut KeyFile) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    // A symlink stays one: what it leads to is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let writing = || format!("failed to write {}", target.display());
    // Two commands at once would each write the file that it has read. The folder is locked and not the file,
    // because the file is another one after every change.
    let lock = File::open(&folder).with_context(writing)?;
    lock.lock().with_context(writing)?;
    let mut file = read(&target)?;
    let outcome = change(&mut file)?;
    if file.keys.len() > MAX_KEYS {
        return Err(anyhow!(
            "{} would have more than {MAX_KEYS} keys: remove those that are revoked",
            target.display()
        ));
    }
    // A new file of this kind is only for its owner: 0600.
    let mut new = NamedTempFile::new_in(&folder).with_context(writing)?;
    new.write_all(file.text()?.as_bytes())
        .with_context(writing)?;
    new.as_file().sync_all().with_context(writing)?;
    new.persist(&target).with_context(writing)?;
    lock.sync_all().with_context(writing)?;
    Ok(outcome)
}
