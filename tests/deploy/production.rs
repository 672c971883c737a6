//! Tests that the production example starts with the commands in its first lines.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use palimpsest_tests::binary;

use crate::helm::root;

/// A process that is killed on drop.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process has already ended if it could not start.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the server logs its listen address, and returns the port.
pub(crate) fn port_of(server: &mut Running, log: &Path) -> u16 {
    loop {
        let text = std::fs::read_to_string(log).unwrap();
        let ended = server.0.try_wait().unwrap();
        assert!(ended.is_none(), "the server ended: {text}");
        let address = text.split_once("\"grpc\":\"0.0.0.0:");
        if let Some((port, _)) = address.and_then(|(_, rest)| rest.split_once('"')) {
            return port.parse().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
pub(crate) fn succeeded(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Runs a command like a user who has run the `export` commands of the example.
fn ask(folder: &Path, port: u16, key: &str, args: &[&str]) -> Output {
    Command::new(binary())
        .args(args)
        .current_dir(folder)
        .env_clear()
        .env("PALIMPSEST_URL", format!("https://localhost:{port}"))
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

    let log_path = folder.path().join("log");
    let log = std::fs::File::create(&log_path).unwrap();
    let server = Command::new(binary())
        .args(["serve", "--config"])
        .arg(root().join("deploy/examples/production.toml"))
        // The port of the example would be shared by all concurrent runs of this test.
        .args(["--listen", "0.0.0.0:0", "--admin-listen", "127.0.0.1:0"])
        .args(["--log-format", "json"])
        .current_dir(folder.path())
        .env_clear()
        .stderr(log)
        .stdin(Stdio::null())
        .spawn();
    let mut server = Running(server.unwrap());
    let port = port_of(&mut server, &log_path);
    let key = std::fs::read_to_string(folder.path().join("dev-secrets/api-key")).unwrap();
    let ready = ask(folder.path(), port, &key, &["health", "--wait", "180"]);
    let log = std::fs::read_to_string(&log_path).unwrap();
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
