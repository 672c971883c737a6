//! Durable operations on folders, shared by the engines and the blob store.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Makes the entries of a folder durable. Syncing a file does not sync its entry.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Creates a folder and its parents durably.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    // Determine the missing folders first, because each new entry needs a sync of its parent.
    let missing: Vec<_> = dir.ancestors().take_while(|path| !path.exists()).collect();
    fs::create_dir_all(dir)?;
    for created in missing {
        sync_dir(parent(created))?;
    }
    Ok(())
}

/// Returns the parent folder of a path, or `.` for a bare name.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        // The parent of a bare name is the empty path, which cannot be opened.
        _ => Path::new("."),
    }
}

/// Exchanges two files or folders atomically.
#[cfg(target_os = "linux")]
pub(crate) fn exchange_paths(a: &Path, b: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)?)
}

/// Always fails: only Linux supports the atomic exchange.
#[cfg(not(target_os = "linux"))]
pub(crate) fn exchange_paths(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns true if an exchange failed because the file system does not support it.
pub(crate) fn cannot_exchange(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        // A file system that does not support the flag returns `EINVAL`.
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput
    )
}
