//! The names of tests and modules in the sources of the workspace.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders whose files are not sources of the workspace.
const OTHERS: [&str; 2] = ["node_modules", "target"];

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

/// Returns the Rust files of a folder and of its subfolders.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).expect("the folder is readable");
    for entry in entries {
        let path = entry.expect("the entry is readable").path();
        let is_other = OTHERS.iter().any(|other| path.ends_with(other));
        if path.is_dir() && !is_other {
            found.extend(rust_files(&path));
        } else if is_rust(&path) {
            found.push(path);
        }
    }
    found
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("the file is readable")
}

/// Returns the name that follows a keyword at the begin of a line, such as that of a function.
fn name_after(line: &str, keyword: &str) -> Option<String> {
    let words = line
        .trim_start_matches("pub(crate) ")
        .trim_start_matches("pub ");
    let rest = words.strip_prefix(keyword)?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(rest[..end.unwrap_or(rest.len())].to_owned())
}

/// Returns the names of the functions with a test attribute.
pub(crate) fn tests_in(files: &[PathBuf]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        let mut is_test = false;
        for line in read(file).lines().map(str::trim) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let function = name_after(line, "fn ").or_else(|| name_after(line, "async fn "));
            if let Some(name) = function {
                if is_test {
                    found.insert(name);
                }
                is_test = false;
            }
        }
    }
    found
}

/// Returns the names of the modules that the files declare.
pub(crate) fn modules_in(files: &[PathBuf]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        let text = read(file);
        found.extend(
            text.lines()
                .filter_map(|line| name_after(line.trim(), "mod ")),
        );
    }
    found
}
