//! Tests that the production example starts with the commands in its first lines.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use palimpsest_tests::binary;

use crate::helm::root;

/// A process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process has already ended if it could not start.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[track_caller]
fn succeeded(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Runs a command like a user who has run the `export` commands of the example.
fn ask(folder: &Path, port: u16, key: &str, args: &[&str]) -> Output {
    Command::new(binary())
        .args(args)
        .current_dir(folder)
        .env_clear()
        .env("PALIMPSEST_SERVER", format!("https://localhost:{port}"))
        .env("PALIMPSEST_TLS_CA", "dev-secrets/ca.crt")
        .env("PALIMPSEST_API_KEY", key)
        .output()
        .unwrap()
}

#[test]
fn the_production_example_starts_and_accepts_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = Command::new(root().join("scripts/dev-secrets"))
        .arg(folder.path().join("dev-secrets"))
        .env("PALIMPSEST_BINARY", binary())
        .output();
    succeeded(&secrets.unwrap());

    let port = free_port();
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let server = Command::new(binary())
        .args(["serve", "--config"])
        .arg(root().join("deploy/examples/production.toml"))
        // The port of the example would be shared by all concurrent runs of this test.
        .args(["--listen", &format!("0.0.0.0:{port}")])
        .args(["--admin-listen", "127.0.0.1:0"])
        .current_dir(folder.path())
        .env_clear()
        .stderr(log)
        .stdin(Stdio::null())
        .spawn();
    let _server = Running(server.unwrap());
    let key = std::fs::read_to_string(folder.path().join("dev-secrets/api-key")).unwrap();
    let ready = ask(folder.path(), port, &key, &["health", "--wait", "30"]);
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(ready.status.success(), "{ready:?}\n{log}");
    succeeded(&ask(
        folder.path(),
        port,
        key.trim(),
        &["sessions", "--json"],
    ));
    let stranger = ask(folder.path(), port, "plk_0", &["sessions", "--json"]);
    assert!(!stranger.status.success());
    assert!(!log.contains(key.trim()), "the log has the key");
}
