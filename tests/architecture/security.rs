//! Tests that the tests, files and commands that SECURITY.md names exist.

use std::collections::BTreeSet;
use std::fs;

use crate::root;
use crate::sources::{rust_files, tests_in};

/// Returns the last cells of all tables whose last column has the heading `test`.
fn test_cells(page: &str) -> Vec<&str> {
    let (mut found, mut is_inside) = (Vec::new(), false);
    for line in page.lines() {
        let Some(row) = line.strip_prefix("| ") else {
            // The line below the heading belongs to the table.
            is_inside &= line.starts_with("|---");
            continue;
        };
        let cells = row.trim_end_matches(" |");
        let last = cells.rsplit(" | ").next().unwrap_or_default();
        if is_inside {
            found.push(last);
        }
        is_inside |= last == "test";
    }
    found
}

/// Returns true if the folder has a file `NAME.rs`.
fn has_file(folder: &str, name: &str) -> bool {
    root().join(folder).join(format!("{name}.rs")).exists()
}

#[test]
fn every_test_that_the_security_page_names_exists() {
    let page = fs::read_to_string(root().join("SECURITY.md")).expect("the page is readable");
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the file is readable");
    let mut files = rust_files(&root().join("crates"));
    files.extend(rust_files(&root().join("tests")));
    let tests = tests_in(&files);
    assert!(tests.len() > 1_000, "only {} tests were found", tests.len());
    let cells = test_cells(&page);
    assert!(cells.len() > 40, "only {} rows were found", cells.len());
    let mut missing = BTreeSet::new();
    for cell in cells {
        // The words before a name state its kind, for all names until the next such words. A conjunction states none.
        let mut kind = "";
        for (at, part) in cell.split('`').enumerate() {
            if at % 2 == 0 {
                let is_list = ["and", "to"].contains(&part.trim());
                if part.chars().any(char::is_alphabetic) && !is_list {
                    kind = part;
                }
                continue;
            }
            let exists = if part.contains('/') || kind.contains("in their names") {
                root().join(part).exists()
            } else if let Some(target) = part.strip_prefix("make ") {
                makefile
                    .lines()
                    .any(|line| line.starts_with(&format!("{target}:")))
            } else if kind.contains("siege") {
                has_file("tests/siege/attacks", part)
            } else if kind.contains("fuzz target") {
                makefile.lines().any(|line| {
                    line.starts_with("TARGETS ?=") && line.split(' ').any(|word| word == part)
                })
            } else if kind.starts_with("tests with") {
                let prefix = format!("{part}_");
                tests.iter().any(|test| test.starts_with(&prefix))
            } else {
                tests.contains(part)
            };
            if !exists {
                missing.insert(part);
            }
        }
    }
    assert!(missing.is_empty(), "SECURITY.md names no test: {missing:?}");
}
