//! What this workspace may depend on: the crates of the domain on nothing that touches the world, nobody on two
//! versions of the wire, and nothing under a licence that the product could not be shipped with.

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
            "base64",
            "imagesize",
            "palimpsest-facts",
            "palimpsest-types",
            "proptest",
            "serde_json",
            "sha2",
            "thiserror",
            "uuid",
        ],
    ),
    (
        "palimpsest-transcripts",
        &[
            "palimpsest-core",
            "palimpsest-facts",
            "serde",
            "serde_json",
            "sha2",
            "uuid",
        ],
    ),
];

/// Two versions of these would not talk to each other.
const ONE_VERSION: [&str; 8] = [
    "h2",
    "http",
    "hyper",
    "opentelemetry",
    "prost",
    "sled",
    "tokio",
    "tonic",
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

#[test]
fn the_domain_is_pure() {
    let metadata = metadata();
    for (name, expected) in PURE {
        let package = packages(&metadata)
            .iter()
            .find(|package| package["name"] == name);
        let dependencies = package.and_then(|package| package["dependencies"].as_array());
        let names: BTreeSet<&str> = dependencies
            .into_iter()
            .flatten()
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| dependency["name"].as_str())
            .collect();
        assert_eq!(names, expected.iter().copied().collect(), "{name}");
    }
}

#[test]
fn nobody_has_two_versions_of_the_wire() {
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
fn every_licence_allows_shipping() {
    let metadata = metadata();
    let allowed = |licence: &str| LICENCES.contains(&licence.trim());
    // `A OR B` needs one of them, `A AND B` all; the old slash means OR.
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
