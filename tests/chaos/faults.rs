//! Faults of the machine for one server, which can be switched while the server runs. `faults.c` is preloaded into the
//! server and reads the same numbers.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Count of numbers in the shared file, 8 bytes each.
const NUMBERS: usize = 9;
/// Index of the count of injected faults.
const INJECTED: u64 = 8;

const EIO: i64 = 5;
const ENOSPC: i64 = 28;
const HOUR_MS: i64 = 3_600_000;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// No fault. The schedule then consists of the kill only.
    None,
    /// Some writes fail.
    WriteErrors,
    /// Some syncs fail.
    SyncErrors,
    /// Some writes write fewer bytes than requested.
    ShortWrites,
    /// The disk is full.
    NoSpace,
    /// Each write and each sync is delayed.
    SlowDisk,
    /// The clock jumps 26 hours ahead.
    ClockForward,
    /// The clock jumps 26 hours back.
    ClockBack,
    /// Stored results can be neither read nor written. All other files work.
    NoResults,
    /// The clock jumps 400 days ahead.
    ClockYearAhead,
    /// The model's provider accepts requests and never answers.
    ProviderHangs,
    /// The stored results of sessions with the id `slow` are neither read nor written until the fault ends.
    HeldResults,
    /// The same, and the clock jumps three days ahead.
    HeldResultsDaysLater,
}

impl Fault {
    /// The faults of random schedules.
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

    /// Returns true if the server recovers without a restart after the fault ends. After a failed write or sync the
    /// store stays closed, because the state of the disk is unknown.
    pub(crate) fn passes(self) -> bool {
        !matches!(self, Self::WriteErrors | Self::SyncErrors)
    }

    /// Returns the numbers for `faults.c`: write error, sync error, probability in thousandths, short writes, delay in
    /// microseconds, clock offset in milliseconds, error of stored results, hold of stored results.
    fn numbers(self) -> [i64; NUMBERS - 1] {
        match self {
            Self::None | Self::ProviderHangs => [0; _],
            Self::WriteErrors => [EIO, 0, 300, 0, 0, 0, 0, 0],
            Self::SyncErrors => [0, EIO, 300, 0, 0, 0, 0, 0],
            Self::ShortWrites => [0, 0, 500, 1, 0, 0, 0, 0],
            Self::NoSpace => [ENOSPC, 0, 1_000, 0, 0, 0, 0, 0],
            Self::SlowDisk => [0, 0, 0, 0, 5_000, 0, 0, 0],
            Self::ClockForward => [0, 0, 0, 0, 0, 26 * HOUR_MS, 0, 0],
            Self::ClockBack => [0, 0, 0, 0, 0, -26 * HOUR_MS, 0, 0],
            Self::NoResults => [0, 0, 1_000, 0, 0, 0, EIO, 0],
            Self::ClockYearAhead => [0, 0, 0, 0, 0, 400 * 24 * HOUR_MS, 0, 0],
            Self::HeldResults => [0, 0, 0, 0, 0, 0, 0, 1],
            Self::HeldResultsDaysLater => [0, 0, 0, 0, 0, 72 * HOUR_MS, 0, 1],
        }
    }
}

/// The shared file of numbers that the server reads.
#[derive(Debug)]
pub(crate) struct Faults {
    file: File,
    path: PathBuf,
}

impl Faults {
    /// Creates the file without a fault.
    pub(crate) fn new(folder: &Path) -> Self {
        let path = folder.join("faults");
        fs::write(&path, [0; NUMBERS * 8]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Self {
            file: file.unwrap(),
            path,
        }
    }

    /// Returns the environment variables of a server that has these faults.
    pub(crate) fn vars(&self) -> [(&str, &str); 2] {
        let library = library().to_str().unwrap();
        [
            ("LD_PRELOAD", library),
            ("FAULTS", self.path.to_str().unwrap()),
        ]
    }

    /// Replaces the current fault.
    pub(crate) fn set(&self, fault: Fault) {
        // `faults.c` reads the numbers in the byte order of the machine.
        let bytes: Vec<u8> = fault
            .numbers()
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect();
        // The last number of the file is a counter that the library writes, so it is left out.
        self.file.write_all_at(&bytes, 0).unwrap();
    }

    /// Returns the number of system calls that a fault affected.
    pub(crate) fn injected(&self) -> i64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, INJECTED * 8).unwrap();
        i64::from_ne_bytes(bytes)
    }
}

/// Returns the preloaded library. Builds it once, with the C compiler that Rust links with.
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
