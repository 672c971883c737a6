//! Tests of error messages: each one states the failure, its reason, and the remedy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use palimpsest_tests::command::palimpsest_with;
use palimpsest_tests::{Server, binary, palimpsest};

/// Returns the error of a command that must fail.
#[track_caller]
fn error(args: &[&str]) -> String {
    let output = palimpsest(args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{args:?}: {text}");
    text
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_invalid_setting_is_reported_with_valid_values() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&str, &[&str]); 8] = [
        (
            "log.format = pretty\n",
            &["text needs quotes, such as log.format = "],
        ),
        (
            "[policy]\npreset = claude-code\n",
            &[":2: ", "needs quotes, such as preset = "],
        ),
        (
            "[policy]\npreset = \"claude\"\n",
            &[
                "\"claude-code\" or \"claude-code-2.1.19\" or \"opencode\"",
                "is \"claude\"",
            ],
        ),
        ("[quota]\nsessions = 1\n", &["did you mean quotas?"]),
        (
            "[policy]\nfoo = 1\n",
            &["policy.foo is not a setting", "policy has "],
        ),
        (
            "[policy.autocompact]\ntreshold = 1\n",
            &["policy.autocompact has ", "warn_buffer_tokens"],
        ),
        (
            "[autocompact]\nenabled = true\n",
            &["did you mean policy.autocompact?"],
        ),
        (
            "data_dir = /var/lib/x\n",
            &["needs quotes, such as data_dir = "],
        ),
    ];
    for (number, (text, parts)) in cases.into_iter().enumerate() {
        let file = write(folder.path(), &format!("{number}.toml"), text);
        says(&error(&["config", "--check", "--config", &file]), parts);
    }
    says(
        &error(&["config", "--set", "autocompact.treshold=1"]),
        &["policy.autocompact has "],
    );
}

#[test]
fn a_summarizer_without_its_key_fails_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(
        folder.path(),
        "model.toml",
        "[summarizer]\nprovider = \"anthropic\"\nmodel = \"m\"\napi_key_env = \"NO_SUCH_KEY\"\n",
    );
    let check = ["config", "--check", "--config", &file];
    says(
        &error(&check),
        &["summarizer.api_key_env", "NO_SUCH_KEY", "not set"],
    );
    let passed = palimpsest_with(&check, &[("NO_SUCH_KEY", "x")]);
    assert!(passed.status.success(), "{passed:?}");
}

#[test]
fn an_unusable_directory_is_reported_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "file", "");
    says(
        &error(&[
            "serve", "--data-dir", &file, "--listen", "127.0.0.1:0", "--admin-listen",
            "127.0.0.1:0",
        ]),
        &[&file, "a file is in its place", "--data-dir"],
    );
    let missing = folder.path().join("missing.jsonl");
    let missing = missing.to_str().unwrap();
    says(
        &error(&["verify", "--format", "openai", missing]),
        &["cannot read", missing, "No such file"],
    );
    let empty = folder.path().join("projects/one");
    fs::create_dir_all(&empty).unwrap();
    says(
        &error(&["verify", empty.to_str().unwrap()]),
        &["no transcripts found", ".jsonl"],
    );
    says(
        &error(&["replay", "--format", "openai", "--window", "4k", &file]),
        &["64000 or 64k"],
    );
    let key = write(
        folder.path(),
        "ca.pem",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    );
    says(
        &error(&["sessions", "--server", "localhost:1", "--tls-ca", &key]),
        &[
            "--tls-ca",
            "contains a private key instead of a certificate",
        ],
    );
}

#[test]
fn the_logged_address_is_accepted_and_an_invalid_one_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let listed = palimpsest(&["sessions", "--server", server.address()]);
    assert!(listed.status.success(), "{listed:?}");
    says(
        &error(&["inspect", "lost", "--server", server.address()]),
        &[
            "session projects/default/sessions/lost does not exist",
            "palimpsest sessions",
        ],
    );
    // A name that no session can have is rejected before a server is needed.
    for command in ["view", "inspect", "export"] {
        let args = [command, "a b", "--server", "127.0.0.1:9"];
        says(
            &error(&args),
            &["the session projects/default/sessions/a b"],
        );
    }
    says(
        &error(&["sessions", "--server", "grpc://localhost:1"]),
        &["`grpc`", "host:port"],
    );
    says(
        &error(&["sessions", "--server", "127.0.0.1:9"]),
        &[
            "no server answers at http://127.0.0.1:9",
            "connection refused",
        ],
    );
}

/// The text depends on tonic's words for a reply without gRPC, which another version of tonic may change.
#[test]
fn the_admin_port_as_the_server_is_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let claude = r#"{"type":"user","uuid":"00000000-0000-4000-8000-000000000001","message":{"role":"user","content":"hi"}}"#;
    let file = write(folder.path(), "a.jsonl", claude);
    for command in [
        &["sessions"][..],
        &["inspect", "any"],
        &["export", "any"],
        &["import", "--format", "claude-code", &file],
    ] {
        says(
            &all_of(&[command, &["--server", server.admin()]].concat()),
            &["admin port", "admin.listen", "use the address of `listen`"],
        );
    }
}

#[test]
fn a_closed_output_pipe_prints_no_error() {
    let program = binary().display();
    for command in ["completions bash", "config"] {
        // Without `pipefail`, the status would be that of `head` alone.
        let piped = format!("set -o pipefail; '{program}' {command} | head -1");
        // Starts with an empty environment, because the program may reject a variable of this one.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut shell = Command::new("bash");
        shell.args(["-c", &piped]).env_clear().env("PATH", path);
        let output = shell.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && text.is_empty(),
            "{command}: {output:?}"
        );
    }
}

#[test]
fn a_file_of_another_format_is_rejected_with_the_detected_format() {
    let folder = tempfile::tempdir().unwrap();
    let claude = r#"{"type":"user","uuid":"00000000-0000-4000-8000-000000000001","message":{"role":"user","content":"hi"}}"#;
    let file = write(folder.path(), "a.jsonl", claude);
    let program: PathBuf = binary().to_owned();
    let program = program.to_str().unwrap();
    for command in ["import", "verify", "replay"] {
        // The client detects a binary file without a server.
        says(
            &all_of(&[command, "--format", "claude-code", program]),
            &["binary", "an ELF program"],
        );
    }
    for command in ["verify", "replay"] {
        for format in ["openai", "anthropic", "palimpsest"] {
            says(
                &all_of(&[command, "--format", format, &file]),
                &["It looks like claude-code: try --format claude-code"],
            );
        }
    }
    let server = Server::start(&folder.path().join("data"), &[]);
    let args = [
        "import",
        "--format",
        "openai",
        &file,
        "--server",
        server.address(),
    ];
    says(
        &all_of(&args),
        &["Seen: 1 lines", "try --format claude-code"],
    );
    // The file has the correct format but contains no messages.
    let empty = write(
        folder.path(),
        "b.json",
        r#"{"messages":[{"foo":1},{"foo":2}]}"#,
    );
    let args = [
        "import",
        "--format",
        "openai",
        &empty,
        "--server",
        server.address(),
    ];
    says(&all_of(&args), &["the server accepted no message"]);
    says(
        &all_of(&["verify", "--format", "openai", &empty]),
        &["no message was found"],
    );
}

/// Returns the complete output of a command that must fail.
#[track_caller]
fn all_of(args: &[&str]) -> String {
    let output = palimpsest(args);
    let all = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(all).unwrap();
    assert!(!output.status.success(), "{args:?}: {text}");
    text
}
