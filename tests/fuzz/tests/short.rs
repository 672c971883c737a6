//! Runs every target on its corpus, and for a short time on mutations of it, with any toolchain. `make fuzz` runs the
//! long search with coverage.

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

/// Default duration of the mutations of one corpus, in seconds. `FUZZ_SECONDS` overrides the value.
const SECONDS: u64 = 2;
/// Maximum size of an input.
const MAX_BYTES: usize = 16 * 1024;

fn seconds() -> Duration {
    let said = std::env::var("FUZZ_SECONDS").ok();
    Duration::from_secs(said.and_then(|text| text.parse().ok()).unwrap_or(SECONDS))
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
    // The seed comes from the clock, so that each run tries other inputs. An input that fails is stored as a file.
    let mut random = fastrand::Rng::new();
    let until = Instant::now() + seconds();
    let mut runs = 0_u64;
    while Instant::now() < until {
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
    streams,
);
