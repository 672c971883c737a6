//! Operations on a store's folder and its siblings: atomic replacement, protection against an empty
//! start beside an older store, and read-only copies.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::open::{io_error, lock_for_reading, wait_until_closed};
use super::space;
use crate::fs as durable;
use crate::{StoreError, crash_point};

/// Replaces the folder `current` with the folder `new` and keeps the former content as `old`. Where the
/// file system can exchange folders atomically, `current` always contains a complete store. Otherwise a
/// crash between two renames leaves no folder at `current`, and the next start refuses to create one.
///
/// Without `old`, `current` must be missing or empty.
pub fn swap_folder(new: &Path, current: &Path, old: Option<&Path>) -> Result<(), StoreError> {
    swap_folder_with(new, current, old, durable::exchange_paths)
}

/// Replaces a folder as [`swap_folder`] does, with another way to exchange two folders.
pub(super) fn swap_folder_with(
    new: &Path,
    current: &Path,
    old: Option<&Path>,
    exchange: impl Fn(&Path, &Path) -> io::Result<()>,
) -> Result<(), StoreError> {
    // sled's threads may outlive a closed store briefly and still write to its paths.
    for folder in [new, current] {
        wait_until_closed(folder)?;
    }
    let moved = |from: &Path, to: &Path| {
        fs::rename(from, to).map_err(io_error("put in its place", from))?;
        durable::sync_dir(durable::parent(to)).map_err(io_error("sync the folder of", to))
    };
    let Some(old) = old else {
        // A rename can replace only an empty folder.
        return moved(new, current);
    };
    match exchange(new, current) {
        Ok(()) => {
            crash_point("place.exchanged");
            let parent = durable::parent(current);
            durable::sync_dir(parent).map_err(io_error("sync the folder of", current))?;
            // After the exchange, `new` is the path of the former store.
            moved(new, old)
        }
        Err(error) if durable::cannot_exchange(&error) => {
            moved(current, old)?;
            crash_point("place.aside");
            moved(new, current)
        }
        Err(error) => Err(io_error("put in its place", new)(error)),
    }
}

/// Rejects a missing folder if siblings with its name as prefix exist, for example `log.compacting`
/// without `log`.
pub(super) fn reject_missing_with_siblings(dir: &Path) -> Result<(), StoreError> {
    if dir.exists() {
        return Ok(());
    }
    let mut others = sibling_folders(dir).map_err(io_error("look for older stores beside", dir))?;
    if others.is_empty() {
        return Ok(());
    }
    // Sort for a deterministic choice, because folder listings have no order.
    others.sort();
    let is = |folder: &Path, ending: &str| {
        folder
            .extension()
            .is_some_and(|found| found.eq_ignore_ascii_case(ending))
    };
    // Prefer a sibling that is certainly complete.
    let best = others.iter().find(|it| is(it, "before-compaction"));
    let found = best.unwrap_or(&others[0]).clone();
    let move_back = format!("mv {} {}", found.display(), dir.display());
    let advice = if is(&found, "before-compaction") {
        format!("A compaction was cut off: put the store back ({move_back}) and run it again.")
    } else if is(&found, "restoring") {
        "A restoration was cut off: run `palimpsest restore` again.".to_owned()
    } else if is(&found, "compacting") {
        "It may be half a copy: put the store or a backup back in its place, or move the copy away if there was none."
            .to_owned()
    } else {
        format!(
            "If it is the store, put it back ({move_back}). If it is not, move it out of this folder."
        )
    };
    Err(StoreError::Missing {
        dir: dir.to_owned(),
        found,
        others: others.len() - 1,
        advice,
    })
}

fn sibling_folders(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{name}.");
    let entries = match fs::read_dir(durable::parent(dir)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let is_ours = entry.file_name().to_string_lossy().starts_with(&prefix);
        // Files such as `log.txt` are not stores.
        if is_ours && entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Copies the files of a closed store into the empty folder `to` without changing the store. Opening a
/// store directly would write to it and run crash recovery. Fails if the store is in use.
pub fn copy_for_reading(from: &Path, to: &Path) -> Result<(), StoreError> {
    if !from.is_dir() {
        return Err(io_error("find a store in", from)(
            io::ErrorKind::NotFound.into(),
        ));
    }
    let _lock = lock_for_reading(from)?;
    // Check the space before the copy, because sled also needs some to open it.
    let bytes = size(from).map_err(io_error("read the folder", from))?;
    if space::check_free_space(to, bytes.saturating_add(space::TO_OPEN)).is_err() {
        // Rounded up, and with the 2 MiB of `TO_OPEN`.
        let needed = io::Error::other(format!("{} MiB are needed there", (bytes >> 20) + 3));
        return Err(io_error("copy the store for reading into", to)(needed));
    }
    copy(from, to).map_err(io_error("copy the store", from))
}

/// Returns true for files that a reader does not need: the reserved space and the lock.
fn is_skipped_file(name: &std::ffi::OsStr) -> bool {
    name == "spare" || name == "lock"
}

fn size(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            bytes += size(&entry.path())?;
        } else if !is_skipped_file(&entry.file_name()) {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else if !is_skipped_file(&entry.file_name()) {
            io::copy(&mut File::open(entry.path())?, &mut File::create(&target)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(root: &Path, name: &str) -> PathBuf {
        let path = root.join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("db"), name).unwrap();
        path
    }

    fn held(path: &Path) -> String {
        fs::read_to_string(path.join("db")).unwrap()
    }

    #[test]
    fn folders_are_swapped_with_and_without_an_atomic_exchange() {
        let unsupported = |_: &Path, _: &Path| Err(io::ErrorKind::Unsupported.into());
        for can_exchange in [true, false] {
            let root = tempfile::tempdir().unwrap();
            let (current, new) = (folder(root.path(), "log"), folder(root.path(), "log.new"));
            let old = root.path().join("log.old");
            if can_exchange {
                swap_folder(&new, &current, Some(&old)).unwrap();
            } else {
                swap_folder_with(&new, &current, Some(&old), unsupported).unwrap();
            }
            assert_eq!(
                (held(&current), held(&old)),
                ("log.new".into(), "log".into())
            );
            assert!(!new.exists());
        }
    }

    #[test]
    fn no_store_is_created_beside_a_renamed_store() {
        let root = tempfile::tempdir().unwrap();
        let log = root.path().join("log");
        reject_missing_with_siblings(&log).unwrap();
        fs::write(root.path().join("log.txt"), "a file is no store").unwrap();
        fs::create_dir(root.path().join("logs")).unwrap();
        reject_missing_with_siblings(&log).unwrap();
        for name in ["log.restoring", "log.compacting", "log.before-compaction"] {
            let older = root.path().join(name);
            fs::create_dir(&older).unwrap();
            let refused = reject_missing_with_siblings(&log).unwrap_err();
            assert!(refused.to_string().contains(name), "{refused}");
        }
        fs::create_dir(&log).unwrap();
        reject_missing_with_siblings(&log).unwrap();
    }
}
