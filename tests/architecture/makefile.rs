//! Tests that the filters of the Makefile match tests. `cargo test` succeeds for a filter that matches none.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::root;
use crate::sources::{modules_in, rust_files, tests_in};

/// The arguments of one `cargo test`.
#[derive(Debug, Default)]
struct CargoTest {
    targets: Vec<String>,
    filters: Vec<String>,
}

impl CargoTest {
    fn parse(arguments: &str) -> Self {
        let mut parsed = Self::default();
        // The command can be an argument of `$(call …)`, which ends with a bracket.
        let mut words = arguments.split([' ', '\t', ')']);
        while let Some(word) = words.next() {
            // `--test` and `--skip` are the only options of the Makefile with a value of their own.
            match word {
                "--test" => parsed.targets.extend(words.next().map(str::to_owned)),
                "--skip" => parsed.filters.extend(words.next().map(str::to_owned)),
                "" => {}
                _ if word.starts_with('-') => {}
                _ => parsed.filters.push(word.to_owned()),
            }
        }
        parsed
    }

    /// Returns the source files of the named targets, or of all targets if none is named.
    fn files(&self) -> Vec<PathBuf> {
        if self.targets.is_empty() {
            return rust_files(&root().join("tests"));
        }
        let mut files = Vec::new();
        for target in &self.targets {
            let found = files_of(target);
            assert!(
                !found.is_empty(),
                "the Makefile names no test target: {target}"
            );
            files.extend(found);
        }
        files
    }
}

/// Returns the source files of a test target: a folder in `tests`, or a file or a folder in `tests` of a crate.
fn files_of(target: &str) -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).expect("the folder is readable");
    let crates = crates.map(|entry| entry.expect("the entry is readable").path().join("tests"));
    let mut files = Vec::new();
    for folder in crates.chain([root().join("tests")]) {
        let file = folder.join(format!("{target}.rs"));
        if file.exists() {
            files.push(file);
        }
        if folder.join(target).join("main.rs").exists() {
            files.extend(rust_files(&folder.join(target)));
        }
    }
    files
}

#[test]
fn every_filter_of_the_makefile_matches_a_test() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the file is readable");
    // Long commands continue on the next line.
    let makefile = makefile.replace("\\\n", " ");
    let recipes = makefile.lines().filter(|line| line.starts_with('\t'));
    let commands = recipes.filter_map(|line| line.split_once("cargo test "));
    let commands: Vec<_> = commands.map(|(_, rest)| CargoTest::parse(rest)).collect();
    let filters: usize = commands.iter().map(|command| command.filters.len()).sum();
    assert!(filters >= 5, "{commands:?}");
    let mut unmatched = BTreeSet::new();
    for command in &commands {
        let files = command.files();
        let (modules, tests) = (modules_in(&files), tests_in(&files));
        for filter in &command.filters {
            let is_matched = match filter.strip_suffix("::") {
                Some(module) => modules.contains(module),
                None => modules
                    .iter()
                    .chain(&tests)
                    .any(|name| name.contains(filter)),
            };
            if !is_matched {
                unmatched.insert(filter);
            }
        }
    }
    assert!(unmatched.is_empty(), "filters match no test: {unmatched:?}");
}
