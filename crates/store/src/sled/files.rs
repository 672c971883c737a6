//! The store's folder: what sled leaves undone there before an acknowledgement can be trusted.
//!
//! sled writes `db` and then calls `sync_file_range`, which neither flushes the drive's cache nor
//! writes the file's size. It never syncs `conf`, the files in `blobs/`, or any folder. And a process
//! that is killed while it opens leaves a half-written `snap.*.generating`, which the next open would
//! read as the newest snapshot and call corrupt. All of that is made good here.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::fs::sync_dir;

/// What sled 0.34 writes into `conf` with the settings of `open`, followed by a checksum.
const CONF: &[u8] = b"segment_size: 524288\nuse_compression: false\nversion: 0.34\n";
const CONF_CHECKSUM: usize = 4;

/// Our own handles on the files, so that an error that the drive reports is reported to us: the system
/// reports it once for each handle, and sled only logs its own.
#[derive(Debug)]
pub(super) struct DurableFiles {
    db: File,
    mark: File,
    side_dir: PathBuf,
    /// Kept open, so that a commit needs no new file handle: a process may have none left.
    #[cfg(unix)]
    side: rustix::fs::Dir,
    /// The side files that are durable already.
    synced: HashSet<OsString>,
    #[cfg(test)]
    short: u32,
}

impl DurableFiles {
    /// Opens the files of a folder that sled has open.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let db = OpenOptions::new().read(true).open(dir.join("db"))?;
        let mark = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join("mark"))?;
        let side_dir = dir.join("blobs");
        Ok(Self {
            db,
            mark,
            #[cfg(unix)]
            side: rustix::fs::Dir::new(File::open(&side_dir)?)?,
            side_dir,
            synced: HashSet::new(),
            #[cfg(test)]
            short: 0,
        })
    }

    /// Stands in for a drive that fails.
    #[cfg(test)]
    pub(super) fn replace_db(&mut self, db: File) {
        self.db = db;
    }

    /// Stands in for a process that has no file handle left at its next syncs.
    #[cfg(test)]
    pub(super) fn be_short(&mut self, times: u32) {
        self.short = times;
    }

    /// Makes durable what sled has flushed. The file grows by writes past its end; `fdatasync` writes
    /// the size too when it changed.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.sync_side_files()?;
        self.db.sync_data()
    }

    /// A value as small as ours never goes to a side file by itself, and a page of them only if sled
    /// puts more than 31 on it. Should that happen, what was acknowledged must still be there.
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
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        sync_dir(&self.side_dir)?;
        // Only now: what an error above leaves is synced by the next try.
        self.synced.extend(new);
        Ok(())
    }

    /// The names of the side files that were not synced yet.
    #[cfg(unix)]
    fn new_side_files(&mut self) -> io::Result<Vec<OsString>> {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;
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

    /// Notes how far the log is known to be durable. Not synced: it may lag behind the log, but never
    /// be ahead of it, unless the log has lost its end.
    pub(super) fn write_mark(&mut self, sequence: u64) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&(!sequence).to_be_bytes());
        self.mark.seek(SeekFrom::Start(0))?;
        self.mark.write_all(&bytes)
    }

    /// Syncs the mark too, for a clean end.
    pub(super) fn sync_mark(&self) -> io::Result<()> {
        self.mark.sync_data()
    }

    /// What was last noted; nothing if that was torn.
    pub(super) fn read_mark(&mut self) -> io::Result<Option<u64>> {
        self.mark.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        (&self.mark).take(17).read_to_end(&mut bytes)?;
        let Ok(bytes) = <[u8; 16]>::try_from(bytes) else {
            return Ok(None);
        };
        let mut halves = [[0; 8]; 2];
        halves.as_flattened_mut().copy_from_slice(&bytes);
        let [number, inverse] = halves.map(u64::from_be_bytes);
        Ok((number == !inverse).then_some(number))
    }
}

/// Readies the folder for sled to open.
pub(super) fn prepare(dir: &Path) -> io::Result<()> {
    // A killed process may have written what only the system's cache holds. sled would take it for
    // durable, write a snapshot that builds on it, and be corrupt if the power then failed.
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
    set_torn_conf_aside(dir)
}

/// sled refuses a half-written `conf`, though it never changes: without one it writes it again.
fn set_torn_conf_aside(dir: &Path) -> io::Result<()> {
    let path = dir.join("conf");
    let conf = match fs::read(&path) {
        Ok(conf) => conf,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if conf.starts_with(CONF) && conf.len() == CONF.len() + CONF_CHECKSUM {
        return Ok(());
    }
    fs::rename(&path, dir.join("conf.torn"))
}

/// Makes durable what sled wrote while it opened the folder, and the folder's entries.
pub(super) fn settle(dir: &Path) -> io::Result<()> {
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
    fn a_mark_reads_back_and_a_torn_one_is_none() {
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
    fn conf_is_what_sled_writes_and_only_a_torn_one_is_set_aside() {
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
