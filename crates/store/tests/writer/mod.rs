//! The writer process for tests that kill it. It appends as fast as possible and prints
//! acknowledgements. A check compares the store with them afterwards.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write as _;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_store::blobs::{BlobOwner, Blobs, result_path};
use palimpsest_store::sled::{SledLog, SledOptions};
use palimpsest_store::{
    Batch, DueChange, Frame, Position, SessionLog, Store as _, StoreError, StoredSnapshot,
};
use sha2::{Digest, Sha256};

use palimpsest_conformance::LatestIncarnation as _;

const PLAN: &str = "PALIMPSEST_WRITER_PLAN";

/// The parameters of a writer process. They are passed as numbers in an environment variable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// The run, which distinguishes the appends of several runs on one store.
    pub(crate) round: u64,
    pub(crate) seed: u64,
    pub(crate) sessions: u64,
    pub(crate) writers: u64,
    /// The number of appends per writer.
    pub(crate) appends: u64,
    /// True if some frames are large enough to be staged.
    pub(crate) large: bool,
    /// The number of acknowledgements after which the process exits without closing the store. Zero means
    /// never.
    pub(crate) ends_after: u64,
}

/// Returns a command that runs this test binary as a writer on `dir`.
pub(crate) fn command(plan: Plan, dir: &Path, wrapper: &[&str]) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match wrapper {
        [] => Command::new(&this),
        [program, args @ ..] => {
            let mut command = Command::new(program);
            command.args(args).arg(&this);
            command
        }
    };
    let plan = [
        plan.round,
        plan.seed,
        plan.sessions,
        plan.writers,
        plan.appends,
        u64::from(plan.large),
        plan.ends_after,
    ];
    let plan = plan.map(|number| number.to_string()).join(" ");
    command
        .args([
            "--exact",
            "writer_child_process",
            "--ignored",
            "--nocapture",
        ])
        .env(PLAN, format!("{plan} {}", dir.display()));
    command
}

