//! Durability of the store's files, which sled does not fully ensure.
//!
//! sled never syncs `conf`, the files in `blobs/` or any folder. It writes `db` with a sync that reports
//! an error only to sled's log, and on Linux with one that is too weak: see `write_sync`.
//!
//! A process that is killed during opening leaves an incomplete `snap.*.generating`. The next open
//! would read this file as the newest snapshot and report corruption. This module corrects all of these
//! cases.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::fs::sync_dir;

/// The content of `conf` that sled 0.34 writes with the settings of `open`. A checksum follows.
const CONF: &[u8] = b"segment_size: 524288\nuse_compression: false\nversion: 0.34\n";
const CONF_CHECKSUM: usize = 4;

/// The store's own file handles. The operating system reports a write error once per handle, and sled
/// only logs the errors of its handles.
#[derive(Debug)]
pub(super) struct DurableFiles {
    db: File,
    durable_mark: File,
    side_dir: PathBuf,
    /// Kept open so that a commit needs no new file handle. The process may have reached its limit.
    #[cfg(unix)]
    side: rustix::fs::Dir,
    /// The names of side files that are durable.
    synced: HashSet<OsString>,
    #[cfg(test)]
    short: u32,
}

impl DurableFiles {
    /// Opens the files of a folder that sled has open.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let db = OpenOptions::new().read(true).open(dir.join("db"))?;
        let durable_mark = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join("mark"))?;
        let side_dir = dir.join("blobs");
        Ok(Self {
            db,
            durable_mark,
            #[cfg(unix)]
            side: rustix::fs::Dir::new(File::open(&side_dir)?)?,
            side_dir,
            synced: HashSet::new(),
            #[cfg(test)]
            short: 0,
        })
    }

    /// Simulates a failing drive.
    #[cfg(test)]
    pub(super) fn replace_db(&mut self, db: File) {
        self.db = db;
    }

    /// Simulates a process without free file handles during the next `times` syncs.
    #[cfg(test)]
    pub(super) fn be_short(&mut self, times: u32) {
        self.short = times;
    }

    /// Makes flushed data durable. `fdatasync` also writes the file size if it changed, so growth of the
    /// file is covered.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.sync_side_files()?;
        self.db.sync_data()
    }

    /// Syncs new side files. sled creates side files only for large values or for pages with more than 31
    /// values, which this layout avoids. The sync protects acknowledged data if sled creates one
    /// nevertheless.
    fn sync_side_files(&mut self) -> io::Result<()> {
        #[cfg(test)]
        if self.short > 0 {
            self.short -= 1;
            return Err(rustix::io::Errno::MFILE.into());
        }
        let new = self.new_side_files()?;
        if new.is_empty() {
            return Ok(());
        }
        for name in &new {
            match File::open(self.side_dir.join(name)) {
                Ok(file) => file.sync_all()?,
                // sled removes side files that it no longer references.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        sync_dir(&self.side_dir)?;
        // Remember the names only after all syncs succeeded, so that a retry syncs them again.
        self.synced.extend(new);
        Ok(())
    }

    /// Returns the names of side files that were not synced yet.
    #[cfg(unix)]
    fn new_side_files(&mut self) -> io::Result<Vec<OsString>> {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;
        // The handle stays open, so it is at the end of its last listing.
        self.side.rewind();
        let mut new = Vec::new();
        while let Some(entry) = self.side.read() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." && !self.synced.contains(name) {
                new.push(name.to_owned());
            }
        }
        Ok(new)
    }

    #[cfg(not(unix))]
    fn new_side_files(&mut self) -> io::Result<Vec<OsString>> {
        let names = fs::read_dir(&self.side_dir)?.map(|entry| Ok(entry?.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.retain(|name| !self.synced.contains(name));
        Ok(names)
    }

    /// Records the sequence number up to which the log is durable. The mark is not synced, so it may be
    /// behind the log. A mark ahead of the log proves that the log lost its end.
    pub(super) fn write_mark(&mut self, sequence: u64) -> io::Result<()> {
        // The inverse serves as a checksum that detects a torn write.
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&(!sequence).to_be_bytes());
        self.durable_mark.seek(SeekFrom::Start(0))?;
        self.durable_mark.write_all(&bytes)
    }

    /// Syncs the mark, for a clean shutdown.
    pub(super) fn sync_mark(&self) -> io::Result<()> {
        self.durable_mark.sync_data()
    }

    /// Returns the recorded sequence number, or `None` if the mark is missing or torn.
    pub(super) fn read_mark(&mut self) -> io::Result<Option<u64>> {
        self.durable_mark.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        // One byte more than a mark, so that a longer file is not taken for one.
        (&self.durable_mark).take(17).read_to_end(&mut bytes)?;
        let Ok(bytes) = <[u8; 16]>::try_from(bytes) else {
            return Ok(None);
        };
        let mut halves = [[0; 8]; 2];
        halves.as_flattened_mut().copy_from_slice(&bytes);
        let [number, inverse] = halves.map(u64::from_be_bytes);
        Ok((number == !inverse).then_some(number))
    }
}

