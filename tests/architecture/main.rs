//! Tests of the workspace's dependencies: crate order, purity of the domain, single versions of the transport crates,
//! and licences. Also tests of the tests that SECURITY.md and the Makefile name.

mod makefile;
mod security;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates without tokio, tonic, sled, clock, randomness or file system, and all that each of them imports.
const PURE: [(&str, &[&str]); 4] = [
    (
        "palimpsest-types",
        &[
            "base64",
            "blake3",
            "imagesize",
            "serde",
            "serde_json",
            "serde_path_to_error",
            "sha2",
            "thiserror",
            "tiktoken",
            "toml",
            "uuid",
        ],
    ),
    ("palimpsest-facts", &["palimpsest-types", "serde_json"]),
    (
        "palimpsest-core",
        &[
            "base64", "imagesize", "palimpsest-facts", "palimpsest-types", "serde_json", "sha2",
            "thiserror", "uuid",
        ],
    ),
    (
        "palimpsest-transcripts",
        &[
            "palimpsest-core", "palimpsest-facts", "serde", "serde_json", "sha2", "uuid",
        ],
    ),
];

/// The crates of the product that each crate may depend on. Dependencies point down only.
const ALLOWED: [(&str, &[&str]); 17] = [
    ("types", &[]),
    ("facts", &["types"]),
    ("core", &["types", "facts"]),
    ("transcripts", &["core", "facts"]),
    ("store", &["core"]),
    ("summarize", &[]),
    (
        "engine",
        &["core", "facts", "transcripts", "store", "summarize"],
    ),
    ("worker", &["engine", "core", "facts", "store", "summarize"]),
    ("settings", &["core", "proto", "store", "engine", "worker"]),
    (
        "edge",
        &["core", "store", "summarize", "engine", "settings"],
    ),
    (
        "gateway",
        &["core", "summarize", "engine", "settings", "edge"],
    ),
    ("http", &["proto"]),
    ("inspector", &["proto", "http"]),
    ("mcp", &["http", "proto"]),
    (
        "server",
        &[
            "core", "facts", "transcripts", "store", "summarize", "engine", "worker", "settings",
            "edge", "proto", "http", "inspector", "mcp",
        ],
    ),
    (
        "cli",
        &[
            "core", "facts", "transcripts", "store", "summarize", "engine", "worker", "settings",
            "edge", "gateway", "inspector", "server", "proto", "http", "mcp",
        ],
    ),
    ("proto", &[]),
];

/// The crates that work without transport and exporters.
const WITHOUT_WIRE: [&str; 6] = ["types", "facts", "core", "transcripts", "engine", "worker"];

/// Prefixes of the names of packages that carry the wire or export spans and metrics.
const WIRE: [&str; 6] = [
    "tonic",
    "prost",
    "hyper",
    "opentelemetry",
    "prometheus",
    "tracing-opentelemetry",
];

/// The largest share of the lines of all crates that one crate may hold, in percent.
const MAX_SHARE: u64 = 24;

/// Crates that may occur in one version only, because types of two versions are not compatible.
const ONE_VERSION: [&str; 8] = [
    "h2", "http", "hyper", "opentelemetry", "prost", "sled", "tokio", "tonic",
];

const LICENCES: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata failed");
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns all transitive dependencies of a package, without dev and build dependencies.
fn dependencies<'a>(metadata: &'a Value, name: &str) -> BTreeSet<&'a str> {
    let package = packages(metadata)
        .iter()
        .find(|package| package["name"] == name);
    let package = package.unwrap_or_else(|| panic!("there is no package {name}"));
    let dependencies = package["dependencies"].as_array();
    dependencies
        .into_iter()
        .flatten()
        .filter(|dependency| dependency["kind"].is_null())
        .filter_map(|dependency| dependency["name"].as_str())
        .collect()
}

/// Returns the number of lines of Rust in a folder.
fn lines(folder: &Path) -> u64 {
    let files = sources::rust_files(folder).into_iter();
    files
        .map(|path| sources::read(&path).lines().count() as u64)
        .sum()
}

#[test]
fn pure_crates_have_no_impure_dependencies() {
    let metadata = metadata();
    for (name, expected) in PURE {
        let names = dependencies(&metadata, name);
        assert_eq!(names, expected.iter().copied().collect(), "{name}");
    }
}

#[test]
fn crates_depend_only_on_lower_crates() {
    let metadata = metadata();
    let folders = std::fs::read_dir(root().join("crates")).expect("the folder is readable");
    let folders = folders.map(|entry| entry.expect("the entry is readable").file_name());
    let folders: BTreeSet<String> = folders
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let listed = ALLOWED.iter().map(|(name, _)| (*name).to_owned());
    assert_eq!(folders, listed.collect(), "crates and the table of them");
    for (name, allowed) in ALLOWED {
        let names = dependencies(&metadata, &format!("palimpsest-{name}"));
        let ours = names
            .iter()
            .filter_map(|name| name.strip_prefix("palimpsest-"));
        let up: Vec<&str> = ours.filter(|of| !allowed.contains(of)).collect();
        assert!(up.is_empty(), "{name} depends on {up:?}");
    }
}

#[test]
fn crates_below_the_server_have_no_transport() {
    let metadata = metadata();
    for name in WITHOUT_WIRE {
        let names = dependencies(&metadata, &format!("palimpsest-{name}"));
        let wire = names.into_iter();
        let wire: Vec<&str> = wire
            .filter(|of| WIRE.iter().any(|prefix| of.starts_with(prefix)))
            .collect();
        assert!(wire.is_empty(), "{name} depends on {wire:?}");
    }
}

#[test]
fn the_gateway_has_no_grpc_and_no_http_framework() {
    let metadata = metadata();
    let names = dependencies(&metadata, "palimpsest-gateway");
    // Frameworks hide the settings of hyper that keep requests and responses byte for byte.
    for unwanted in ["axum", "prost", "reqwest", "tonic"] {
        assert!(
            !names.contains(unwanted),
            "the gateway depends on {unwanted}"
        );
    }
}

#[test]
fn no_crate_has_too_large_a_share_of_the_code() {
    let of = |name: &str| lines(&root().join("crates").join(name));
    let all: u64 = ALLOWED.iter().map(|(name, _)| of(name)).sum();
    for (name, _) in ALLOWED {
        let share = of(name) * 100 / all;
        assert!(share <= MAX_SHARE, "{name} holds {share} % of {all} lines");
    }
}

#[test]
fn no_crate_links_two_versions_of_the_transport() {
    let metadata = metadata();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages(&metadata) {
        if let (Some(name), Some(version)) = (package["name"].as_str(), package["version"].as_str())
            && ONE_VERSION.contains(&name)
        {
            versions.entry(name).or_default().insert(version);
        }
    }
    assert!(versions.contains_key("tonic"));
    for (name, versions) in versions {
        assert_eq!(versions.len(), 1, "{name}: {versions:?}");
    }
}

#[test]
fn every_licence_allows_distribution() {
    let metadata = metadata();
    let allowed = |licence: &str| LICENCES.contains(&licence.trim());
    // `A OR B` requires one of the licences, `A AND B` both. The old form `A/B` means OR.
    let fits = |expression: &str| {
        let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
        expression
            .split(" AND ")
            .all(|part| part.split(" OR ").any(allowed))
    };
    let refused: Vec<String> = packages(&metadata)
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(fits))
        .map(|package| format!("{} {}", package["name"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
