//! Runs every target on its corpus and on mutations of it, with any toolchain. The mutations are the same in each run.
//! With `FUZZ_SECONDS`, each target tries new ones for this time. `make fuzz` runs the long search with coverage.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test that cannot go on should say where"
)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of mutations of one corpus without `FUZZ_SECONDS`.
const MUTATIONS: u64 = 700;
/// Maximum size of an input.
const MAX_BYTES: usize = 16 * 1024;

/// Returns the time for new mutations, if it is set.
fn seconds() -> Option<Duration> {
    let seconds = std::env::var("FUZZ_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().unwrap()))
}

fn run(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpora")
        .join(name);
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let corpus: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(!corpus.is_empty(), "{name} has no corpus");
    for input in &corpus {
        try_out(name, input);
    }
    // A change is judged only by inputs that every run tries. New inputs are for searches.
    let until = seconds().map(|time| Instant::now() + time);
    let mut random = match until {
        None => fastrand::Rng::with_seed(0),
        Some(_) => fastrand::Rng::new(),
    };
    let mut runs = 0_u64;
    while until.map_or(runs < MUTATIONS, |until| Instant::now() < until) {
        let input = mutated(&corpus, &mut random);
        try_out(name, &input);
        runs += 1;
    }
    eprintln!("{name}: {} of its corpus, {runs} mutations", corpus.len());
}

/// Runs one input. Stores it if it fails.
fn try_out(name: &str, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| palimpsest_fuzz::run(name, input))) {
        let file = std::env::temp_dir().join(format!("palimpsest-fuzz-{name}"));
        fs::write(&file, input).unwrap();
        eprintln!("{name} breaks on {}: add it to the corpus", file.display());
        resume_unwind(panic);
    }
}

/// Returns an input of the corpus with a few changes.
fn mutated(corpus: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = random.choice(corpus).unwrap().clone();
    for _ in 0..random.usize(1..=6) {
        let at = random.usize(0..=input.len());
        let rest = input.len() - at;
        match random.u8(0..6) {
            0 if rest > 0 => input[at] = random.u8(..),
            1 if rest > 0 => input[at] ^= 1 << random.u8(0..8),
            2 => drop(input.drain(at..at + random.usize(0..=rest.min(16)))),
            3 => {
                let fresh: Vec<u8> = (0..random.usize(1..=16)).map(|_| random.u8(..)).collect();
                input.splice(at..at, fresh);
            }
            4 => {
                let again = input[at..at + random.usize(0..=rest.min(64))].to_vec();
                input.splice(at..at, again);
            }
            _ => {
                let other = random.choice(corpus).unwrap();
                // The beginning of one input, followed by the end of another.
                let from = random.usize(0..=other.len());
                input.splice(at.., other[from..].iter().copied());
            }
        }
    }
    input.truncate(MAX_BYTES);
    input
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*

        #[test]
        fn every_fuzz_target_has_a_short_run() {
            let run = [$(stringify!($name)),*];
            let all: Vec<_> = palimpsest_fuzz::TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(run.as_slice(), all);
        }
    };
}

targets!(
    anthropic, openai, responses, transcripts, storage, documents, settings, operations, rpc,
    streams, splices, bodies,
);
