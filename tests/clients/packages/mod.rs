//! Runs the tests of the packages, which start the server and the fake provider themselves. `make test` runs them
//! beside the other tests, by the name of this module.

mod readme;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the path of the fake provider, which is built with the tests.
fn fake_provider() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    // Tests are in `deps`, and the provider is in its parent folder.
    let path = tests
        .ancestors()
        .nth(2)
        .unwrap()
        .join("palimpsest-fake-provider");
    assert!(
        path.is_file(),
        "{} is missing: run the tests with --workspace",
        path.display()
    );
    path
}

#[track_caller]
fn run(package: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../clients")
        .join(package)
        .join("run-tests");
    let output = Command::new(script)
        .env("PALIMPSEST_BINARY", palimpsest_tests::binary())
        .env("PALIMPSEST_FAKE_PROVIDER", fake_provider())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// The tests of the Python package, which run once.
static PYTHON: OnceLock<()> = OnceLock::new();

/// Returns the interpreter of an environment with the package as users install it.
fn installed_python() -> PathBuf {
    PYTHON.get_or_init(|| run("python"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/packages/python");
    let versions = std::fs::read_dir(folder).unwrap();
    let paths = versions.map(|entry| entry.unwrap().path().join("installed/bin/python"));
    paths.into_iter().find(|path| path.exists()).unwrap()
}

#[test]
fn the_python_package_passes_its_tests() {
    installed_python();
}

#[test]
fn the_typescript_package_passes_its_tests() {
    run("typescript");
}

#[test]
fn the_go_module_passes_its_tests() {
    run("go");
}

#[test]
fn the_java_artifacts_pass_their_tests() {
    run("java");
}

#[test]
fn the_comparison_inside_frameworks_runs() {
    run("../tests/frameworks");
}
