//! Backups, restores and checks with wrong names and places.

use std::fs;

use palimpsest_tests::{Server, palimpsest};

use super::Setting;

/// Returns the error of a command that must fail.
#[track_caller]
fn refused(args: &[&str]) -> String {
    let output = palimpsest(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_restore_with_a_wrong_name_creates_nothing() {
    let setting = Setting::new();
    setting.import();
    let path = |name: &str| setting.folder.path().join(name);
    let (place, target) = (path("backups"), path("restored"));
    let (place, data) = (place.to_str().unwrap(), target.to_str().unwrap());
    setting.run(&["backup", "--to", place]);
    let from = ["restore", "--from", place];
    let first = "projects/default/sessions/first";
    let typo = "projects/default/sessions/typo";
    for (wrong, named) in [
        (&["--session", typo][..], typo),
        (&["--project", "nope"], "nope"),
        // A valid name does not hide the wrong one.
        (&["--session", first, "--session", typo], typo),
        (&["--project", "default", "--project", "nope"], "nope"),
        (&["--backup", "gone"], "gone"),
    ] {
        for to in [&["--data-dir", data][..], &["--check"]] {
            let error = refused(&[&from, wrong, to].concat());
            assert!(error.contains(named), "{error}");
            assert!(!error.contains("sessions/first"), "{error}");
            assert!(!target.exists(), "{wrong:?}");
        }
    }
    let restored = super::said(&[&from[..], &["--session", first, "--data-dir", data]].concat());
    assert!(restored.contains("1 sessions"), "{restored}");
}

#[test]
fn a_missing_place_of_backups_is_an_error_and_is_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("backups");
    let data = folder.path().join("data");
    let (place, data) = (place.to_str().unwrap(), data.to_str().unwrap());
    let commands = [
        &["backup", "--list", "--to", place][..],
        &["restore", "--check", "--from", place],
        &["restore", "--data-dir", data, "--from", place],
    ];
    for command in commands {
        let error = refused(command);
        assert!(
            error.contains("backups does not exist: check --"),
            "{error}"
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // An existing place without a backup has an empty list.
    fs::create_dir(place).unwrap();
    assert_eq!(super::said(commands[0]), "");
    for command in &commands[1..] {
        assert!(refused(command).contains("no backup exists in"));
    }
    assert!(!folder.path().join("data").exists());
}

#[test]
fn verify_store_names_a_wrong_place_of_stored_results() {
    let setting = Setting::new();
    let lines = [
        r#"{"role":"user","content":"read"}"#.to_owned(),
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"Read","arguments":"{}"}}]}"#.to_owned(),
        format!(
            r#"{{"role":"tool","tool_call_id":"a","content":"{}"}}"#,
            "word ".repeat(60_000)
        ),
    ];
    let file = setting.folder.path().join("large.json");
    fs::write(&file, format!("[{}]", lines.join(","))).unwrap();
    setting.run(&["import", "--format", "openai", file.to_str().unwrap()]);
    let Setting { server, folder, .. } = setting;
    server.stop();
    let data = folder.path().join("data");
    let verify = ["verify-store", "--data-dir", data.to_str().unwrap()];
    assert!(super::said(&verify).contains("1 stored results"));

    // The place of another store has the marker of that store, and an empty place has none.
    let other = folder.path().join("other");
    Server::start(&other, &[]).stop();
    let empty = folder.path().join("empty");
    let missing = format!("file://{}", empty.display());
    let error = refused(&[&verify[..], &["--blobs", &missing]].concat());
    assert!(error.contains("does not exist"), "{error}");
    fs::create_dir(&empty).unwrap();
    for (place, reason) in [
        (other.join("blobs"), "belongs to the store "),
        (empty, "has no owner marker"),
    ] {
        let url = format!("file://{}", place.display());
        let error = refused(&[&verify[..], &["--blobs", &url]].concat());
        assert!(
            error.contains(reason) && error.contains("--blobs"),
            "{error}"
        );
        assert!(!error.contains("the store is damaged"), "{error}");
    }

    // A result that is missing in the right place is still damage.
    let results = data.join("blobs/default/large/tool-results");
    fs::remove_dir_all(results).unwrap();
    let error = refused(&verify);
    assert!(error.contains("the store is damaged"), "{error}");
}
