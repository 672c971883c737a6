//! What is fuzzed, as functions of bytes: each takes any bytes at all and may not panic, and the promises
//! that it names must hold.
//!
//! `libfuzzer/` drives them with coverage (`make fuzz`), `tests/short.rs` with their corpora and mutations
//! of those on a stable toolchain (`make test`).

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a target that finds something panics"
)]

mod codec;
mod documents;
mod operations;
mod rpc;
mod settings;
mod storage;
mod transcripts;

/// Something to be fuzzed.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of the folder of its corpus.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "anthropic",
        run: codec::anthropic,
    },
    Target {
        name: "openai",
        run: codec::openai,
    },
    Target {
        name: "transcripts",
        run: transcripts::run,
    },
    Target {
        name: "storage",
        run: storage::run,
    },
    Target {
        name: "documents",
        run: documents::run,
    },
    Target {
        name: "settings",
        run: settings::run,
    },
    Target {
        name: "operations",
        run: operations::run,
    },
    Target {
        name: "rpc",
        run: rpc::run,
    },
];

/// Runs the target of this name.
pub fn run(name: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|target| target.name == name);
    let target = found.unwrap_or_else(|| panic!("there is no target {name}"));
    (target.run)(data);
}
