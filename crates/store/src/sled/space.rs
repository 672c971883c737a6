//! Disk space checks. sled cannot continue after a write that found the disk full. The store therefore
//! rejects writes before every group while sled still has space for its own writes. It accepts them
//! again when clearly more space is free.

use std::path::{Path, PathBuf};

/// The maximum disk space that a group needs per byte, for chunks and rewritten pages.
const DISK_FACTOR: u64 = 3;
/// The divisor of the reserve that gives the hysteresis. After a full disk, a quarter of the reserve
/// must be free in addition. Otherwise the store would alternate between accepting and rejecting.
const MARGIN: u64 = 4;
/// The minimum free space for opening a store, in bytes. sled creates a segment and a snapshot when it
/// opens.
pub(super) const TO_OPEN: u64 = 2 << 20;
/// The size of the spare file, in bytes. The file is released when the disk is full, so that the store
/// can be reopened for readers at once.
const SPARE_BYTES: u64 = 4 * TO_OPEN;

const NO_ROOM: &str = "its disk has less free space than store.min_free_bytes requires: free or add space, and writes resume";
const NO_FILES: &str = "its disk has no free inodes: remove files, and writes resume";
const READ_ONLY: &str = "its file system is read-only: make it writable, and writes resume";

/// The free space of the store's disk.
#[derive(Debug)]
pub(super) struct DiskSpace {
    dir: PathBuf,
    reserve: u64,
    full: bool,
}

impl DiskSpace {
    pub(super) fn new(dir: &Path, reserve: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            reserve,
            full: false,
        }
    }

    /// Returns an error text if a group of this size must not be written.
    pub(super) fn check(&mut self, bytes: usize) -> Result<(), &'static str> {
        let mut needed = self.reserve;
        let was_full = self.full;
        if was_full {
            // Hysteresis: require more than the reserve before writes are accepted again.
            needed = needed.saturating_add(needed / MARGIN);
            // The spare file must be restored too, or the next full disk finds none.
            if spare_bytes(&self.dir) < SPARE_BYTES {
                needed = needed.saturating_add(SPARE_BYTES + TO_OPEN);
            }
        }
        needed = needed.saturating_add((bytes as u64).saturating_mul(DISK_FACTOR));
        let outcome = check_free_space(&self.dir, needed);
        // A group that is too large for the remaining space does not block smaller ones.
        self.full = outcome.is_err() && check_free_space(&self.dir, self.reserve).is_err()
            || self.full && outcome.is_err();
        if was_full && !self.full {
            self.create_spare_file();
        }
        outcome
    }

    /// Records that a write found no space, despite the check. Writes are accepted again when the
    /// additional margin is free.
    pub(super) fn record_full(&mut self) {
        self.full = true;
    }

    /// Creates the spare file. Without it, readers only wait longer on a full disk.
    #[cfg(target_os = "linux")]
    pub(super) fn create_spare_file(&self) {
        use rustix::fs::{FallocateFlags, fallocate};
        // Without the additional space, the spare file itself would use up the reserve.
        if spare_bytes(&self.dir) >= SPARE_BYTES
            || check_free_space(
                &self.dir,
                self.reserve.saturating_add(SPARE_BYTES + TO_OPEN),
            )
            .is_err()
        {
            return;
        }
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(spare_path(&self.dir));
        let made = file.and_then(|file| {
            // Unlike `set_len`, this allocates blocks. Shrinking a sparse file would free no space.
            let made = fallocate(&file, FallocateFlags::empty(), 0, SPARE_BYTES);
            made.map_err(std::io::Error::from)
        });
        if let Err(error) = made {
            tracing::debug!(%error, "no spare room is set aside");
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn create_spare_file(&self) {}
}

fn spare_path(dir: &Path) -> PathBuf {
    dir.join("spare")
}

/// Returns the size of the spare file. An earlier opening may have released a part of it.
fn spare_bytes(dir: &Path) -> u64 {
    spare_path(dir).metadata().map_or(0, |meta| meta.len())
}

/// Checks the space for opening a store. If it is missing, a part of the spare file is released. A
/// process that was killed on a full disk can therefore restart, even several times.
pub(super) fn check_free_space_to_open(dir: &Path) -> Result<(), &'static str> {
    release_spare_until(dir, || check_free_space(dir, TO_OPEN))
}

fn release_spare_until(
    dir: &Path,
    room: impl Fn() -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    while let Err(why) = room() {
        // A smaller file gives neither more files nor a writable disk.
        if why != NO_ROOM {
            return Err(why);
        }
        // Release one part at a time, because the next opening may need one too.
        let less = spare_bytes(dir).checked_sub(TO_OPEN).ok_or(why)?;
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(spare_path(dir));
        let given_up = file.and_then(|file| file.set_len(less));
        given_up.map_err(|_| why)?;
    }
    Ok(())
}

/// Returns an error text if the disk of a folder has less than `needed` bytes free, or accepts no
/// writes.
#[cfg(unix)]
pub(super) fn check_free_space(dir: &Path, needed: u64) -> Result<(), &'static str> {
    // If the system cannot report the space, the write itself will fail.
    let Ok(disk) = rustix::fs::statvfs(dir) else {
        return Ok(());
    };
    if disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return Err(READ_ONLY);
    }
    // File systems without a limit of files report zero.
    if disk.f_files > 0 && disk.f_favail == 0 {
        return Err(NO_FILES);
    }
    if disk.f_bavail.saturating_mul(disk.f_frsize) < needed {
        return Err(NO_ROOM);
    }
    Ok(())
}

#[cfg(not(unix))]
pub(super) fn check_free_space(_dir: &Path, _needed: u64) -> Result<(), &'static str> {
    Ok(())
}

/// Returns a text if a sled error means a full or read-only disk. After other errors, such as those of
/// a drive, the state on disk is unknown.
pub(super) fn full_disk_reason(error: &::sled::Error) -> Option<&'static str> {
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

/// Returns the exhausted resource that caused an error, other than disk space. The drive rejected
/// nothing, so a retry may succeed.
pub(super) fn exhausted_resource(error: &std::io::Error) -> Option<&'static str> {
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
    fn appends_resume_only_when_the_reserve_is_free_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut space = DiskSpace::new(dir.path(), 0);
        assert_eq!(space.check(1), Ok(()));
        let mut full = DiskSpace::new(dir.path(), u64::MAX / 8);
        assert_eq!(full.check(1), Err(NO_ROOM));
        assert!(full.full);
        full.reserve = 0;
        assert_eq!(full.check(1), Ok(()));
        assert!(!full.full);
        assert_eq!(space.check(usize::MAX / 4), Err(NO_ROOM));
        assert!(!space.full, "a smaller append must still fit");
    }

    #[test]
    fn the_spare_file_is_released_only_for_missing_space() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(spare_path(dir.path())).unwrap();
        file.set_len(SPARE_BYTES).unwrap();
        for why in [NO_FILES, READ_ONLY] {
            assert_eq!(release_spare_until(dir.path(), || Err(why)), Err(why));
            assert_eq!(spare_bytes(dir.path()), SPARE_BYTES, "{why}");
        }
        // Space appears after a part was released.
        let room = || match spare_bytes(dir.path()) {
            SPARE_BYTES => Err(NO_ROOM),
            _ => Ok(()),
        };
        assert_eq!(release_spare_until(dir.path(), room), Ok(()));
        assert_eq!(spare_bytes(dir.path()), SPARE_BYTES - TO_OPEN);
    }
}
