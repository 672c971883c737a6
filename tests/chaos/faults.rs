//! Faults of the machine for one server, switched on and off while it runs: `faults.c` is loaded into it and
//! reads the same few numbers.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// How many numbers there are, of eight bytes each.
const NUMBERS: usize = 8;
/// Where the count of injected faults is.
const INJECTED: u64 = 7;

const EIO: i64 = 5;
const ENOSPC: i64 = 28;
const HOUR_MS: i64 = 3_600_000;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// Nothing: the kill alone.
    None,
    /// Some writes fail.
    WriteErrors,
    /// Some syncs fail.
    SyncErrors,
    /// Some writes write less than they were asked to.
    ShortWrites,
    /// The disk is full.
    NoSpace,
    /// Each write and each sync takes a while.
    SlowDisk,
    /// It is hours later at once.
    ClockForward,
    /// It is hours earlier at once.
    ClockBack,
    /// Stored results can neither be read nor written; everything else can.
    NoResults,
    /// It is more than a year later at once.
    ClockYearAhead,
    /// The model's provider takes requests and never answers.
    ProviderHangs,
}

impl Fault {
    /// All of them.
    pub(crate) const ALL: [Self; 11] = [
        Self::None,
        Self::WriteErrors,
        Self::SyncErrors,
        Self::ShortWrites,
        Self::NoSpace,
        Self::SlowDisk,
        Self::ClockForward,
        Self::ClockBack,
        Self::NoResults,
        Self::ClockYearAhead,
        Self::ProviderHangs,
    ];

    /// Whether a server goes on by itself when it is over. After a failed write or sync the store stays
    /// closed until a restart: nobody knows what is on the disk.
    pub(crate) fn passes(self) -> bool {
        !matches!(self, Self::WriteErrors | Self::SyncErrors)
    }

    /// Errors of writes, errors of syncs, how many of a thousand, short writes, delay, clock, errors of results.
    fn numbers(self) -> [i64; NUMBERS - 1] {
        match self {
            Self::None | Self::ProviderHangs => [0; _],
            Self::WriteErrors => [EIO, 0, 300, 0, 0, 0, 0],
            Self::SyncErrors => [0, EIO, 300, 0, 0, 0, 0],
            Self::ShortWrites => [0, 0, 500, 1, 0, 0, 0],
            Self::NoSpace => [ENOSPC, 0, 1_000, 0, 0, 0, 0],
            Self::SlowDisk => [0, 0, 0, 0, 5_000, 0, 0],
            Self::ClockForward => [0, 0, 0, 0, 0, 26 * HOUR_MS, 0],
            Self::ClockBack => [0, 0, 0, 0, 0, -26 * HOUR_MS, 0],
            Self::NoResults => [0, 0, 1_000, 0, 0, 0, EIO],
            Self::ClockYearAhead => [0, 0, 0, 0, 0, 400 * 24 * HOUR_MS, 0],
        }
    }
}

/// The numbers that a server reads.
#[derive(Debug)]
pub(crate) struct Faults {
    file: File,
    path: PathBuf,
}

impl Faults {
    /// Nothing is wrong yet.
    pub(crate) fn new(folder: &Path) -> Self {
        let path = folder.join("faults");
        fs::write(&path, [0; NUMBERS * 8]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Self {
            file: file.unwrap(),
            path,
        }
    }

    /// The variables of a server that has these faults.
    pub(crate) fn vars(&self) -> [(&str, &str); 2] {
        let library = library().to_str().unwrap();
        [
            ("LD_PRELOAD", library),
            ("FAULTS", self.path.to_str().unwrap()),
        ]
    }

    /// From now on this is wrong, and nothing else.
    pub(crate) fn set(&self, fault: Fault) {
        let bytes: Vec<u8> = fault
            .numbers()
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect();
        self.file.write_all_at(&bytes, 0).unwrap();
    }

    /// How many calls of the system a fault has met.
    pub(crate) fn injected(&self) -> i64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, INJECTED * 8).unwrap();
        i64::from_ne_bytes(bytes)
    }
}

/// The library, built once by the compiler that links Rust programs too.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let built = std::env::current_exe()
            .unwrap()
            .with_file_name("libfaults.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/chaos/faults.c");
        let compiled = Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(&built)
            .args([source, "-ldl"])
            .status();
        assert!(compiled.unwrap().success(), "{source} does not compile");
        built
    })
}
