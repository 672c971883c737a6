//! Whether there is room to write. Asked before every group, because sled cannot go on after a write
//! that found none: the store takes no more writes while there is still room for what sled itself
//! writes, and takes them again when there is clearly more.

use std::path::{Path, PathBuf};

/// What a group needs on disk at most for each of its bytes: chunks, pages that are written again.
const DISK_FACTOR: u64 = 3;
/// So much of the reserve must be free beside it before writes are taken again: without it, a disk at
/// the edge would refuse and take writes in turn.
const MARGIN: u64 = 4;
/// Below this no store is opened: sled makes a segment and a snapshot when it opens.
pub(super) const TO_OPEN: u64 = 2 << 20;
/// What is kept in a file that is given up when a write finds no room, so that the store can be opened
/// anew for its readers at once.
const SPARE: u64 = 4 * TO_OPEN;

const NO_ROOM: &str = "its disk is nearly full: free or add space, and it goes on by itself";
const NO_FILES: &str = "its disk has no room for more files: remove some, and it goes on by itself";
const READ_ONLY: &str = "its file system is read-only: make it writable, and it goes on by itself";

/// The disk beneath the store.
#[derive(Debug)]
pub(super) struct Space {
    dir: PathBuf,
    reserve: u64,
    full: bool,
}

impl Space {
    pub(super) fn new(dir: &Path, reserve: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            reserve,
            full: false,
        }
    }

    /// Whether a group of so many bytes may be written; why not, otherwise.
    pub(super) fn check(&mut self, bytes: usize) -> Result<(), &'static str> {
        let mut needed = self.reserve;
        let was_full = self.full;
        if was_full {
            needed = needed.saturating_add(needed / MARGIN);
            if spare_bytes(&self.dir) < SPARE {
                needed = needed.saturating_add(SPARE + TO_OPEN);
            }
        }
        needed = needed.saturating_add((bytes as u64).saturating_mul(DISK_FACTOR));
        let outcome = room(&self.dir, needed);
        // A group that is too large for what is left does not make the disk full for a small one.
        self.full = outcome.is_err() && room(&self.dir, self.reserve).is_err()
            || self.full && outcome.is_err();
        if was_full && !self.full {
            self.set_aside();
        }
        outcome
    }

    /// A write found no room, whatever was expected: it takes the margin to go on.
    pub(super) fn found_none(&mut self) {
        self.full = true;
    }

    /// Sets room aside for the moment when there is none. Without it only readers wait longer then.
    #[cfg(target_os = "linux")]
    pub(super) fn set_aside(&self) {
        use rustix::fs::{FallocateFlags, fallocate};
        if spare_bytes(&self.dir) >= SPARE
            || room(&self.dir, self.reserve.saturating_add(SPARE + TO_OPEN)).is_err()
        {
            return;
        }
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(spare(&self.dir));
        let made = file.and_then(|file| {
            let made = fallocate(&file, FallocateFlags::empty(), 0, SPARE);
            made.map_err(std::io::Error::from)
        });
        if let Err(error) = made {
            tracing::debug!(%error, "no spare room is set aside");
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn set_aside(&self) {}
}

fn spare(dir: &Path) -> PathBuf {
    dir.join("spare")
}

/// How much is set aside. An earlier opening may have given up a part.
fn spare_bytes(dir: &Path) -> u64 {
    spare(dir).metadata().map_or(0, |meta| meta.len())
}

/// Whether a store can be opened. Where there is no room, a part of what was set aside for this is given up, so that a
/// process that was killed on a full disk can be started again, and again.
pub(super) fn room_to_open(dir: &Path) -> Result<(), &'static str> {
    while let Err(why) = room(dir, TO_OPEN) {
        // A part of it at a time: the next opening may need one too.
        let less = spare_bytes(dir).checked_sub(TO_OPEN).ok_or(why)?;
        let file = std::fs::OpenOptions::new().write(true).open(spare(dir));
        let given_up = file.and_then(|file| file.set_len(less));
        given_up.map_err(|_| why)?;
    }
    Ok(())
}

/// Whether a folder's disk has so many bytes for us.
#[cfg(unix)]
pub(super) fn room(dir: &Path, needed: u64) -> Result<(), &'static str> {
    // Where the system cannot say, the write itself will.
    let Ok(disk) = rustix::fs::statvfs(dir) else {
        return Ok(());
    };
    if disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return Err(READ_ONLY);
    }
    if disk.f_files > 0 && disk.f_favail == 0 {
        return Err(NO_FILES);
    }
    if disk.f_bavail.saturating_mul(disk.f_frsize) < needed {
        return Err(NO_ROOM);
    }
    Ok(())
}

#[cfg(not(unix))]
pub(super) fn room(_dir: &Path, _needed: u64) -> Result<(), &'static str> {
    Ok(())
}

/// Whether an error of sled says that there was no room, or that nothing may be written at all. After
/// others, such as a drive's, nothing is known of what is on disk.
pub(super) fn was_no_room(error: &::sled::Error) -> Option<&'static str> {
    use std::io::ErrorKind;
    let ::sled::Error::Io(error) = error else {
        return None;
    };
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Some(NO_ROOM)
        }
        ErrorKind::ReadOnlyFilesystem => Some(READ_ONLY),
        _ => None,
    }
}

/// The resource that an error says is used up for the moment, other than room on the disk: nothing was refused by
/// the drive, so that the same may succeed later.
pub(super) fn was_short(error: &std::io::Error) -> Option<&'static str> {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        let errno = error.raw_os_error().map(Errno::from_raw_os_error)?;
        match errno {
            Errno::MFILE => {
                return Some("file handles: raise the limit of the process (ulimit -n)");
            }
            Errno::NFILE => return Some("file handles of the machine: raise fs.file-max"),
            Errno::NOMEM => return Some("memory"),
            _ => {}
        }
    }
    (error.kind() == std::io::ErrorKind::OutOfMemory).then_some("memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_takes_a_margin_to_be_one_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut space = Space::new(dir.path(), 0);
        assert_eq!(space.check(1), Ok(()));
        let mut full = Space::new(dir.path(), u64::MAX / 8);
        assert_eq!(full.check(1), Err(NO_ROOM));
        assert!(full.full);
        full.reserve = 0;
        assert_eq!(full.check(1), Ok(()));
        assert!(!full.full);
        assert_eq!(space.check(usize::MAX / 4), Err(NO_ROOM));
        assert!(!space.full, "there is room for a smaller one");
    }
}