/// Prepares the folder before sled opens it.
pub(super) fn prepare(dir: &Path) -> io::Result<()> {
    // A killed process may have left writes that are only in the page cache. sled would build a snapshot
    // on them, and a power failure would then corrupt the store.
    match File::open(dir.join("db")) {
        Ok(db) => db.sync_all()?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "generating") {
            fs::remove_file(path)?;
        }
    }
    keep_newest_snapshot(dir)?;
    set_torn_conf_aside(dir)
}

/// Makes the newest snapshot durable and removes all others. Their names contain the position of the log
/// in hexadecimal digits, and sled reads the one whose name sorts last.
pub(super) fn keep_newest_snapshot(dir: &Path) -> io::Result<()> {
    // The newest snapshot must have its name before the others are removed.
    sync_dir(dir)?;
    let mut snapshots = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if name.as_encoded_bytes().starts_with(b"snap.") {
            snapshots.push(name);
        }
    }
    snapshots.sort();
    snapshots.pop();
    for name in snapshots {
        fs::remove_file(dir.join(name))?;
    }
    Ok(())
}

/// Renames a torn `conf`. sled rejects an incomplete `conf` but writes a missing one again. Its content
/// never changes.
fn set_torn_conf_aside(dir: &Path) -> io::Result<()> {
    let path = dir.join("conf");
    let conf = match fs::read(&path) {
        Ok(conf) => conf,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    // A complete file has exactly this length.
    if conf.starts_with(CONF) && conf.len() == CONF.len() + CONF_CHECKSUM {
        return Ok(());
    }
    fs::rename(&path, dir.join("conf.torn"))
}

/// Syncs the files that sled wrote while opening, and the folders.
pub(super) fn sync_after_open(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    sync_dir(&dir.join("blobs"))?;
    sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durability_mark_is_read_back_and_a_torn_one_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("db"), b"").unwrap();
        fs::create_dir(dir.path().join("blobs")).unwrap();
        let mut files = DurableFiles::open(dir.path()).unwrap();
        assert_eq!(files.read_mark().unwrap(), None);
        files.write_mark(1 << 40).unwrap();
        files.write_mark(77).unwrap();
        assert_eq!(files.read_mark().unwrap(), Some(77));
        let mut bytes = fs::read(dir.path().join("mark")).unwrap();
        bytes[7] ^= 1;
        fs::write(dir.path().join("mark"), bytes).unwrap();
        assert_eq!(files.read_mark().unwrap(), None);
    }

    #[test]
    fn only_the_newest_snapshot_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        keep_newest_snapshot(dir.path()).unwrap();
        for name in [
            "snap.0000000000000FFF",
            "snap.0000000000001000",
            "snap.00000000000009FF",
        ] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        fs::write(dir.path().join("db"), b"").unwrap();
        keep_newest_snapshot(dir.path()).unwrap();
        let names = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name());
        let mut names = names.collect::<Vec<_>>();
        names.sort();
        assert_eq!(names, ["db", "snap.0000000000001000"]);
    }

    #[test]
    fn only_a_torn_sled_configuration_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        drop(::sled::open(dir.path()).unwrap());
        set_torn_conf_aside(dir.path()).unwrap();
        let conf = fs::read(dir.path().join("conf")).unwrap();
        for torn in [&conf[..20], &[0; 62][..], &conf[..conf.len() - 4]] {
            fs::write(dir.path().join("conf"), torn).unwrap();
            set_torn_conf_aside(dir.path()).unwrap();
            assert!(!dir.path().join("conf").exists());
        }
    }
}
