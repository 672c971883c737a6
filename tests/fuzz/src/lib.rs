//! The fuzz targets as functions of bytes. Each one accepts any bytes, must not panic, and asserts the properties that
//! its comment states.
//!
//! `libfuzzer/` runs the targets with coverage (`make fuzz`). `tests/short.rs` runs them with their corpora and
//! mutations on a stable toolchain (`make test`).

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a target that finds something panics"
)]

mod bodies;
mod codec;
mod documents;
mod operations;
mod rpc;
mod settings;
mod splices;
mod storage;
mod streams;
mod transcripts;

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name of the target and of the folder of its corpus.
    pub name: &'static str,
    /// Runs the target with any bytes.
    pub run: fn(&[u8]),
}

/// All targets.
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
        name: "responses",
        run: codec::responses,
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
    Target {
        name: "streams",
        run: streams::run,
    },
    Target {
        name: "splices",
        run: splices::run,
    },
    Target {
        name: "bodies",
        run: bodies::run,
    },
];

/// Runs the target with this name. Panics if the name is unknown.
pub fn run(name: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|target| target.name == name);
    let target = found.unwrap_or_else(|| panic!("unknown target {name}"));
    (target.run)(data);
}