/// Runs the writers. Returns at once if the process was not started as a writer.
pub(crate) fn run() {
    let Ok(plan) = std::env::var(PLAN) else {
        return;
    };
    let mut parts = plan.splitn(8, ' ');
    let numbers: Vec<u64> = parts.by_ref().take(7).map(|n| n.parse().unwrap()).collect();
    let &[round, seed, sessions, writers, appends, large, ends_after] = &numbers[..] else {
        panic!("a plan has seven numbers")
    };
    let plan = Plan {
        round,
        seed,
        sessions,
        writers,
        appends,
        large: large == 1,
        ends_after,
    };
    let dir = parts.next().unwrap();
    let log = Arc::new(SledLog::open(&SledOptions::new(dir)).unwrap());
    let blobs = Blobs::open(&format!("{dir}.blobs")).unwrap();
    // Two worker threads are enough for appends to race.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let blobs = blobs.bind(BlobOwner::of(&*log).await.unwrap());
        let tasks: Vec<_> = (0..plan.writers)
            .map(|writer| tokio::spawn(write(Arc::clone(&log), blobs.clone(), plan, writer)))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Appends frames to one session, and sometimes stores blobs and snapshots.
async fn write(log: Arc<SledLog>, blobs: Blobs, plan: Plan, writer: u64) {
    let key = session(writer % plan.sessions);
    let mut random = Random(plan.seed ^ (writer + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut expected = 0;
    for n in 0..plan.appends {
        let id = plan.round << 48 | writer << 24 | n;
        let frame = content(id, random.size(plan.large));
        loop {
            let batch = Batch {
                expected: Position {
                    revision: Revision::new(expected),
                    ..Position::START
                },
                events: NonZeroU32::MIN,
                frame: frame.clone(),
                list_row: Bytes::from_static(b"{}"),
                parent: None,
                due: DueChange::At(Timestamp::from_millis(0)),
                blob_bytes: 0,
                completed_intents: Vec::new(),
                tips: None,
            };
            match log.append_to(&key, batch).await {
                Ok(revision) => expected = revision.get(),
                Err(StoreError::Conflict { current }) => {
                    // Another writer was first. Retry at the revision that the conflict reports.
                    expected = current.get();
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            // Print only after the append returned, so that every printed line is an acknowledged append.
            say(&format!("ack {key} {expected} {id} {}\n", digest(&frame)));
            break;
        }
        if SAID.fetch_add(1, Ordering::Relaxed) + 1 == plan.ends_after {
            std::process::exit(0);
        }
        if plan.large && random.next().is_multiple_of(8) {
            let text = content(id, 3000);
            let file = format!("call-{id}.txt");
            blobs.put_file(&key, &file, text).await.unwrap();
            let path = result_path(&key, &file).unwrap();
            say(&format!("blob {path} {id}\n"));
        }
        if random.next().is_multiple_of(16) {
            let bytes = content(expected, random.size(plan.large));
            let at = Revision::new(expected);
            let put = log
                .put_snapshot_of(&key, StoredSnapshot { at, bytes })
                .await;
            put.unwrap();
            say(&format!("snapshot {key} {expected}\n"));
        }
    }
}

static SAID: AtomicU64 = AtomicU64::new(0);

/// Prints a line in a single write, after the operation that it reports.
fn say(line: &str) {
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

fn session(number: u64) -> SessionKey {
    SessionKey::parse(&format!("projects/p/sessions/s{number}")).unwrap()
}

/// Returns the content of a frame: the id of its append, and bytes derived from it.
fn content(id: u64, len: usize) -> Bytes {
    // The id at the start makes every frame verifiable without a list of expected contents.
    let mut out = id.to_be_bytes().to_vec();
    let mut random = Random(id.wrapping_mul(0xD6E8_FEB8_6659_FD93) | 1);
    while out.len() < len {
        out.extend_from_slice(&random.next().to_le_bytes());
    }
    out.truncate(len.max(8));
    out.into()
}

fn id_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

fn digest(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in &Sha256::digest(bytes)[..16] {
        write!(out, "{byte:02x}").unwrap();
    }
    out
}

/// A deterministic xorshift generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a generator and its seed. The seed is random unless `PALIMPSEST_SEED` is set.
    pub(crate) fn new() -> (u64, Self) {
        let given = std::env::var("PALIMPSEST_SEED").ok();
        let seed = given.map_or_else(
            || RandomState::new().build_hasher().finish() | 1,
            |seed| seed.parse().unwrap(),
        );
        (seed, Self(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn size(&mut self, large: bool) -> usize {
        let spread = match (large, self.below(100)) {
            (true, 0) => 1_400_000,
            (true, 1..8) => 300_000,
            (true, 8..30) => 40_000,
            (false, 0..2) => 60_000,
            _ => 6000,
        };
        usize::try_from(1000 + self.below(spread)).unwrap()
    }
}

/// All acknowledgements that the writers printed.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    frames: BTreeMap<(String, u64), (u64, String)>,
    snapshots: BTreeMap<String, u64>,
    blobs: Vec<(String, u64)>,
}

impl Acknowledged {
    /// Parses a printed line. Unknown lines are ignored.
    pub(crate) fn hear(&mut self, line: &str) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["ack", key, revision, id, digest] => {
                let place = (key.to_owned(), revision.parse().unwrap());
                let told = (id.parse().unwrap(), digest.to_owned());
                let before = self.frames.insert(place, told);
                assert_eq!(before, None, "one revision was acknowledged twice: {line}");
            }
            ["snapshot", key, at] => {
                let at: u64 = at.parse().unwrap();
                let newest = self.snapshots.entry(key.to_owned()).or_default();
                *newest = at.max(*newest);
            }
            ["blob", path, id] => self.blobs.push((path.to_owned(), id.parse().unwrap())),
            _ => {}
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Opens the store and verifies that no acknowledged append is missing, none is duplicated, and all
    /// content was written by a writer.
    pub(crate) fn check(&self, dir: &Path) -> Result<(), String> {
        let log = SledLog::open(&SledOptions::new(dir)).map_err(|e| format!("opening: {e}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(self.check_log(&log))?;
        drop(log);
        let blobs = Blobs::open(&format!("{}.blobs", dir.display())).map_err(|e| e.to_string())?;
        for (path, id) in &self.blobs {
            let found = runtime
                .block_on(blobs.get(path))
                .map_err(|e| e.to_string())?;
            if found != content(*id, 3000) {
                return Err(format!("{path} does not hold what was put"));
            }
        }
        Ok(())
    }

    async fn check_log(&self, log: &SledLog) -> Result<(), String> {
        let mut found = BTreeMap::new();
        let mut ids = HashSet::new();
        let sessions = log
            .list(None, None, 1000)
            .await
            .map_err(|e| e.to_string())?;
        for (key, head) in sessions {
            let mut revision = 0;
            while revision < head.revision.get() {
                let after = Revision::new(revision);
                let page = log.frames_of(&key, after, 1 << 20).await;
                for frame in page.map_err(|e| format!("{key} after {revision}: {e}"))? {
                    revision += 1;
                    if frame.first.get() != revision {
                        return Err(format!("{key} has a gap at {revision}"));
                    }
                    check_frame(&key, &frame)?;
                    let id = id_of(&frame.bytes);
                    // Every append has a unique id, so a repeated id is a duplicated append.
                    if !ids.insert(id) {
                        return Err(format!("{key} at {revision}: {id} is there twice"));
                    }
                    found.insert((key.to_string(), revision), (id, digest(&frame.bytes)));
                }
            }
            let snapshot = log
                .snapshot_of(&key)
                .await
                .map_err(|e| format!("{key}: {e}"))?;
            let at = snapshot.map_or(0, |snapshot| snapshot.at.get());
            // A newer snapshot than the acknowledged one is allowed: its acknowledgement may have been lost.
            let acknowledged = self.snapshots.get(&key.to_string());
            if acknowledged.is_some_and(|acknowledged| *acknowledged > at) {
                return Err(format!(
                    "{key} has lost its snapshot: {acknowledged:?}, now {at}"
                ));
            }
        }
        for (place, told) in &self.frames {
            match found.get(place) {
                Some(found) if found == told => {}
                other => return Err(format!("{place:?} was {told:?}, now {other:?}")),
            }
        }
        log.check()
            .await
            .map_err(|e| format!("takes no more writes: {e}"))
    }
}

fn check_frame(key: &SessionKey, frame: &Frame) -> Result<(), String> {
    if frame.bytes != content(id_of(&frame.bytes), frame.bytes.len()) {
        return Err(format!(
            "{key} at {}: nobody wrote these bytes",
            frame.first
        ));
    }
    Ok(())
}
