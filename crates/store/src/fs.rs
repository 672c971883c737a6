//! Folders that survive a power loss: what the engines and the blobs both need of one.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Makes the entries of a folder durable: a file's own sync does not.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Creates a folder and its parents so that they survive a power loss.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    let missing: Vec<_> = dir.ancestors().take_while(|path| !path.exists()).collect();
    fs::create_dir_all(dir)?;
    for created in missing {
        sync_dir(parent(created))?;
    }
    Ok(())
}

/// A path's folder; a bare name's is the current one.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Exchanges two files or two folders in one step.
#[cfg(target_os = "linux")]
pub(crate) fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)?)
}

/// Exchanges two files or two folders in one step.
#[cfg(not(target_os = "linux"))]
pub(crate) fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// True if an exchange failed because the file system has no such step.
pub(crate) fn cannot_exchange(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput
    )
}
